"""Conjugate gradients and preconditioners against dense algebra, float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import precision
from vastgp.kernels import Matern32
from vastgp.linalg.cg import cg_start, cg_update
from vastgp.linalg.preconditioners import dense_preconditioner, nystrom_preconditioner


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
    inverse = nystrom_preconditioner(kernel, 2.0, X, 0.1, landmarks)
    corner = K[np.ix_(landmarks, landmarks)] + 2e-6 * np.eye(30)
    low_rank = K[:, landmarks] @ np.linalg.solve(corner, K[landmarks])
    diagonal = 0.1 + np.maximum(2.0 - np.diag(low_rank), 0.0)
    expected = np.linalg.solve(low_rank + np.diag(diagonal), V.T).T
    np.testing.assert_allclose(inverse(V), expected, atol=1e-11)


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
    inverse = nystrom_preconditioner(kernel, 2.0, X, 0.1, np.arange(30))
    state = cg_start(jnp.zeros_like(V), V, inverse)
    for _ in range(60):
        state = cg_update(state, state.direction @ A, inverse)
    np.testing.assert_allclose(state.solution, np.linalg.solve(A, V.T).T, atol=1e-9)
    assert np.all(np.asarray(state.solution[3]) == 0.0)


def test_as_many_steps_as_there_are_distinct_eigenvalues():
    with precision("float64"):
        rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(30, 30)))[0]
        A = rotation @ np.diag(np.repeat([1.0, 5.0, 40.0], 10)) @ rotation.T
        b = jnp.asarray(np.random.default_rng(2).normal(size=(1, 30)))
        state = cg_start(jnp.zeros_like(b), b, lambda v: v)
        for _ in range(3):
            state = cg_update(state, state.direction @ A, lambda v: v)
        assert float(jnp.linalg.norm(state.residual)) < 1e-12
