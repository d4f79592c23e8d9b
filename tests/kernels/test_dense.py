"""Matrices and slopes in NumPy: equal to those of the kernels themselves, and nothing is compiled for them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compiled_programs import count_programs
from vastgp._precision import precision
from vastgp.kernels import (
    RBF,
    Constant,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    dense,
)
from vastgp.kernels.dense import squared_distances
from vastgp.kernels.matrices import covariance, covariance_slope, prior_variances

STATIONARY = [RBF(), Matern12(), Matern32(), Matern52(), RationalQuadratic(alpha=0.7)]
# one and several lengthscales or slopes, sums within products and the other way round
EVERY = (
    RBF(0.8, 1.3)
    + Matern12([0.7, 1.9]) * (Linear(0.4) + Constant(2.0))
    + Matern32([0.5, 2.0], 0.3)
    + Matern52([1.5]) * RationalQuadratic([0.9, 1.1], 2.0, 0.7)
    + Linear([0.2, 0.6])
)


@pytest.mark.parametrize("kernel", STATIONARY, ids=lambda kernel: type(kernel).__name__)
def test_slopes_of_correlations_are_derivatives(kernel):
    r2 = np.geomspace(1e-10, 30.0, 50)
    with precision("float64"):
        rows = jnp.sqrt(jnp.asarray(r2))[:, None]
        c = np.asarray(kernel(rows, jnp.zeros((1, 1))))[:, 0]
        np.testing.assert_allclose(kernel.correlation(r2), c, rtol=1e-13)
        by_r2, by_kernel = jax.vmap(
            jax.grad(lambda r2, k: k.correlation(r2), argnums=(0, 1)), in_axes=(0, None)
        )(jnp.asarray(r2), kernel)
    np.testing.assert_allclose(kernel.correlation_slope(r2, c), by_r2, rtol=1e-10)
    expected = jax.tree.leaves(by_kernel)[2:]  # after lengthscales and variance
    found = kernel.shape_slopes(r2, c)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-14)


def test_rows_that_coincide_have_no_slope():
    same = np.zeros((3, 2))
    for kernel in STATIONARY:
        slope = dense.dense_slope(kernel, same, np.eye(3), np.ones(3))
        assert slope.lengthscales == 0.0


def test_matrices_are_those_of_the_kernel_and_slopes_their_finite_differences(monkeypatch):
    monkeypatch.setattr(dense, "_TILE_ENTRIES", 20 * 45)  # two tiles and a part of one
    rng = np.random.default_rng(0)
    X, Z, w = rng.normal(size=(45, 2)), rng.normal(size=(7, 2)), rng.normal(size=45)
    G = np.triu(rng.normal(size=(45, 45)))
    with precision("float64"):
        x, z = jnp.asarray(X), jnp.asarray(Z)
        np.testing.assert_allclose(covariance(EVERY, X, Z), EVERY(x, z), rtol=1e-12)
        np.testing.assert_allclose(prior_variances(EVERY, X), EVERY.diag(x), rtol=1e-13)
    found = covariance_slope(EVERY, X, G, w)
    assert jax.tree.structure(found) == jax.tree.structure(EVERY)
    whole = 0.5 * (np.outer(w, w) - G - np.triu(G, 1).T)
    leaves, structure = jax.tree.flatten(EVERY)
    for i, (leaf, slope) in enumerate(zip(leaves, jax.tree.leaves(found), strict=True)):
        for entry in np.ndindex(np.shape(leaf)):
            step = np.zeros(np.shape(leaf))
            step[entry] = 1e-6
            up, down = (
                jax.tree.unflatten(structure, [*leaves[:i], leaf + d, *leaves[i + 1 :]])
                for d in (step, -step)
            )
            change = np.sum(whole * (covariance(up, X, X) - covariance(down, X, X)))
            assert slope[entry] == pytest.approx(change / 2e-6, rel=1e-6, abs=1e-6)


def test_nothing_is_compiled_but_for_kernels_without_a_closed_form():
    X = np.random.default_rng(0).normal(size=(9, 2))
    with count_programs() as programs:
        covariance(EVERY, X, X)
        prior_variances(EVERY, X)
        covariance_slope(EVERY, X, np.eye(9), np.ones(9))
        assert programs() == 0
        covariance(EVERY + Periodic(1.0), X, X)
        assert programs() == 1


@pytest.mark.parametrize("columns", [25, 120])
@pytest.mark.parametrize(
    "kind", ["plain", "far from the origin", "repeated", "nearly repeated", "huge"]
)
def test_distances_of_many_inputs_are_those_of_summed_differences(columns, kind):
    rng = np.random.default_rng(columns)
    X, Z = rng.normal(size=(70, columns)), rng.normal(size=(50, columns))
    if kind == "far from the origin":
        X, Z = X + 1e6, Z + 1e6
    elif kind == "repeated":
        Z[:] = X[0]
        X[::2] = X[0]
    elif kind == "nearly repeated":
        Z = X[:50] * (1.0 + 1e-9 * rng.normal(size=(50, 1)))
    elif kind == "huge":
        X[3] = 1e200
    with np.errstate(over="ignore", invalid="ignore"):
        expected, found = np.sum((X[:, None] - Z[None]) ** 2, axis=2), squared_distances(X, Z)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert np.all(found >= 0.0)
