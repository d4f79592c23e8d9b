"""Conjugate gradients and preconditioners against dense algebra, float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import precision
from vastgp.kernels import Matern32
from vastgp.solvers import preconditioners
from vastgp.solvers.cg import cg_start, cg_step
from vastgp.solvers.preconditioners import (
    NarrowPreconditioner,
    balanced_preconditioner,
    dense_preconditioner,
    landmark_factor,
    leading_eigenvectors,
    low_rank_preconditioner,
    sketch_factor,
)


@pytest.fixture
def problem():
    generator = np.random.default_rng(0)
    with precision("float64"):
        X = jnp.asarray(generator.normal(size=(80, 3)))
        V = jnp.asarray(generator.normal(size=(4, 80)))
        kernel = Matern32(jnp.ones(3), jnp.asarray(2.0))
        yield kernel, X, V, np.array(kernel(X, X))


def test_nystrom_is_the_inverse_of_low_rank_plus_diagonal(problem):
    kernel, X, V, K = problem
    landmarks = np.arange(0, 60, 2)
    inverse = low_rank_preconditioner(landmark_factor(kernel, 2.0, X, X[landmarks]), 2.0, 0.1)
    corner = K[np.ix_(landmarks, landmarks)] + 2e-6 * np.eye(30)
    low_rank = K[:, landmarks] @ np.linalg.solve(corner, K[landmarks])
    diagonal = 0.1 + np.maximum(2.0 - np.diag(low_rank), 0.0)
    expected = np.linalg.solve(low_rank + np.diag(diagonal), V.T).T
    np.testing.assert_allclose(inverse(V), expected, atol=1e-11)


def test_a_narrow_factor_is_applied_to_wide_vectors_without_loss(monkeypatch):
    # 10^6 times the diagonal: in single precision nothing is left of the difference in the leading directions
    monkeypatch.setattr(preconditioners, "_TILE", 16)
    generator = np.random.default_rng(3)
    U = np.asfortranarray(generator.normal(size=(5, 75)), dtype=np.float32)
    noise = 1e-6
    diagonal = np.sum(U.astype(np.float64) ** 2, axis=0)
    with precision("float32"):
        narrow = low_rank_preconditioner(U.copy(order="F"), diagonal, noise)
        wide = low_rank_preconditioner(U.copy(order="F"), diagonal, noise, wide_vectors=True)
    with precision("float64"):
        # what is held, as numbers
        root = np.asarray(wide.root, np.float64)
        held = np.asarray(wide.scaled, np.float64) * root[:, None]
        expected_of = held @ held.T + np.diag(root**2)
        V = jnp.asarray(expected_of @ generator.normal(size=(75, 3))).T
        expected = np.linalg.solve(expected_of, np.asarray(V).T).T
        size = np.max(np.abs(expected))
        found = wide(V)
        assert found.dtype == jnp.float64
        assert np.max(np.abs(found - expected)) < 1e-6 * size
        rough = NarrowPreconditioner(narrow)(V)
        assert np.max(np.abs(rough - expected)) > 1e-3 * size


def test_dense_is_the_inverse(problem):
    _, _, V, K = problem
    expected = np.linalg.solve(K + 0.1 * np.eye(80), V.T).T
    np.testing.assert_allclose(dense_preconditioner(K.copy(), 0.1)(V), expected, atol=1e-11)


def test_dense_survives_a_matrix_that_rounding_made_indefinite():
    matrix = np.ones((50, 50), dtype=np.float32) * 100 - 1e-5 * np.eye(50, dtype=np.float32)
    solved = dense_preconditioner(matrix, 1e-9)(jnp.ones((1, 50)))
    assert np.all(np.isfinite(solved))


def test_every_column_converges_with_its_own_steps(problem):
    kernel, X, V, K = problem
    A = K + 0.1 * np.eye(80)
    V = V.at[3].set(0.0)  # a right-hand side that is solved before it begins
    inverse = low_rank_preconditioner(landmark_factor(kernel, 2.0, X, X[np.arange(30)]), 2.0, 0.1)
    state = cg_start(jnp.zeros_like(V), V, inverse)
    for _ in range(60):
        state = cg_step(state, state.direction @ A, inverse)[0]
    np.testing.assert_allclose(state.solution, np.linalg.solve(A, V.T).T, atol=1e-9)
    assert np.all(np.asarray(state.solution[3]) == 0.0)


def test_as_many_steps_as_there_are_distinct_eigenvalues():
    with precision("float64"):
        rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(30, 30)))[0]
        A = rotation @ np.diag(np.repeat([1.0, 5.0, 40.0], 10)) @ rotation.T
        b = jnp.asarray(np.random.default_rng(2).normal(size=(1, 30)))
        state = cg_start(jnp.zeros_like(b), b, lambda v: v)
        for _ in range(3):
            state = cg_step(state, state.direction @ A, lambda v: v)[0]
        assert float(jnp.linalg.norm(state.residual)) < 1e-12


def test_leading_directions_and_the_sketch_of_them(problem):
    """The sketch of a matrix whose rank is that of the directions is the matrix."""
    kernel, X, _, _ = problem
    factor = landmark_factor(kernel, 2.0, X, X[np.arange(40)])
    directions = leading_eigenvectors(factor, 12, seed=0)
    np.testing.assert_allclose(directions @ directions.T, np.eye(12), atol=1e-12)
    # nearly all that twelve directions can hold of the trace
    best = np.sort(np.linalg.eigvalsh(factor.T @ factor))[-12:].sum()
    assert np.sum((factor @ directions.T) ** 2) > 0.98 * best
    low = factor[:12].T @ factor[:12]
    sketch = sketch_factor(directions, directions @ low)
    np.testing.assert_allclose(sketch.T @ sketch, low, atol=1e-9)
    assert np.all(np.diff(np.sum(sketch**2, axis=1)) <= 0.0)


def test_balancing_is_exact_on_its_directions_symmetric_and_positive(problem):
    kernel, X, _, K = problem
    A = K + 0.1 * np.eye(80)
    directions = leading_eigenvectors(landmark_factor(kernel, 2.0, X, X[np.arange(40)]), 10, seed=0)
    inner = low_rank_preconditioner(landmark_factor(kernel, 2.0, X, X[np.arange(20)]), 2.0, 0.1)
    inverse = balanced_preconditioner(inner, directions, directions @ K, 0.1)
    np.testing.assert_allclose(inverse(jnp.asarray(directions @ A)), directions, atol=1e-10)
    dense = np.asarray(inverse(jnp.eye(80)))
    np.testing.assert_allclose(dense, dense.T, atol=1e-10)
    assert np.linalg.eigvalsh(dense)[0] > 0.0
