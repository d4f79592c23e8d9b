"""Quadruply stochastic inference with an inducing basis (Evans and Nair 2020, appendices F.2, G and I.2).

The mean maximises the sampled bound: by block steps where the inducing inputs are the training rows
(`rows`), by preconditioned stochastic gradients otherwise
(`weights`). Kernel and noise are
fixed: ``log |K(Z, Z)|`` has no estimate of constant cost.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from vastgp._memory import return_freed_memory
from vastgp._precision import as_dtype, precision
from vastgp.bases import InducingBasis
from vastgp.data import Rows, Standardizer
from vastgp.data.minibatch import chunk_of_minibatches, fixed_indices
from vastgp.data.tiles import over_tiles
from vastgp.fitting.early_stopping import first_of, no_progress
from vastgp.fitting.history import History
from vastgp.fitting.loop import LoopResult, ShouldStop, Stop
from vastgp.fitting.minibatch_runner import MinibatchRunner, mean_and_error
from vastgp.fitting.run import Run
from vastgp.kernels import Kernel
from vastgp.methods.qsgp.inducing.direct import solve_directly
from vastgp.methods.qsgp.inducing.objective import BlockedInputs, function_values
from vastgp.methods.qsgp.inducing.options import Inducing
from vastgp.methods.qsgp.inducing.rows import step_rows
from vastgp.methods.qsgp.inducing.setup import (
    JUDGES,
    make_plan,
    rows_problem,
    weights_problem,
)
from vastgp.methods.qsgp.inducing.state import (
    InducingProblem,
    InducingState,
)
from vastgp.methods.qsgp.inducing.weights import step_weights

_CHUNK = 20
_TILE = 2048
_PATIENCE = 60  # records before they may say that the residual no longer falls
_JUDGE_ROWS = 1024


@dataclass(frozen=True)
class InducingFit:
    """What was found.

    Attributes
    ----------
    basis : InducingBasis
        In the order of ``mean``.
    mean : Array of shape (m,)
        Posterior mean of the weights.
    averaged : bool
        Whether the mean is the average of iterates.
    loop : LoopResult
    """

    basis: InducingBasis
    mean: Float[Array, " m"]
    averaged: bool
    loop: LoopResult


def fit_inducing(
    rows: Rows,
    standardizer: Standardizer,
    kernel: Kernel,
    inputs: np.ndarray | None,
    noise_variance: float,
    options: Inducing | None = None,
    run: Run | None = None,
    *,
    tol: float = 0.1,
    dtype: str = "float32",
) -> InducingFit:
    """Find the mean of the weights of an inducing basis.

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
    options : Inducing, optional
        Its ``inputs`` and what variances are by are not read here.
    run : Run, optional
        Budget, file and seed.
    tol : float, default 0.1
        Where steps see every basis function at the rows: converged when ``(K + sigma^2 I) mu - y``, which is at least
        the error of the function (root mean square over rows), is below this many standard deviations of the noise.
        Otherwise: converged when the residual no longer falls by a hundredth of it, or by more than its noise.
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
    options, run = options or Inducing(), run or Run()
    if inputs is not None and len(inputs) <= options.max_direct:
        mean, loop = solve_directly(rows, standardizer, kernel, inputs, noise_variance, run)
        with precision(dtype):
            basis = InducingBasis(as_dtype(kernel, dtype), as_dtype(inputs, dtype))
            return InducingFit(basis, as_dtype(mean, dtype), False, loop)
    plan = make_plan(options, rows.n, inputs)
    given = (rows, standardizer, kernel, noise_variance, run.seed, dtype)
    step: Any = step_weights
    draw: Any = functools.partial(
        chunk_of_minibatches, rows, standardizer, run.seed, batch=plan.row_batch, dtype=dtype
    )
    with precision(dtype):
        if inputs is None:
            problem, step, draw = rows_problem(plan, options, *given), step_rows, None
        else:
            problem = weights_problem(plan, options, *given, inputs)
        sizes = (plan.num_basis, plan.num_basis, plan.support)
        state = InducingState(*(as_dtype(np.zeros(size), dtype) for size in sizes))
        least = tol * noise_variance**0.5
        # of the square: where the residual is the noise, as much as it falls by a hundredth of tol
        change = 0.02 * tol * noise_variance
        rules = [no_progress("residual_square", patience=_PATIENCE, min_change=change)]
        exact = inputs is None and plan.whole
        if exact:
            rules.append(_below(least))
        with MinibatchRunner(
            step,
            plan,
            problem,
            chunk=_CHUNK,
            draw=draw,
            summarise=_diagnostics,
            last=options.max_steps,
            devices=plan.devices,
        ) as runner:
            state, loop = run.steps(
                "inducing",
                runner,
                state,
                max_iter=options.max_steps,
                chunk=_CHUNK,
                should_stop=first_of(*rules),
                label="QSGP inducing",
            )
        return_freed_memory()
        averaged = not exact and _average_is_better(
            problem, state, rows, standardizer, noise_variance, run.seed, dtype
        )
        return InducingFit(
            problem.basis,
            state.average if averaged else state.mean,
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


def _diagnostics(state: InducingState, records: Any, done: int) -> dict[str, float]:
    """Return what a chunk adds to the history."""
    bound = mean_and_error(records["objective"])
    # a product of two estimates, whose mean may be negative where little is missing: not to be clipped before averages
    square = float(np.mean(records["residual_square"], dtype=np.float64))
    if not np.isfinite(square + bound["objective"]):
        raise FloatingPointError(
            f"the stochastic solver diverged before step {done}: the residual is no longer finite. Set "
            "dtype='float64' where the function varies far more than the noise, or give a larger noise_floor, "
            "basis_batch or control_rank."
        )
    return bound | {"residual_square": square, "residual": max(square, 0.0) ** 0.5}


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
    X, y = rows.take(fixed_indices(seed, JUDGES, rows.n, _JUDGE_ROWS))
    assert y is not None
    inputs = standardizer.transform_X(X).astype(dtype)
    target = standardizer.transform_y(y)
    blocks = BlockedInputs.cut(problem.basis)
    few = min(problem.basis.num_basis, _JUDGE_ROWS)

    def function(mean: Array, X: Any) -> np.ndarray:
        values = functools.partial(function_values, blocks, v=mean)
        found = over_tiles(values, X, most=_JUDGE_ROWS)
        return np.concatenate(list(found), dtype=np.float64)

    def loss(mean: Array) -> float:
        """Return ``||Phi mu - y||^2 / (n sigma^2) + mu^T S mu / n``."""
        at = function(mean, np.asarray(problem.basis.inputs)[:few])
        prior = problem.basis.num_basis / few * float(np.asarray(mean, np.float64)[:few] @ at)
        misfit = np.mean((function(mean, inputs) - target) ** 2)
        return float(misfit) / noise_variance + prior / rows.n

    return loss(state.average) <= loss(state.mean)
