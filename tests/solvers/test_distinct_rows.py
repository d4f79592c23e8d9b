"""Merging repeated rows, against the evidence of all of them."""

import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import precision
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.kernels import Matern32
from vastgp.solvers.distinct_rows import merge_repeated


def repeated(n=60, distinct=25):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(distinct, 2))[rng.integers(0, distinct, n)]
    return X, np.sin(X[:, 0]) + 0.3 * rng.normal(size=n)


def test_groups_and_their_means_in_the_order_of_appearance():
    X = np.array([[3.0, 0.0], [1.0, 2.0], [3.0, -0.0], [0.5, 0.5], [1.0, 2.0], [3.0, 0.0]])
    y = np.array([1.0, 10.0, 4.0, 7.0, 20.0, 1.0])
    merged = merge_repeated(X, y)
    np.testing.assert_array_equal(merged.X, [[3.0, 0.0], [1.0, 2.0], [0.5, 0.5]])
    np.testing.assert_array_equal(merged.counts, [3, 2, 1])
    np.testing.assert_allclose(merged.y, [2.0, 15.0, 7.0])
    assert merged.scatter == pytest.approx(6.0 + 50.0) and merged.num_rows == 6


def test_rows_without_repetition_stay_as_they_are():
    X, y = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32), np.arange(50.0)
    merged = merge_repeated(X, y)
    assert merged.X is X and merged.y is y and merged.scatter == 0.0
    assert merged.noise_slope(0.3) == 0.0


def test_the_evidence_is_that_of_the_scaled_rows_and_a_term_of_the_noise():
    X, y = repeated()
    kernel, merged = Matern32([0.8, 1.7], 1.3), merge_repeated(X, y)
    assert len(merged.y) < 30

    def gap(kernel, noise):
        scale = np.sqrt(merged.counts)
        with precision("float64"):
            K = np.asarray(kernel(jnp.asarray(merged.X), jnp.asarray(merged.X)))
        A = K * np.outer(scale, scale) + noise * np.eye(len(scale))
        target = scale * merged.y
        scaled = -0.5 * (target @ np.linalg.solve(A, target) + np.linalg.slogdet(A)[1])
        return ExactEvidence(X, y)(kernel, noise) - scaled

    slope = (gap(kernel, 0.2 + 1e-4) - gap(kernel, 0.2 - 1e-4)) / 2e-4
    assert merged.noise_slope(0.2) == pytest.approx(slope, rel=1e-6)
    # the kernel has no part in what is left
    assert gap(Matern32([2.0, 0.4], 0.6), 0.2) == pytest.approx(gap(kernel, 0.2), abs=1e-8)
