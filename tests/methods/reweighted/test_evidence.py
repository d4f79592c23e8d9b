"""The evidence from sufficient statistics equals the dense one; gradients equal finite differences."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from vastgp._precision import precision
from vastgp.fitting.sufficient_statistics import SufficientStatistics
from vastgp.linalg.cholesky import FactorizationError
from vastgp.methods.reweighted.evidence import (
    covariance_evidence,
    diagonal_evidence,
    orthogonal_evidence,
    prepare,
    reflect,
    spectral_evidence,
)


def _problem(n=40, m=7, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(n, m)) * 10.0 ** rng.uniform(-spread, spread, size=m)
    y = phi @ rng.normal(size=m) + 0.3 * rng.normal(size=n)
    return phi, y, rng


def _dense(phi, y, covariance, noise, mean=None):
    centre = np.zeros(len(y)) if mean is None else phi @ mean
    K = phi @ covariance @ phi.T + noise * np.eye(len(y))
    return multivariate_normal(centre, K, allow_singular=False).logpdf(y)


def _slopes(function, arguments, which):
    """Return the gradient by argument number ``which`` and central differences of it."""
    with precision("float64"):
        found = np.asarray(jax.grad(function, argnums=which)(*map(jnp.asarray, arguments)))
        expected = np.zeros(np.shape(arguments[which]))
        for place in np.ndindex(expected.shape):
            values = []
            for step in (1e-5, -1e-5):
                moved = np.array(arguments[which], dtype=float)
                moved[place] += step
                trial = [*arguments[:which], moved, *arguments[which + 1 :]]
                values.append(float(function(*map(jnp.asarray, trial))))
            expected[place] = (values[0] - values[1]) / 2e-5
    return found, expected


# more rows than functions; as many functions as rows; a rank far below the number of functions
SHAPES = [(40, 7), (9, 9), (5, 12)]


@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_a_diagonal_prior(n, m):
    phi, y, rng = _problem(n, m)
    log_gamma, log_noise = rng.normal(size=m), -1.3
    with precision("float64"):
        data = prepare(SufficientStatistics.of(phi, y))
        found = float(diagonal_evidence(data, jnp.asarray(log_gamma), jnp.asarray(log_noise)))
    expected = _dense(phi, y, np.diag(np.exp(log_gamma)), np.exp(log_noise))
    assert found == pytest.approx(expected, rel=1e-10, abs=1e-8)

    def value(g, s):
        return diagonal_evidence(data, g, s)

    for which in (0, 1):
        np.testing.assert_allclose(
            *_slopes(value, (log_gamma, log_noise), which), rtol=1e-6, atol=1e-6
        )


@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_any_prior_covariance(n, m):
    phi, y, rng = _problem(n, m, seed=1)
    root = rng.normal(size=(m, 2 * m // 3))  # singular
    log_noise = -0.7
    with precision("float64"):
        data = prepare(SufficientStatistics.of(phi, y))
        found = float(covariance_evidence(data, jnp.asarray(root @ root.T), jnp.asarray(log_noise)))
    assert found == pytest.approx(_dense(phi, y, root @ root.T, np.exp(log_noise)), abs=1e-8)

    def value(r, s):
        return covariance_evidence(data, r @ r.T, s)

    for which in (0, 1):
        np.testing.assert_allclose(*_slopes(value, (root, log_noise), which), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("n", "m"), SHAPES)
@pytest.mark.parametrize("count", [0, 3])
def test_a_spectral_prior(n, m, count):
    phi, y, rng = _problem(n, m, seed=2, spread=0.1)
    with precision("float64"):
        data = prepare(SufficientStatistics.of(phi, y))
        k = data.rank
        normals, log_g, log_noise = rng.normal(size=(count, k)), rng.normal(size=k), -1.0
        args = tuple(map(jnp.asarray, (normals, log_g, log_noise)))
        found = float(spectral_evidence(data, *args))
        V, s = np.asarray(data.vectors[:, :k]), np.asarray(data.values)
    U = np.eye(k)
    for a in normals:
        U = U @ (np.eye(k) - 2.0 * np.outer(a, a) / (a @ a))
    # covariance of the weights of the orthonormal functions, then of those of the basis
    turned = U @ np.diag(s**2 * np.exp(log_g)) @ U.T
    covariance = V @ np.diag(1 / s) @ turned @ np.diag(1 / s) @ V.T
    expected = _dense(phi, y, covariance, np.exp(log_noise))
    # as many functions as rows are nearly dependent, and how the dense formula is rounded depends on the processor
    assert found == pytest.approx(expected, rel=1e-7, abs=1e-8)

    def value(normals, g, s):
        return spectral_evidence(data, normals, g, s)

    for which in (0, 1, 2) if count else (1, 2):
        np.testing.assert_allclose(
            *_slopes(value, (normals, log_g, log_noise), which), rtol=1e-5, atol=1e-6
        )
    if count == 0:
        with precision("float64"):
            assert float(orthogonal_evidence(data, *args[1:])) == found


def test_without_reflections_and_scales_the_prior_is_the_basis_own():
    phi, y, _ = _problem()
    with precision("float64"):
        data = prepare(SufficientStatistics.of(phi, y))
        zeros = jnp.zeros(data.num_basis)
        plain = float(diagonal_evidence(data, zeros, jnp.asarray(-1.0)))
        assert float(orthogonal_evidence(data, zeros, jnp.asarray(-1.0))) == pytest.approx(plain)
        # two equal mirrors are none
        a = jnp.ones((1, 7)) + jnp.arange(7.0)
        v = reflect(jnp.concatenate([a, a]), jnp.asarray(y[:7]))
        np.testing.assert_allclose(v, y[:7], atol=1e-12)


def test_a_prior_mean():
    phi, y, rng = _problem(30, 6, seed=3)
    mean, gamma = rng.normal(size=6), np.exp(rng.normal(size=6))
    with precision("float64"):
        data = prepare(SufficientStatistics.of(phi, y), mean)
        found = float(diagonal_evidence(data, jnp.log(gamma), jnp.asarray(-1.0)))
    assert found == pytest.approx(_dense(phi, y, np.diag(gamma), np.exp(-1.0), mean), abs=1e-8)


def test_columns_that_repeat_lower_the_rank():
    phi, y, _ = _problem(30, 5)
    doubled = np.hstack([phi, phi])
    with precision("float64"):
        data = prepare(SufficientStatistics.of(doubled, y))
        assert data.rank == 5
        found = float(diagonal_evidence(data, jnp.zeros(10), jnp.asarray(-1.0)))
    assert found == pytest.approx(_dense(doubled, y, np.eye(10), np.exp(-1.0)), abs=1e-7)


def test_statistics_that_overflow_are_refused():
    statistics = SufficientStatistics.of(np.array([[1e200], [1.0]]), np.array([1.0, 2.0]))
    with precision("float64"), pytest.raises(FactorizationError, match="NaN or infinity"):
        prepare(statistics)
