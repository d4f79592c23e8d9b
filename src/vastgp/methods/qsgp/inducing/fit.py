"""Quadruply stochastic inference with an inducing basis (Evans and Nair 2020, appendices F.2, G and I.2).

The mean maximises the sampled bound: by block steps where the inducing inputs are the training rows
(`rows`), by preconditioned stochastic gradients otherwise
(`weights`). The covariance is diagonal, in closed form (Proposition 1). Kernel and noise are
fixed: ``log |K(Z, Z)|`` has no estimate of constant cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp._memory import return_freed_memory
from vastgp._precision import as_dtype, precision
from vastgp.bases import InducingBasis
from vastgp.data import Rows, Standardizer
from vastgp.data.minibatch import chunk_of_minibatches, generator
from vastgp.fitting.checkpoint import Phase
from vastgp.fitting.early_stopping import first_of, no_progress
from vastgp.fitting.history import History
from vastgp.fitting.loop import LoopResult, ShouldStop, Stop, run_chunks
from vastgp.kernels import Kernel
from vastgp.methods.qsgp.inducing.direct import solve_directly
from vastgp.methods.qsgp.inducing.objective import BlockedInputs, function_values, squared_norms
from vastgp.methods.qsgp.inducing.rows import run_rows
from vastgp.methods.qsgp.inducing.setup import FIXED_ROWS, make_plan, rows_problem, weights_problem
from vastgp.methods.qsgp.inducing.state import (
    InducingOptions,
    InducingProblem,
    InducingState,
)
from vastgp.methods.qsgp.inducing.weights import run_weights
from vastgp.methods.qsgp.stochastic.sampled_elbo import optimal_diagonal

_CHUNK = 20
_TILE = 2048
_PATIENCE = 60  # records without a smaller residual
_JUDGE_ROWS = 1024
# Kernel values behind the diagonal: all rows where there are fewer, else so many rows drawn at random.
_DIAGONAL_VALUES, _DIAGONAL_ROWS = 5e8, 4096


@dataclass(frozen=True)
class InducingFit:
    """What was found.

    Attributes
    ----------
    basis : InducingBasis
        In the order of ``mean``.
    mean : Array of shape (m,)
        Posterior mean of the weights.
    diagonal : Array of shape (m,)
        Diagonal of the covariance's Cholesky factor.
    averaged : bool
        Whether the mean is the average of iterates.
    loop : LoopResult
    """

    basis: InducingBasis
    mean: Float[Array, " m"]
    diagonal: Float[Array, " m"]
    averaged: bool
    loop: LoopResult


def fit_inducing(
    rows: Rows,
    standardizer: Standardizer,
    kernel: Kernel,
    inputs: np.ndarray | None,
    noise_variance: float,
    options: InducingOptions | None = None,
    *,
    tol: float = 0.1,
    max_iter: int | None = 2000,
    max_seconds: float | None = None,
    should_stop: ShouldStop | None = None,
    checkpoint: Phase | None = None,
    seed: int = 0,
    dtype: str = "float32",
    verbose: bool = False,
) -> InducingFit:
    """Find mean and diagonal covariance of the weights of an inducing basis.

    Parameters
    ----------
    rows : Rows
        Training rows with targets.
    standardizer : Standardizer
        Their scaling.
    kernel : Kernel
        In standardised units.
    inputs : ndarray of shape (m, d), or None
        Standardised inducing inputs; None: the training rows.
    noise_variance : float
        In standardised units.
    options : InducingOptions, optional
    tol : float, default 0.1
        Where steps see every basis function at the rows: converged when ``(K + sigma^2 I) mu - y``, which is at least
        the error of the function (root mean square over rows), is below this many standard deviations of the noise.
        Otherwise: converged when the residual has not fallen by a hundredth of it for some time.
    max_iter, max_seconds, should_stop, checkpoint, verbose
        As in `vastgp.fitting.loop.run_chunks`.
    seed : int, default 0
    dtype : {"float32", "float64"}

    Returns
    -------
    InducingFit

    Raises
    ------
    FloatingPointError
        When the iterates diverge, with what to change.
    """
    if rows.y is None:
        raise ValueError("rows have no targets. Give y to as_rows: training needs it.")
    options = options or InducingOptions()
    if inputs is not None and len(inputs) <= options.most_direct:
        mean, loop = solve_directly(rows, standardizer, kernel, inputs, noise_variance)
        with precision(dtype):
            basis = InducingBasis(as_dtype(kernel, dtype), jnp.asarray(inputs, dtype))
            diagonal = inducing_diagonal(basis, rows, standardizer, noise_variance, seed)
            return InducingFit(basis, jnp.asarray(mean, dtype), diagonal, False, loop)
    plan = make_plan(options, rows.n, inputs)
    by_rows = inputs is None
    with precision(dtype):
        common = (plan, rows, standardizer, kernel, noise_variance, seed, dtype)
        problem = rows_problem(*common) if inputs is None else weights_problem(*common, inputs)
        zeros = jnp.zeros(plan.num_basis, dtype)
        state = InducingState(
            jnp.zeros((), jnp.int32), zeros, zeros + 0.0, jnp.zeros(plan.support, dtype)
        )

        def chunk(state: InducingState, first: int, steps: int) -> tuple[Any, Mapping[str, Any]]:
            records = jnp.full((_CHUNK, 2), jnp.nan, dtype)
            if by_rows:
                state, records = run_rows(plan, problem, state, records, steps)
            else:
                X, y = chunk_of_minibatches(
                    rows, standardizer, seed, first, steps, plan.row_batch, dtype
                )
                missing = _CHUNK - steps  # one compiled function for all lengths
                X, y = np.pad(X, ((0, missing), (0, 0), (0, 0))), np.pad(y, ((0, missing), (0, 0)))
                state, records = run_weights(plan, problem, state, X, y, records, steps)
            return state, _diagnostics(np.asarray(records[:steps], np.float64), first + steps)

        least = tol * noise_variance**0.5
        rules = [no_progress("residual", patience=_PATIENCE, min_change=0.01 * least)]
        if by_rows and plan.whole:
            rules.append(_below(least))
        state, loop = run_chunks(
            chunk,
            state,
            max_iter=max_iter,
            chunk=_CHUNK,
            max_seconds=max_seconds,
            checkpoint=checkpoint,
            should_stop=first_of(*rules, *([should_stop] if should_stop else [])),
            label="QSGP inducing",
            verbose=verbose,
        )
        return_freed_memory()
        averaged = not (by_rows and plan.whole) and _average_is_better(
            problem, state, rows, standardizer, noise_variance, seed, dtype
        )
        return InducingFit(
            problem.basis,
            state.average if averaged else state.mean,
            inducing_diagonal(problem.basis, rows, standardizer, noise_variance, seed),
            averaged,
            loop,
        )


def _below(level: float) -> ShouldStop:
    def rule(diagnostics: Mapping[str, float], history: History) -> Stop | None:
        residual = diagnostics["residual"]
        if residual <= level:
            return Stop(f"converged: residual {residual:.2g} <= tol, {level:.2g}", True)
        return None

    return rule


def _diagnostics(records: np.ndarray, done: int) -> dict[str, float]:
    """Return what a chunk adds to the history."""
    if not np.all(np.isfinite(records)):
        raise FloatingPointError(
            f"the stochastic solver diverged before step {done}: the residual is no longer finite. Set "
            "dtype='float64' where the function varies far more than the noise, or give a larger noise_floor, "
            "basis_batch or control_rank."
        )
    spread = np.std(records[:, 0], ddof=1) if len(records) > 1 else np.nan
    return {
        "objective": float(np.mean(records[:, 0])),
        "objective_se": float(spread / len(records) ** 0.5),
        "residual": float(max(np.mean(records[:, 1]), 0.0) ** 0.5),
    }


def _average_is_better(
    problem: InducingProblem,
    state: InducingState,
    rows: Rows,
    standardizer: Standardizer,
    noise_variance: float,
    seed: int,
    dtype: str,
) -> bool:
    """Whether the average of iterates has the higher bound, by some rows and some inducing inputs."""
    chosen = generator(seed, 1, FIXED_ROWS).choice(rows.n, min(rows.n, _JUDGE_ROWS), replace=False)
    X, y = rows.take(chosen)
    assert y is not None
    inputs, target = standardizer.transform_X(X), standardizer.transform_y(y)
    blocks = BlockedInputs.cut(problem.basis)
    few = min(problem.basis.num_basis, _JUDGE_ROWS)

    def loss(mean: Array) -> float:
        """Return ``||Phi mu - y||^2 / (n sigma^2) + mu^T S mu / n``."""
        f = np.asarray(function_values(blocks, jnp.asarray(inputs, dtype), mean), np.float64)
        at = np.asarray(function_values(blocks, problem.basis.inputs[:few], mean), np.float64)
        prior = problem.basis.num_basis / few * float(np.asarray(mean[:few], np.float64) @ at)
        return float(np.mean((f - target) ** 2)) / noise_variance + prior / rows.n

    return loss(state.average) <= loss(state.mean)


def inducing_diagonal(
    basis: InducingBasis, rows: Rows, standardizer: Standardizer, noise_variance: float, seed: int
) -> Float[Array, " m"]:
    """Return ``c_rr`` of Proposition 1, ``phi_r^T phi_r`` summed over all rows.

    Beyond half a billion kernel values, over random rows instead, at least `_DIAGONAL_ROWS` of them, times the
    inverse of their share.
    """
    blocks, dtype = BlockedInputs.cut(basis), basis.inputs.dtype
    size = max(int(_DIAGONAL_VALUES / basis.num_basis), _DIAGONAL_ROWS)
    total = jnp.zeros(blocks.basis.num_basis, dtype)
    tiles = (X for X, _ in rows.batches(_TILE))
    if size < rows.n:
        chosen = np.sort(generator(seed, 2, FIXED_ROWS).choice(rows.n, size, replace=False))
        tiles = (rows.take(part)[0] for part in np.array_split(chosen, -(-size // _TILE)))
    for X in tiles:
        tile = np.zeros((_TILE, rows.d), dtype)
        tile[: len(X)] = standardizer.transform_X(X)
        weights = jnp.asarray(np.arange(_TILE) < len(X), dtype)
        total = total + squared_norms(blocks, jnp.asarray(tile), weights)
    gram = total[: basis.num_basis] * (rows.n / min(size, rows.n))
    return optimal_diagonal(gram, float(basis.kernel.total_variance()), noise_variance)
