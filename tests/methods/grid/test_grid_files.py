"""Coordinates of every kind in files of models, and names that predictions have."""

import numpy as np
import pytest
import xarray as xr

import vastgp
from vastgp import RBF, GridGP
from vastgp.methods.grid.files import decode_coords, encode_coords
from vastgp.options import Evidence, Fixed

OPTIONS = {"hyperparameters": Fixed(noise_std=0.1), "criterion": Evidence(num_probes=0)}
NAMES = np.array([b"Oslo", b"Z\xfcrich", b""])


def field():
    values = np.random.default_rng(0).standard_normal((5, 3))
    coords = {"day": np.arange(5.0), "x": ("x", [0.0, 1.0, 3.0], {"units": "m"})}
    return xr.DataArray(values, dims=("day", "x"), coords=coords).where(values < 1.0)


def again(model, tmp_path):
    model.save(tmp_path / "m.vastgp")
    return vastgp.load(tmp_path / "m.vastgp")


@pytest.mark.parametrize(
    "names",
    [NAMES, np.array(["a", np.nan, "c"], dtype=object), np.array(["a", None, "c"], dtype=object)],
    ids=["bytes", "missing", "none"],
)
def test_text_beside_the_grid_comes_back(names, tmp_path):
    """Bytes are what files with text of one length hold."""
    array = field().assign_coords(station=("x", names))
    model = GridGP({"day": RBF(2.0), "x": RBF(1.0)}, **OPTIONS).fit(array)
    found = again(model, tmp_path).predict()
    xr.testing.assert_identical(found.drop_vars("station"), model.predict().drop_vars("station"))
    assert found.station.dtype == names.dtype
    expected = xr.DataArray(names, dims="x").fillna("none") if names.dtype == object else names
    got = found.station.fillna("none") if names.dtype == object else found.station
    assert list(got.values) == list(np.asarray(expected))


def test_labels_of_outputs_may_be_bytes(tmp_path):
    array = field().assign_coords(x=NAMES)
    model = GridGP(tol=0.1, criterion=Evidence(num_probes=0)).fit(array)
    loaded = again(model, tmp_path)
    asked = {"x": [b"Oslo"], "day": [0.5]}
    xr.testing.assert_identical(loaded.predict(), model.predict())
    xr.testing.assert_identical(loaded.predict(asked), model.predict(asked))


@pytest.mark.parametrize("levels", [("day", "place"), ("place", "depth")])
def test_levels_of_text_are_stacked_again(levels):
    """Every level has the index of them all, and is none of its own."""
    coords = {"day": [0.0, 1.0], "place": ["a", "b"], "depth": ["low", "high"]}
    array = xr.DataArray(np.zeros((2, 2, 2)), coords=coords, dims=tuple(coords))
    coordinates = array.stack(both=levels).coords
    found = decode_coords(*encode_coords(coordinates.to_dataset()))
    xr.testing.assert_identical(found, coordinates.to_dataset())


def test_stacked_dimensions_come_back(tmp_path):
    """One kernel for the names of a stacked dimension is what messages advise."""
    stacked = field().stack(cell=("day", "x"))
    model = GridGP({("day", "x"): RBF(2.0).with_ard(2)}, **OPTIONS).fit(stacked)
    loaded, expected = again(model, tmp_path).predict(), model.predict()
    xr.testing.assert_identical(loaded, expected)
    xr.testing.assert_identical(loaded.unstack("cell"), expected.unstack("cell"))
    assert loaded.x.attrs == {"units": "m"}
    mean = expected["mean"].unstack("cell")
    two = GridGP({("day", "x"): RBF(2.0).with_ard(2)}, **OPTIONS).fit(field()).predict()["mean"]
    np.testing.assert_allclose(mean, two, rtol=1e-6, atol=1e-8)


def test_what_no_file_can_store_is_refused_by_name():
    template = xr.Dataset(coords={"z": ("x", np.array([1.0 + 2.0j, 0.0]))})
    with pytest.raises(ValueError, match=r"coordinate 'z' holds complex128 objects"):
        encode_coords(template)
    plain = xr.Dataset(coords={"x": [0.0, 1.0], "season": ("x", ["cold", "warm"])})
    xr.testing.assert_identical(decode_coords(*encode_coords(plain)), plain)


@pytest.mark.parametrize("name", ["mean", "std"])
def test_coordinates_called_as_predictions_are_refused_before_the_work(name):
    kernels = {"day": RBF(2.0), "x": RBF(1.0)}
    for array in (
        field().rename(x=name),
        field().rename(x=name).drop_vars(name),
        field().assign_coords({name: ("x", [1, 2, 3])}),
    ):
        with pytest.raises(ValueError, match=rf"data_array has a \w+ '{name}'.*\.rename\({name}="):
            GridGP(**OPTIONS).fit(array)
        with pytest.raises(ValueError, match=rf"data_array has a \w+ '{name}'"):
            GridGP(**OPTIONS).fit(array.to_dataset(name="u"))
    model = GridGP(kernels, **OPTIONS).fit(field())
    for asked in (
        field().assign_coords({name: ("x", [1, 2, 3])}),
        {one: xr.DataArray([1.0, 2.0], dims=name) for one in ("day", "x")},
    ):
        with pytest.raises(ValueError, match=rf"asked for has a \w+ '{name}'.*\.rename\({name}="):
            model.predict(asked)


def test_draws_have_a_dimension_of_their_own():
    model = GridGP({"sample": RBF(2.0), "x": RBF(1.0)}, **OPTIONS).fit(field().rename(day="sample"))
    assert model.predict()["mean"].dims == ("sample", "x")
    with pytest.raises(ValueError, match=r"has a dimension 'sample'.*\.rename\(sample="):
        model.sample_y(n_samples=5)
