"""Cells that are not to be filled: no part of the fit, and missing in predictions of the same cells."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import vastgp
from vastgp import RBF, GridGP, Matern32
from vastgp.options import Fixed

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
