"""Preconditioned conjugate gradients for several right-hand sides at once.

`solve_cg` solves to a tolerance on the true residual, `run_weighted` keeps weighted sums of the terms of the solution,
and the steps by themselves are for loops that report and save between them (`vastgp.solvers.block`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

Operator = Callable[[Array], Array]


class CGState(NamedTuple):
    """State of conjugate gradients; every right-hand side (a row) runs with its own step lengths.

    Attributes
    ----------
    solution, residual, direction : Array of shape (C, p)
        ``residual`` is that of the recurrence; see `true_residual`.
    energy : Array of shape (C,)
        ``r^T P^-1 r``, which the next direction needs.
    """

    solution: Float[Array, "C p"]
    residual: Float[Array, "C p"]
    direction: Float[Array, "C p"]
    energy: Float[Array, " C"]


def cg_start(
    solution: Float[Array, "C p"], residual: Float[Array, "C p"], precondition: Operator
) -> CGState:
    """Begin, or begin again, from a solution with a known residual."""
    preconditioned = precondition(residual)
    return CGState(solution, residual, preconditioned, jnp.sum(residual * preconditioned, axis=1))


def cg_update(state: CGState, product: Float[Array, "C p"], precondition: Operator) -> CGState:
    """Take one step along the direction, given its product with the system's matrix.

    A direction without curvature (a converged right-hand side, or the limit of the precision)
    gets a step of zero instead of a division by zero.
    """
    return cg_step(state, product, precondition)[0]


def cg_step(
    state: CGState,
    product: Float[Array, "C p"],
    precondition: Operator,
    active: Bool[Array, " C"] | None = None,
) -> tuple[CGState, Float[Array, " C"], Float[Array, " C"]]:
    """Take one step and return its lengths along the directions and the ratios of energies too.

    From lengths ``gamma_j`` and ratios ``beta_j`` follows Lanczos' matrix, see `lanczos_matrix`. Columns that are not
    ``active`` stay where they are, with zeros for both.
    """
    solution, residual, direction, energy = state
    curvature = jnp.sum(direction * product, axis=1)
    step = jnp.where(curvature > 0, energy / jnp.where(curvature > 0, curvature, 1.0), 0.0)
    step = step if active is None else jnp.where(active, step, 0.0)
    solution = solution + step[:, None] * direction
    residual = residual - step[:, None] * product
    preconditioned = precondition(residual)
    new_energy = jnp.sum(residual * preconditioned, axis=1)
    ratio = jnp.where(energy > 0, new_energy / jnp.where(energy > 0, energy, 1.0), 0.0)
    ratio = ratio if active is None else jnp.where(active, ratio, 0.0)
    direction = preconditioned + ratio[:, None] * direction
    return CGState(solution, residual, direction, new_energy), step, ratio


class CGResult(NamedTuple):
    """How conjugate gradients ended.

    Attributes
    ----------
    solution : Array of shape (C, p)
    residuals : ndarray of shape (C,)
        ``|b - A x| / |b|`` of each right-hand side: the true residual, made from a product with the solution.
    iterations : int
        Products with the matrix, those of the checks aside.
    converged : bool
        Whether every residual is at most ``tol``.
    reason : str
        Why it ended, in words.
    """

    solution: Array
    residuals: np.ndarray
    iterations: int
    converged: bool
    reason: str


def solve_cg(
    system: Any,
    right: Float[Array, "C p"],
    precondition: Any,
    *,
    tol: float,
    max_iter: int,
    start: Float[Array, "C p"] | None = None,
) -> CGResult:
    """Solve ``A x = b`` for several right-hand sides until their true residuals are small.

    The residual of the recurrence falls on when the true one no longer does, so it only says when to look: the true
    one is made, takes its place, and the iteration goes on from it where it is too large. Passes that begin so and do
    not halve the largest residual are the limit of the precision.

    Parameters
    ----------
    system : pytree with a method ``product``
    right : Array of shape (C, p)
    precondition : pytree, callable
        Approximate inverse of ``A``.
    tol : float
        On ``|b - A x| / |b|``, of every right-hand side.
    max_iter : int
        Most iterations.
    start : Array, optional
        Where to begin; None: zero.
    """
    solution = jnp.zeros_like(right) if start is None else start
    norms = jnp.maximum(jnp.linalg.norm(right, axis=1), float(jnp.finfo(right.dtype).tiny))
    done, previous = 0, np.inf
    while True:
        residual = right - system.product(solution) if done or start is not None else right
        sizes = np.asarray(jnp.linalg.norm(residual, axis=1) / norms)
        worst = float(np.max(sizes, initial=0.0))
        if not np.isfinite(worst):
            return CGResult(solution, sizes, done, False, "the residual is not finite")
        if worst <= tol:
            return CGResult(solution, sizes, done, True, f"residual {worst:.2g} <= tol = {tol:g}")
        if done >= max_iter:
            reason = f"residual {worst:.2g} > tol = {tol:g} after max_iter = {max_iter} iterations"
            return CGResult(solution, sizes, done, False, reason)
        if worst > 0.5 * previous:
            reason = (
                f"the residual stays at {worst:.2g} > tol = {tol:g}: the limit of the precision"
            )
            return CGResult(solution, sizes, done, False, reason)
        previous = worst
        state, steps = _iterate(
            system, solution, residual, norms, precondition, tol, max_iter - done
        )
        solution, done = state.solution, done + int(steps)


@eqx.filter_jit
def _iterate(
    system: Any,
    solution: Array,
    residual: Array,
    norms: Array,
    precondition: Any,
    tol: Any,
    most: Any,
) -> tuple[CGState, Array]:
    """Iterate until the residuals of the recurrence are small, or ``most`` steps are done."""

    def unsolved(carry: tuple[CGState, Array]) -> Array:
        state, steps = carry
        left = jnp.linalg.norm(state.residual, axis=1) > tol * norms
        return jnp.any(left) & (steps < most)

    def body(carry: tuple[CGState, Array]) -> tuple[CGState, Array]:
        state, steps = carry
        return cg_update(state, system.product(state.direction), precondition), steps + 1

    start = cg_start(solution, residual, precondition)
    return jax.lax.while_loop(unsolved, body, (start, jnp.zeros((), jnp.int32)))


class WeightedRun(NamedTuple):
    """Weighted sums of the terms ``gamma_j d_j`` of conjugate gradients, from one run.

    Attributes
    ----------
    sums : Array of shape (R, p)
    residuals : Array of shape (C,)
        ``|r| / |b|`` of the recurrence at the end.
    square : Array of shape (C,)
        ``b^T P^-1 b``.
    lengths, ratios : Array of shape (most, C)
        ``gamma_j`` and ``beta_j``; zero from where a column had converged or the run ended.
    iterations : Array of shape ()
        Products done.
    """

    sums: Float[Array, "R p"]
    residuals: Float[Array, " C"]
    square: Float[Array, " C"]
    lengths: Float[Array, "J C"]
    ratios: Float[Array, "J C"]
    iterations: Any


def run_weighted(
    system: Any,
    right: Float[Array, "C p"],
    precondition: Any,
    weights: Float[Array, "J R"],
    columns: tuple[int, ...],
    tol: float,
) -> WeightedRun:
    """Return ``sum_j weights_jr gamma_j d_j`` of right-hand side ``columns[r]``, for every sum ``r``.

    Weights of one for ``j <= J`` and zero beyond give conjugate gradients stopped after ``J`` iterations; those of a
    random truncation, divided by the probabilities of surviving, an unbiased estimate of the full solution. Several
    sums of one right-hand side cost no more products. The run ends with the last weight that is not zero, or when all
    residuals of the recurrence are at most ``tol``; a column that has converged before is left alone.

    It is a pure function, to be compiled with what uses it.
    """
    most, count = weights.shape[0], right.shape[0]
    weights = weights.astype(right.dtype)
    length = jnp.max(jnp.where(jnp.any(weights != 0, axis=1), jnp.arange(1, most + 1), 0))
    norms = jnp.linalg.norm(right, axis=1)
    source = np.asarray(columns)

    def unsolved(state: CGState) -> Array:
        return jnp.linalg.norm(state.residual, axis=1) > tol * norms

    def more(carry: Any) -> Array:
        state, _, _, _, j = carry
        return (j < length) & jnp.any(unsolved(state))

    def body(carry: Any) -> Any:
        state, sums, lengths, ratios, j = carry
        direction = state.direction
        product = system.product(direction)
        state, step, ratio = cg_step(state, product, precondition, unsolved(state))
        terms = (step[:, None] * direction)[source]
        sums = sums + weights[j][:, None] * terms
        return state, sums, lengths.at[j].set(step), ratios.at[j].set(ratio), j + 1

    state = cg_start(jnp.zeros_like(right), right, precondition)
    square = state.energy
    sums = jnp.zeros((len(source), right.shape[1]), right.dtype)
    zeros = jnp.zeros((most, count), right.dtype)
    start = (state, sums, zeros, zeros, jnp.zeros((), jnp.int32))
    state, sums, lengths, ratios, j = jax.lax.while_loop(more, body, start)
    residuals = jnp.linalg.norm(state.residual, axis=1) / jnp.where(norms > 0, norms, 1.0)
    return WeightedRun(sums, residuals, square, lengths, ratios, j)


def lanczos_matrix(lengths: np.ndarray, ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return diagonal and off-diagonal of Lanczos' matrix of one right-hand side of conjugate gradients.

    ``T_jj = 1 / gamma_j + beta_{j-1} / gamma_{j-1}`` and ``T_{j,j+1} = sqrt(beta_j) / gamma_j`` are those of ``P^-1/2 A
    P^-1/2`` started at ``P^-1/2 b`` (Golub and Van Loan 2013, section 11.3). Steps of length zero, from where the
    column had converged, are left out.
    """
    zeros = np.flatnonzero(lengths <= 0)
    steps = int(zeros[0]) if zeros.size else len(lengths)
    gamma = np.asarray(lengths[:steps], np.float64)
    beta = np.asarray(ratios[:steps], np.float64)
    diagonal = 1.0 / gamma
    diagonal[1:] += beta[:-1] / gamma[:-1]
    return diagonal, np.sqrt(beta[:-1]) / gamma[:-1]
