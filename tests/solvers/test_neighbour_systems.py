"""Batches of small systems: values by NumPy, gradients by finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import precision
from vastgp.solvers.neighbour_systems import (
    batches_apart,
    batches_together,
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
    others = rng.normal(size=(2 * n, h, h))
    S = others @ np.swapaxes(others, 1, 2) + np.eye(h)
    return K, rng.normal(size=(n, h)), B + np.swapaxes(B, 1, 2), S


@pytest.mark.parametrize("devices", [1, 3])
def test_values(devices):
    K, k, B, S = problem()
    a = np.stack([np.linalg.solve(one, right) for one, right in zip(K, k, strict=True)])
    np.testing.assert_allclose(solve_each(jnp.asarray(K), jnp.asarray(k)), a, rtol=1e-10)
    found = solve_and_divergence(*map(jnp.asarray, (K, k, B, S)), devices)
    trace = [np.trace(np.linalg.solve(one, other)) for one, other in zip(K, B, strict=True)]
    logs = np.linalg.slogdet(K)[1]
    for mine, truth in zip(found, (a, trace, logs, np.linalg.slogdet(S)[1]), strict=True):
        np.testing.assert_allclose(mine, truth, rtol=1e-9)


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_of_two_batches_each_device_has_its_part(devices):
    first, second = np.arange(8.0), -np.arange(4.0)
    both = batches_together(jnp.asarray(first), jnp.asarray(second), devices)
    mine = [
        [*one, *two]
        for one, two in zip(np.split(first, devices), np.split(second, devices), strict=True)
    ]
    np.testing.assert_array_equal(both, np.concatenate(mine))
    for part, truth in zip(batches_apart(both, 8, devices), (first, second), strict=True):
        np.testing.assert_array_equal(part, truth)


def functions(K, k, B, S):
    """Everything that has a gradient, with weights of its own in one sum."""
    a = solve_each(K, k)
    b, trace, logs, other = solve_and_divergence(K, k, B, S)
    return jnp.sum(jnp.sin(a)) + jnp.sum(b**3) + jnp.sum(trace**2 * logs) + jnp.sum(jnp.cos(other))


def test_gradients_along_symmetric_changes():
    parts = tuple(map(jnp.asarray, problem()))
    gradient = jax.jit(jax.grad(functions, argnums=(0, 1, 2, 3)))(*parts)
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
    K, k, *_ = problem()
    K[1] *= -1.0
    found = np.asarray(solve_each(jnp.asarray(K), jnp.asarray(k)))
    assert np.all(np.isnan(found[1])) and np.all(np.isfinite(found[[0, 2]]))
