"""Variances given the nearest inducing inputs, against the exact process and against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from vastgp.bases import InducingBasis
from vastgp.data import Standardizer, as_rows
from vastgp.kernels import RBF, Matern32, Periodic
from vastgp.kernels.matrices import covariance
from vastgp.methods.qsgp.inducing import nearest_variances as module
from vastgp.methods.qsgp.inducing.nearest_variances import NearestVariances
from vastgp.solvers.exact_posterior import ExactPosterior

pytestmark = pytest.mark.little_work
NOISE = 0.04


class Unscaled(Standardizer):
    """Rows are taken as they are."""

    def transform_X(self, X):
        return X


def variances(kernel, X, Z=None, neighbors=1000, seed=0):
    basis = InducingBasis(kernel, X if Z is None else Z)
    return NearestVariances.of_rows(
        basis, as_rows(X, X[:, 0]), Unscaled(), NOISE, neighbors, seed, are_rows=Z is None
    )


def exact(kernel, X, new):
    return ExactPosterior.condition(kernel, NOISE, X, np.zeros(len(X)))[0].mean_and_latent_variance(
        new
    )[1]


@pytest.fixture(scope="module")
def places():
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 1.0, (250, 2))
    return X[np.abs(X[:, 0] - 0.5) > 0.15], rng.uniform(-0.1, 1.1, (80, 2))


def test_all_rows_are_the_exact_process_and_fewer_never_say_more(places):
    X, new = places
    kernel = Matern32(np.array([0.2, 0.3]), 1.7)
    truth = exact(kernel, X, new)
    np.testing.assert_allclose(variances(kernel, X).of(new), truth, rtol=1e-4)
    some, few = (variances(kernel, X, neighbors=count).of(new) for count in (40, 8))
    assert np.all(truth <= some * (1.0 + 1e-6)) and np.all(some <= few * (1.0 + 1e-6))
    assert np.median(some / truth) < 1.05


def test_equal_rows_are_one_with_less_noise(places):
    X, new = places
    kernel = RBF(np.array([0.2, 0.3]), 1.0)
    repeated = np.concatenate([X, X[:30], X[:30]])
    truth = exact(kernel, repeated, new)
    np.testing.assert_allclose(variances(kernel, repeated).of(new), truth, rtol=1e-4)
    # so many neighbours are so many places
    for_few = variances(kernel, np.repeat(X, 40, axis=0), neighbors=40).of(new)
    merged = RBF(np.array([0.2, 0.3]), 40.0)
    np.testing.assert_allclose(
        for_few * 40.0, variances(merged, X, neighbors=40).of(new), rtol=1e-4
    )


def test_each_input_has_what_the_rows_nearest_to_it_say(places):
    """``1 / d_j`` is the sum of ``1 / (sigma^2 + lambda_i)``, by brute force."""
    X, new = places
    kernel = RBF(np.array([0.2, 0.2]), 1.0)
    Z = np.random.default_rng(1).uniform(0.0, 1.0, (12, 2))
    nearest = np.argmin(((X[:, None] - Z) ** 2).sum(axis=2), axis=1)
    K_z, K_xz = covariance(kernel, Z, Z) + 1e-8 * np.eye(12), covariance(kernel, X, Z)
    left = 1.0 - np.sum(K_xz * np.linalg.solve(K_z, K_xz.T).T, axis=1)
    says = np.bincount(nearest, 1.0 / (NOISE + left), minlength=12)
    found = variances(kernel, X, Z)
    assert np.any(says == 0.0) or len(np.unique(nearest)) == 12
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(found.noise, 1.0 / says, rtol=1e-6)
    told = says > 0.0
    cross = covariance(kernel, new, Z[told])
    system = covariance(kernel, Z[told], Z[told]) + np.diag(1.0 / says[told] + 1e-8)
    expected = 1.0 - np.sum(cross * np.linalg.solve(system, cross.T).T, axis=1)
    np.testing.assert_allclose(found.of(new), expected, rtol=1e-6)


@pytest.mark.parametrize("drawn", [False, True])
@pytest.mark.parametrize(("lengthscale", "count"), [(0.1, 60), (0.2, 100)])
def test_intervals_of_the_mean_hold_what_they_say_also_in_gaps(
    lengthscale, count, drawn, monkeypatch
):
    """The mean's error under the prior is known in closed form; with it the share that intervals hold."""
    if drawn:
        monkeypatch.setattr(module, "_COUNTED_ROWS", 200)
    rng = np.random.default_rng(3)
    X = rng.uniform(0.0, 1.0, (800, 2))
    X = X[np.abs(X[:, 0] - 0.5) > 1.5 * lengthscale]
    kernel, Z = RBF(np.full(2, lengthscale), 1.0), X[:count]
    new = rng.uniform(0.0, 1.0, (300, 2))
    S, phi, at = (covariance(kernel, left, Z) for left in (Z, X, new))
    ridge = 1e-9 * np.eye(count)
    B = at @ np.linalg.solve(phi.T @ phi + NOISE * S + ridge, phi.T)
    K, cross = covariance(kernel, X, X) + NOISE * np.eye(len(X)), covariance(kernel, new, X)
    square = 1.0 - 2.0 * np.sum(B * cross, axis=1) + np.sum(B @ K * B, axis=1)
    std = np.sqrt(variances(kernel, X, Z, neighbors=60).of(new))
    held = 2.0 * norm.cdf(1.96 * std / np.sqrt(square)) - 1.0
    gap = np.abs(new[:, 0] - 0.5) < 1.5 * lengthscale
    assert 0.85 < np.mean(held[~gap]) < 0.99
    assert 0.9 < np.mean(held[gap]) < 0.995
    new_values = 2.0 * norm.cdf(1.96 * np.sqrt((std**2 + NOISE) / (square + NOISE))) - 1.0
    assert 0.93 < np.mean(new_values) < 0.98


def test_draws_have_the_variances_and_close_inputs_go_together(places):
    X, _ = places
    new = np.array([[0.5, 0.5], [0.5, 0.501], [0.1, 0.9], [3.0, 3.0]])
    found = variances(RBF(np.array([0.2, 0.2]), 2.0), X, neighbors=64)
    drawn = found.draws(new, 2000, 0)
    variance = found.of(new)
    assert np.all(np.abs(drawn.var(axis=1) / variance - 1.0) < 5.0 * (2.0 / 2000) ** 0.5)
    assert np.all(np.abs(drawn.mean(axis=1)) < 5.0 * np.sqrt(variance / 2000))
    assert np.std(drawn[0] - drawn[1]) < 0.05 * np.std(drawn[0])
    assert variance[3] == pytest.approx(2.0, rel=1e-6)


def test_a_kernel_without_a_metric_has_variances_that_are_not_below_the_exact_ones():
    X = np.random.default_rng(0).uniform(0.0, 6.0, (60, 1))
    new = np.linspace(-2.0, 9.0, 30)[:, None]
    kernel = Periodic(2.0)
    truth = exact(kernel, X, new)
    np.testing.assert_allclose(variances(kernel, X).of(new), truth, rtol=1e-4, atol=1e-7)
    assert np.all(variances(kernel, X, neighbors=10).of(new) >= truth * (1.0 - 1e-6) - 1e-7)


def test_what_is_written_gives_the_same_variances(places):
    X, new = places
    found = variances(RBF(np.array([0.2, 0.2]), 1.0), X, X[:40], neighbors=20)
    state, arrays = found.to_state()
    basis = InducingBasis(RBF(np.array([0.2, 0.2]), 1.0), X[:40])
    again = NearestVariances.from_state(basis, state, arrays)
    np.testing.assert_array_equal(again.of(new), found.of(new))
