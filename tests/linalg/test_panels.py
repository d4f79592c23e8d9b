"""Factors in panels, against dense ones: every panel size is the same mathematics."""

import numpy as np
import pytest

from vastgp.linalg.cholesky import FactorizationError
from vastgp.linalg.panels import factorize_panels


def covariance(n=37, seed=0):
    root = np.random.default_rng(seed).normal(size=(n, n + 5))
    return root @ root.T / n + 0.1 * np.eye(n)


def factor_of(A, dtype="float64", **options):
    def write(rows, out):
        out[...] = A[: rows.stop, rows]

    return factorize_panels(write, len(A), dtype, largest=float(A.max()), **options)


@pytest.mark.parametrize("panel_rows", [1, 8, 37, 50])
def test_solutions_and_determinant_are_those_of_the_matrix(panel_rows):
    A = covariance()
    factor = factor_of(A, panel_rows=panel_rows)
    lower = np.linalg.cholesky(A)
    right = np.random.default_rng(1).normal(size=(37, 3))
    np.testing.assert_allclose(lower @ factor.half_solve(right), right, atol=1e-12)
    np.testing.assert_allclose(factor.half_product(right), lower @ right, atol=1e-12)
    np.testing.assert_allclose(A @ factor.solve(right[:, 0]), right[:, 0], atol=1e-12)
    assert factor.log_determinant == pytest.approx(np.linalg.slogdet(A)[1], rel=1e-12)
    np.testing.assert_allclose(factor.inverse_diagonal(), np.diag(np.linalg.inv(A)), rtol=1e-11)
    assert factor.jitter == 0.0


def test_right_sides_are_left_as_they_are():
    A, right = covariance(), np.ones((37, 2))
    factor_of(A, panel_rows=8).solve(right)
    np.testing.assert_array_equal(right, 1.0)


def test_single_precision_is_kept_and_is_as_good_as_it_can_be():
    A, right = covariance(), np.random.default_rng(1).normal(size=37)
    factor = factor_of(A, "float32", panel_rows=8)
    found = factor.solve(right)
    assert found.dtype == np.float32
    exact = np.linalg.solve(A, right)
    error = np.max(np.abs(found - exact)) / np.max(np.abs(exact))
    assert 1e-9 < error < 1e-5  # rounded, and by no more than rounding times the condition number


def test_stopped_early_it_is_the_factor_of_the_leading_rows():
    A, asked = covariance(), []

    def go_on(done, itemsize):
        asked.append((done, itemsize))
        return done < 20

    factor = factor_of(A, panel_rows=8, go_on=go_on)
    assert (factor.size, asked) == (24, [(8, 8), (16, 8), (24, 8)])
    right = np.random.default_rng(1).normal(size=24)
    np.testing.assert_allclose(A[:24, :24] @ factor.solve(right), right, atol=1e-12)


def test_rounding_below_zero_is_lifted_and_told():
    A = covariance(20)
    values, vectors = np.linalg.eigh(A)
    values[0] = -1e-15
    A = (vectors * values) @ vectors.T
    factor = factor_of(0.5 * (A + A.T), panel_rows=8)
    assert 0.0 < factor.jitter < 1e-10 * A.max()


@pytest.mark.parametrize("spoil", [-0.5, np.nan])
def test_a_matrix_that_is_indefinite_is_refused_with_its_rows(spoil):
    A = covariance(20)
    A[10, 10] = spoil
    with pytest.raises(
        FactorizationError, match=r"rows 8 to 16 .* not positive definite in float64"
    ):
        factor_of(A, panel_rows=8)
