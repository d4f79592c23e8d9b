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
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import as_dtype, precision
from vastgp._programs import program
from vastgp.bases import PairedBasis
from vastgp.data import processes
from vastgp.data.devices import where_another_lies
from vastgp.data.rows import Rows
from vastgp.data.scaling import Standardizer
from vastgp.fitting.history import History
from vastgp.fitting.loop import LoopResult, Stop
from vastgp.fitting.run import Run
from vastgp.solvers.basis_system import BasisSystem
from vastgp.solvers.cg import CGState, cg_start, cg_step
from vastgp.solvers.distinct_rows import KnownRows, known_rows
from vastgp.solvers.plan import Plan, plan, plan_rows
from vastgp.solvers.preconditioners import Preconditioner
from vastgp.solvers.row_system import RowSystem
from vastgp.solvers.systems import LinearSystem, Measures, Solution, System

# The recurrence drifts from the true residual by rounding: it is replaced this often.
_REPLACE_EVERY = 20
# A recurrence that is further off than this from the true residual has lost its directions' conjugacy.
_MOST_DRIFT = 0.1
# Values that differ by less than this share of them differ by rounding.
_ROUNDING = 1e-5
# Residuals of conjugate gradients rise on their way; one beyond so many times the right-hand side is not used.
_MOST_GROWTH = 2.0
# Replacements without progress before the fit gives up.
_PATIENCE = 4


class Solving(NamedTuple):
    """State of a solution on its way.

    Attributes
    ----------
    cg : CGState
    measures : Measures
        Of its solution, by the residual of the recurrence.
    best : Array of shape (C, p)
        The solution of highest value so far, column by column.
    value : Array of shape (C,)
        Its value.
    """

    cg: CGState
    measures: Measures
    best: Float[Array, "C p"]
    value: Float[Array, " C"]

    @property
    def solution(self) -> Array:
        """The solution as it is now."""
        return self.cg.solution


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
    space: tuple[Plan, KnownRows | None] | None = None,
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
        "num_samples": num_samples, "seed": seed, "rank": chosen.rank,
        "precondition": precondition, "widen": widen,
    }  # fmt: skip
    if observed is not None:
        return RowSystem(basis, noise_variance, observed.at(noise_variance), **options), chosen
    return BasisSystem(basis, noise_variance, rows, standardizer, dtype=dtype, **options), chosen


def choose_space(
    rows: Rows,
    standardizer: Standardizer,
    num_basis: int,
    columns: int,
    dtype: str,
    rank: int | None = None,
) -> tuple[Plan, KnownRows | None]:
    """Return the space that costs less, and the rows in memory, repeated ones merged, filled up, where it is theirs."""
    itemsize = np.dtype(dtype).itemsize
    chosen = plan(rows.n, num_basis, columns, itemsize, rank, rows.d)
    if chosen.space == "basis":
        return chosen, None
    observed = known_rows(*standardised(rows, standardizer, dtype))
    row_rank, _ = plan_rows(len(observed.y), num_basis, columns, itemsize, rank, rows.d)
    return Plan("rows", row_rank), observed.padded()


def standardised(
    rows: Rows, standardizer: Standardizer, dtype: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return all rows, standardised, in memory."""
    X = np.empty((rows.n, rows.d), dtype=dtype)
    y = np.empty((rows.n, *rows.y.shape[1:]), dtype=dtype)
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
    run: Run,
    *,
    tol: float,
    max_products: int | None,
    start: Array | None = None,
    on_product: Callable[[System, Solving], Mapping[str, float]] | None = None,
) -> BlockFit:
    """Solve the system for the mean and all samples together, see `solve_system`.

    Parameters
    ----------
    system, chosen
        From `build_system`.
    """
    with precision(system.vector_dtype):
        solution, residuals, loop = solve_system(
            system, run, tol=tol, max_products=max_products, start=start, on_product=on_product,
            label=f"posterior ({chosen.space})",
        )  # fmt: skip
        return BlockFit(system.weights(solution), chosen, residuals, loop)


def solve_system(
    system: LinearSystem,
    run: Run,
    *,
    tol: float,
    max_products: int | None,
    start: Array | None = None,
    on_product: Callable[[Any, Solving], Mapping[str, float]] | None = None,
    label: str | None = None,
) -> tuple[Array, np.ndarray, LoopResult]:
    """Return the solution when conjugate gradients have converged or must stop, the errors of its columns, and why.

    Where they must stop, each column is the one of highest value on the way (see `Measures`): the last, unless rounding
    has made them diverge. That the size of residuals rises on their way says nothing.

    Parameters
    ----------
    system : LinearSystem
    run : Run
        Its phase is called "posterior".
    tol : float
        The fit has converged when what is missing of the function at the training rows, root mean square, is below this
        many standard deviations of the noise, for the mean and (root mean square) for the samples. The true residual
        is used, not that of the recurrence.
    max_products : int or None
        Most products with the system.
    start : Array, optional
        A solution to start from; None: zero.
    on_product : callable, optional
        Called with the system and the state after every product; what it returns joins the record.
    label : str, optional
        For the progress line.
    """

    def step_chunk(state: Solving, start: int, count: int) -> tuple[Solving, dict[str, Any]]:
        for number in range(start, start + count):
            state = advance(system, state)
            checked = (number + 1) % _REPLACE_EVERY == 0
            if checked or processes.agreed(worst_error(system, state) <= tol):
                state = replace_residual(system, state)
                checked = True
        mean, samples = _both_errors(system, state)
        return state, {
            # 1/2 x^T (b + r) of the mean rises to 1/2 b^T A^-1 b
            "objective": 0.5 * float(np.asarray(state.measures.value)[0]),
            "residual": mean,
            "residual_samples": samples,
            "residual_is_true": float(checked),
        } | dict(on_product(system, state) if on_product else {})

    with precision(system.vector_dtype):
        state, loop = run.steps(
            "posterior",
            step_chunk,
            begin(system, start),
            max_iter=max_products,
            chunk=1,
            should_stop=partial(_decide, tol=tol),
            label=label,
            layout=system.layout,
        )
        last = np.array_equal(state.value, state.measures.value)
        if not loop.converged and not processes.agreed(last):
            state = begin(system, state.best)
        return state.solution, system.errors(state.measures), loop


def begin(
    system: LinearSystem, solution: Array | None = None, product: Array | None = None
) -> Solving:
    """Start conjugate gradients from a solution (one product, unless it is given), or from zero (none)."""
    if solution is None:
        zeros = np.zeros(system.right.shape, system.right.dtype)
        solution = product = where_another_lies(zeros, system.right)
    product = system.product(solution) if product is None else product
    return _begin(solution, product, *_parts(system))


def advance(system: LinearSystem, state: Solving) -> Solving:
    """Take one step: one product with the system."""
    product = system.product(state.cg.direction)
    return _advance(state, product, *_parts(system))


def replace_residual(system: LinearSystem, state: Solving) -> Solving:
    """Put the true residual in the place of the recurrence's, and start again where the two differ much."""
    product = system.product(state.solution)
    return _replace(state, product, *_parts(system))


def _parts(system: LinearSystem) -> tuple[Array, Preconditioner, np.ndarray]:
    """Return what programs are given of a system; what it is made of may not be an argument of one."""
    noise = np.asarray(system.noise_variance, system.right.dtype)
    return system.right, system.precondition, noise


@program(filtered=True)
def _begin(
    solution: Array, product: Array, right: Array, precondition: Preconditioner, noise: Any
) -> Solving:
    del noise
    cg = cg_start(solution, right - product, precondition)
    measures = _measures(cg, right)
    return Solving(cg, measures, solution, measures.value)


@program(filtered=True)
def _advance(
    state: Solving, product: Array, right: Array, precondition: Preconditioner, noise: Any
) -> Solving:
    cg = cg_step(state.cg, product, precondition)[0]
    measures = _measures(cg, right)
    return Solving(cg, measures, *_better(state, cg, measures, right, noise))


@program(filtered=True)
def _replace(
    state: Solving, product: Array, right: Array, precondition: Preconditioner, noise: Any
) -> Solving:
    residual = right - product
    fresh = cg_start(state.solution, residual, precondition)
    drift = jnp.linalg.norm(residual - state.cg.residual) / jnp.linalg.norm(residual)
    lost = drift > _MOST_DRIFT
    cg = fresh._replace(
        direction=jnp.where(lost, fresh.direction, state.cg.direction), longest=state.cg.longest
    )
    measures = _measures(cg, right)
    # what a wrong recurrence promised does not count
    promised = state._replace(value=jnp.where(lost, jnp.minimum(state.value, 0.0), state.value))
    return Solving(cg, measures, *_better(promised, cg, measures, right, noise))


def _measures(cg: CGState, right: Array) -> Measures:
    value = jnp.sum(cg.solution * (right + cg.residual), axis=1)
    return Measures(value, jnp.linalg.norm(cg.residual, axis=1), cg.energy, cg.longest)


def _better(
    state: Solving, cg: CGState, measures: Measures, right: Array, noise: Any
) -> tuple[Array, Array]:
    """Return the columns of highest value and their values, the later ones where these differ by rounding.

    Where rounding has left the matrix indefinite, values are without a meaning: no more than ``b^T b / sigma^2`` is
    possible, nor a residual that is many times the right-hand side's.
    """
    square = jnp.sum(right**2, axis=1)
    possible = (measures.value <= square / noise) & (measures.size <= _MOST_GROWTH * square**0.5)
    later = possible & (measures.value >= state.value - _ROUNDING * jnp.abs(state.value))
    best = jnp.where(later[:, None], cg.solution, state.best)
    return best, jnp.where(later, measures.value, state.value)


def worst_error(system: LinearSystem, state: Solving) -> float:
    """Return the larger of the errors of the mean and of the samples, see `LinearSystem.errors`."""
    return float(np.max(_both_errors(system, state)))


def _both_errors(system: LinearSystem, state: Solving) -> tuple[float, float]:
    """Return the error of the mean and the root mean square of those of the samples."""
    values = system.errors(state.measures)
    samples = float(np.sqrt(np.mean(np.square(values[1:])))) if len(values) > 1 else 0.0
    return float(values[0]), samples


def _decide(now: Mapping[str, float], history: History, tol: float) -> Stop | None:
    worst = float(np.max([now["residual"], now["residual_samples"]]))  # NaN if either is
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
    both = np.maximum(history["residual"], history["residual_samples"])
    checked = both[np.asarray(history["residual_is_true"]) > 0]
    if len(checked) > _PATIENCE and np.min(checked[-_PATIENCE:]) > 0.95 * np.min(
        checked[:-_PATIENCE]
    ):
        return Stop(
            f"the residual stays at {worst:.2g} of the noise > tol = {tol:g}: the limit of the precision "
            "or of the preconditioner; use dtype='float64', a larger rank, a larger noise_floor, or a larger tol",
            converged=False,
        )
    return None
