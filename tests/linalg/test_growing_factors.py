"""Factors made part by part, against dense ones: in panels of the host, and in tiles as an accelerator makes them.

Every size of a part is the same mathematics. The host stands for the accelerator.
"""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import precision
from vastgp.linalg.cholesky import FactorizationError
from vastgp.linalg.device_cholesky import factorize_on_device
from vastgp.linalg.panels import factorize_panels


def covariance(n=37, seed=0):
    root = np.random.default_rng(seed).normal(size=(n, n + 5))
    return root @ root.T / n + 0.1 * np.eye(n)


def in_panels(A, rows, dtype="float64", **options):
    def write(columns, out):
        out[...] = A[: columns.stop, columns]

    return factorize_panels(
        write, len(A), dtype, largest=float(A.max()), panel_rows=rows, **options
    )


def in_tiles(A, rows, dtype="float64", **options):
    filled = np.eye(-(-len(A) // rows) * rows)
    filled[: len(A), : len(A)] = A

    def make(i, j):
        with precision("float64"):
            return jnp.asarray(filled[i * rows : (i + 1) * rows, j * rows : (j + 1) * rows])

    return factorize_on_device(make, len(A), dtype, largest=float(A.max()), tile=rows, **options)


@pytest.fixture(params=[in_panels, in_tiles])
def factor_of(request):
    return partial(request.param, rows=8)


@pytest.mark.parametrize("rows", [1, 8, 37, 50])
@pytest.mark.parametrize("unit", [1.0, 3.0])
def test_solutions_and_determinant_are_those_of_the_matrix(factor_of, rows, unit):
    A = covariance()
    factor = factor_of(A, rows=rows)
    factor.scale(unit)
    A = unit**2 * A
    lower = np.linalg.cholesky(A)
    right = np.random.default_rng(1).normal(size=(37, 3))
    np.testing.assert_allclose(lower @ factor.half_solve(right), right, atol=1e-12)
    np.testing.assert_allclose(factor.half_product(right), lower @ right, atol=1e-11)
    np.testing.assert_allclose(A @ factor.solve(right[:, 0]), right[:, 0], atol=1e-12)
    assert factor.log_determinant == pytest.approx(np.linalg.slogdet(A)[1], rel=1e-12)
    np.testing.assert_allclose(factor.inverse_diagonal(), np.diag(np.linalg.inv(A)), rtol=1e-11)
    assert factor.jitter == 0.0


def test_right_sides_are_left_as_they_are(factor_of):
    right = np.ones((37, 2))
    factor_of(covariance()).solve(right)
    np.testing.assert_array_equal(right, 1.0)


def test_single_precision_is_kept_and_is_as_good_as_it_can_be(factor_of):
    A, right = covariance(), np.random.default_rng(1).normal(size=37)
    found = factor_of(A, dtype="float32").solve(right)
    assert found.dtype == np.float32
    exact = np.linalg.solve(A, right)
    error = np.max(np.abs(found - exact)) / np.max(np.abs(exact))
    assert 1e-9 < error < 1e-5  # rounded, and by no more than rounding times the condition number


def test_stopped_early_it_is_the_factor_of_the_leading_rows(factor_of):
    A, asked = covariance(), []

    def go_on(done, itemsize):
        asked.append((done, itemsize))
        return done < 20

    factor = factor_of(A, go_on=go_on)
    assert (factor.size, asked) == (24, [(8, 8), (16, 8), (24, 8)])
    right = np.random.default_rng(1).normal(size=24)
    np.testing.assert_allclose(A[:24, :24] @ factor.solve(right), right, atol=1e-12)


def test_rounding_below_zero_is_lifted_and_told(factor_of):
    A = covariance(20)
    values, vectors = np.linalg.eigh(A)
    values[0] = -1e-15
    A = (vectors * values) @ vectors.T
    factor = factor_of(0.5 * (A + A.T))
    assert 0.0 < factor.jitter < 1e-10 * A.max()


def test_it_ends_before_rows_that_need_more_jitter_than_may_be(factor_of):
    A = covariance(24)
    A[20:, :20], A[:20, 20:], A[20:, 20:] = A[:4, :20], A[:20, :4], A[:4, :4]  # rows again
    A[20:, 20:] -= 1e-15 * np.eye(4)
    assert factor_of(A).size == 24
    factor = factor_of(A, most_jitter=1e-18)
    assert (factor.size, factor.spoilt, factor.jitter) == (16, True, 0.0)
    right = np.random.default_rng(1).normal(size=16)
    np.testing.assert_allclose(A[:16, :16] @ factor.solve(right), right, atol=1e-12)
    with pytest.raises(FactorizationError, match=r"rows 0 to 24 .* with up to 0.0e"):
        factor_of(A, rows=24, most_jitter=1e-18)


@pytest.mark.parametrize("spoil", [-0.5, np.nan])
def test_a_matrix_that_is_indefinite_is_refused_with_its_rows(factor_of, spoil):
    A = covariance(20)
    A[10, 10] = spoil
    with pytest.raises(
        FactorizationError, match=r"rows 8 to 16 .* not positive definite in float64"
    ):
        factor_of(A)
