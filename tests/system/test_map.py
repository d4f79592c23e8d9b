"""`vastgp map`: readings in, a map out, in one command."""

import json
import re
from datetime import date
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import vastgp
from vastgp.auto.space import Space
from vastgp.auto.stations.readings import read_readings
from vastgp.cli._errors import BadInput
from vastgp.cli._map_grid import spanned, with_times
from vastgp.cli.map_stations import _first_time

pytestmark = pytest.mark.little_work
FAST = ("--target", "temp", "--kernel", "matern32", "--max-seconds", "3")


@pytest.fixture(scope="module")
def stations(tmp_path_factory):
    generator = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("stations")
    lat, lon = generator.uniform(40, 60, 40), generator.uniform(-10, 10, 40)
    height = generator.gamma(1.0, 0.5, 40)
    temp = 15 + np.sin(lat / 4) + np.cos(lon / 5) - 6.5 * height + 0.1 * generator.normal(size=40)
    table = pd.DataFrame({"lat": lat, "lon": lon, "height": height, "temp": temp})
    table["day"] = pd.date_range("2024-01-01", periods=40, freq="D").strftime("%Y-%m-%d")
    table.to_csv(folder / "stations.csv", index=False)
    grid = xr.Dataset(
        coords={"lat": np.arange(60.0, 39.0, -5.0), "lon": np.arange(-10.0, 11.0, 5.0)}
    )
    grid["height"] = (("lat", "lon"), np.full((5, 5), 0.5))
    grid.to_netcdf(folder / "grid.nc", engine="h5netcdf")
    return folder


def test_a_map_of_a_spacing_with_a_picture(run, stations):
    out, picture = stations / "a.nc", stations / "a.png"
    said = run(
        "map", stations / "stations.csv", *FAST, "--grid", "2.5", "--bounds=-10,40,10,60", "--time", "day",
        "--at", "2024-01-10", "--at", "2024-02-01", "--out", out, "--plot", picture,
    ).out  # fmt: skip
    assert "162 points (day: 2, lat: 9, lon: 9)" in said and "lengthscale" in said
    with xr.open_dataset(out, engine="h5netcdf") as found:
        assert (
            found["mean"].dims == ("day", "lat", "lon") and found.attrs["Conventions"] == "CF-1.11"
        )
        np.testing.assert_array_equal(found["lat"], np.arange(40, 61, 2.5))
        assert found["lat"].attrs["units"] == "degrees_north" and (found["std"] > 0).all()
    assert picture.read_bytes()[:4] == b"\x89PNG"
    refused = run("map", stations / "stations.csv", *FAST, "--grid", "1", "--out", out, code=2)
    assert "exists" in refused.err
    with xr.open_dataset(out, engine="h5netcdf") as found:
        assert _first_time(found, "day") == "day 2024-01-10, the first of 2"
        assert _first_time(found.isel(day=1), "day") == "day 2024-02-01"
        assert _first_time(found, None) == ""


@pytest.mark.parametrize(
    ("way", "word"), [("blok", r"'blok': .*Did you mean 'block'"), ("time", "with --time")]
)
def test_what_cannot_be_left_out_is_refused_before_the_fit(run, stations, way, word):
    out = stations / "never.nc"
    given = (*FAST, "--grid", "5", "--cross-validate", way, "--out", out)
    refused = run("map", stations / "stations.csv", *given, code=2)
    assert "--cross-validate" in refused.err and re.search(word, refused.err)
    assert not out.exists() and refused.out == ""


def test_a_map_of_a_century_that_nanoseconds_do_not_hold(run, stations):
    table = pd.read_csv(stations / "stations.csv")
    years = pd.Series(range(1600, 1640)).astype(str) + "-07-01"
    table.assign(day=years).to_csv(stations / "old.csv", index=False)
    run(
        "map", stations / "old.csv", *FAST, "--grid", "10", "--time", "day", "--at", "1659-01-01",
        "--out", stations / "old.nc",
    )  # fmt: skip
    days = xr.coders.CFDatetimeCoder(time_unit="s")
    with xr.open_dataset(stations / "old.nc", engine="h5netcdf", decode_times=days) as found:
        assert found["day"].values.astype("datetime64[D]").tolist() == [date(1659, 1, 1)]


def test_times_of_the_map_may_have_the_form_of_the_readings(stations):
    table = pd.read_csv(stations / "stations.csv")
    days = pd.to_datetime(table["day"])
    written = table.assign(day=days.dt.strftime("%d.%m.%Y"))
    readings = read_readings(written, "temp", None, None, "day", None, None, None)
    found = with_times({}, readings, ["03.02.2024", "2024-02-04"])["day"]
    assert found.astype("datetime64[D]").tolist() == [date(2024, 2, 3), date(2024, 2, 4)]
    with pytest.raises(BadInput, match=r"--at holds text such as 'soon'.*or in the form of the"):
        with_times({}, readings, ["soon"])
    numbered = table.assign(day=days.dt.day_of_year)
    readings = read_readings(numbered, "temp", None, None, "day", None, None, None)
    assert with_times({}, readings, ["2.5", "3"])["day"].tolist() == [2.5, 3.0]
    with pytest.raises(BadInput, match="--at soon: expected numbers"):
        with_times({}, readings, ["soon"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--grid", "1", "--time", "day", "--at", "soon"], "--at holds text such as 'soon'"),
        (["--grid", "1", "--at", "2024-01-02"], "--at is of readings with times"),
        (["--grid", "1e-4"], "Take a wider spacing or --bounds"),
        (["--grid", "no_height.nc", "--covariates", "height"], "height"),
    ],
    ids=["a date", "no time", "a spacing", "a covariate"],
)
def test_what_is_no_map_of_the_readings_is_refused_before_the_fit(
    run, stations, monkeypatch, options, said
):
    """It was told after the fit, which was lost."""
    with xr.open_dataset(stations / "grid.nc", engine="h5netcdf") as grid:
        grid.drop_vars("height").to_netcdf(stations / "no_height.nc", engine="h5netcdf")
    monkeypatch.chdir(stations)
    monkeypatch.setattr(vastgp.StationGP, "fit", lambda *_: pytest.fail("it was fitted"))
    refused = run("map", "stations.csv", *FAST, *options, "--out", stations / "no.nc", code=2)
    assert said in refused.err and not (stations / "no.nc").exists()


ALL_AROUND = np.arange(-180.0, 180.0, 20.0)


@pytest.mark.parametrize(
    ("lon", "step", "expected"),
    [
        ([177.1, -178.6, 178.5, -177.2], 0.5, np.arange(177.0, 183.1, 0.5)),
        ([350.2, 9.9, 355.0, 0.0], 1.0, np.arange(-10.0, 11.0)),
        ([300.2, 310.0, 305.0], 1.0, np.arange(300.0, 311.0)),
        ([170.0, -90.0, 10.0, -20.0, -150.0], 10.0, np.arange(-190.0, 11.0, 10.0)),
        ([10.0, -20.0], 10.0, [-20.0, -10.0, 0.0, 10.0]),
        ([5.0], 1.0, [5.0]),
        ([350.1, 359.9], 0.7, -10.0 + 0.7 * np.arange(16)),
        (np.append(ALL_AROUND, 179.5), 1.0, np.arange(-180.0, 180.0)),
        (np.append(ALL_AROUND, 180.0), 0.7, -180.6 + 0.7 * np.arange(515)),
        (np.append(ALL_AROUND[1:-1] + 180.0, 359.0), 1.0, np.arange(20.0, 360.0)),
    ],
)
def test_a_map_has_each_meridian_of_its_stations_once(lon, step, expected):
    place = np.column_stack([np.linspace(-17.0, -16.0, len(lon)), lon])
    readings = SimpleNamespace(place=place, space=Space("lat", "lon", True))
    found = spanned(readings, step, None)
    np.testing.assert_allclose(found["lon"], expected, atol=1e-9)
    assert np.all(found["lon"] - found["lon"][0] < 360.0 - 1e-6)


def test_a_map_across_the_date_line_is_of_its_stations(run, stations):
    lon = np.concatenate([np.linspace(177.1, 179.9, 15), np.linspace(-179.8, -177.2, 15)])
    lat = -17.0 + np.sin(np.arange(30.0))
    table = pd.DataFrame({"lat": lat, "lon": lon, "temp": lat + 0.1 * (lon % 360.0)})
    table.to_csv(stations / "fiji.csv", index=False)
    run("map", stations / "fiji.csv", *FAST, "--grid", "1", "--out", stations / "fiji.nc")
    with xr.open_dataset(stations / "fiji.nc", engine="h5netcdf") as found:
        np.testing.assert_array_equal(found["lon"], np.arange(177.0, 184.0))


def test_a_map_with_a_covariate_and_a_model(run, stations):
    model = stations / "m.vastgp"
    given = ("map", stations / "stations.csv", *FAST, "--covariates", "height")
    said = run(
        *given, "--grid", stations / "grid.nc", "--out", stations / "b.nc", "--save-model", model,
        "--cross-validate", "station",
    ).out  # fmt: skip
    assert "for each unit of height" in said and "times that by rows" in said
    with xr.open_dataset(stations / "b.nc", engine="h5netcdf") as found:
        assert found["lat"].values.tolist() == [60.0, 55.0, 50.0, 45.0, 40.0]
        again = vastgp.load(model).predict(stations / "grid.nc")
        np.testing.assert_allclose(again["mean"], found["mean"])
    slope, error = json.loads(run("info", model, "--json").out)["trend"]["height"]
    assert abs(slope + 6.5) < 4 * error
    assert (
        "StationGP"
        in run("predict", model, stations / "stations.csv", "--out", stations / "p.csv", code=2).err
    )
    said = run(*given, "--grid", "1", "--out", stations / "c.nc", code=2).err
    assert "a spacing has no height" in said
    said = run(
        *given[:2], *FAST, "--lat", "latt", "--grid", "1", "--out", stations / "c.nc", code=2
    ).err
    assert "lat='latt' is no column" in said and "stations.csv" in said


def test_the_default_method_takes_a_place(run, stations):
    model = stations / "auto.vastgp"
    given = ("fit", stations / "stations.csv", "--target", "temp", "--exclude", "day")
    said = run(
        *given, "--space", "lat,lon", "--set", "method=exact", "--max-seconds", "2", "--out", model
    )
    assert "lat, lon" in said.out
    shown = json.loads(run("info", model, "--json").out)
    assert (
        shown["lengthscales_km"]["lat, lon"] > 0 and shown["inputs"][0]["name"] == "lat, lon (km)"
    )
    assert (
        "expected two columns" in run(*given, "--space", "lat", "--out", stations / "x", code=2).err
    )
    refused = run(
        *given, "--space", "lat,lon", "--method", "exact", "--out", stations / "x", code=2
    )
    assert "--space is for --method auto" in refused.err
