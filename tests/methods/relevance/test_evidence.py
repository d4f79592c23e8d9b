"""The bound of a relevance vector machine at its best posterior, by brute force."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from small_models import SmallModel, exact_terms
from vastgp.methods.relevance.evidence import Statistics, best_posterior, left_to_gain
from vastgp.methods.relevance.training import gains

N, K, NOISE = 30, 7, 0.3


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    phi = rng.normal(size=(N, K)) @ (np.eye(K) + 0.4 * rng.normal(size=(K, K)))
    y = phi[:, :2] @ [1.0, -0.5] + NOISE**0.5 * rng.normal(size=N)
    return phi, y, rng.uniform(0.3, 3.0, K)


def statistics(phi, y):
    return Statistics(phi.T @ phi, phi.T @ y, float(y @ y), len(y))


def elbo(phi, y, precision, noise, mean, C):
    return -0.5 * sum(exact_terms(SmallModel(y, phi, np.diag(precision), mean, C, noise)))


def test_all_columns_full_is_the_exact_posterior_and_the_evidence(problem):
    phi, y, s = problem
    found = best_posterior(statistics(phi, y), s, NOISE, None)
    A = phi.T @ phi / NOISE + np.diag(s)
    np.testing.assert_allclose(found.factor @ found.factor.T, np.linalg.inv(A), atol=1e-12)
    np.testing.assert_allclose(found.mean, np.linalg.solve(A, phi.T @ y) / NOISE, atol=1e-12)
    covariance = phi / s @ phi.T + NOISE * np.eye(N)
    evidence = -0.5 * (
        y @ np.linalg.solve(covariance, y)
        + np.linalg.slogdet(covariance)[1]
        + N * np.log(2 * np.pi)
    )
    assert found.bound == pytest.approx(evidence, rel=1e-12)


@pytest.mark.parametrize("q", [0, 1, 3, 7, None])
def test_the_chevron_is_the_best_of_its_shape_and_the_bound_is_that_of_the_paper(problem, q):
    phi, y, s = problem
    found = best_posterior(statistics(phi, y), s, NOISE, q)
    assert found.bound == pytest.approx(elbo(phi, y, s, NOISE, found.mean, found.factor), rel=1e-12)
    assert found.residual == pytest.approx(np.sum((y - phi @ found.mean) ** 2), rel=1e-10)
    full = K if q is None else q
    free = np.tril(np.ones((K, K), bool)) & ((np.arange(K) < full)[None, :] | np.eye(K, dtype=bool))
    assert np.all(found.factor[~free] == 0)

    def negative(entries):
        C = np.zeros((K, K))
        C[free] = entries
        C[np.diag_indices(K)] = np.exp(np.diagonal(C))
        return -elbo(phi, y, s, NOISE, found.mean, C)

    start = np.where(np.eye(K, dtype=bool), -1.0, 0.0)[free]
    best = minimize(negative, start, method="BFGS", options={"gtol": 1e-7})
    assert -best.fun == pytest.approx(found.bound, abs=1e-6)


@pytest.mark.parametrize("q", [0, 3, None])
def test_fixed_points_are_where_the_derivatives_vanish(problem, q):
    """Derivatives by log precision and log noise as written in vastgp.methods.relevance.training, by differences."""
    phi, y, s = problem
    data = statistics(phi, y)
    found = best_posterior(data, s, NOISE, q)
    step = 1e-5
    for i in range(K):
        up, down = s.copy(), s.copy()
        up[i] *= np.exp(step)
        down[i] *= np.exp(-step)
        slope = (
            best_posterior(data, up, NOISE, q).bound - best_posterior(data, down, NOISE, q).bound
        )
        expected = 0.5 * (found.determined[i] - s[i] * found.mean[i] ** 2)
        assert slope / (2 * step) == pytest.approx(expected, rel=1e-5, abs=1e-7)
    above, below = (
        best_posterior(data, s, NOISE * np.exp(sign * step), q).bound for sign in (1, -1)
    )
    expected = 0.5 * (found.residual / NOISE - N + np.sum(found.determined))
    assert (above - below) / (2 * step) == pytest.approx(expected, rel=1e-5)


def test_unsupported_functions_are_those_whose_bound_grows_without_end(problem):
    phi, y, s = problem
    data = statistics(phi, y)
    gain, marked = gains(best_posterior(data, s, NOISE, None), s)
    assert 0 < marked.sum() < K
    for i in range(K):
        values = []
        for precision in np.logspace(-3, 6, 60):
            other = s.copy()
            other[i] = precision
            values.append(best_posterior(data, other, NOISE, None).bound)
        assert (np.argmax(values) == 59) == marked[i]
        others = np.delete(np.arange(K), i)
        without = best_posterior(data.of(others), s[others], NOISE, None).bound
        whole = best_posterior(data, s, NOISE, None).bound
        assert gain[i] == pytest.approx(whole - without, abs=1e-9)


@pytest.mark.parametrize("columns", [None, 0])
@pytest.mark.parametrize("noise_is_free", [True, False])
@pytest.mark.parametrize("most_move", [0.01, 3.0])
def test_what_is_left_to_gain_is_that_of_the_quadratic_model(
    problem, columns, noise_is_free, most_move
):
    """Slope and Hessian by finite differences, where precisions of two that matter are too large: it is no maximum."""
    phi, y, s = problem
    s = s * np.where(np.arange(K) < 2, 1000.0, 1.0)
    data, size = statistics(phi, y), K + noise_is_free
    start = np.log(np.append(s, NOISE))

    def bound(*moves):
        logs = start.copy()
        for axis, step in moves:
            logs[axis] += step
        return best_posterior(data, np.exp(logs[:K]), float(np.exp(logs[K])), columns).bound

    e = 1e-3
    slope = np.array([(bound((i, e)) - bound((i, -e))) / (2 * e) for i in range(size)])
    hessian = np.array([
        [
            sum(a * b * bound((i, a * e), (j, b * e)) for a in (1, -1) for b in (1, -1)) / (4 * e**2)
            for j in range(size)
        ]
        for i in range(size)
    ])  # fmt: skip
    curvature, axes = np.linalg.eigh(-hessian)
    assert np.min(curvature) < 0.0 < np.max(curvature)
    t = np.linspace(0.0, most_move, 20_001)[:, None]
    expected = np.sum(np.max(np.abs(axes.T @ slope) * t - 0.5 * curvature * t**2, axis=0))
    found = left_to_gain(
        data, best_posterior(data, s, NOISE, columns), s, NOISE,
        noise_is_free=noise_is_free, most_move=most_move,
    )  # fmt: skip
    assert found == pytest.approx(expected, rel=1e-4)
