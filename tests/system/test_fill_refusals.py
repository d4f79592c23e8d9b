"""What `vastgp fill` cannot fill, told with its dimension and file; and what is not to be filled."""

import numpy as np
import pytest
import xarray as xr

import cf_rules
import vastgp
from climate_case import EAST, FAST, climate, raw

pytestmark = pytest.mark.little_work


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        (
            lambda ds: ds.assign(tas=ds.tas.fillna(280.0)),
            ("--var", "tas"),
            "'tas' of '{}' has a value in every cell (time: 12, lat: 4): there is nothing to fill",
        ),
        (
            lambda ds: ds.assign(tas=ds.tas * np.nan),
            ("--var", "tas"),
            "'tas' of '{}': data_array has 0 observed values of 48 (time: 12, lat: 4)",
        ),
        (
            lambda ds: ds.assign(tas=ds.tas.where((ds.lat == 60) & (ds.time == ds.time[0]))),
            ("--var", "tas", "--var", "tos"),
            "'tas' of '{}': data_array has 1 observed value of 48 (time: 12, lat: 4)",
        ),
        (
            lambda ds: ds.assign_coords(lat=("lat", [60.0, 50, 50, 30], ds.lat.attrs)),
            ("--var", "tas"),
            "'tas' of '{}': coordinate 'lat' has the value 50.0 more than once (positions 1 and 2)",
        ),
        (
            lambda ds: ds.assign_coords(lat=("lat", [60.0, np.nan, 40, 30], ds.lat.attrs)),
            ("--var", "tas"),
            "'tas' of '{}': coordinate 'lat' is not finite at position 1",
        ),
        (
            lambda ds: ds.assign_coords(lat=("lat", [95.0, 50, 40, 30], ds.lat.attrs)),
            ("--var", "tas"),
            "'tas' of '{}': coordinate 'lat' has latitude 95.0 at position 0, beyond 90 degrees",
        ),
        (
            lambda ds: ds.assign_coords(lat=("lat", [str(at) for at in (60.0, 50.0, 40.0, 30.0)])),
            ("--var", "tas"),
            "'tas' of '{}': coordinate 'lat' is text, such as '60.0'. Expected degrees as numbers",
        ),
        (
            lambda ds: ds.drop_vars("lat_bnds").assign_coords(lat=("lat", [0.0, 120, 240, 360], EAST)),
            ("--var", "tas"),
            "'tas' of '{}': coordinate 'lat' has 0.0 and 360.0 (positions 0 and 3), which are one meridian",
        ),
        (
            lambda ds: ds.isel(time=slice(0, 0)),
            ("--var", "tas"),
            "'tas' of '{}': dimension 'time' is empty (time: 0, lat: 4)",
        ),
        (
            lambda ds: ds.assign_coords(std=("lat", np.arange(4.0))),
            ("--var", "tas"),
            "'tas' of '{}': data_array has a coordinate 'std'",
        ),
        (
            lambda ds: ds,
            ("--var", "tas", "--kernel", "time=rbf", "--kernel", "time = matern32"),
            "--kernel is given more than once for time.",
        ),
        (
            lambda ds: ds,
            ("--var", "tas", "--var", "areacella"),
            "--var areacella: 'areacella' of '{}' is no field; others name it as",
        ),
        (
            lambda ds: ds.assign(orog=ds.areacella),
            ("--var", "tas", "--var", "orog"),
            "variable 'orog' of '{}' is not on the grid of 'tas' ('time', 'lat'): it has no dimension 'time'",
        ),
        (
            lambda ds: ds.assign(ua=(("time", "plev"), np.zeros((12, 3)))),
            ("--var", "tas", "--var", "ua"),
            "variable 'ua' of '{}' is not on the grid of 'tas' ('time', 'lat'): it has no dimension 'lat' and has the "
            "dimension 'plev' that the grid lacks",
        ),
        (
            lambda ds: ds,
            (),
            "'{}' has 2 variables ('tas', 'tos'); choose one with --var, or several on one grid",
        ),
        (lambda ds: ds, ("--var", "tas", "--var", "tas"), "--var tas is given more than once"),
        (
            lambda ds: ds,
            ("--var", "tas", "--var", "tos", "--noise-std", "flag"),
            "--noise-std is given 1 times for 2 variables ('tas', 'tos')",
        ),
        (
            lambda ds: ds.assign_coords(time=("time", np.arange(12), {"units": "months since 1850-01-01"})),
            ("--var", "tas"),
            "'{}' has times in 'months since 1850-01-01', of which no dates can be made. Months and years are not",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_filled_is_told_with_its_dimension_and_file(
    run, tmp_path, change, arguments, message
):
    source = tmp_path / "bad.nc"
    changed = change(climate())
    if "months" in message:
        changed = changed.drop_vars(["time_bnds"])
        changed["time"].attrs.pop("bounds", None)
    for name in changed.variables:
        if name in ("lat", "time") and changed[name].dtype.kind == "f":
            changed[name].encoding["_FillValue"] = None
    changed.to_netcdf(source, engine="h5netcdf")
    result = run("fill", source, "--out", tmp_path / "x.nc", *arguments, *FAST, code=2)
    assert message.format(source) in " ".join(result.err.split())
    assert not (tmp_path / "x.nc").exists()


def test_a_whole_field_is_fitted_where_its_model_is_wanted(run, tmp_path):
    whole = climate()[["tos"]].fillna(5.0)
    whole.to_netcdf(tmp_path / "whole.nc", engine="h5netcdf")
    given = ("fill", tmp_path / "whole.nc", "--out", tmp_path / "x.nc", *FAST)
    run(*given, "--save-model", tmp_path / "m.vastgp")
    assert vastgp.load(tmp_path / "m.vastgp").predict({"lat": [45.0]}).sizes == {
        "time": 12,
        "lat": 1,
    }


def test_a_chunk_that_is_not_of_its_size_is_told_with_its_file(run, tmp_path):
    source = tmp_path / "in.zarr"
    climate()[["tos"]].chunk({"time": 5}).to_zarr(source)
    chunk = source / "tos" / "c" / "1" / "0"
    assert chunk.exists()
    chunk.write_bytes(chunk.read_bytes()[:7])
    result = run("fill", source, "--out", tmp_path / "x.nc", *FAST, code=2)
    said = " ".join(result.err.split())
    assert f"'{source}'" in said and "(time: 12, lat: 4" in said and "cannot be read" in said
    # chunks of fields and errors need not be alike
    both = climate().chunk({"time": 5})
    both["tos"] = both["tos"].chunk({"time": 7, "lat": 3})
    plain = vastgp.GridGP(max_iter=2, tol=1.0, criterion="gcv")
    alike = plain.fit(climate()[["tas", "tos"]]).predict(return_std=False)
    found = plain.fit(both[["tas", "tos"]]).predict(return_std=False)
    xr.testing.assert_equal(found, alike)


def test_land_is_not_filled(run, tmp_path):
    land = xr.DataArray(
        [0, 1, 0, 0], dims="lat", attrs={"standard_name": "land_binary_mask", "units": "1"}
    )
    sea = (1 - land).assign_attrs(standard_name="sea_binary_mask")
    given = climate()[["tos", "tas"]]
    gaps = int(given["tos"].isnull().sel(lat=[60, 40, 30]).sum())
    given.assign(land=land).assign_coords(sea=sea).to_netcdf(tmp_path / "in.nc", engine="h5netcdf")
    given["tos"].where(given["tos"].notnull() | (given["lat"] == 50), 1.0).to_dataset().assign(
        land=land
    ).to_netcdf(tmp_path / "whole.nc", engine="h5netcdf")
    for mask in ("land", "sea"):
        out = tmp_path / f"{mask}.nc"
        said = run("fill", tmp_path / "in.nc", "--out", out, "--var", "tos", "--mask", mask, *FAST)
        assert f"{gaps} gaps of 48 points" in said.out
        missing = np.isnan(raw(out)["mean"]).any("time").values
        assert missing.tolist() == [False, True, False, False]
        assert cf_rules.violations(out) == []
    out = tmp_path / "x.nc"
    refused = run("fill", tmp_path / "whole.nc", "--out", out, "--mask", "land", *FAST, code=2)
    assert "(time: 12, lat: 4) that --mask leaves: there is nothing" in " ".join(
        refused.err.split()
    )
    refused = run("fill", tmp_path / "in.nc", "--out", out, "--var", "tos", "--mask", "lnd", code=2)
    assert "has no variable 'lnd'. Did you mean 'land'?" in refused.err


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([0, 255, 0, 255], "--mask land of '{}' holds 255 in 2 of 4 cells. Expected 1 in every cell"),
        ([0.0, 1.0, 0.3, 0.0], "--mask land of '{}' holds 0.3 in 1 of 4 cells. Expected 1 in every"),
        ([np.nan, 1.0, np.nan, 1.0], "holds nothing (NaN) in 2 of 4 cells. Expected 1 in every cell that is not to "
         "be filled, 0 elsewhere: give 0 where it is missing"),
        (["sea", "land", "sea", "sea"], "--mask land of '{}' holds 'sea' in 4 of 4 cells. Expected 1 in every"),
    ],
)  # fmt: skip
def test_a_mask_of_other_values_is_told_by_its_option(run, tmp_path, values, said):
    source = tmp_path / "in.nc"
    climate().assign(land=("lat", values)).to_netcdf(source, engine="h5netcdf")
    given = ("--out", tmp_path / "out.nc", "--var", "tos", "--mask", "land", *FAST)
    assert said.format(source) in run("fill", source, *given, code=2).err
