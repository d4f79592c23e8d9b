"""Tiles of one size: nothing of the filling is left in what is said of the rows."""

from __future__ import annotations

import numpy as np
import pytest

from vastgp.data import Standardizer, as_rows
from vastgp.data.tiles import array_tiles, over_tiles, row_tiles, tile_size


def test_a_tile_is_a_power_of_two_or_the_most():
    found = [tile_size(n, 100) for n in (1, 32, 33, 64, 65, 1000)]
    assert found == [32, 32, 64, 64, 100, 100]


def test_tiles_of_arrays_and_of_rows_hold_each_row_once():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(21, 3)), rng.normal(size=21)
    rows, index = as_rows(X, y), np.array([3, 20, 4, 4, 9])
    scaling = Standardizer().fit(rows)
    of_rows = list(row_tiles(rows, scaling, 8, "float32"))
    of_arrays = list(array_tiles(scaling.transform_X(X), scaling.transform_y(y), 8))
    assert [tile.num_rows for tile in of_rows] == [8, 8, 5]
    for some, other in zip(of_rows, of_arrays, strict=True):
        assert some.X.shape == (8, 3) and some.X.dtype == np.float32
        np.testing.assert_allclose(some.X, other.X, rtol=1e-6)
        np.testing.assert_array_equal(some.y, other.y)
        np.testing.assert_array_equal(some.weight, np.arange(8) < some.num_rows)
    (chosen,) = row_tiles(rows, scaling, 8, index=index)
    np.testing.assert_array_equal(chosen.X[:5], scaling.transform_X(X[index]))
    np.testing.assert_array_equal(chosen.y, scaling.transform_y(y[[*index, 9, 9, 9]]))


@pytest.mark.parametrize("axis", [0, -1])
def test_a_function_over_tiles_is_the_function(axis):
    rng, sizes = np.random.default_rng(0), []
    a, b = rng.normal(size=(2, 21)), rng.normal(size=21)
    a = a if axis else a.T

    def function(a, nothing, b):
        assert nothing is None
        sizes.append(b.shape)
        return {"sum": np.sum(a, axis=1 if axis == 0 else 0) + b, "own": a}

    parts = list(over_tiles(function, a, None, b, most=8, least=4, axis=axis))
    assert sizes == [(8,)] * 3
    found = {name: np.concatenate([part[name] for part in parts], axis=axis) for name in parts[0]}
    np.testing.assert_array_equal(found["own"], a)
    np.testing.assert_allclose(found["sum"], np.sum(a, axis=1 if axis == 0 else 0) + b)
