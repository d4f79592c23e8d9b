"""Factors in tiles, as an accelerator makes them, against dense ones; the host stands for the device."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import precision
from vastgp.linalg.cholesky import FactorizationError
from vastgp.linalg.device_cholesky import factorize_on_device, rows_on_device, seconds_on_device


def covariance(n=37, seed=0):
    root = np.random.default_rng(seed).normal(size=(n, n + 5))
    return root @ root.T / n + 0.1 * np.eye(n)


def factor_of(A, dtype="float64", tile=8, **options):
    count = -(-len(A) // tile)
    filled = np.eye(count * tile)
    filled[: len(A), : len(A)] = A

    def make(i, j):
        with precision("float64"):
            return jnp.asarray(filled[i * tile : (i + 1) * tile, j * tile : (j + 1) * tile])

    return factorize_on_device(make, len(A), dtype, largest=float(A.max()), tile=tile, **options)


@pytest.mark.parametrize("tile", [1, 8, 37, 50])
def test_solutions_and_determinant_are_those_of_the_matrix(tile):
    A = covariance()
    factor = factor_of(A, tile=tile)
    lower = np.linalg.cholesky(A)
    right = np.random.default_rng(1).normal(size=(37, 3))
    np.testing.assert_allclose(lower @ factor.half_solve(right), right, atol=1e-12)
    np.testing.assert_allclose(factor.half_product(right), lower @ right, atol=1e-12)
    np.testing.assert_allclose(A @ factor.solve(right[:, 0]), right[:, 0], atol=1e-12)
    assert factor.log_determinant == pytest.approx(np.linalg.slogdet(A)[1], rel=1e-12)
    np.testing.assert_allclose(factor.inverse_diagonal(), np.diag(np.linalg.inv(A)), rtol=1e-11)
    assert factor.jitter == 0.0


def test_tiles_of_the_inverse_are_those_of_the_inverse():
    A, factor = covariance(), factor_of(covariance())
    factor.scale(2.0)
    inverse = np.linalg.inv(4.0 * A)
    places = []
    for i, j, tile in factor.inverse_tiles():
        expected = inverse[8 * i : 8 * (i + 1), 8 * j : 8 * (j + 1)]
        found = np.asarray(tile)[: expected.shape[0], : expected.shape[1]]
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
        places.append((i, j))
    assert places == [(i, j) for i in range(5) for j in range(i + 1)]


def test_what_lies_on_the_device_stays_there_and_what_is_of_numpy_comes_back():
    factor = factor_of(covariance())
    right = np.random.default_rng(1).normal(size=(37, 2))
    with precision("float64"):
        on_device = factor.solve(jnp.asarray(right))
    assert isinstance(on_device, jax.Array)
    found = factor.solve(right)
    found[0] = 0.0  # its own memory
    np.testing.assert_array_equal(np.asarray(on_device)[1:], found[1:])


def test_scaled_it_is_the_factor_of_the_scaled_matrix():
    A, factor = covariance(), factor_of(covariance())
    factor.scale(3.0)
    right = np.random.default_rng(1).normal(size=(37, 2))
    np.testing.assert_allclose(9.0 * A @ factor.solve(right), right, atol=1e-11)
    lower = 3.0 * np.linalg.cholesky(A)
    np.testing.assert_allclose(lower @ factor.half_solve(right), right, atol=1e-11)
    np.testing.assert_allclose(factor.half_product(right), lower @ right, atol=1e-11)
    assert factor.log_determinant == pytest.approx(np.linalg.slogdet(9.0 * A)[1], rel=1e-12)


def test_single_precision_is_kept_and_is_as_good_as_it_can_be():
    A, right = covariance(), np.random.default_rng(1).normal(size=37)
    found = factor_of(A, "float32").solve(right)
    assert found.dtype == np.float32
    exact = np.linalg.solve(A, right)
    error = np.max(np.abs(found - exact)) / np.max(np.abs(exact))
    assert 1e-9 < error < 1e-5


def test_stopped_early_it_is_the_factor_of_the_leading_rows():
    A, asked = covariance(), []

    def go_on(done, itemsize):
        asked.append((done, itemsize))
        return done < 20

    factor = factor_of(A, go_on=go_on)
    assert (factor.size, asked) == (24, [(8, 8), (16, 8), (24, 8)])
    right = np.ones(24)
    np.testing.assert_allclose(A[:24, :24] @ factor.solve(right), right, atol=1e-12)


def test_rounding_below_zero_is_lifted_and_what_is_not_definite_refused():
    A = np.ones((20, 20))  # of rank one
    factor = factor_of(A)
    assert 0.0 < factor.jitter < 1e-9
    with pytest.raises(FactorizationError, match="rows 8 to 16"):
        factor_of(np.diag([*np.ones(10), -1.0, *np.ones(9)]))
    with pytest.raises(FactorizationError, match="rows 0 to 8"):
        factor_of(np.full((20, 20), np.nan))


def test_work_takes_longer_than_products_of_as_many_operations():
    n = 20_000
    assert seconds_on_device(n, 1.0) > 2.0 * seconds_on_device(n) > 0.0
    assert rows_on_device(8) is None  # no accelerator
