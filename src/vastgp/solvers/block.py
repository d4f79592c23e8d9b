"""The block solver: the posterior's mean and samples by preconditioned conjugate gradients.

Every product is one pass over blocks of basis functions with exact residuals. All columns start from zero, that is,
from the prior: a sample ``w0 - Phi^T u`` begins as the prior draw ``w0`` and loses variance as the solution ``u``
grows. For any linear approximation ``P`` of the inverse of ``A = Phi Phi^T + sigma^2 I`` the variance of the function
is then ``k - k^T (2 P - P A P) k = [k - k^T A^-1 k] + k^T (I - P A)^T A^-1 (I - P A) k``: never less than the exact
posterior variance, and larger by the mean squared error of the unfinished mean under the prior (compare Wenger et al.
2022).
A fit that is stopped early is therefore uncertain, not over-confident.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from vastgp._precision import as_dtype, precision
from vastgp.bases import PairedBasis
from vastgp.data.rows import Rows
from vastgp.data.scaling import Standardizer
from vastgp.fitting.checkpoint import Phase
from vastgp.fitting.history import History
from vastgp.fitting.loop import LoopResult, Stop, run_chunks
from vastgp.solvers.cg import CGState, cg_start, cg_update
from vastgp.solvers.distinct_rows import DistinctRows, merge_repeated
from vastgp.solvers.plan import Plan, plan, plan_rows
from vastgp.solvers.preconditioners import Preconditioner
from vastgp.solvers.systems import BasisSystem, LinearSystem, RowSystem, Solution, System

# The recurrence drifts from the true residual by rounding: it is replaced this often.
_REPLACE_EVERY = 20
# A recurrence that is further off than this from the true residual has lost its directions' conjugacy.
_MOST_DRIFT = 0.1
# An end whose error is so many times the least on the way (or NaN) is not used: that state is.
_DIVERGED = 2.0
# Replacements without progress before the fit gives up.
_PATIENCE = 4


class BlockFit(NamedTuple):
    """What the block solver returns.

    Attributes
    ----------
    solution : Solution
        Weights of the mean and of the samples' deviations from it.
    plan : Plan
        In which space the system was solved, and the rank or rows of the preconditioner.
    residuals : ndarray of shape (1 + S,)
        What is missing of the mean and of each sample at the training rows, rms, in noise standard deviations.
    loop : LoopResult
    """

    solution: Solution
    plan: Plan
    residuals: np.ndarray
    loop: LoopResult


def build_system(
    basis: PairedBasis,
    noise_variance: float,
    rows: Rows,
    standardizer: Standardizer,
    *,
    num_samples: int,
    seed: int,
    dtype: str,
    rank: int | None = None,
    precondition: Preconditioner | None = None,
    widen: bool = False,
    space: tuple[Plan, DistinctRows | None] | None = None,
) -> tuple[System, Plan]:
    """Return the system in the space that costs less, see `plan`; other parameters as in `RowSystem`.

    ``space`` is what `choose_space` returned, where several systems of the same rows are built.
    """
    columns = 1 + num_samples
    chosen, observed = space or choose_space(
        rows, standardizer, basis.num_basis, columns, dtype, rank
    )
    basis = as_dtype(basis, dtype)
    options: dict[str, Any] = {
        "num_samples": num_samples, "seed": seed, "rank": chosen.rank, "precondition": precondition
    }  # fmt: skip
    if observed is not None:
        return RowSystem(basis, noise_variance, observed, widen=widen, **options), chosen
    return BasisSystem(basis, noise_variance, rows, standardizer, dtype=dtype, **options), chosen


def choose_space(
    rows: Rows,
    standardizer: Standardizer,
    num_basis: int,
    columns: int,
    dtype: str,
    rank: int | None = None,
) -> tuple[Plan, DistinctRows | None]:
    """Return the space that costs less, and the rows in memory, repeated ones merged, where it is theirs."""
    itemsize = np.dtype(dtype).itemsize
    chosen = plan(rows.n, num_basis, columns, itemsize, rank, rows.d)
    if chosen.space == "basis":
        return chosen, None
    observed = merge_repeated(*standardised(rows, standardizer, dtype))
    row_rank, _ = plan_rows(len(observed.y), num_basis, columns, itemsize, rank, rows.d)
    return Plan("rows", row_rank), observed


def standardised(
    rows: Rows, standardizer: Standardizer, dtype: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return all rows, standardised, in memory."""
    X = np.empty((rows.n, rows.d), dtype=dtype)
    y = np.empty(rows.n, dtype=dtype)
    start = 0
    for inputs, targets in rows.batches(65536):
        assert targets is not None
        stop = start + len(inputs)
        X[start:stop] = standardizer.transform_X(inputs, X.dtype)
        y[start:stop] = standardizer.transform_y(targets, y.dtype)
        start = stop
    return X, y


def fit_block(
    system: System,
    chosen: Plan,
    *,
    tol: float,
    max_iter: int | None,
    max_seconds: float | None = None,
    checkpoint: Phase | None = None,
    verbose: bool = False,
    start: Array | None = None,
    on_product: Callable[[System, CGState], Mapping[str, float]] | None = None,
) -> BlockFit:
    """Solve the system for the mean and all samples together.

    Parameters
    ----------
    system, chosen
        From `build_system`.
    tol : float
        The fit has converged when what is missing of the function at the training rows, root mean square, is below this
        many standard deviations of the noise, for the mean and (root mean square) for the samples. The true residual
        is used, not that of the recurrence.
    max_iter : int or None
        Most products with the system.
    max_seconds : float, optional
        Wall-clock budget, checked after every product.
    checkpoint : Phase, optional
    verbose : bool
    start : Array, optional
        A solution to start from; None: zero.
    on_product : callable, optional
        Called with the system and the state after every product; what it returns joins the record.
    """
    with precision(system.vector_dtype):
        state, residuals, loop = solve_system(
            system,
            tol=tol,
            max_iter=max_iter,
            max_seconds=max_seconds,
            checkpoint=checkpoint,
            verbose=verbose,
            start=start,
            on_product=on_product,
            label=f"posterior ({chosen.space})",
        )
        return BlockFit(system.weights(state.solution), chosen, residuals, loop)


def solve_system(
    system: LinearSystem,
    *,
    tol: float,
    max_iter: int | None,
    max_seconds: float | None = None,
    checkpoint: Phase | None = None,
    verbose: bool = False,
    start: Array | None = None,
    on_product: Callable[[Any, CGState], Mapping[str, float]] | None = None,
    label: str = "posterior",
) -> tuple[CGState, np.ndarray, LoopResult]:
    """Return the state of conjugate gradients when they have converged or must stop, and the errors of its columns.

    Where rounding makes them diverge it is the best state seen, which may be the one that they began with.

    Parameters as in `fit_block`.
    """
    with precision(system.vector_dtype):
        state = begin(system, start)
        first = _both_errors(system, state)
        # its solution alone: a whole state would double the memory of the vectors
        best: tuple[float, Array] = (1.0, state.solution)

        def left(state: CGState) -> float:
            return float(np.max(_both_errors(system, state) / np.maximum(first, 1e-300)))

        def step_chunk(state: CGState, start: int, count: int) -> tuple[CGState, dict[str, Any]]:
            nonlocal best
            for number in range(start, start + count):
                state = advance(system, state)
                checked = (number + 1) % _REPLACE_EVERY == 0
                if checked or worst_error(system, state) <= tol:
                    state = _replace_residual(system, state)
                    checked = True
                    best = min(best, (left(state), state.solution), key=lambda each: each[0])
            residuals = np.asarray(system.errors(state))
            return state, {
                "objective": _objective(state, system.right),
                "residual": residuals[0],
                "residual_samples": _rms(residuals[1:]),
                "residual_is_true": float(checked),
            } | dict(on_product(system, state) if on_product else {})

        state, loop = run_chunks(
            step_chunk,
            state,
            max_iter=max_iter,
            chunk=1,
            max_seconds=max_seconds,
            checkpoint=checkpoint,
            should_stop=lambda now, history: _decide(now, history, tol),
            label=label,
            verbose=verbose,
        )
        if not loop.converged and not left(state) <= _DIVERGED * best[0]:
            state = begin(system, best[1])
        return state, np.asarray(system.errors(state)), loop


def begin(
    system: LinearSystem, solution: Array | None = None, product: Array | None = None
) -> CGState:
    """Start conjugate gradients from a solution (one product, unless it is given), or from zero (none)."""
    if solution is None:
        return _start(jnp.zeros_like(system.right), system.right, system.precondition)
    product = system.product(solution) if product is None else product
    return _start(solution, system.right - product, system.precondition)


def advance(system: LinearSystem, state: CGState) -> CGState:
    """Take one step: one product with the system."""
    return _update(state, system.product(state.direction), system.precondition)


@eqx.filter_jit
def _start(solution: Array, residual: Array, precondition: Preconditioner) -> CGState:
    return cg_start(solution, residual, precondition)


@eqx.filter_jit
def _update(state: CGState, product: Array, precondition: Preconditioner) -> CGState:
    return cg_update(state, product, precondition)


def _replace_residual(system: LinearSystem, state: CGState) -> CGState:
    """Put the true residual in the place of the recurrence's, and start again where the two differ much."""
    residual = system.right - system.product(state.solution)
    fresh = _start(state.solution, residual, system.precondition)
    drift = jnp.linalg.norm(residual - state.residual) / jnp.linalg.norm(residual)
    if float(drift) > _MOST_DRIFT:
        return fresh
    return fresh._replace(direction=state.direction, longest=state.longest)


def worst_error(system: LinearSystem, state: CGState) -> float:
    """Return the larger of the errors of the mean and of the samples, see `System.errors`."""
    return float(np.max(_both_errors(system, state)))


def _both_errors(system: LinearSystem, state: CGState) -> np.ndarray:
    values = np.asarray(system.errors(state))
    return np.array([values[0], _rms(values[1:])])


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0


def _objective(state: CGState, right: Array) -> float:
    """Return ``1/2 x^T (b + r)`` of the mean's system: it rises to ``1/2 b^T A^-1 b``."""
    return 0.5 * float(jnp.vdot(state.solution[0], right[0] + state.residual[0]))


def _decide(now: Mapping[str, float], history: History, tol: float) -> Stop | None:
    worst = max(now["residual"], now["residual_samples"])
    if not np.isfinite(worst):
        return Stop(
            "the residual is not finite: raise noise_floor or use dtype='float64'", converged=False
        )
    if not now["residual_is_true"]:
        return None
    if worst <= tol:
        return Stop(f"converged: residual {worst:.2g} of the noise <= tol = {tol:g}", True)
    # Replacements without progress: rounding is as large as what is left. Residuals of
    # conjugate gradients may rise on their way, so a good many are waited for.
    checked = [
        max(mean, samples)
        for mean, samples, true in zip(
            history["residual"],
            history["residual_samples"],
            history["residual_is_true"],
            strict=True,
        )
        if true
    ]
    if len(checked) > _PATIENCE and min(checked[-_PATIENCE:]) > 0.95 * min(checked[:-_PATIENCE]):
        return Stop(
            f"the residual stays at {worst:.2g} of the noise > tol = {tol:g}: the limit of the precision "
            "or of the preconditioner; use dtype='float64', a larger rank, a larger noise_floor, or a larger tol",
            converged=False,
        )
    return None
