"""`vastgp fill`: gridded files in and out, whole or not at all."""

import numpy as np
import pytest
import xarray as xr

import vastgp

FAST = ("--kernel", "x=rbf", "--kernel", "t=rbf")


@pytest.fixture(scope="module")
def field():
    t, x = np.arange(12.0), np.linspace(1.0, 0.0, 9)  # descending, as latitude in climate files
    values = 20.0 + np.sin(t / 3)[:, None] * np.cos(2 * x)
    values = values + 0.05 * np.random.default_rng(0).normal(size=values.shape)
    values[4:6, 3:7] = np.nan
    return xr.DataArray(
        values,
        dims=("t", "x"),
        coords={"t": t, "x": x, "season": ("t", np.tile([0, 1], 6))},
        name="sst",
        attrs={"units": "degC"},
    )


@pytest.fixture(scope="module")
def files(field, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fill")
    both = xr.Dataset({"sst": field, "depth": ("x", np.arange(9.0))})
    both.to_netcdf(folder / "in.nc", engine="h5netcdf")
    field.to_dataset().chunk({"t": 4}).to_zarr(folder / "in.zarr")
    (folder / "broken.nc").write_text("no file of this kind")
    return folder


def test_netcdf_and_zarr_are_filled_alike(run, files, field):
    result = run("fill", files / "in.nc", "--var", "sst", "--out", files / "out.nc", *FAST)
    assert "8 gaps of 108 points" in result.out
    assert "noise" in result.out and "log evidence" in result.out
    with xr.open_dataset(files / "out.nc", engine="h5netcdf") as filled:
        assert set(filled.data_vars) == {"mean", "std"}
        assert filled["mean"].dims == ("t", "x")
        assert filled["std"].attrs["units"] == "degC"
        assert np.isfinite(filled["mean"]).all()
        np.testing.assert_array_equal(filled["x"], field["x"])
        near = np.abs(filled["mean"] - field) < 4 * filled["std"]
        assert bool(near.where(field.notnull(), True).all())
        run(
            "fill", files / "in.zarr", "--out", files / "out.zarr", *FAST,
            "--save-model", files / "m.vastgp", "--set", "verbose=false",
        )  # fmt: skip
        with xr.open_zarr(files / "out.zarr") as other:
            xr.testing.assert_allclose(other.load(), filled.load(), rtol=1e-10)
    model = vastgp.load(files / "m.vastgp")
    assert model.predict({"t": [12.0]}).sizes == {"t": 1, "x": 9}
    shown = run("info", files / "m.vastgp").out
    assert "GridGP" in shown and "x: RBF" in shown and "t: 12, x: 9" in shown
    refused = run("predict", files / "m.vastgp", files / "in.nc", "--out", files / "p.csv", code=2)
    assert "holds a GridGP, whose data are a grid and not rows" in refused.err
    leftovers = [path.name for path in files.iterdir() if path.name.startswith(".")]
    assert leftovers == []
    again = run("fill", files / "in.zarr", "--out", files / "out.zarr", *FAST, code=2)
    assert "exists; choose another name, or replace it with --force" in again.err


def test_known_errors_come_from_a_variable_of_the_file(run, files, field):
    error = (0.01 + 2.0 * (field.x > 0.6)).broadcast_like(field).rename("sst_error")
    xr.Dataset({"sst": field, "sst_error": error}).to_netcdf(files / "errors.nc", engine="h5netcdf")
    arguments = ("fill", files / "errors.nc", "--noise-std", "sst_error", *FAST)
    run(*arguments, "--out", files / "known.nc")
    model = vastgp.GridGP({"x": "rbf", "t": "rbf"}).fit(field, noise_std=error)
    with xr.open_dataset(files / "known.nc", engine="h5netcdf") as filled:
        xr.testing.assert_allclose(filled.load(), model.predict(), rtol=1e-6)
    arguments = ("fill", files / "errors.nc", "--noise-std", "sst_eror", "--out", files / "no.nc")
    assert "no variable 'sst_eror'. Did you mean 'sst_error'?" in run(*arguments, code=2).err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("in.nc", "--out", "x.nc"), "has 2 variables ('sst', 'depth'); choose one with --var"),
        (("in.nc", "--var", "sts", "--out", "x.nc"), "no variable 'sts'. Did you mean 'sst'?"),
        (("in.nc", "--var", "sst", "--out", "x.csv"), "one of .nc, .nc4, .zarr; got '.csv'"),
        (
            ("in.nc", "--var", "sst", "--out", "x.nc", "--set", "solvr=1"),
            "an argument of GridGP. Did you mean 'solver'?",
        ),
        (("im.nc", "--out", "x.nc"), "does not exist. Did you mean 'in.nc'?"),
        (("broken.nc", "--out", "x.nc"), "is no NetCDF 4 file and no Zarr folder"),
        (("in.nc", "--var", "sst", "--out", "no/x.nc"), "does not exist. Make it first"),
        (
            ("in.nc", "--var", "sst", "--out", "x.nc", "--kernel", "rbf"),
            "--kernel 'rbf': expected DIMS=KERNEL",
        ),
        (
            ("in.nc", "--var", "sst", "--out", "x.nc", "--kernel", "y=rbf"),
            "no dimension or coordinate 'y'",
        ),
        (
            ("in.nc", "--var", "sst", "--out", "x.nc", "--solver", "fast"),
            "solver must be one of",
        ),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_written(run, files, arguments, message):
    given = [files / a if "." in a and "=" not in a else a for a in arguments]
    result = run("fill", *given, code=2)
    assert message in " ".join(result.err.split())
    assert not (files / "x.nc").exists()
