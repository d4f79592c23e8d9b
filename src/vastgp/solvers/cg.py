"""Preconditioned conjugate gradients for several right-hand sides at once: one step, and one compiled run of steps.

A state is whole: it can be saved, and a run goes on from it. `iterate` is the run inside a compiled program and
`run_cg` that program; `run_weighted` keeps weighted sums of the terms of the solution. Loops that report and save
between the steps (`vastgp.solvers.block`) call `cg_step` themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.linalg import eigh_tridiagonal

from vastgp._programs import numbers, program
from vastgp.data import processes

# Steps that a run counts as, where it is asked whether its compilation would take longer than they do.
_STEPS = 128

# ``(going, step, carry) -> carry``, as `jax.lax.while_loop`.
Loop = Callable[[Callable[[Any], Any], Callable[[Any], Any], Any], Any]
Operator = Callable[[Array], Array]
# ``(notes, j, terms, lengths, ratios) -> notes`` of step j: what it added to the solutions, and its numbers.
Note = Callable[[Any, Array, Array, Array, Array], Any]


class CGState(NamedTuple):
    """State of conjugate gradients; every right-hand side (a row) runs with its own step lengths.

    Attributes
    ----------
    solution, residual, direction : Array of shape (C, p)
        ``residual`` is that of the recurrence: it falls on when the true one no longer does, so that a caller puts
        the true one in its place now and then.
    energy : Array of shape (C,)
        ``r^T P^-1 r``, which the next direction needs.
    longest : Array of shape (C,)
        Longest step so far; the least eigenvalue of ``P^-1/2 A P^-1/2`` is at most one over it.
    """

    solution: Float[Array, "C p"]
    residual: Float[Array, "C p"]
    direction: Float[Array, "C p"]
    energy: Float[Array, " C"]
    longest: Float[Array, " C"]


def cg_start(
    solution: Float[Array, "C p"], residual: Float[Array, "C p"], precondition: Operator
) -> CGState:
    """Begin, or begin again, from a solution with a known residual."""
    preconditioned = precondition(residual)
    energy = jnp.sum(residual * preconditioned, axis=1)
    return CGState(solution, residual, preconditioned, energy, jnp.zeros_like(energy))


def cg_step(
    state: CGState,
    product: Float[Array, "C p"],
    precondition: Operator,
    active: Bool[Array, " C"] | None = None,
) -> tuple[CGState, Float[Array, " C"], Float[Array, " C"]]:
    """Take one step along the direction, given its product with the system's matrix.

    A direction without curvature (a converged right-hand side, or the limit of the precision) gets a step of zero
    instead of a division by zero. Columns that are not ``active`` stay where they are.

    Returns
    -------
    state : CGState
    lengths, ratios : Array of shape (C,)
        ``gamma_j`` along the directions and ``beta_j`` of the energies, from which Lanczos' matrix follows, see
        `lanczos_matrix`; zeros for columns that are not active.
    """
    solution, residual, direction, energy, longest = state
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
    longest = jnp.maximum(longest, step)
    return CGState(solution, residual, direction, new_energy, longest), step, ratio


def iterate(
    product: Operator,
    precondition: Operator,
    state: CGState,
    goals: Any,
    most: Any,
    note: Note | None = None,
    notes: Any = None,
    *,
    loop: Loop = jax.lax.while_loop,
) -> tuple[CGState, Any, Array]:
    """Take steps until no residual of the recurrence is longer than its goal, or ``most`` of them are done.

    A column that has reached its goal is left alone. It is a pure function, to be compiled with what uses it; but with
    `loop_together`, which compiles its parts.

    Parameters
    ----------
    product : callable
        ``A v`` of each row.
    precondition : callable
        Approximate inverse of ``A``.
    state : CGState
    goals : float or Array of shape (C,)
        Lengths of residuals.
    most : int or Array of shape ()
    note, notes : callable and pytree, optional
        What is kept of every step, see `Note`.
    loop : callable
        `jax.lax.while_loop`, or `loop_together` where several devices or processes make the products.

    Returns
    -------
    state : CGState
    notes : pytree
    steps : Array of shape ()
    """

    def unsolved(state: CGState) -> Array:
        return jnp.linalg.norm(state.residual, axis=1) > goals

    def going(carry: Any) -> Array:
        state, _, j = carry
        return (j < most) & jnp.any(unsolved(state))

    def step(carry: Any) -> Any:
        state, notes, j = carry
        direction = state.direction
        state, lengths, ratios = take(state, product(direction), precondition, unsolved(state))
        if note is not None:
            notes = note(notes, j, lengths[:, None] * direction, lengths, ratios)
        return state, notes, j + 1

    take = _cg_step_alone if loop is loop_together else cg_step
    return loop(going, step, (state, notes, jnp.zeros((), jnp.int32)))


_cg_step_alone = eqx.filter_jit(cg_step)


def loop_together(going: Callable[[Any], Any], step: Callable[[Any], Any], carry: Any) -> Any:
    """Do as `jax.lax.while_loop`, in Python: processes talk between programs, and go on as process 0 does."""
    while processes.agreed(going(carry)):
        carry = step(carry)
    return carry


def numbers_of_steps(*arguments: Any) -> int:
    """Return about how many numbers a run of steps makes of its arguments."""
    return _STEPS * numbers(*arguments)


@program(filtered=True, work=numbers_of_steps)
def run_cg(
    system: Any, precondition: Operator, state: CGState, goals: Any, most: Any
) -> tuple[CGState, Array]:
    """Return the state after `iterate` with a system (a pytree with a method ``product``), and the steps taken.

    ``goals`` and ``most`` are arrays: numbers would be compiled in.
    """
    state, _, steps = iterate(system.product, precondition, state, goals, most)
    return state, steps


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
    *,
    loop: Loop = jax.lax.while_loop,
) -> WeightedRun:
    """Return ``sum_j weights_jr gamma_j d_j`` of right-hand side ``columns[r]``, for every sum ``r``.

    Weights of one for ``j <= J`` and zero beyond give conjugate gradients stopped after ``J`` iterations; those of a
    random truncation, divided by the probabilities of surviving, an unbiased estimate of the full solution. Several
    sums of one right-hand side cost no more products. The run ends with the last weight that is not zero, or when all
    residuals of the recurrence are at most ``tol``; a column that has converged before is left alone.

    It is a pure function, to be compiled with what uses it; for ``loop`` see `iterate`.
    """
    most, count = weights.shape[0], right.shape[0]
    weights = weights.astype(right.dtype)
    length = jnp.max(jnp.where(jnp.any(weights != 0, axis=1), jnp.arange(1, most + 1), 0))
    norms = jnp.linalg.norm(right, axis=1)
    source = np.asarray(columns)

    def note(notes: Any, j: Array, terms: Array, lengths: Array, ratios: Array) -> Any:
        sums, all_lengths, all_ratios = notes
        sums = sums + weights[j][:, None] * terms[source]
        return sums, all_lengths.at[j].set(lengths), all_ratios.at[j].set(ratios)

    start = cg_start(jnp.zeros_like(right), right, precondition)
    # where these lie, over devices or not
    sums = jnp.zeros_like(right[source])
    zeros = jnp.zeros((most, count), right.dtype)
    state, notes, steps = iterate(
        system.product, precondition, start, tol * norms, length, note, (sums, zeros, zeros),
        loop=loop,
    )  # fmt: skip
    residuals = jnp.linalg.norm(state.residual, axis=1) / jnp.where(norms > 0, norms, 1.0)
    sums, lengths, ratios = notes
    return WeightedRun(sums, residuals, start.energy, lengths, ratios, steps)


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


def lanczos_quadrature(
    diagonal: np.ndarray, below: np.ndarray, function: Callable[[np.ndarray], Any] = np.log
) -> float:
    """Return ``e_1^T f(T) e_1`` of a Lanczos matrix: Gauss quadrature of ``z^T f(A) z / |z|^2`` (Ubaru et al. 2017).

    Parameters
    ----------
    diagonal, below : ndarray of shape (j,), (j - 1,)
    function : callable, default numpy.log
        Of the eigenvalues, which are positive: what rounding left of one that is not is the least number that is.
    """
    nodes, vectors = eigh_tridiagonal(diagonal, below)
    return float(vectors[0] ** 2 @ function(np.maximum(nodes, np.finfo(np.float64).tiny)))
