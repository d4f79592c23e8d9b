"""What `vastgp fill` and `vastgp map` make of climate files: by the conventions CF 1.11, and what is refused."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import cf_rules
import vastgp
from climate_case import FAST, climate, raw

pytestmark = pytest.mark.little_work
PAGE = Path(__file__).parents[2] / "docs" / "methods" / "grid_gp.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("climate")
    climate().to_netcdf(folder / "in.nc", engine="h5netcdf")
    climate("360_day").chunk({"time": 5}).to_zarr(folder / "in.zarr")
    return folder


FORMATS = pytest.mark.parametrize("ending", [".nc", ".zarr"])


@FORMATS
def test_several_variables_go_into_one_file_by_the_conventions(run, folder, ending):
    out = folder / f"both{ending}"
    said = run(
        "fill", folder / "in.nc", "--var", "tas", "--var", "tos", "--out", out, *FAST,
        "--save-model", folder / "both.vastgp", "--force",
    ).out  # fmt: skip
    assert said.count("gaps of 48 points") == 2 and "in units of tos" in said
    assert cf_rules.violations(out) == []
    given, found = raw(folder / "in.nc"), raw(out)
    kept = ["time_bnds", "lat_bnds", "areacella", "crs"]
    assert set(found.data_vars) | {"height", "season"} == {
        "tas", "tas_std", "tos", "tos_std", *kept, "height", "season",
    }  # fmt: skip
    for name in ["time", "time_bnds", "lat", "lat_bnds"]:
        np.testing.assert_array_equal(found[name], given[name])
    assert found["time"].attrs["units"] == "days since 1849-12-01"
    assert found["time"].attrs["calendar"] == "noleap"
    assert found["tas"].attrs["cell_methods"] == "area: mean time: mean"
    assert found["tas_std"].attrs["standard_name"] == "air_temperature standard_error"
    assert found.attrs["title"] == "a year" and found.attrs["Conventions"] == "CF-1.11"
    assert found.attrs["history"] == "1850: made\ngaps filled by vastgp fill"
    assert not np.isnan(found["tas"]).any()
    with xr.open_dataset(folder / "in.nc", engine="h5netcdf") as dataset:
        model = vastgp.load(folder / "both.vastgp")
        predicted = model.predict()
        np.testing.assert_array_equal(predicted["tas"], found["tas"])
        near = np.abs(predicted["tas"] - dataset["tas"]) < 5 * predicted["tas_std"]
        assert bool(near.where(dataset["tas"].notnull(), True).all())
    shown = run("info", folder / "both.vastgp").out
    assert "both.vastgp: tas" in shown and "both.vastgp: tos" in shown
    assert '"fields"' in run("info", folder / "both.vastgp", "--json").out


@FORMATS
@pytest.mark.parametrize("source", ["in.nc", "in.zarr"])
def test_one_variable_keeps_its_names_by_the_conventions(run, folder, source, ending):
    out = folder / f"one-{source}{ending}"
    run("fill", folder / source, "--var", "tos", "--out", out, *FAST)
    assert cf_rules.violations(out) == []
    found = raw(out)
    assert {"mean", "std", "time_bnds", "lat_bnds", "areacella", "crs"} <= set(found.variables)
    assert found["mean"].attrs["units"] == "degC" and "tas" not in found
    assert found["time"].attrs["calendar"] == {"in.nc": "noleap", "in.zarr": "360_day"}[source]


@FORMATS
def test_a_file_that_says_nothing_of_its_coordinates_is_filled_by_the_conventions(
    run, tmp_path, ending
):
    plain = climate()[["tos"]].reset_coords("height", drop=True)
    plain = plain.drop_attrs().assign_attrs(history="made")
    plain["tos"].attrs["units"] = "degC"
    plain.to_netcdf(tmp_path / "plain.nc", engine="h5netcdf")
    out = tmp_path / f"x{ending}"
    said = run("fill", tmp_path / "plain.nc", "--out", out, *FAST)
    assert "Consolidated" not in said.err + said.out and "UTF32" not in said.err + said.out
    assert cf_rules.violations(out) == []
    found = raw(out)
    assert found["lat"].attrs == {"standard_name": "latitude", "units": "degrees_north"}
    assert found["time"].attrs["standard_name"] == "time"
    assert found["mean"].attrs["long_name"] == "predicted mean of tos"
    assert found.attrs["title"] == "tos of plain.nc, gaps filled"
    assert found["season"].values.tolist() == plain["season"].values.tolist()


def projected():
    """A plane of a projection, with latitude and longitude of two dimensions."""
    x, y = 1e4 * np.arange(5), 1e4 * np.arange(6)[::-1]
    names = {"x": (x, "projection_x_coordinate"), "y": (y, "projection_y_coordinate")}
    coords = {
        n: (n, at, {"standard_name": s, "units": "m", "axis": n.upper()})
        for n, (at, s) in names.items()
    }
    degrees = {
        "lat": (50.0 + y[:, None] / 1.1e5 + 0 * x, "north"),
        "lon": (10.0 + x / 7e4 + 0 * y[:, None], "east"),
    }
    full = {"lat": "latitude", "lon": "longitude"}
    for n, (at, way) in degrees.items():
        coords[n] = (("y", "x"), at, {"standard_name": full[n], "units": f"degrees_{way}"})
    crs = {"grid_mapping_name": "lambert_azimuthal_equal_area", "latitude_of_projection_origin": 50.0,
           "longitude_of_projection_origin": 10.0, "false_easting": 0.0, "false_northing": 0.0}  # fmt: skip
    wave = 1.0 + 0.1 * np.sin(x / 2e4) * np.cos(y / 2e4)[:, None]
    wave[2, 3] = np.nan
    attrs = {"units": "km", "standard_name": "height_above_mean_sea_level", "grid_mapping": "crs"}
    return xr.Dataset({"height": (("y", "x"), wave, attrs), "crs": ((), 0, crs)}, coords=coords)


@FORMATS
def test_fields_and_maps_of_a_projection_name_its_mapping(run, tmp_path, ending):
    projected().to_netcdf(tmp_path / "in.nc", engine="h5netcdf")
    out = tmp_path / f"filled{ending}"
    fast = [*FAST[4:], "--kernel", "x=rbf", "--kernel", "y=rbf"]
    run("fill", tmp_path / "in.nc", "--out", out, *fast)
    assert cf_rules.violations(out) == []
    rng = np.random.default_rng(0)
    lat, lon, height = rng.uniform(49, 51, 40), rng.uniform(9, 11, 40), rng.uniform(size=40)
    temp = 10.0 + np.sin(lat) - 5.0 * height + 0.1 * rng.normal(size=40)
    table = {"lat": lat, "lon": lon, "height": height}
    readings = xr.Dataset({"temp": ("p", temp, {"units": "degC"})}).assign_coords(
        {name: ("p", at) for name, at in table.items()}
    )
    readings.to_netcdf(tmp_path / "stations.nc", engine="h5netcdf")
    given = ("map", tmp_path / "stations.nc", "--target", "temp", "--kernel", "matern32")
    more = ("--max-seconds", "3", "--method", "exact", "--covariates", "height")
    out = tmp_path / f"map{ending}"
    run(*given, *more, "--grid", tmp_path / "in.nc", "--out", out)
    assert cf_rules.violations(out) == []
    found = raw(out)
    assert found["mean"].attrs["grid_mapping"] == "crs" == found["std"].attrs["grid_mapping"]
    assert np.isnan(found["mean"].values[2, 3]) and np.isnan(found["mean"]).sum() == 1
    assert set(found["mean"].attrs["coordinates"].split()) == {"lat", "lon"}


@FORMATS
def test_a_map_is_by_the_conventions(run, tmp_path, ending):
    rng = np.random.default_rng(0)
    lat, lon = rng.uniform(40, 60, 40), rng.uniform(-10, 10, 40)
    readings = xr.Dataset(
        {"temp": ("station", 15 + np.sin(lat / 4) + 0.1 * rng.normal(size=40),
                  {"units": "degC", "standard_name": "air_temperature", "cell_methods": "time: mean"})},
        coords={
            "lat": ("station", lat, {"units": "degrees_north", "standard_name": "latitude"}),
            "lon": ("station", lon, {"units": "degrees_east", "standard_name": "longitude"}),
            "day": ("station", pd.date_range("2024-01-01", periods=40), {"standard_name": "time"}),
        },
    )  # fmt: skip
    readings.to_netcdf(tmp_path / "stations.nc", engine="h5netcdf")
    lat = xr.Dataset(
        {"lat_bnds": (("lat", "nv"), [[55.0, 65.0], [45.0, 55.0]])},
        coords={
            "lat": ("lat", [60.0, 50.0], {"units": "degrees_north", "standard_name": "latitude", "bounds": "lat_bnds"}),
            "lon": ("lon", [0.0, 5.0], {"units": "degrees_east", "standard_name": "longitude"}),
        },
    )  # fmt: skip
    lat.to_netcdf(tmp_path / "grid.nc", engine="h5netcdf")
    given = ("map", tmp_path / "stations.nc", "--target", "temp", "--kernel", "matern32", "--max-seconds", "3",
             "--method", "exact")  # fmt: skip
    for out, grid in (("a", ("5", "--time", "day")), ("b", (tmp_path / "grid.nc",))):
        run(*given, "--grid", *grid, "--out", tmp_path / f"{out}{ending}")
        assert cf_rules.violations(tmp_path / f"{out}{ending}") == []
    found = raw(tmp_path / f"b{ending}")
    assert found["std"].attrs["units_metadata"] == "temperature: difference"
    assert found["mean"].attrs["ancillary_variables"] == "std"
    assert found.attrs["title"] == "temp of stations.nc, mapped"


def changed(folder, change):
    """The rules' answer to a file by the rules, changed."""
    dataset = raw(folder / "in.nc").drop_vars("flag")
    for name in ("tas", "tos"):
        for key in ("ancillary_variables", "valid_range", "actual_range"):
            dataset[name].attrs.pop(key, None)
    for name in ("height", "lat", "lat_bnds", "time_bnds"):
        dataset[name].attrs.pop("_FillValue", None)
    for name in ("time_bnds", "lat_bnds", "crs", "areacella"):
        dataset[name].attrs.pop("coordinates", None)
    dataset.attrs["Conventions"] = "CF-1.11"
    dataset["areacella"].attrs.setdefault("long_name", "area")
    dataset = change(dataset) if change else dataset
    for name in dataset.variables:
        dataset[name].encoding = {} if "_FillValue" in dataset[name].attrs else {"_FillValue": None}
    dataset.to_netcdf(folder / "changed.nc", engine="h5netcdf")
    return cf_rules.violations(folder / "changed.nc")


def with_attrs(name, **attrs):
    def change(dataset):
        owner = dataset if name is None else dataset[name]
        owner.attrs |= attrs
        owner.attrs = {key: value for key, value in owner.attrs.items() if value is not None}
        return dataset

    return change


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (None, None),
        (with_attrs(None, Conventions=None), "2.6.1"),
        (with_attrs(None, title=None), "2.6.2: no title"),
        (with_attrs(None, units="K"), "appendix A: units"),
        (lambda ds: ds.rename(tos="sea temp"), "2.3"),
        (with_attrs("tas", units=None), "tas: 3.1: no units"),
        (with_attrs("tas", units="hot"), "tas: 3.1"),
        (with_attrs("time", units="months since 1850-01-01"), "time: 4.4"),
        (with_attrs("time", calendar="lunar"), "time: 4.4.1"),
        (with_attrs("tas", units_metadata="difference"), "3.1.2"),
        (with_attrs("tas", standard_name="Air Temperature"), "3.3"),
        (with_attrs("tas", standard_name="air_temperature error"), "appendix C"),
        (with_attrs("lat", _FillValue=np.nan), "lat: 2.5.1"),
        (with_attrs("lat_bnds", _FillValue=np.nan), "lat_bnds: 2.5.1"),
        (lambda ds: ds.assign_coords(lat=("lat", [60.0, np.nan, 40, 30], ds.lat.attrs)), "2.5.1: a coordinate misses"),
        (with_attrs("tos", valid_range=[0.0, 1.0]), "valid range"),
        (with_attrs("tas", ancillary_variables="tas_std"), "3.4"),
        (lambda ds: ds.drop_vars("time_bnds"), "7.1: bounds names"),
        (lambda ds: ds.assign(lat_bnds=ds.lat_bnds + 10.0), "outside of its cells"),
        (lambda ds: ds.assign(lat_bnds=ds.time_bnds), "7.1: dimensions"),
        (with_attrs("time_bnds", units="hours since 1850-01-01"), "7.1: units"),
        (with_attrs("lat_bnds", coordinates="height"), "5: coordinates of"),
        (with_attrs("tas", coordinates="depth"), "5: coordinates names 'depth'"),
        (lambda ds: ds.drop_vars("crs"), "5.6"),
        (with_attrs("crs", grid_mapping_name=None), "5.6"),
        (lambda ds: ds.drop_vars("areacella"), "7.2"),
        (with_attrs("tas", cell_methods="time: average"), "7.3: method"),
        (with_attrs("tas", cell_methods="level: mean"), "7.3: cell_methods of"),
        (with_attrs("lat", units="degrees_east"), "4.1: latitude in"),
        (with_attrs("lat", standard_name=None), "4.1: latitude without"),
        (with_attrs("time", standard_name=None), "4.4: a time axis"),
        (lambda ds: with_attrs("lat", standard_name="projection_y_coordinate")(ds.drop_attrs(deep=False).assign(
            tas=ds.tas.drop_attrs())), "tas: 5.6: 'lat' is of a projection"),
        (lambda ds: ds.assign_coords(lat=("lat", [95.0, 50, 40, 30], ds.lat.attrs)), "4.1: latitude beyond"),
        (lambda ds: ds.isel(lat=[0, 2, 1, 3]), "1.3"),
        (with_attrs("lat", axis="T"), "4: axis T twice"),
        (with_attrs("tos", long_name=None), "3.2"),
    ],
)  # fmt: skip
def test_every_rule_has_something_against_a_file_that_breaks_it(folder, change, rule):
    found = changed(folder, change)
    if rule is None:
        assert found == []
    else:
        assert any(rule in text for text in found), found


def test_the_blocks_of_the_page_of_grids_run(tmp_path, monkeypatch):
    """Each as it stands, one after the other, on small files of the names that they open."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 4
    rng = np.random.default_rng(0)
    time, lat, lon = pd.date_range("2024-01-01", periods=6), [50.0, 45.0, 40.0], [0.0, 5.0, 10.0]
    coords = {"time": time, "lat": lat, "lon": lon}
    values = np.sin(np.arange(6))[:, None, None] + 0.1 * rng.normal(size=(6, 3, 3))
    values[rng.uniform(size=values.shape) < 0.2] = np.nan
    sst = xr.DataArray(values, dims=tuple(coords), coords=coords, attrs={"units": "degC"})
    error = xr.full_like(sst, 0.1)
    monkeypatch.chdir(tmp_path)
    xr.Dataset({"sst": sst, "sst_error": error}).to_netcdf("sst.nc", engine="h5netcdf")
    xr.Dataset({"tas": sst, "pr": 2.0 * sst}).to_netcdf("climate.nc", engine="h5netcdf")
    names = {"next_year": pd.date_range("2024-01-07", periods=2)}
    for block in blocks:
        exec(block, names)
    with xr.open_dataset("filled.nc", engine="h5netcdf") as filled:
        assert {"tas", "tas_std", "pr", "pr_std"} == set(filled.data_vars)
        assert filled["tas"].attrs["ancillary_variables"] == "tas_std"
    assert names["ahead"].sizes["time"] == 2 and set(names["model"].predict()) == {"mean", "std"}
