"""What a factor in tiles has beside that of panels (`test_growing_factors`); the host stands for the accelerator."""

import jax
import jax.numpy as jnp
import numpy as np

from linalg.test_growing_factors import covariance, in_tiles
from vastgp._precision import precision
from vastgp.linalg.device_cholesky import belongs_on_device, rows_on_device, seconds_on_device


def test_tiles_of_the_inverse_are_those_of_the_inverse():
    factor = in_tiles(covariance(), 8)
    factor.scale(2.0)
    inverse = np.linalg.inv(4.0 * covariance())
    places = []
    for i, j, tile in factor.inverse_tiles():
        expected = inverse[8 * i : 8 * (i + 1), 8 * j : 8 * (j + 1)]
        found = np.asarray(tile)[: expected.shape[0], : expected.shape[1]]
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
        places.append((i, j))
    assert places == [(i, j) for i in range(5) for j in range(i + 1)]


def test_what_lies_on_the_device_stays_there_and_what_is_of_numpy_comes_back():
    factor = in_tiles(covariance(), 8)
    right = np.random.default_rng(1).normal(size=(37, 2))
    with precision("float64"):
        on_device = factor.solve(jnp.asarray(right))
    assert isinstance(on_device, jax.Array)
    found = factor.solve(right)
    found[0] = 0.0  # its own memory
    np.testing.assert_array_equal(np.asarray(on_device)[1:], found[1:])


def test_work_takes_longer_than_products_of_as_many_operations():
    n = 20_000
    assert seconds_on_device(n, 1.0) > 2.0 * seconds_on_device(n) > 0.0
    # no accelerator
    assert rows_on_device(8) is None and not belongs_on_device(10, 4)
