"""The block solver: the posterior's mean and samples by preconditioned conjugate gradients.

Every product is one pass over blocks of basis functions with exact residuals. All columns start from zero, that is,
from the prior: a sample ``w0 - Phi^T u`` begins as the prior draw ``w0`` and loses variance as the solution ``u`` grows.
For any linear approximation ``P`` of the inverse of ``A = Phi Phi^T + sigma^2 I`` the variance of the function is
then ``k - k^T (2 P - P A P) k = [k - k^T A^-1 k] + k^T (I - P A)^T A^-1 (I - P A) k``: never less than the exact posterior
variance, and larger by the mean squared error of the unfinished mean under the prior (compare Wenger et al. 2022).
A fit that is stopped early is therefore uncertain, not over-confident.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp.bases import RandomFourierBasis
from vastgp.data.rows import Rows
from vastgp.data.scaling import Standardizer
from vastgp.linalg.cg import CGState, cg_start, cg_update, relative_residuals
from vastgp.linalg.preconditioners import Preconditioner
from vastgp.training.block_systems import BasisSystem, Plan, RowSystem, Solution, System, plan
from vastgp.training.checkpoint import Checkpoint
from vastgp.training.history import History
from vastgp.training.loop import LoopResult, Stop, run_chunks

# The recurrence drifts from the true residual by rounding: it is replaced this often.
_REPLACE_EVERY = 20


class BlockFit(NamedTuple):
    """What the block solver returns.

    Attributes
    ----------
    solution : Solution
        Weights of the mean and of the samples' deviations from it.
    plan : Plan
        In which space the system was solved, and the rank or rows of the preconditioner.
    residuals : ndarray of shape (1 + S,)
        True relative residual of the mean's system and of each sample's.
    loop : LoopResult
    """

    solution: Solution
    plan: Plan
    residuals: np.ndarray
    loop: LoopResult


def build_system(
    basis: RandomFourierBasis,
    noise_variance: float,
    rows: Rows,
    standardizer: Standardizer,
    *,
    num_samples: int,
    seed: int,
    dtype: str,
    rank: int | None = None,
    precondition: Preconditioner | None = None,
) -> tuple[System, Plan]:
    """Return the system in the space that costs less, see `plan`."""
    itemsize = np.dtype(dtype).itemsize
    chosen = plan(rows.n, basis.num_basis, 1 + num_samples, itemsize, rank)
    basis = jax.tree.map(lambda leaf: _cast(leaf, dtype), basis)
    options: dict[str, Any] = {
        "num_samples": num_samples, "seed": seed, "rank": chosen.rank, "precondition": precondition
    }  # fmt: skip
    if chosen.space == "basis":
        return BasisSystem(
            basis, noise_variance, rows, standardizer, dtype=dtype, **options
        ), chosen
    X, y = standardised(rows, standardizer, dtype)
    return RowSystem(basis, noise_variance, X, y, **options), chosen


def standardised(rows: Rows, standardizer: Standardizer, dtype: str) -> tuple[Array, Array]:
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
    return jnp.asarray(X), jnp.asarray(y)


def fit_block(
    system: System,
    chosen: Plan,
    *,
    tol: float,
    max_iter: int | None,
    max_seconds: float | None = None,
    checkpoint: Checkpoint | None = None,
    verbose: bool = False,
) -> BlockFit:
    """Solve the system for the mean and all samples together.

    Parameters
    ----------
    system, chosen
        From `build_system`.
    tol : float
        The fit has converged when the true relative residual of the mean and the root mean square of those of the
        samples are below it.
    max_iter : int or None
        Most products with the system.
    max_seconds : float, optional
        Wall-clock budget, checked after every product.
    checkpoint : Checkpoint, optional
    verbose : bool
    """
    state = _start(system, jnp.zeros_like(system.right))

    def step_chunk(state: CGState, first: int, count: int) -> tuple[CGState, dict[str, Any]]:
        for number in range(first, first + count):
            state = _update(state, system.product(state.direction), system.precondition)
            checked = (number + 1) % _REPLACE_EVERY == 0
            if checked or _worst(relative_residuals(state.residual, system.right)) <= tol:
                state = _replace_residual(system, state, tol)
                checked = True
        residuals = np.asarray(relative_residuals(state.residual, system.right))
        return state, {
            "objective": _objective(state, system.right),
            "residual": residuals[0],
            "residual_samples": _rms(residuals[1:]),
            "residual_is_true": float(checked),
        }

    state, loop = run_chunks(
        step_chunk,
        state,
        max_iter=max_iter,
        chunk=1,
        max_seconds=max_seconds,
        checkpoint=checkpoint,
        should_stop=lambda now, history: _decide(now, history, tol),
        label=f"posterior ({chosen.space})",
        verbose=verbose,
    )
    residuals = np.asarray(relative_residuals(state.residual, system.right))
    return BlockFit(system.weights(state.solution), chosen, residuals, loop)


@eqx.filter_jit
def _update(state: CGState, product: Array, precondition: Preconditioner) -> CGState:
    return cg_update(state, product, precondition)


def _start(system: System, solution: Array, residual: Array | None = None) -> CGState:
    residual = system.right if residual is None else residual
    return cg_start(solution, residual, eqx.filter_jit(system.precondition))


def _replace_residual(system: System, state: CGState, tol: float) -> CGState:
    """Put the true residual in the place of the recurrence's, and start again where they differ much."""
    residual = system.right - system.product(state.solution)
    replaced = CGState(state.solution, residual, state.direction, state.energy)
    drift = relative_residuals(residual - state.residual, system.right)
    if float(jnp.max(drift)) > 0.1 * max(tol, float(_worst(relative_residuals(residual, system.right)))):
        return _start(system, state.solution, residual)
    return replaced


def _worst(residuals: Float[Array, " C"]) -> float:
    values = np.asarray(residuals)
    return max(float(values[0]), _rms(values[1:]))


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0


def _objective(state: CGState, right: Array) -> float:
    """Return ``1/2 x^T (b + r)`` of the mean's system: it rises to ``1/2 b^T A^-1 b``."""
    return 0.5 * float(jnp.vdot(state.solution[0], right[0] + state.residual[0]))


def _decide(now: Mapping[str, float], history: History, tol: float) -> Stop | None:
    worst = max(now["residual"], now["residual_samples"])
    if not np.isfinite(worst):
        return Stop(
            "the residual is not finite: raise min_noise or use dtype='float64'", converged=False
        )
    if not now["residual_is_true"]:
        return None
    if worst <= tol:
        return Stop(f"converged: relative residual {worst:.2g} <= tol = {tol:g}")
    # Two replacements without progress: rounding is as large as what is left.
    checked = [
        max(mean, samples)
        for mean, samples, true in zip(
            history["residual"], history["residual_samples"], history["residual_is_true"], strict=True
        )
        if true
    ]
    if len(checked) >= 3 and checked[-1] > 0.9 * checked[-3]:
        return Stop(
            f"the residual stays at {worst:.2g} > tol = {tol:g}: the limit of the precision; "
            "use dtype='float64', a larger min_noise, or a larger tol",
            converged=False,
        )
    return None


def _cast(leaf: Any, dtype: str) -> Any:
    array = np.asarray(leaf)
    return jnp.asarray(array, dtype) if np.issubdtype(array.dtype, np.floating) else jnp.asarray(array)
