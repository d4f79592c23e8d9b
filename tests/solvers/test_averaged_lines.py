"""Linear functions averaged over their variances are right in their moments, and in what they promise."""

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import norm

from vastgp.fitting.hyperparameter_prior import NOISE
from vastgp.solvers.averaged_lines import average_lines

pytestmark = pytest.mark.little_work


def features(rng, n, d):
    return np.column_stack([np.ones(n), rng.normal(size=(n, d))])


@pytest.mark.parametrize("own_noise", [False, True])
@pytest.mark.parametrize("rows", [2, 7, 60])
def test_moments_and_evidence_are_those_of_brute_force(rows, own_noise):
    rng = np.random.default_rng(rows)
    phi, d = features(rng, rows, 2), 2
    y = phi[:, 1] + 0.3 * rng.normal(size=rows)
    observed, inverse, error = y, np.ones(rows), np.zeros(rows)
    if own_noise:
        inverse, error = rng.uniform(0.5, 3.0, rows), rng.uniform(0.0, 0.1, rows)
        observed = np.column_stack([y, inverse, error])
    found = average_lines(phi, observed)

    log_s = np.linspace(-6.69, 5.31, 41)
    log_noise = np.linspace(np.log(1e-6), np.log(10.0), 97)
    logs, means, squares = [], [], []
    for a in log_s:
        for b in log_noise:
            noise = np.exp(b) * inverse + error
            A = np.exp(a) * phi @ phi.T + np.diag(noise)
            prior = norm.logpdf(a, -np.log(d), 1.5) + norm.logpdf(b, *NOISE)
            factor = cho_factor(A, lower=True)
            misfit = y @ cho_solve(factor, y) + 2.0 * np.sum(np.log(np.diag(factor[0])))
            logs.append(prior - 0.5 * (misfit + rows * np.log(2.0 * np.pi)))
            gain = np.exp(a) * cho_solve(factor, phi).T
            means.append(gain @ y)
            covariance = np.exp(a) * (np.eye(d + 1) - gain @ phi)
            squares.append(covariance + np.outer(means[-1], means[-1]))
    logs = np.array(logs)
    share = np.exp(logs - logs.max())
    cell = (log_s[1] - log_s[0]) * (log_noise[1] - log_noise[0])
    total, share = share.sum(), share / share.sum()
    mean = share @ np.array(means)
    covariance = np.einsum("k,kij->ij", share, np.array(squares)) - np.outer(mean, mean)
    noise = share @ np.tile(np.exp(log_noise), len(log_s))
    np.testing.assert_allclose(found.log_evidence, logs.max() + np.log(total * cell), atol=0.02)
    np.testing.assert_allclose(found.weights, mean, atol=0.01)
    np.testing.assert_allclose(found.covariance, covariance, rtol=0.03, atol=0.01)
    # the last points of either grid stand for cells of other widths
    np.testing.assert_allclose(found.noise_variance, noise, rtol=0.05)


def test_intervals_hold_what_they_say_where_the_prior_is_right():
    """Of 4 rows and 3 weights: 300 tables of 40 new rows each; the gate is four standard errors below 93 %."""
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(300):
        s = np.exp(rng.normal(-np.log(2), 1.5))
        noise = np.exp(np.clip(rng.normal(*NOISE), np.log(1e-6), np.log(10.0)))
        phi = features(rng, 44, 2)
        y = phi @ rng.normal(scale=s**0.5, size=3) + noise**0.5 * rng.normal(size=44)
        found = average_lines(phi[:4], y[:4])
        mean = phi[4:] @ found.weights
        variance = found.noise_variance + np.sum((phi[4:] @ found.covariance) * phi[4:], axis=1)
        inside.append(np.mean(np.abs(y[4:] - mean) < 1.96 * variance**0.5))
    assert np.mean(inside) > 0.93 - 4.0 * np.std(inside) / 300**0.5
