"""Factorisation on the host: the factor, what it solves, and what it says when it fails."""

import re

import numpy as np
import pytest

from vastgp.linalg.cholesky import FactorizationError, factorize


def covariance(n=30, seed=0):
    root = np.random.default_rng(seed).normal(size=(n, n + 5))
    return root @ root.T / n


def test_the_factor_solves_and_inverts():
    A, right = covariance(), np.random.default_rng(1).normal(size=(30, 3))
    factor = factorize(A, 0.5)
    full = A + 0.5 * np.eye(30)
    lower = np.tril(factor.lower)
    np.testing.assert_allclose(lower @ lower.T, full, atol=1e-12)
    assert factor.jitter == 0.0
    assert factor.log_determinant == pytest.approx(np.linalg.slogdet(full)[1], rel=1e-12)
    np.testing.assert_allclose(full @ factor.solve(right), right, atol=1e-11)
    np.testing.assert_allclose(lower @ factor.half_solve(right), right, atol=1e-11)
    inverse = factor.into_inverse()
    np.testing.assert_allclose(np.tril(inverse), np.tril(np.linalg.inv(full)), atol=1e-11)


def test_the_matrix_is_left_as_it_is_and_memory_is_used_again():
    A = covariance()
    before, work = A.copy(), np.empty((30, 30), order="F")
    assert factorize(A, 0.1, work=work).lower is work
    np.testing.assert_array_equal(A, before)


def test_jitter_grows_until_it_is_enough():
    A = covariance(20)
    values, vectors = np.linalg.eigh(A)
    values[0] = -3e-9 * np.mean(np.diag(A))  # indefinite by a little
    A = (vectors * values) @ vectors.T
    factor = factorize((A + A.T) / 2.0)
    assert factor.jitter == pytest.approx(1e-8 * np.mean(np.diag(A)), rel=1e-6)


def test_a_hopeless_matrix_reports_jitter_condition_and_advice():
    A = np.diag([1.0, 2.0, 3.0, -0.5])
    with pytest.raises(FactorizationError) as caught:
        factorize(A, what="the matrix", advice="Change it.")
    message = str(caught.value)
    assert "the matrix (4 x 4) could not be factorised" in message
    assert "jitter up to 1e-06 of its mean diagonal (1.38)" in message
    assert "smallest eigenvalue -5.0e-01: zero or negative" in message
    assert message.endswith("Change it.")


def test_the_condition_number_is_estimated():
    # positive definite, but not by more than the jitter that this caller allows
    A = np.diag(np.concatenate([np.full(9, 1.0), [-1e-3]])) + 1.1e-3 * np.eye(10)
    with pytest.raises(FactorizationError) as caught:
        factorize(A, -2e-4)
    assert "estimated condition number above" in str(caught.value)
    with pytest.raises(FactorizationError) as caught:
        factorize(
            A, jitters=(-0.5,)
        )  # a jitter that spoils a good matrix shows the estimate of a good one
    estimate = float(re.search(r"condition number ([0-9.e+]+)\.", str(caught.value)).group(1))
    assert estimate == pytest.approx(1.0011 / 1e-4, rel=0.05)


def test_nan_is_named():
    A = covariance(5)
    A[3, 1] = A[1, 3] = np.nan
    with pytest.raises(FactorizationError, match=r"\(5 x 5\) holds NaN or infinity"):
        factorize(A)
    A[2, 2] = np.inf
    with pytest.raises(FactorizationError, match="NaN or infinity on its diagonal"):
        factorize(A)
