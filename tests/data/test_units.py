"""New coordinates and covariates are in the units of the fit, whatever units they come in."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import vastgp
from stations_by_hand import GIVEN, made
from vastgp.data.units import in_units_of_fit

pytestmark = pytest.mark.little_work


@pytest.mark.parametrize(
    ("theirs", "ours", "factor"),
    [
        ("km", "m", 1e3),
        ("meters", "metre", 1.0),
        ("hPa", "mbar", 1.0),
        ("dbar", "Pa", 1e4),
        ("degrees_north", "degree", 1.0),
        ("degrees_E", "degrees_east", 1.0),
        ("radians", "degrees", 180.0 / np.pi),
        ("deg C", "degC", 1.0),
        ("degrees_Celsius", "degC", 1.0),
        ("Celsius", "degree_Celsius", 1.0),
        ("Kilometers", "m", 1e3),
        ("no such unit", "no such unit", 1.0),
        ("hours since 2000-01-01", "days since 2000-01-01", 1.0),
        (None, "m", 1.0),
        ("m", None, 1.0),
    ],
)
def test_what_is_known_is_converted(theirs, ours, factor):
    attrs = [{} if unit is None else {"units": unit} for unit in (theirs, ours)]
    found = in_units_of_fit(np.array([1.0, 2.0]), *attrs, "z")
    np.testing.assert_allclose(found, factor * np.array([1.0, 2.0]), rtol=1e-15)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("degC", "K"),
        ("m", "hPa"),
        ("furlong", "m"),
        ("s", "%"),
        ("ms", "m"),
        ("Mm", "m"),
        ("NM", "m"),
    ],
)
def test_what_is_not_is_refused_by_name(theirs, ours):
    with pytest.raises(
        ValueError, match=f"'z' has the units '{theirs}', and that of the fit '{ours}'"
    ):
        in_units_of_fit(np.ones(2), {"units": theirs}, {"units": ours}, "z")


def test_a_grid_in_kilometres_is_that_in_metres():
    z, x = np.arange(12.0) * 100.0, np.arange(8.0)
    field = xr.DataArray(
        np.sin(z / 300.0)[:, None] * np.cos(x), dims=("z", "x"),
        coords={"z": ("z", z, {"units": "m"}), "x": x}, name="f",
    )  # fmt: skip
    model = vastgp.GridGP(max_iter=3).fit(field.where((field.z != 300.0) | (field.x != 2.0)))
    new = xr.Dataset(coords={"z": ("z", [150.0, 250.0], {"units": "m"}), "x": x})
    other = new.assign_coords(z=("z", [0.15, 0.25], {"units": "km"}))
    found, expected = model.predict(other), model.predict(new)
    np.testing.assert_allclose(found["mean"], expected["mean"], rtol=1e-9)
    np.testing.assert_array_equal(found["z"], [0.15, 0.25])
    with pytest.raises(ValueError, match="'z' has the units 'hPa', and that of the fit 'm'"):
        model.predict(new.assign_coords(z=("z", [150.0], {"units": "hPa"})))


def test_a_covariate_of_stations_is_in_the_units_of_the_fit():
    table = made()
    readings = xr.Dataset.from_dataframe(table[["lat", "lon", "temp", "height"]].rename_axis("obs"))
    readings["height"].attrs["units"] = "m"
    fitted = vastgp.StationGP(**GIVEN, method="exact").fit(readings, "temp", covariates="height")
    grid = xr.Dataset(
        {"height": (("lat", "lon"), np.full((2, 2), 300.0), {"units": "m"})},
        {"lat": [5.0, 10.0], "lon": [5.0, 10.0]},
    )
    other = grid.assign(height=(0.001 * grid["height"]).assign_attrs(units="km"))
    expected = fitted.predict(grid)["mean"]
    np.testing.assert_allclose(fitted.predict(other)["mean"], expected, rtol=1e-12)
    with pytest.raises(ValueError, match="'height' has the units 'K'"):
        fitted.predict(grid.assign(height=grid["height"].assign_attrs(units="K")))
    rows = pd.DataFrame({"lat": [5.0], "lon": [5.0], "height": [300.0]})
    assert fitted.predict(rows)["mean"][0] == pytest.approx(float(expected[0, 0]))
