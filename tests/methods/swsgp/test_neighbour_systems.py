"""Batches of small systems: values by NumPy, gradients by finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import precision
from vastgp.methods.swsgp.neighbour_systems import (
    log_determinant_each,
    solve_and_divergence,
    solve_each,
)


@pytest.fixture(autouse=True)
def double():
    with precision("float64"):
        yield


def problem(n=3, h=4):
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(n, h, h))
    B = rng.normal(size=(n, h, h))
    K = roots @ np.swapaxes(roots, 1, 2) + np.eye(h)
    return K, rng.normal(size=(n, h)), B + np.swapaxes(B, 1, 2)


def test_values():
    K, k, B = problem()
    a = np.stack([np.linalg.solve(one, right) for one, right in zip(K, k, strict=True)])
    np.testing.assert_allclose(solve_each(jnp.asarray(K), jnp.asarray(k)), a, rtol=1e-10)
    found = solve_and_divergence(*map(jnp.asarray, (K, k, B)))
    trace = [np.trace(np.linalg.solve(one, other)) for one, other in zip(K, B, strict=True)]
    logs = np.linalg.slogdet(K)[1]
    for mine, truth in zip(found, (a, trace, logs), strict=True):
        np.testing.assert_allclose(mine, truth, rtol=1e-9)
    np.testing.assert_allclose(log_determinant_each(jnp.asarray(K)), logs, rtol=1e-10)


def functions(K, k, B):
    """Everything that has a gradient, with weights of its own in one sum."""
    a = solve_each(K, k)
    b, trace, logs = solve_and_divergence(K, k, B)
    other = log_determinant_each(K)
    return jnp.sum(jnp.sin(a)) + jnp.sum(b**3) + jnp.sum(trace**2 * logs) + jnp.sum(jnp.cos(other))


def test_gradients_along_symmetric_changes():
    parts = tuple(map(jnp.asarray, problem()))
    gradient = jax.jit(jax.grad(functions, argnums=(0, 1, 2)))(*parts)
    value = jax.jit(functions)
    rng = np.random.default_rng(1)
    for _ in range(3):
        change = [rng.normal(size=part.shape) for part in parts]
        change = [c + np.swapaxes(c, 1, 2) if c.ndim == 3 else c for c in change]
        ends = [
            float(value(*(p + step * c for p, c in zip(parts, change, strict=True))))
            for step in (1e-6, -1e-6)
        ]
        slope = sum(float(jnp.sum(g * c)) for g, c in zip(gradient, change, strict=True))
        assert slope == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6)


def test_a_matrix_that_is_not_positive_gives_no_number():
    K, k, _ = problem()
    K[1] *= -1.0
    found = np.asarray(solve_each(jnp.asarray(K), jnp.asarray(k)))
    assert np.all(np.isnan(found[1])) and np.all(np.isfinite(found[[0, 2]]))
