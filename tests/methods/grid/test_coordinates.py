"""Coordinates of a grid: whichever way they run, and what else runs along them."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import vastgp
from vastgp import GridGP
from vastgp.options import Evidence, VarianceSamples

OPTIONS = {"tol": 0.05, "criterion": Evidence(num_probes=0)}


@pytest.fixture(scope="module")
def field():
    rng = np.random.default_rng(0)
    time, lat = pd.date_range("2024-01-01", periods=10), np.array([40.0, 41.0, 43.0, 44.0])
    values = np.sin(np.arange(10) / 3)[:, None] * np.cos(lat / 2) + 0.1 * rng.normal(size=(10, 4))
    values[rng.uniform(size=values.shape) < 0.25] = np.nan
    coords = {"time": time, "lat": lat, "season": ("time", ["cold"] * 6 + ["warm"] * 4)}
    coords |= {"zone": ("lat", [1, 1, 2, 2])}
    return xr.DataArray(values, dims=("time", "lat"), coords=coords, name="t2m")


@pytest.fixture(scope="module")
def model(field):
    return GridGP(**OPTIONS).fit(field)


@pytest.mark.parametrize(
    "turn",
    [
        {"lat": [3, 2, 1, 0]},
        {"lat": [2, 0, 3, 1], "time": [*range(9, -1, -1)]},
    ],
    ids=["descending", "any"],
)
def test_results_stand_in_the_order_of_the_data_and_do_not_depend_on_it(
    field, model, turn, tmp_path
):
    turned = GridGP(**OPTIONS).fit(field.isel(turn))
    assert turned.n_iter_ == model.n_iter_
    ahead = {"time": pd.date_range("2024-01-12", periods=2)}
    for ask in (
        lambda m: m.predict(variance=VarianceSamples(4)),
        lambda m: m.predict(ahead, variance="exact"),
        lambda m: m.sample_y(),
    ):
        here = {dim: index for dim, index in turn.items() if ask(turned).sizes[dim] == len(index)}
        xr.testing.assert_allclose(ask(turned), ask(model).isel(here), rtol=1e-9, atol=1e-9)
        for name in ("time", "lat"):
            same = ask(model).isel(here)[name]
            np.testing.assert_array_equal(ask(turned)[name], same)
    turned.save(tmp_path / "m.vastgp")
    xr.testing.assert_identical(
        vastgp.load(tmp_path / "m.vastgp").predict(ahead), turned.predict(ahead)
    )


def test_other_coordinates_along_a_dimension_come_along(field, model):
    whole = model.predict(return_std=False)
    xr.testing.assert_allclose(model.predict(field, return_std=False), whole, rtol=1e-12)
    later = field[4:].assign_coords(time=field.time[4:] + np.timedelta64(12, "h"))
    predicted = model.predict(later)
    assert predicted["season"].variable.identical(later["season"].variable)
    assert predicted["zone"].variable.identical(field["zone"].variable)
    density = model.log_predictive_density(later)
    assert density.dims == later.dims and density.sizes == later.sizes
    # points along a dimension of their own keep what else is known of them
    ship = xr.Dataset(
        {"lat": ("hour", [40.5, 41.5]), "time": ("hour", field.time.values[[3, 4]])},
        coords={"hour": [3, 9], "name": ("hour", ["a", "b"])},
    )
    along = model.predict(ship, return_std=False)
    assert along["mean"].dims == ("hour",) and {"hour", "name"} <= set(along.coords)
    chart = model.predict({"lat": [40.5, 41.5], "time": field.time.values[3:5]}, return_std=False)
    np.testing.assert_allclose(along["mean"], np.diagonal(chart["mean"]), rtol=1e-9)
    # a single point of a dimension is no dimension of the result
    assert model.predict(field.isel(time=3), return_std=False)["mean"].dims == ("lat",)
