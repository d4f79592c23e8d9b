"""The collapsed bound: its best amplitude and noise against dense algebra, and where a fit starts from them."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from vastgp import TSVGPRegressor
from vastgp._precision import precision
from vastgp.kernels import RBF
from vastgp.methods.svgp.collapsed_bound import best_scales
from vastgp.options import Learn, Natural


def _dense(kernel, Z, X, y, jitter):
    """Return minus Titsias' bound by (log s, log noise), from its definition."""
    with precision("float64"):
        Kuu, Kuf = (np.asarray(kernel(jnp.asarray(Z), jnp.asarray(A))) for A in (Z, X))
        variance = float(kernel.total_variance())
    Kuu = Kuu + jitter * variance * np.eye(len(Z))
    Q = Kuf.T @ np.linalg.solve(Kuu, Kuf)

    def negative(logs):
        s, noise = np.exp(logs)
        law = multivariate_normal(np.zeros(len(y)), s * Q + noise * np.eye(len(y)))
        return -law.logpdf(y) + s * (len(y) * variance - np.trace(Q)) / (2.0 * noise)

    return negative


@pytest.mark.parametrize("noise", [1e-3, 1.0])
def test_amplitude_and_noise_maximise_the_dense_bound(noise):
    rng = np.random.default_rng(0)
    X, Z = rng.uniform(-2, 2, (40, 2)), rng.uniform(-2, 2, (6, 2))
    y = 1.5 * np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=40)
    kernel = RBF([0.9, 1.4], 0.7)
    found, best = best_scales(kernel, noise, Z, X, y, jitter=1e-6, noise_floor=1e-6)
    negative = _dense(kernel, Z, X, y, 1e-6)
    logs = np.log([float(found.total_variance()) / 0.7, best])
    wanted = minimize(
        negative, logs + 0.3, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9}
    )
    np.testing.assert_allclose(logs, wanted.x, atol=1e-2)
    assert negative(logs) <= wanted.fun + 1e-4
    assert np.allclose(found.lengthscales, kernel.lengthscales)


def test_noise_stays_above_its_floor():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (50, 1))
    _, noise = best_scales(RBF(1.0), 0.5, X, X, np.sin(X[:, 0]), jitter=1e-8, noise_floor=1e-2)
    assert noise == pytest.approx(1e-2)


def test_a_fit_that_starts_without_noise_finds_it_before_the_first_step():
    # a few rows, alone in their places, are explained without noise: what inducing points leave is not
    rng = np.random.default_rng(0)
    X = rng.uniform(-40.0, 40.0, (3000, 1))
    y = np.sin(3.0 * X[:, 0]) + 0.3 * rng.normal(size=3000)
    model = TSVGPRegressor(
        RBF([0.4], 1.0), 20, hyperparameters=Learn(rows=30), solver=Natural(max_steps=1)
    ).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert 0.9 < np.mean(np.abs(y - mean) < 1.96 * std) < 0.99


def test_amplitude_and_noise_beside_noise_of_the_rows_own():
    rng = np.random.default_rng(0)
    X, Z = rng.uniform(-2, 2, (60, 2)), rng.uniform(-2, 2, (8, 2))
    inverse, error = rng.uniform(0.5, 2.0, 60), rng.choice([0.0, 0.5, 3.0], 60)
    noise = np.sqrt(0.09 * inverse + error**2) * rng.normal(size=60)
    y = 1.5 * np.sin(2.0 * X[:, 0]) + noise
    kernel = RBF([0.9, 1.4], 0.7)
    observed = np.column_stack([y, inverse, error**2])
    found, best = best_scales(kernel, 0.5, Z, X, observed, jitter=1e-6, noise_floor=1e-6)
    with precision("float64"):
        Kuu, Kuf = (np.asarray(kernel(jnp.asarray(Z), jnp.asarray(A))) for A in (Z, X))
    Q = Kuf.T @ np.linalg.solve(Kuu + 0.7e-6 * np.eye(8), Kuf)

    def negative(logs):
        s, noise = np.exp(logs)
        variances = noise * inverse + error**2
        law = multivariate_normal(np.zeros(60), s * Q + np.diag(variances))
        return -law.logpdf(y) + s * np.sum((0.7 - np.diagonal(Q)) / variances) / 2.0

    logs = np.log([float(found.total_variance()) / 0.7, best])
    wanted = minimize(
        negative, logs + 0.3, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9}
    )
    assert negative(logs) <= wanted.fun + 1e-2
    np.testing.assert_allclose(logs, wanted.x, atol=0.1)
