"""Stations to maps: universal kriging by hand, cross-validation by refits, the forms of grids, files and refusals."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
import xarray as xr
from scipy.linalg import cho_factor, cho_solve

import vastgp
from stations_by_hand import GIVEN, KM, NOISE, VARIANCE, covariance, made, universal_kriging
from vastgp import StationGP
from vastgp.auto.stations.estimator import _believed
from vastgp.auto.stations.validation import blocks, folds_by_label
from vastgp.data.coordinates import chord_points
from vastgp.options import Fixed

pytestmark = pytest.mark.little_work


@pytest.fixture(scope="module")
def table():
    return made()


@pytest.fixture(scope="module")
def model(table):
    return StationGP(**GIVEN).fit(table, "temp", covariates=["height", "coast"])


def test_regression_kriging_is_generalised_least_squares_by_hand(table, model):
    new = made(25, seed=1)
    b, errors, mean, std = universal_kriging(table, new, ["height", "coast"])
    found = np.array([model.trend_[name] for name in ("height", "coast")])
    np.testing.assert_allclose(found[:, 0], b, rtol=1e-7)
    np.testing.assert_allclose(found[:, 1], errors, rtol=1e-7)
    latent = model.predict(new, return_std="latent")
    np.testing.assert_allclose(latent["mean"], mean, rtol=1e-8)
    np.testing.assert_allclose(latent["std"], std, rtol=1e-6)
    np.testing.assert_allclose(model.predict(new)["std"], np.sqrt(std**2 + NOISE**2), rtol=1e-6)
    assert model.lengthscales_km_ == {"lat, lon": pytest.approx(KM)}
    assert model.noise_std_ == pytest.approx(NOISE) and model.n_stations_ == 60


def test_without_covariates_it_is_simple_kriging(table):
    fitted = StationGP(**GIVEN).fit(table, "temp")
    new = made(10, seed=2)
    factor = cho_factor(covariance(table, table) + NOISE**2 * np.eye(60))
    y = table["temp"] - table["temp"].mean()
    mean = table["temp"].mean() + covariance(new, table) @ cho_solve(factor, y)
    np.testing.assert_allclose(fitted.predict(new)["mean"], mean, rtol=1e-8)
    assert fitted.trend_ == {}


def test_known_errors_add_to_the_noise(table):
    # an error so large that a reading says nothing leaves the answer without it
    errors = np.where(np.arange(60) == 7, 1e4, 0.0)
    spoilt = table.assign(error=errors, temp=np.where(errors > 0, 500.0, table["temp"]))
    found = StationGP(**GIVEN).fit(spoilt, "temp", covariates="height", noise_std="error")
    without = StationGP(**GIVEN).fit(table.drop(7), "temp", covariates="height")
    assert found.trend_["height"] == pytest.approx(without.trend_["height"], rel=0.02)


def test_approximations_have_the_trend_of_the_exact_process(table):
    # with inducing inputs at most of the rows t-SVGP's covariance is nearly that of the process
    exact = StationGP(**GIVEN).fit(table, "temp", covariates="height")
    found = StationGP(method="tsvgp", **GIVEN).fit(table, "temp", covariates="height")
    assert found.method_ == "TSVGPRegressor"
    assert found.trend_["height"] == pytest.approx(exact.trend_["height"], rel=0.02)
    new = made(10, seed=3)
    np.testing.assert_allclose(found.predict(new)["mean"], exact.predict(new)["mean"], atol=0.05)


@pytest.mark.parametrize("by", ["station", "block"])
def test_cross_validation_is_that_of_refits_by_hand(table, by):
    twice = pd.concat([table, table.assign(temp=table["temp"] + 0.1)], ignore_index=True)
    fitted = StationGP(**GIVEN).fit(twice, "temp", covariates=["height"])
    found = fitted.cross_validate(by=by, folds=4)
    for number in range(found.folds):
        out = found.fold == number
        _, _, mean, std = universal_kriging(twice[~out], twice[out], ["height"])
        np.testing.assert_allclose(found.mean[out], mean, rtol=1e-7)
        np.testing.assert_allclose(found.std[out], np.sqrt(std**2 + NOISE**2), rtol=1e-6)
    assert np.array_equal(found.fold[:60], found.fold[60:])  # a station's readings stay together
    assert found.by_rows["rmse"] < found.scores["rmse"]
    assert f"RMSE is {found.times_worse:.2f} times that by rows" in str(found)
    with pytest.raises(ValueError, match="by='time' needs times"):
        fitted.cross_validate(by="time")


@pytest.mark.parametrize("stations", [2, 8])
def test_few_stations_are_blocks_of_their_own(stations):
    """Within a lengthscale all are in one block, which cannot be left out."""
    few = made(2000).query("0 < lat < 30 and 0 < lon < 30").head(stations)
    again = pd.concat([few, few.assign(temp=few["temp"] + 0.1)])
    found = StationGP(**GIVEN).fit(again, "temp").cross_validate("block")
    assert found.parts == stations
    for number in range(found.folds):
        out = found.fold == number
        assert 0 < out.sum() < len(out)
    assert np.isfinite(found.scores["nlpd"])
    # the date line is one place, of which there are no two blocks
    lon = again["lon"].where(again.index != few.index[0], [180.0] * stations + [-180.0] * stations)
    seam = StationGP(**GIVEN).fit(again.assign(lon=lon), "temp")
    assert seam.cross_validate("block").parts == stations


@pytest.mark.parametrize(
    ("when", "said"), [(np.datetime64("2020-05-01"), "2020-05-01T00:00:00"), (3.5, "3.5")]
)
def test_one_time_cannot_be_left_out(table, when, said):
    fitted = StationGP(**GIVEN, method="exact").fit(table.assign(when=when), "temp", time="when")
    with pytest.raises(
        ValueError, match=f"by='time' needs two times, and all readings are of {said}"
    ):
        fitted.cross_validate("time")


def test_blocks_have_equal_areas(table):
    readings = StationGP(**GIVEN).fit(made(2000), "temp").readings_  # uniform on the sphere
    counts = np.bincount(blocks(readings, 4000.0))
    expected = 2000 / len(counts)
    assert np.all(np.abs(counts - expected) < 5.0 * np.sqrt(expected) + 0.3 * expected)
    spans = folds_by_label(np.arange(100), 5, in_order=True)
    assert np.all(np.diff(spans) >= 0) and np.all(np.bincount(spans) == 20)


def test_grids_in_all_forms_say_the_same(table, model):
    lat, lon = np.array([60.0, 10.0, -40.0]), np.array([0.0, 90.0, 200.0, 350.0])
    height = np.arange(12.0).reshape(3, 4) / 10
    grid = xr.Dataset(
        {"height": (("lat", "lon"), height), "coast": ((), 1.0)}, coords={"lat": lat, "lon": lon}
    )
    found = model.predict(grid)
    assert found["mean"].dims == ("lat", "lon")
    xr.testing.assert_equal(found["lat"], grid["lat"])  # descending, and 0 to 360, as given
    by_mapping = model.predict(
        {"lat": lat, "lon": lon, "height": grid["height"], "coast": grid["coast"]}
    )
    np.testing.assert_array_equal(found["mean"], by_mapping["mean"])
    assert by_mapping["lat"].attrs["units"] == "degrees_north"
    points = grid.stack(point=("lat", "lon")).reset_index("point")
    np.testing.assert_array_equal(model.predict(points)["std"], found["std"].values.ravel())
    frame = points[["height", "coast"]].to_dataframe().reset_index()
    for kind in (pd.DataFrame, pl.DataFrame):
        said = model.predict(kind(frame[["lat", "lon", "height", "coast"]].to_dict("list")))
        assert isinstance(said, kind)
        np.testing.assert_allclose(said["mean"], found["mean"].values.ravel(), rtol=1e-12)
    turned = model.predict(grid.assign_coords(lon=[0.0, 90.0, -160.0, -10.0]))
    np.testing.assert_allclose(turned["mean"], found["mean"], rtol=1e-10)
    with_sea = grid.assign(height=grid["height"].where(grid["height"] > 0.15))
    np.testing.assert_array_equal(
        np.isnan(model.predict(with_sea)["mean"]), np.isnan(with_sea["height"])
    )
    two = xr.Dataset(
        {"height": (("y", "x"), height), "coast": ((), 1.0)},
        coords={
            "lat": (("y", "x"), np.repeat(lat[:, None], 4, 1)),
            "lon": (("y", "x"), np.tile(lon, (3, 1))),
        },
    )
    np.testing.assert_array_equal(model.predict(two)["mean"], found["mean"])


def test_point_files_series_and_ragged_arrays_are_one(tmp_path, table, model):
    obs = xr.Dataset.from_dataframe(table.rename_axis("obs"))
    obs["temp"].attrs = {"units": "degC", "standard_name": "air_temperature"}
    obs = obs.set_coords(["lat", "lon"])
    obs.to_netcdf(tmp_path / "points.nc", engine="h5netcdf")
    table.to_csv(tmp_path / "points.csv", index=False)
    new = xr.Dataset(coords={"lat": [10.0, 0.0], "lon": [3.0]})
    grid = new.assign(height=0.0, coast=0.0)
    wanted = model.predict(grid)["mean"]
    for source in (obs, tmp_path / "points.nc", tmp_path / "points.csv", table.to_dict("list")):
        if isinstance(source, dict):
            source = pl.DataFrame(source)
        found = StationGP(**GIVEN).fit(source, "temp", covariates=["height", "coast"]).predict(grid)
        np.testing.assert_allclose(found["mean"], wanted, rtol=1e-9)
    fitted = StationGP(**GIVEN).fit(tmp_path / "points.nc", "temp", covariates=["height", "coast"])
    found = fitted.predict(grid)
    assert found["mean"].attrs["units"] == found["std"].attrs["units"] == "degC"
    assert found["std"].attrs["standard_name"] == "air_temperature standard_error"

    # ten stations with six readings each: as a matrix, and as indexed and contiguous ragged arrays
    some = table.iloc[:10]
    values = some["temp"].to_numpy()[:, None] + 0.1 * np.arange(6)
    places = {name: ("station", some[name].to_numpy()) for name in ("lat", "lon")}
    matrix = xr.Dataset({"temp": (("station", "time"), values)}, coords=places)
    indexed = xr.Dataset({"temp": ("obs", values.ravel())}, coords=places)
    contiguous = indexed.assign(row_size=("station", np.full(10, 6), {"sample_dimension": "obs"}))
    indexed["of"] = ("obs", np.repeat(np.arange(10), 6), {"instance_dimension": "station"})
    first, *others = (
        StationGP(**GIVEN).fit(one, "temp").predict(new)["mean"]
        for one in (matrix, indexed, contiguous)
    )
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-12)


@pytest.mark.parametrize("target", ["temp", None])
def test_what_stands_beside_readings_does_not_repeat_them(table, model, target):
    """Bounds have two values a time, and other variables may have levels: the readings stay as many."""
    dims = ("obs", "nv")
    day = pd.date_range("2024-01-01", periods=60)
    given = {name: ("obs", table[name].to_numpy()) for name in table}
    obs = xr.Dataset({"temp": given.pop("temp")}, coords={"day": ("obs", day), **given})
    plain = StationGP(**GIVEN).fit(obs, "temp")
    obs["day_bnds"] = (dims, np.stack([day, day + pd.Timedelta("1D")], axis=1))
    obs["lat_bnds"] = (dims, np.stack([table["lat"], table["lat"] + 0.1], axis=1))
    for name in ("day", "lat"):
        obs[name].attrs["bounds"] = f"{name}_bnds"
    if target:
        obs["sounding"] = (("obs", "level"), np.zeros((60, 5)))
    found = StationGP(**GIVEN).fit(obs, target)
    assert found.n_readings_ == 60 and found.readings_.target == "temp"
    grid = {"lat": [0.0, 10.0], "lon": [5.0]}
    xr.testing.assert_identical(found.predict(grid), plain.predict(grid))
    # a matrix of as many stations as bounds have values
    series = xr.Dataset(
        {
            "temp": (("time", "station"), np.arange(10.0).reshape(5, 2)),
            "time_bnds": (("time", "nv"), np.zeros((5, 2))),
        },
        coords={
            "time": ("time", np.arange(5.0), {"bounds": "time_bnds"}),
            "lat": ("station", [1.0, 2.0]),
            "lon": ("station", [3.0, 4.0]),
        },
    )
    assert StationGP(**GIVEN).fit(series, target).n_readings_ == 10


def test_rows_without_a_value_may_have_no_place(table):
    """Trajectories that are shorter than others are padded, places and values alike (CF 1.11, 9.3.2)."""
    padded = pd.concat([table.assign(lat=np.nan, lon=np.inf, temp=np.nan).head(3), table])
    found, plain = (StationGP(**GIVEN).fit(one, "temp") for one in (padded, table))
    assert found.n_rows_dropped_ == 3
    grid = {"lat": [0.0, 10.0], "lon": [5.0]}
    xr.testing.assert_identical(found.predict(grid), plain.predict(grid))
    padded["lat"] = np.where(np.arange(63) == 7, np.nan, padded["lat"])
    with pytest.raises(ValueError, match=r"'lat' of .* holds no number in row 7 "):
        StationGP(**GIVEN).fit(padded, "temp")


def test_a_plane_has_its_own_units():
    generator = np.random.default_rng(0)
    x, y = generator.uniform(0, 1e5, (2, 40))
    table = pd.DataFrame({"x": x, "y": y, "z": np.sin(x / 3e4)})
    given = {"kernel": vastgp.RBF(2e4), "hyperparameters": Fixed(noise_std=0.05)}
    fitted = StationGP(**given).fit(table, "z", lat="y", lon="x")
    assert fitted.lengthscales_km_ == {}
    found = fitted.predict({"y": [5e4], "x": [2e4, 4e4]})
    assert found["mean"].dims == ("y", "x")
    np.testing.assert_allclose(found["mean"][0], np.sin(np.array([2e4, 4e4]) / 3e4), atol=0.1)
    assert fitted.cross_validate("block", 3, 3e4).block_km == 3e4


def test_what_cannot_be_mapped_is_refused_by_name(tmp_path, table, model):
    fit = StationGP(**GIVEN).fit
    polar = table.assign(lat=np.where(table.index == 3, 91.0, table["lat"]))
    feet = table.assign(feet=3.28 * table["height"])
    said = {
        "'lat' of the pandas DataFrame X holds 91 in row 3": (polar, {}),
        "'lon' of the pandas DataFrame X holds no number in row 0": (table.assign(lon=np.nan), {}),
        "has one reading with a value, at lat": (table.head(1), {}),
        "All 60 readings of the pandas DataFrame X are at one place": (table.assign(lat=1.0, lon=2.0), {}),
        "covariates (hight)='hight' is no column": (table, {"covariates": ["hight"]}),
        "'flat' of the pandas DataFrame X, a covariate, is 1 in": (table.assign(flat=1.0), {"covariates": "flat"}),
        "say the same of these readings": (feet, {"covariates": ["height", "feet"]}),
        "time='when' is no column": (table, {"time": "when"}),
        "lat is missing, and in the pandas DataFrame X no column is called latitude": (table.drop(columns="lat"), {}),
        "holds no value in any row": (table.assign(temp=np.nan), {}),
        "covariates has 'temp', which is the target": (table, {"covariates": ["height", "temp"]}),
    }  # fmt: skip
    for message, (frame, more) in said.items():
        with pytest.raises(ValueError, match=re.escape(message)):
            fit(frame, "temp", **more)
    seam = table.assign(lat=1.0, lon=np.where(table.index % 2, -180.0, 180.0))
    with pytest.raises(ValueError, match=r"All 60 readings .* are at one place, lat 1, lon 180"):
        fit(seam, "temp")
    grid = xr.Dataset(coords={"lat": [0.0], "lon": [0.0]})
    with pytest.raises(ValueError, match="has no 'height', 'coast', a covariate of the fit"):
        model.predict(grid)
    with pytest.raises(ValueError, match=re.escape("grid (coordinate 'lat') holds 100")):
        model.predict(grid.assign_coords(lat=[100.0]).assign(height=0.0, coast=0.0))
    with pytest.raises(ValueError, match="has no coordinate 'lon'"):
        model.predict({"lat": [0.0]})
    with pytest.raises(
        ValueError, match="'height' of the Dataset grid holds no finite number anywhere"
    ):
        model.predict(grid.assign(height=np.nan, coast=0.0))
    with pytest.raises(ValueError, match="the Dataset grid has no point along 'lat'"):
        model.predict(grid.isel(lat=[]).assign(height=0.0, coast=0.0))
    with pytest.raises(ValueError, match="the Dataset grid has a coordinate 'std'"):
        model.predict(grid.assign(height=0.0, coast=0.0).assign_coords(std=("lat", [1.0])))
    grid.assign(height=0.0).to_netcdf(tmp_path / "grid.nc", engine="h5netcdf")
    with pytest.raises(ValueError, match=r"grid[.]nc' has no 'coast', a covariate of the fit"):
        model.predict(tmp_path / "grid.nc")
    with pytest.raises(ValueError, match="- coast\nStationGP takes its columns"):
        model.predict(table.drop(columns="coast"))
    table.drop(columns="lon").to_csv(tmp_path / "no_lon.csv", index=False)
    with pytest.raises(ValueError, match=re.escape("no_lon.csv' no column is called longitude")):
        fit(tmp_path / "no_lon.csv", "temp")
    # repeated stations with different values are noise
    twice = pd.concat([table, table.assign(temp=table["temp"] + 1.0)])
    assert np.isfinite(fit(twice, "temp").predict({"lat": [0.0], "lon": [0.0]})["mean"]).all()


@pytest.mark.parametrize(
    ("factor", "rows", "used"),
    [
        (0.90, 660, 0.90 * np.exp(2.0 / np.sqrt(1320.0))),  # narrower by no more than is sure
        (0.93, 660, 1.0),  # three standard errors are 0.083
        (1.30, 660, 1.30),
        (1.05, 660, 1.0),
        (0.80, 30, 1.0),
        (0.80, 0, 1.0),
    ],
)
def test_deviations_are_corrected_by_what_stations_held_out_are_sure_of(factor, rows, used):
    assert _believed(factor, rows) == pytest.approx(used, rel=1e-12)


def test_a_variogram_is_that_of_all_pairs_without_trend(table, model):
    found = model.variogram(bins=5, farthest=6000.0)
    slopes = np.array([model.trend_[name][0] for name in ("height", "coast")])
    H = table[["height", "coast"]].to_numpy()
    rest = table["temp"].to_numpy() - H @ slopes
    points = chord_points(table["lat"], table["lon"])
    i, j = np.triu_indices(60, 1)
    d = np.linalg.norm(points[i] - points[j], axis=1)
    edges = 6000.0 * (np.arange(6) / 5) ** 1.5
    for number, pairs in enumerate(found.pairs):
        here = (d >= edges[number]) & (d < edges[number + 1])
        assert pairs == here.sum()
        assert found.semivariance[number] == pytest.approx(
            0.5 * np.mean((rest[i] - rest[j])[here] ** 2)
        )
        K = covariance(table, table)
        assert found.learned[number] == pytest.approx(np.mean(VARIANCE - K[i, j][here]) + NOISE**2)
    assert found.noise == pytest.approx(NOISE**2) and found.curve[1][0] == pytest.approx(NOISE**2)


@pytest.mark.parametrize("unit", [1.0, 1000.0])
def test_a_linear_map_has_no_lengthscale_and_blocks_and_pairs_all_over_it(unit):
    """What a line is in another unit of the target is the same map, and nothing of it is a number of kilometres."""
    generator = np.random.default_rng(0)
    lat, lon = generator.uniform(40, 50, 60), generator.uniform(0, 15, 60)
    temp = unit * (30.0 - 0.4 * lat + generator.normal(0, 0.3, 60))
    kernel = vastgp.Constant(0.8 * unit**2) + vastgp.Linear(4e-6 * unit**2)
    given = {"kernel": kernel, "hyperparameters": Fixed(noise_std=0.3 * unit)}
    fitted = StationGP(**given).fit(pd.DataFrame({"lat": lat, "lon": lon, "t": temp}), "t")
    assert fitted.lengthscales_km_ == {} == fitted.process_.lengthscales_km_
    found = fitted.cross_validate("block", folds=5)
    assert 5 <= found.parts <= 20 and found.block_km > 300.0
    assert fitted.variogram().distance.max() > 300.0
