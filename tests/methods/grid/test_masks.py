"""Cells that are not to be filled: no part of the fit, and missing in predictions of the same cells."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import vastgp
from vastgp import RBF, GridGP, Matern32, OnSphere
from vastgp.options import Evidence, Fixed

OPTIONS = {"kernels": {"time": RBF(3.0), "lat": Matern32(4.0)}, "hyperparameters": Fixed(0.2)}
pytestmark = pytest.mark.little_work


@pytest.fixture(scope="module")
def field():
    rng = np.random.default_rng(0)
    time, lat = pd.date_range("2024-01-01", periods=10), np.array([44.0, 43.0, 41.0, 40.0, 38.0])
    values = np.sin(np.arange(10) / 3)[:, None] * np.cos(lat / 2) + 0.1 * rng.normal(size=(10, 5))
    values[rng.uniform(size=values.shape) < 0.25] = np.nan
    values[:, 1] = 1e6  # what a product has on land
    return xr.DataArray(values, dims=("time", "lat"), coords={"time": time, "lat": lat}, name="sst")


@pytest.fixture(scope="module")
def land(field):
    return xr.DataArray([0, 1, 0, 0, 0], dims="lat", coords={"lat": field.lat})


def test_masked_cells_are_no_part_of_the_fit_and_missing_in_predictions(field, land, tmp_path):
    model = GridGP(**OPTIONS).fit(field, mask=land)
    without = GridGP(**OPTIONS).fit(field.where(land == 0))
    assert model.log_evidence_ == without.log_evidence_
    assert model.gap_share_ == without.gap_share_
    sea = land == 0

    def compare(ask, masked=True):
        found, expected = ask(model), ask(without)
        xr.testing.assert_identical(found, expected.where(sea) if masked else expected)
        return found

    whole = compare(lambda m: m.predict())
    assert (
        bool(whole["mean"].isnull().sel(lat=43.0).all()) and int(whole["std"].isnull().sum()) == 10
    )
    later = {"time": pd.date_range("2024-01-11", periods=3)}
    assert int(compare(lambda m: m.predict(later))["mean"].isnull().sum()) == 3
    assert compare(lambda m: m.sample_y(n_samples=2)).dims == ("sample", "time", "lat")
    # of other cells the mask says nothing
    compare(lambda m: m.predict({"lat": [43.0, 42.0]}), masked=False)
    compare(lambda m: m.predict({"lat": [44.0, 43.0, 41.0, 40.0, 37.0]}), masked=False)
    model.save(tmp_path / "m.vastgp")
    again = vastgp.load(tmp_path / "m.vastgp")
    xr.testing.assert_identical(again.predict(), whole)
    assert int(model.log_predictive_density(field).sel(lat=43.0).count()) == 0
    assert model.fit(field).mask_ is None


def on_earth(lon):
    """Six days of a small field with two cells of land, which longitudes of either convention have."""
    lat, lon = np.array([60.0, 50.0, 40.0]), np.asarray(lon, dtype=np.float64)
    coords = {"day": np.arange(6.0), "lat": lat, "lon": lon}
    values = np.random.default_rng(0).normal(size=(6, 3, len(lon)))
    field = xr.DataArray(values, dims=("day", "lat", "lon"), coords=coords)
    land = xr.zeros_like(field[0].drop_vars("day"), dtype=bool)
    land[0, 0] = land[1, 2] = True
    return field, land


HELD = {"hyperparameters": Fixed(0.2), "criterion": Evidence(num_probes=0)}
SPHERE = {"day": RBF(2.0), ("lat", "lon"): OnSphere(Matern32(2000.0))}
PRODUCT = {"day": RBF(2.0), "lat": RBF(10.0), "lon": Matern32(60.0)}


@pytest.mark.parametrize("kernels", [PRODUCT, SPHERE], ids=["product", "sphere"])
@pytest.mark.parametrize("lon", [0.1 + np.arange(0.0, 360.0, 45.0), [350.0, 355.0, 0.1, 5.0]])
def test_masked_cells_are_missing_however_they_are_asked_for(kernels, lon, tmp_path):
    field, land = on_earth(lon)
    fitted = GridGP(kernels, **HELD).fit(field, mask=land)
    fitted.save(tmp_path / "m.vastgp")
    west = np.where(field.lon > 180.0, field.lon - 360.0, field.lon)
    turned = field.assign_coords(lon=west).sortby("lon")
    by_lon = land.assign_coords(lon=west).sortby("lon")
    points = xr.Dataset(
        {"lat": ("p", [50.0, 60.0, 40.0]), "lon": ("p", field.lon.values[[2, 0, 0]])}
    )
    for model in (fitted, vastgp.load(tmp_path / "m.vastgp")):
        for asked, hidden in (
            (field[:, ::-1], land[::-1]),
            (field[2:4, :1, ::2], land[:1, ::2]),
            (turned, by_lon),
            (field.astype("float32").assign_coords(lon=field.lon.astype("float32")), land),
            ({"lat": [60.0], "lon": [lon[0]]}, land[:1, :1]),
            ({"lat": [60.0], "lon": [lon[0] - 360.0]}, land[:1, :1]),
            ({"day": [9.0]}, land),
        ):
            found = model.predict(asked, return_std=False)["mean"].isnull()
            assert found.any()
            np.testing.assert_array_equal(found, np.broadcast_to(hidden, found.shape))
        found = model.predict(points, return_std=False)["mean"].isnull().transpose("p", "day")
        assert found.all("day").values.tolist() == [True, True, False]
        assert model.sample_y(field[:, ::-1]).isnull().sum() == 12
        # where other cells are asked for too, the mask says nothing
        for other in ({"lat": [60.0, 55.0]}, {"lon": [lon[0] + 0.2]}):
            assert not model.predict(other, return_std=False)["mean"].isnull().any()


def test_masked_stations_are_their_places():
    rng = np.random.default_rng(0)
    lat, lon = rng.uniform(40, 50, 6), rng.uniform(350, 359, 6)
    coords = {"day": np.arange(5.0), "lat": ("station", lat), "lon": ("station", lon)}
    field = xr.DataArray(rng.normal(size=(5, 6)), dims=("day", "station"), coords=coords)
    kernels = {"day": RBF(2.0), ("lat", "lon"): Matern32([3.0, 4.0])}
    closed = xr.DataArray([0, 1, 0, 0, 1, 0], dims="station")
    model = GridGP(kernels, **HELD).fit(field, mask=closed)
    for asked, hidden in (
        (None, closed),
        (field[:, [4, 0, 1]], closed[[4, 0, 1]]),
        (field.assign_coords(lon=field.lon - 360.0), closed),
        (field.assign_coords(lat=field.lat + 1.0), 0 * closed),  # as many, elsewhere
    ):
        found = model.predict(asked, return_std=False)["mean"].isnull()
        np.testing.assert_array_equal(found, np.broadcast_to(hidden, found.shape))


def test_masked_times_are_found_in_other_units():
    """The mask of a day is of its hours, not of hours of that number."""
    days = ("time", np.arange(6.0), {"units": "days since 2000-01-01"})
    values = np.random.default_rng(0).normal(size=(6, 3))
    field = xr.DataArray(values, dims=("time", "x"), coords={"time": days, "x": np.arange(3.0)})
    closed = field.time.copy(data=np.arange(6) == 2)
    kernels = {"time": RBF(2.0), "x": RBF(2.0)}
    model = GridGP(kernels, **HELD).fit(field, mask=closed)
    for hours, hidden in (([48.0, 0.0], [True, False]), ([2.0, 0.0], [False, False])):
        asked = xr.DataArray(hours, dims="time", attrs={"units": "hours since 2000-01-01"})
        found = model.predict({"time": asked}, return_std=False)["mean"].isnull()
        assert found.all("x").values.tolist() == hidden


def test_masks_come_in_all_forms(field, land):
    expected = GridGP(**OPTIONS).fit(field, mask=land).predict()
    on_all = (land == 1).broadcast_like(field)
    for mask in (land == 1, on_all, on_all.values, on_all.values.astype(float), land[::-1],
                 land.drop_vars("lat"), on_all.chunk({"time": 3})):  # fmt: skip
        xr.testing.assert_identical(GridGP(**OPTIONS).fit(field, mask=mask).predict(), expected)
    # with a dimension of one point, without coordinates, and for all fields of a Dataset
    deep = field.expand_dims(depth=[0.5])
    found = GridGP(**OPTIONS).fit(deep, mask=land.expand_dims(depth=[0.5])).predict()
    np.testing.assert_array_equal(found["mean"].squeeze(), expected["mean"])
    both = GridGP(**OPTIONS).fit(xr.Dataset({"a": field, "b": field + 1.0}), mask=land).predict()
    np.testing.assert_array_equal(both["a"], expected["mean"])
    assert bool(both["b_std"].isnull().equals(expected["std"].isnull()))
    plain = field.drop_vars("lat")
    bare = GridGP(**OPTIONS).fit(plain, mask=land.drop_vars("lat")).predict()
    np.testing.assert_array_equal(bare["mean"].isnull(), expected["mean"].isnull())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda f, m: m * 37.5, r"mask must hold 0 and 1, received 1 other values, the first 37.5.*mask > 0.5"),
        (lambda f, m: m.where(m == 0), "mask must hold 0 and 1, received 1 other values, the first nan"),
        (lambda f, m: m.assign_attrs(standard_name="sea_binary_mask"), "is 1 where there is sea.*mask == 0"),
        (lambda f, m: m.rename(lat="x"), "mask has the dimension 'x', and data_array has 'time', 'lat'"),
        (lambda f, m: m.assign_coords(lat=m.lat + 1), "mask has other coordinates along 'lat' than data_array"),
        (lambda f, m: m.drop_vars("lat")[:3], "mask has 3 positions along 'lat', and data_array has 5"),
        (lambda f, m: m.values, r"mask has shape \(5,\). Expected \(10, 5\), that of data_array"),
        (lambda f, m: True, "mask=True is a single value"),
        (lambda f, m: m.astype(str), "mask must hold real numbers, received dtype <U"),
        (lambda f, m: m * 0 + 1, r"has 0 observed values of 50 \(time: 10, lat: 5\)"),
    ],
)  # fmt: skip
def test_bad_masks_are_named(field, land, make, message):
    with pytest.raises(ValueError, match=message):
        GridGP(**OPTIONS).fit(field, mask=make(field, land))
