"""Conjugate gradients: solutions, status, weighted sums of terms, and Lanczos' matrix as a by-product."""

import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import precision
from vastgp.kernels import RBF
from vastgp.kernels.products import KernelMatrix
from vastgp.solvers.cg import cg_start, lanczos_matrix, loop_together, run_cg, run_weighted
from vastgp.solvers.preconditioners import (
    NoPreconditioner,
    dense_preconditioner,
    low_rank_preconditioner,
)


def system(n=80, noise=0.01, dtype="float64"):
    rng = np.random.default_rng(3)
    X = jnp.asarray(rng.normal(size=(n, 2)), dtype)
    operator = KernelMatrix(RBF([0.7, 1.0]), noise, X, jnp.ones(n, dtype))
    right = jnp.asarray(rng.normal(size=(3, n)), dtype)
    return operator, right, np.asarray(operator.product(jnp.eye(n, dtype=dtype)), np.float64)


def low_rank(A, noise, rank=20):
    values, vectors = np.linalg.eigh(A - noise * np.eye(len(A)))
    factor = np.asfortranarray((vectors[:, -rank:] * np.sqrt(values[-rank:])).T)
    return low_rank_preconditioner(factor, 1.0, noise)


def solve(operator, right, P, tol, most):
    """Return the state whose residuals are at most ``tol`` of the right-hand sides, and the steps."""
    goals = tol * jnp.linalg.norm(right, axis=1)
    state, steps = run_cg(
        operator, P, cg_start(jnp.zeros_like(right), right, P), goals, jnp.asarray(most)
    )
    return state, int(steps)


@pytest.mark.parametrize(("kind", "most"), [("none", 200), ("low-rank", 40), ("exact", 2)])
def test_the_solution_is_that_of_the_matrix_and_a_run_goes_on_from_its_state(kind, most):
    with precision("float64"):
        operator, right, A = system()
        P = {
            "none": NoPreconditioner,
            "low-rank": lambda: low_rank(A, 0.01),
            "exact": lambda: dense_preconditioner(A - 0.01 * np.eye(80), 0.01),
        }[kind]()
        state, steps = solve(operator, right, P, 1e-10, 1000)
        expected = np.linalg.solve(A, np.asarray(right).T).T
        np.testing.assert_allclose(state.solution, expected, atol=1e-8 * np.abs(expected).max())
        assert steps <= most
        # eigenvalues of the preconditioned matrix bound the steps
        values = np.linalg.eigvals(np.asarray(P(jnp.asarray(A)))).real
        assert np.all(state.longest * values.min() <= 1 + 1e-9)
        if kind == "low-rank":
            half, few = solve(operator, right, P, 1e-10, 5)
            assert few == 5
            goals = 1e-10 * jnp.linalg.norm(right, axis=1)
            again, rest = run_cg(operator, P, half, goals, jnp.asarray(1000))
            assert int(rest) == steps - 5
            np.testing.assert_array_equal(again.solution, state.solution)


def test_weighted_sums_are_those_of_the_terms():
    with precision("float64"):
        operator, right, A = system()
        P = NoPreconditioner()
        ones = np.tril(np.ones((12, 12)))  # row J - 1: terms up to J
        sums = [
            run_weighted(operator, right, P, jnp.asarray(ones[J - 1])[:, None], (1,), 0.0).sums[0]
            for J in (1, 4, 9)
        ]
        weights = np.zeros((12, 3))
        weights[:9] = [1.0, 0.0, 2.0]
        weights[:4, 1] = 1.0
        run = run_weighted(operator, right, P, jnp.asarray(weights), (1, 1, 1), 0.0)
        assert int(run.iterations) == 9
        np.testing.assert_allclose(run.sums[0], sums[2], atol=1e-12)
        np.testing.assert_allclose(run.sums[1], sums[1], atol=1e-12)
        np.testing.assert_allclose(run.sums[2], 2.0 * sums[2], atol=1e-12)
        # the first term is the step of steepest descent
        r = np.asarray(right[1])
        np.testing.assert_allclose(sums[0], (r @ r) / (r @ A @ r) * r, atol=1e-12)


def test_the_loop_of_several_processes_takes_the_same_steps():
    with precision("float64"):
        operator, right, A = system()
        P, ones = low_rank(A, 0.01), jnp.ones((200, 1))
        one, other = (
            run_weighted(operator, right, P, ones, (0,), 1e-8, **given)
            for given in ({}, {"loop": loop_together})
        )
    assert 0 < int(one.iterations) == int(other.iterations) < 200
    np.testing.assert_allclose(one.sums, other.sums, rtol=1e-9)
    np.testing.assert_allclose(one.ratios, other.ratios, rtol=1e-6)


def test_lanczos_matrix_is_that_of_the_preconditioned_system():
    with precision("float64"):
        operator, right, A = system()
        P = low_rank(A, 0.01)
        run = run_weighted(operator, right, P, jnp.ones((200, 1)), (0,), 1e-12)
        diagonal, below = lanczos_matrix(
            np.asarray(run.lengths[:, 0]), np.asarray(run.ratios[:, 0])
        )
        T = np.diag(diagonal) + np.diag(below, 1) + np.diag(below, -1)
        inverse = np.asarray(P(jnp.eye(80)))
        b = np.asarray(right[0])
        square = float(run.square[0])
        assert square == pytest.approx(b @ inverse @ b)
        # moments of the Gauss quadrature: b^T P^-1 (A P^-1)^k b
        for k in (1, 2, 3):
            expected = b @ inverse @ np.linalg.matrix_power(A @ inverse, k) @ b
            assert square * np.linalg.matrix_power(T, k)[0, 0] == pytest.approx(expected)


def test_preconditioners_draw_from_their_matrix_and_know_its_determinant():
    import jax

    with precision("float64"):
        _, _, A = system(n=12)
        for P in (
            low_rank(A, 0.01, rank=4),
            dense_preconditioner(A.copy(), 0.5),
            NoPreconditioner(),
        ):
            matrix = np.linalg.inv(np.asarray(P(jnp.eye(12))))
            assert P.log_determinant() == pytest.approx(np.linalg.slogdet(matrix)[1])
            draws = np.asarray(P.draw(jax.random.key(0), 20_000, jnp.zeros(12)))
            error = np.abs(draws.T @ draws / 20_000 - matrix)
            scale = np.sqrt((matrix**2 + np.outer(np.diag(matrix), np.diag(matrix))) / 20_000)
            assert np.all(error < 4.5 * scale)
