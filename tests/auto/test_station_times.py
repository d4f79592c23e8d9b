"""Times of stations: as people write them, in files, and of the maps that are asked for."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import vastgp
from stations_by_hand import GIVEN, made
from vastgp import StationGP

pytestmark = pytest.mark.little_work


@pytest.fixture(scope="module")
def table():
    return made()


def test_times_are_dates_and_survive_a_file(tmp_path, table):
    when = pd.date_range("2020-01-01", periods=60, freq="5D")
    dated = table.assign(time=when, station=[f"s{i % 20}" for i in range(60)])
    given = {"kernel": "matern32", "max_seconds": 3.0}
    fitted = StationGP(**given).fit(
        dated, "temp", time="time", covariates="height", station="station"
    )
    assert fitted.n_stations_ == 20
    assert [column.kind for column in fitted.encoding_] == ["place", "date"]
    grid = {"lat": [0.0, 10.0], "lon": [5.0], "time": ["2020-02-01", "2020-03-01"]}
    grid["height"] = xr.DataArray(0.0)
    found = fitted.predict(grid)
    assert found["mean"].dims == ("time", "lat", "lon") and found.sizes["time"] == 2
    spans = fitted.cross_validate(by="time", folds=3)
    assert np.all(np.diff(spans.fold) >= 0)
    path = tmp_path / "m.vastgp"
    fitted.save(path)
    again = vastgp.load(path)
    xr.testing.assert_identical(again.predict(grid), found)
    assert (
        again.trend_ == fitted.trend_
        and again.cross_validate("row", 3).scores == fitted.cross_validate("row", 3).scores
    )
    with pytest.raises(ValueError, match="has no coordinate 'time', and the readings have times"):
        fitted.predict({"lat": [0.0], "lon": [0.0], "height": xr.DataArray(0.0)})


@pytest.mark.parametrize(
    ("written", "form"),
    [
        ("%d.%m.%Y", "dates, day first"),
        ("%m/%d/%Y", "dates, month first"),
        ("%d/%m/%Y %H:%M", "dates, day first"),
        ("%Y-%m-%d", "dates"),
        ("%Y%m%d", "dates, as numbers"),
    ],
)
def test_times_are_read_as_people_write_them(tmp_path, written, form):
    days = np.tile(pd.date_range("2024-01-01", periods=40).to_numpy(), 3)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "lat": np.repeat([46.0, 47.5, 48.0], 40),
            "lon": np.repeat([7.0, 9.0, 8.0], 40),
            "day": days,
        }
    )
    frame["t"] = np.sin(np.arange(120) % 40 / 6.0) + 0.1 * rng.normal(size=120)
    as_text = frame.assign(day=frame["day"].dt.strftime(written))
    if form == "dates, as numbers":
        as_text["day"] = as_text["day"].astype(int)
    as_text.to_csv(tmp_path / "stations.csv", index=False)
    found = StationGP(max_seconds=3, random_state=0).fit(tmp_path / "stations.csv", "t", time="day")
    assert found.readings_.form == form
    np.testing.assert_array_equal(found.readings_.when, days)
    found.save(tmp_path / "stations.vastgp")
    again = vastgp.load(tmp_path / "stations.vastgp")
    new = as_text.head(7)
    np.testing.assert_array_equal(again.predict(new)["mean"], found.predict(frame.head(7))["mean"])
    grid = {"lat": [46.5], "lon": [8.0]}
    one = again.predict(grid | {"day": ["2024-02-03"]})["mean"]
    if form != "dates, as numbers":
        other = again.predict(grid | {"day": [pd.Timestamp("2024-02-03").strftime(written)]})[
            "mean"
        ]
        np.testing.assert_array_equal(one, other)


def test_times_that_can_be_read_in_two_ways_are_refused():
    frame = pd.DataFrame({"lat": [46.0] * 24, "lon": np.linspace(7, 8, 24), "t": np.arange(24.0)})
    frame["day"] = [f"{1 + k % 12:02d}/{1 + k % 7:02d}/2024" for k in range(24)]
    with pytest.raises(ValueError, match=r"'day' of .* the day or the month may come first"):
        StationGP(max_seconds=2).fit(frame, "t", time="day")


@pytest.fixture(scope="module")
def dated(table):
    """Readings of five centuries, more than nanoseconds hold."""
    when = np.datetime64("1700-01-01") + 3000 * np.arange(60)
    given = {"kernel": "matern32", "max_seconds": 3.0}
    return StationGP(**given).fit(
        table.assign(time=when.astype("datetime64[s]")), "temp", time="time"
    )


FAR = ["1659-01-01", "2024-02-03", "2300-01-01"]


def test_maps_have_the_times_that_are_asked_for_of_any_century(dated):
    grid = {"lat": [10.0], "lon": [5.0]}
    rows = pd.DataFrame({"lat": 10.0, "lon": 5.0, "time": np.array(FAR, "datetime64[s]")})
    expected = dated.predict(rows)["mean"]
    for times in (
        FAR,
        np.array(FAR, "datetime64[D]"),
        xr.DataArray(np.array(FAR, "datetime64[s]"), dims="time"),
    ):
        found = dated.predict(grid | {"time": times})
        np.testing.assert_array_equal(found["time"], np.array(FAR, "datetime64[s]"))
        np.testing.assert_array_equal(found["mean"].values.ravel(), expected)


def test_one_moment_is_one_at_stations_whatever_writes_it(table):
    when = pd.date_range("2020-01-01", periods=60, freq="5h", tz="UTC")
    tokyo, given = when.tz_convert("Asia/Tokyo"), {"target": "temp", "time": "time"}
    exact = StationGP(**GIVEN, method="exact")
    expected = None
    for column in (
        when,
        tokyo,
        [one.isoformat() for one in when],
        [one.isoformat() for one in tokyo],
    ):
        fitted = exact.fit(table.assign(time=column), **given)
        for asked in (["2020-01-03T12:00Z"], ["2020-01-03T21:00+09:00"]):
            found = fitted.predict({"lat": [10.0], "lon": [5.0], "time": asked})["mean"].values
            expected = found if expected is None else expected
            np.testing.assert_array_equal(found, expected)


def test_times_of_a_grid_are_read_as_those_of_a_dictionary(table, dated):
    grid = xr.Dataset(coords={"lat": [10.0], "lon": [5.0], "time": FAR})
    by_mapping = dated.predict({"lat": [10.0], "lon": [5.0], "time": FAR})
    for asked in (
        grid,
        {name: grid[name] for name in grid.coords},
        grid.assign_coords(time=grid.time.astype(object)),
    ):
        found = dated.predict(asked)
        np.testing.assert_array_equal(found["mean"], by_mapping["mean"])
        assert found["time"].values.tolist() == FAR
    one = dated.predict(grid.isel(time=1))
    np.testing.assert_array_equal(one["mean"], by_mapping["mean"][1])
    noleap = xr.date_range("2000-01-01", periods=3, calendar="noleap", use_cftime=True)
    counted = StationGP(**GIVEN, method="exact").fit(
        table.assign(time=np.arange(60.0)), "temp", time="time"
    )
    calendar = "holds dates of the calendar 'noleap', and"
    for model, times, message in (
        (dated, noleap, f"{calendar} .* standard one.*convert_calendar"),
        (counted, noleap, f"{calendar} the times of the readings are numbers. Give numbers"),
        (counted, FAR, "holds text, and the times of the readings are numbers"),
        (dated, [1.0, 2.0, 3.0], "holds numbers, and the times of the readings are dates"),
        (dated, ["soon", *FAR[1:]], "holds text such as 'soon', which is no number and no date"),
        (dated, np.array([*FAR[1:], "NaT"], "M8[s]"), "has a time that is missing"),
    ):
        with pytest.raises(ValueError, match=f"'time' of the Dataset grid {message}"):
            model.predict(grid.assign_coords(time=times))
    with pytest.raises(ValueError, match=rf"grid\['time'\] {calendar} .*convert_calendar"):
        dated.predict({"lat": [10.0], "lon": [5.0], "time": noleap})


def test_counts_of_other_units_are_the_same_times(table):
    obs = xr.Dataset.from_dataframe(table[["lat", "lon", "temp"]].rename_axis("obs"))
    obs["time"] = ("obs", np.arange(60.0), {"units": "days since 2000-01-01"})
    fitted = StationGP(**GIVEN, method="exact").fit(obs, "temp", time="time")
    grid = xr.Dataset(coords={"lat": [10.0], "lon": [5.0], "time": [48.0]})
    hours = grid.assign_coords(time=grid.time.assign_attrs(units="hours since 2000-01-01"))
    found = fitted.predict(hours)
    np.testing.assert_array_equal(
        found["mean"], fitted.predict(grid.assign_coords(time=[2.0]))["mean"]
    )
    assert found["time"].values == 48.0
    with pytest.raises(ValueError, match="'time' has the units 'm', and that of the fit counts"):
        fitted.predict(grid.assign_coords(time=grid.time.assign_attrs(units="m")))
