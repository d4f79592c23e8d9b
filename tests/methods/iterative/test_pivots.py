"""Pivots of a partial Cholesky factorisation."""

import numpy as np
import pytest

from vastgp.methods.iterative.pivots import pivot_rows


def gaussian(A, B):
    return np.exp(-0.5 * np.sum((A[:, None] - B[None]) ** 2, axis=2))


def left_out(X, pivots):
    inner = gaussian(X[pivots], X[pivots]) + 1e-12 * np.eye(len(pivots))
    cross = gaussian(X[pivots], X)
    return len(X) - np.sum(cross * np.linalg.solve(inner, cross))


def test_pivots_explain_more_than_random_rows():
    rng = np.random.default_rng(0)
    # nearly all rows in one place: random ones see nothing else
    X = np.concatenate([0.05 * rng.normal(size=(950, 2)), rng.uniform(-4, 4, (50, 2))])
    pivots = pivot_rows(gaussian, X, np.ones(1000), 30, np.random.default_rng(1))
    assert len(set(pivots.tolist())) == 30
    assert left_out(X, pivots) < 0.3 * left_out(X, rng.choice(1000, 30, replace=False))


def test_nothing_is_taken_twice_and_no_more_than_there_is():
    X = np.repeat(np.arange(7.0), 20)[:, None] * 3.0
    pivots = pivot_rows(gaussian, X, np.ones(140), 100, np.random.default_rng(0))
    assert sorted(X[pivots, 0] / 3.0) == list(range(7))
    assert left_out(X, pivots) == pytest.approx(0.0, abs=1e-6)


def test_rows_enter_in_proportion_to_what_is_left_of_them():
    # three rows, independent of each other, of variance 1, 2 and 5: the first pivot is drawn so
    variances = np.array([1.0, 2.0, 5.0])

    def diagonal(A, B):
        return np.where(A == B.T, variances[A[:, :1].astype(int)], 0.0)

    X, first = np.arange(3.0)[:, None], []
    for seed in range(4000):
        first.append(pivot_rows(diagonal, X, variances, 1, np.random.default_rng(seed))[0])
    shares = np.bincount(first, minlength=3) / 4000
    expected = variances / 8.0
    assert np.all(np.abs(shares - expected) < 4.0 * np.sqrt(expected * (1 - expected) / 4000))
