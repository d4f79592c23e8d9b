"""The log noise given what rows are off by, and turns of function and noise, against brute force on eight rows."""

import equinox as eqx
import jax
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from vastgp import RBF, Matern52
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.kernels.matrices import covariance
from vastgp.solvers import log_noise, varying_noise
from vastgp.solvers.exact_posterior import ExactPosterior
from vastgp.solvers.log_noise import LogNoise, LogNoiseEvidence, learn_log_noise
from vastgp.solvers.varying_noise import alternate, expected_squares, with_own_noise

DRAWS = 200_000


def eight():
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-2.0, 2.0, (8, 1)), axis=0)
    return X, np.sin(X[:, 0]) + np.exp(X[:, 0] - 1.0) * rng.normal(size=8)


def noise_at_rows(evidence, kernel):
    """The log noise at the rows under its prior, and the normal that was found: its moments, and their root."""
    X = evidence.X
    found, _ = evidence.posterior(kernel)
    mean, spread = found.mean_and_variance(X)
    prior = covariance(kernel, X, X) + log_noise._CONSTANT**2
    features = found._features(X)
    cov = features.T @ np.linalg.solve(found.precision, features)
    np.testing.assert_allclose(np.diag(cov), spread, rtol=1e-5)
    return found, found.level + mean, cov, prior


def weighted_draws(evidence, kernel, log_likelihood):
    """Draws of the log noise, and their log weights: importance sampling from a wider normal."""
    found, mean, cov, prior = noise_at_rows(evidence, kernel)
    n = len(mean)
    wide = multivariate_normal(mean, 1.5 * cov + 1e-7 * np.eye(n))
    g = wide.rvs(DRAWS, random_state=1)
    of_prior = multivariate_normal(np.full(n, evidence.level), prior + 1e-7 * np.eye(n))
    return found, g, log_likelihood(g) + of_prior.logpdf(g) - wide.logpdf(g)


def test_the_log_noise_is_that_of_importance_sampling(monkeypatch):
    monkeypatch.setattr(log_noise, "_LEAST_GAIN", 1e-12)
    X, y = eight()
    square, kernel = y**2, Matern52(1.0, 1.5)
    evidence = LogNoiseEvidence(X, square, X)

    def log_likelihood(g):
        return -0.5 * np.sum(g + square * np.exp(-g) + np.log(2.0 * np.pi), axis=1)

    found, g, weights = weighted_draws(evidence, kernel, log_likelihood)
    exact = logsumexp(weights) - np.log(DRAWS)
    bound = evidence.objective((kernel, None))[0]
    assert exact - 0.2 < bound < exact
    share = np.exp(weights - logsumexp(weights))
    mean, spread = found.mean_and_variance(X)
    truth = share @ g
    np.testing.assert_allclose(found.level + mean, truth, atol=0.1)
    np.testing.assert_allclose(spread, share @ (g - truth) ** 2, rtol=0.15)


def test_the_slope_of_the_bound_is_that_of_differences(monkeypatch):
    monkeypatch.setattr(log_noise, "_LEAST_GAIN", 1e-15)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    square = np.exp(X[:, 0]) * rng.normal(size=60) ** 2
    evidence = LogNoiseEvidence(X, square, X[:20])
    kernel = Matern52([1.0, 1.4], 1.3)
    slope = evidence.objective((kernel, None))[1][0]
    leaves, tree = jax.tree.flatten(jax.tree.map(np.asarray, kernel))
    for place, leaf in enumerate(leaves):
        for number in range(np.size(leaf)):
            sides = []
            for step in (1e-5, -1e-5):
                moved = np.array(leaf, np.float64).reshape(-1)
                moved[number] += step
                parts = [*leaves[:place], moved.reshape(np.shape(leaf)), *leaves[place + 1 :]]
                sides.append(evidence.objective((jax.tree.unflatten(tree, parts), None))[0])
            mine = np.ravel(jax.tree.leaves(slope)[place])[number]
            assert mine == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-5)


def test_turns_climb_a_bound_of_the_evidence_of_both():
    X, y = eight()
    kernel, noise = Matern52(1.0, 1.0), 0.3
    found = alternate(X, y, kernel, noise, seed=0, noise_floor=1e-6, learn=False)
    of_noise = found.learned.posterior
    r = np.exp(of_noise.level) * of_noise.effective_variances(X)
    K = covariance(kernel, X, X)
    given = multivariate_normal(np.zeros(8), K + np.diag(r)).logpdf(y)
    bound = given - of_noise.evidence_cost(X)
    # its e, and so the mean of its level, as the last turn had them
    square = expected_squares(
        ExactPosterior.condition(
            kernel, float(np.exp(of_noise.level)), X, with_own_noise(y, of_noise.effective_variances(X))
        )[0], X, y,
    )[1]  # fmt: skip
    evidence = LogNoiseEvidence(X, square, of_noise.Z)

    def log_likelihood(g):
        values = np.empty(len(g))
        for start in range(0, len(g), 10_000):
            A = K + np.eye(8) * np.exp(g[start : start + 10_000, :, None])
            solved = np.linalg.solve(A, np.broadcast_to(y[:, None], (len(A), 8, 1)))[..., 0]
            whole = solved @ y + np.linalg.slogdet(A)[1] + 8 * np.log(2.0 * np.pi)
            values[start : start + 10_000] = -0.5 * whole
        return values

    _, g, weights = weighted_draws(evidence, of_noise.kernel, log_likelihood)
    exact = logsumexp(weights) - np.log(DRAWS)
    assert exact - 1.5 < bound < exact
    share = np.exp(weights - logsumexp(weights))
    mean, spread = of_noise.mean_and_variance(X)
    off = (of_noise.level + mean - share @ g) / spread**0.5
    assert np.max(np.abs(off)) < 0.5


def test_squares_from_the_factor_are_those_of_predictions():
    X, y = eight()
    observed = with_own_noise(y, np.linspace(0.2, 3.0, 8))
    posterior, _ = ExactPosterior.condition(Matern52(1.0, 1.0), 0.3, X, observed)
    mean, variance = posterior.mean_and_latent_variance(X)
    np.testing.assert_allclose(
        expected_squares(posterior, X, y)[1], (y - mean) ** 2 + variance, rtol=1e-8
    )


def test_noise_that_does_not_vary_gains_nothing_and_one_that_does_is_found():
    rng = np.random.default_rng(3)
    X = rng.uniform(-2.0, 2.0, (2000, 3))
    z2 = rng.normal(size=2000) ** 2
    alike = learn_log_noise(X, 0.3 * z2, seed=0)
    assert alike.gain < 0.0
    mean, _ = alike.posterior.mean_and_variance(X)
    assert np.std(mean) < 0.05
    truth = np.log(0.3) + np.sin(2.0 * X[:, 1])
    varies = learn_log_noise(X, np.exp(truth) * z2, seed=0)
    assert varies.gain > 100.0
    mean, spread = varies.posterior.mean_and_variance(X)
    off = varies.posterior.level + mean - truth
    assert np.mean(off**2) ** 0.5 < 0.15
    assert 0.5 < np.mean(off**2 / spread) < 1.5
    lengthscales = np.ravel(varies.posterior.kernel.lengthscales)
    assert np.argmin(lengthscales) == 1 and np.min(lengthscales[[0, 2]]) > 4.0 * lengthscales[1]
    again = LogNoise.from_state(*varies.posterior.to_state())
    for mine, theirs in zip(again.mean_and_variance(X), (mean, spread), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_the_cost_of_the_noise_makes_its_bound(monkeypatch):
    # of g alone: sum_i -1/2 (log r_i + e_i / r_i + log 2 pi) - cost is the bound
    monkeypatch.setattr(log_noise, "_LEAST_GAIN", 1e-12)
    X, y = eight()
    evidence = LogNoiseEvidence(X, y**2, X)
    found, bound = evidence.posterior(Matern52(1.0, 1.5))
    r = np.exp(found.level) * found.effective_variances(X)
    given = -0.5 * np.sum(np.log(2.0 * np.pi * r) + y**2 / r)
    assert given - found.evidence_cost(X) == pytest.approx(bound, abs=1e-6)
    assert eqx.tree_equal(found.kernel, Matern52(1.0, 1.5))
    assert ExactEvidence(X, y).num_rows == 8


def test_what_rows_left_out_are_off_by():
    X, y = eight()
    kernel, noise = Matern52(1.0, 1.0), 0.3
    _, factor, weights = ExactEvidence(X, y).solve(kernel, noise)
    found = varying_noise._squares_left_out(noise, weights, factor)
    for row in range(8):
        kept = np.arange(8) != row
        other = ExactPosterior.condition(kernel, noise, X[kept], y[kept])[0]
        mean, variance = other.mean_and_latent_variance(X[row : row + 1])
        expected = noise * (y[row] - mean[0]) ** 2 / (variance[0] + noise)
        assert found[row] == pytest.approx(expected, rel=1e-6)


def test_noise_that_grows_with_the_function_is_found():
    """Readings with errors of 2 %, as of a ship's resistance at ten speeds: the most is a hundred times the least."""
    rng = np.random.default_rng(0)
    X = np.column_stack(
        [np.repeat(rng.normal(size=(15, 2)), 10, axis=0), np.tile(np.linspace(0, 1, 10), 15)]
    )
    truth = np.exp(5.0 * X[:, 2]) * (1.0 + 0.2 * X[:, 0])
    y = truth * (1.0 + 0.02 * rng.normal(size=150))
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    found = alternate(X, y, RBF([6.7, 100.0, 0.83], 3.4), 8e-4, seed=0, noise_floor=1e-6)
    assert found.gain > 150.0
    assert np.corrcoef(found.learned.posterior.mean(X), np.log(truth))[0, 1] > 0.98


def test_noise_that_does_not_vary_gains_nothing():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.7, 1.7, (100, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=100)
    assert alternate(X, y, RBF([0.7, 5.0], 0.6), 0.09, seed=0, noise_floor=1e-6).gain < 0.0
