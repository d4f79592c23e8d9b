"""The quadruply stochastic solver: variational inference whose steps cost O(1) in rows and basis functions.

Evans and Nair (2020), sections 2 and 4. The mean and the dense columns of the Cholesky factor are found by
stochastic gradients of Theorems 1 and 2 with control variates, the diagonal columns in closed form (Proposition 1),
hyperparameters by stochastic gradients of the whole bound (section 2.3).

What goes beyond the paper, by measurement (``benchmarks/results``): the error of sampling basis functions is
interpolated from the support rows, gradients are preconditioned with the support rows' kernel matrix, which also sets
the size of a step, and the iterates are averaged. ``optimizer="adagrad", control="rows"`` is the paper's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp._memory import return_freed_memory
from vastgp._precision import precision
from vastgp.bases import RandomFourierBasis
from vastgp.data import Rows, Standardizer
from vastgp.data.minibatch import chunk_of_minibatches
from vastgp.fitting.checkpoint import Phase
from vastgp.fitting.loop import LoopResult, ShouldStop, run_chunks
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.methods.qsgp.stochastic.likelihood import (
    add_dense,
    isotropic_covariance,
    latent_values,
    likelihood_residual,
    sampling_report,
)
from vastgp.methods.qsgp.stochastic.sample import current_basis
from vastgp.methods.qsgp.stochastic.sampled_elbo import optimal_diagonal
from vastgp.methods.qsgp.stochastic.sampled_likelihood import SamplingGap
from vastgp.methods.qsgp.stochastic.setup import (
    StochasticOptions,
    fixed_rows,
    make_plan,
    make_problem,
    start_state,
)
from vastgp.methods.qsgp.stochastic.state import Problem, State, StepPlan
from vastgp.methods.qsgp.stochastic.step import run_steps
from vastgp.solvers.least_squares import BlockedBasis, evaluate

_CHUNK = 50
_JUDGE_ROWS = 1024  # rows that decide between the last and the averaged mean
_DIAGONAL_ROWS = 2048  # rows behind the diagonal columns
_REPORT_ROWS = 256  # rows of the report on sampling


@dataclass(frozen=True)
class StochasticFit:
    """What the stochastic solver found.

    Attributes
    ----------
    basis : RandomFourierBasis
        With the final hyperparameters.
    likelihood : Likelihood
        With the final hyperparameters, standardised units.
    mean : Array of shape (2, P), or (C, 2, P)
        Posterior mean of the weights, of each of C functions where there are several.
    columns : Array of shape (q, 2, P), or None
        Dense columns of the covariance's Cholesky factor.
    diagonal : Array of shape (2, P)
        Entries of its diagonal columns; zero where the column is dense.
    averaged : bool
        Whether ``mean`` is the average of iterates or the last one.
    loop : LoopResult
        How training went: bound with standard error, residuals.
    sampling : SamplingGap, or None
        What sampling basis functions does to the fit of some rows, see `sampling_report`; None with Gaussian noise,
        where it is unbiased.
    """

    basis: RandomFourierBasis
    likelihood: Likelihood
    mean: Float[Array, "*C 2 P"]
    columns: Float[Array, "q 2 P"] | None
    diagonal: Float[Array, "2 P"]
    averaged: bool
    loop: LoopResult
    sampling: SamplingGap | None = None


def fit_stochastic(
    rows: Rows,
    standardizer: Standardizer,
    basis: RandomFourierBasis,
    likelihood: Likelihood,
    options: StochasticOptions | None = None,
    *,
    max_iter: int | None = 20_000,
    max_seconds: float | None = None,
    should_stop: ShouldStop | None = None,
    checkpoint: Phase | None = None,
    seed: int = 0,
    dtype: str = "float32",
    verbose: bool = False,
    on_chunk: Callable[[State, Problem], Mapping[str, float]] | None = None,
) -> StochasticFit:
    """Find mean, chevron covariance and, if wanted, hyperparameters by stochastic gradients.

    Parameters
    ----------
    rows : Rows
        Training rows with targets.
    standardizer : Standardizer
        Their scaling.
    basis : RandomFourierBasis
        With its kernel in standardised units: the hyperparameters to start from.
    likelihood : Likelihood
        In standardised units: Gaussian, where learning starts from its noise, or one of bounded curvature.
    options : StochasticOptions, optional
        Sizes, control variates, optimiser.
    max_iter, max_seconds, should_stop, checkpoint, verbose
        As in `vastgp.fitting.loop.run_chunks`.
    seed : int, default 0
        Of rows, support rows and index sets.
    dtype : {"float32", "float64"}
    on_chunk : callable, optional
        Called with the state and the problem after every chunk; what it returns joins the record. It must not keep
        the arrays: the next chunk takes their memory.

    Returns
    -------
    StochasticFit

    Raises
    ------
    FloatingPointError
        When the iterates diverge, with what to change.
    """
    if rows.y is None:
        raise ValueError("rows have no targets. Give y to as_rows: training needs it.")
    plan = make_plan(options or StochasticOptions(), rows.n, basis, likelihood)
    noise_variance = 1.0 / likelihood.most_curvature()
    if plan.dense_columns and (plan.functions > 1 or plan.strict):
        reason = "bound='plug-in'" if plan.strict else "two classes"
        raise ValueError(
            f"dense_columns = {plan.dense_columns} needs {reason} where the likelihood is the {likelihood.name} one. "
            "Set dense_columns=0, or use solver='block', whose samples have all correlations."
        )
    if plan.strict and not likelihood.log_concave:
        raise ValueError(
            f"bound='strict' needs a log-concave likelihood, which the {likelihood.name} one is not: set "
            "bound='plug-in'."
        )
    with precision(dtype):
        problem = make_problem(plan, rows, standardizer, basis, likelihood, seed, dtype)
        _compile(plan, problem, noise_variance, dtype)
        state = start_state(plan, problem, noise_variance, dtype)

        def chunk(state: State, first: int, steps: int) -> tuple[State, Mapping[str, Any]]:
            X, y = chunk_of_minibatches(
                rows, standardizer, seed, first, steps, plan.row_batch, dtype
            )
            missing = _CHUNK - steps  # one compiled function for all lengths
            X, y = np.pad(X, ((0, missing), (0, 0), (0, 0))), np.pad(y, ((0, missing), (0, 0)))
            state, records = run_steps(plan, problem, state, X, y, steps)
            found = _diagnostics(
                plan, problem, state, np.asarray(records, np.float64), first + steps
            )
            return state, found | dict(on_chunk(state, problem) if on_chunk else {})

        state, loop = run_chunks(
            chunk,
            state,
            max_iter=max_iter,
            chunk=_CHUNK,
            max_seconds=max_seconds,
            checkpoint=checkpoint,
            should_stop=should_stop,
            label="QSGP stochastic",
            verbose=verbose,
        )
        return_freed_memory()
        return _finish(plan, problem, state, rows, standardizer, loop, seed, dtype)


def _compile(plan: StepPlan, problem: Problem, noise_variance: float, dtype: str) -> None:
    """Compile the steps before there are arrays of the basis's length: the compiler needs 200 MB itself."""
    return_freed_memory()
    state = jax.eval_shape(lambda: start_state(plan, problem, noise_variance, dtype))
    batch = (_CHUNK, plan.row_batch)
    X = np.zeros((*batch, problem.support_X.shape[1]), problem.support_X.dtype)
    run_steps.lower(plan, problem, state, X, X[..., 0], 0).compile()
    return_freed_memory()


def _diagnostics(
    plan: StepPlan, problem: Problem, state: State, records: np.ndarray, done: int
) -> dict[str, float]:
    """Return what a chunk adds to the history."""
    objective = records[:, 0][~np.isnan(records[:, 0])]
    residual = np.nanmean(records[:, 1])
    if not np.isfinite(residual):
        raise FloatingPointError(
            f"the stochastic solver diverged before step {done}: the residual is no longer finite. Give a smaller "
            f"learning_rate (it is {plan.learning_rate:g}), a larger basis_batch, or a larger control_rank."
        )
    found = {
        "objective": float(np.mean(objective)) if len(objective) else np.nan,
        "objective_se": float(np.std(objective, ddof=1) / len(objective) ** 0.5)
        if len(objective) > 1
        else np.nan,
        "residual": float(residual**0.5),
    }
    if plan.support_rows:
        exact = np.asarray(_support_residual(plan, problem, state), np.float64)
        found["support_residual"] = float(np.mean(exact**2) ** 0.5)
        found["sampling_error"] = float(np.nanmean(records[:, 2]) ** 0.5)
        found["control_coefficient"] = float(state.coefficient.value)
    if plan.learn and plan.gaussian:
        found["noise_variance"] = float(jnp.exp(state.hyper[1]))
    return found


@functools.partial(jax.jit, static_argnums=0)
def _support_residual(plan: StepPlan, problem: Problem, state: State) -> Array:
    """Return the residual at the support rows, where the function is known."""
    F = plan.functions
    basis, noise_variance = current_basis(problem, state.hyper, plan)
    _, variance = isotropic_covariance(plan, basis, state.curvature)
    variance = add_dense(plan, variance, state.support[:, F:] ** 2)
    residual = likelihood_residual(
        plan, problem.likelihood, problem.support_y, state.support[:, :F], noise_variance, variance
    )
    return residual[:, :F]


def _finish(
    plan: StepPlan,
    problem: Problem,
    state: State,
    rows: Rows,
    standardizer: Standardizer,
    loop: LoopResult,
    seed: int,
    dtype: str,
) -> StochasticFit:
    """Choose the mean and compute the diagonal columns."""
    log_kernel, log_noise = state.hyper
    kernel = jax.tree.map(jnp.exp, log_kernel) if plan.learn else problem.basis.kernel
    basis, noise = problem.basis.with_kernel(kernel), float(jnp.exp(log_noise))
    seen, target = fixed_rows(rows, standardizer, seed, 1, _DIAGONAL_ROWS)
    X, judged = jnp.asarray(seen, dtype), jnp.asarray(target[:_JUDGE_ROWS], dtype)
    blocks = BlockedBasis.cut(basis)
    likelihood: Likelihood = Gaussian(noise) if plan.gaussian else problem.likelihood
    variance = isotropic_covariance(plan, basis, state.curvature)[1]
    if plan.dense_columns and not plan.gaussian:
        columns = blocks.pad(state.columns_average)
        variance = add_dense(plan, variance, evaluate(blocks, X[:_JUDGE_ROWS], columns).T ** 2)

    def judge(mean: Array) -> float:
        """Return what the mean takes from the bound, per row, from some rows (eq. (2))."""
        values = latent_values(plan, evaluate(blocks, X[:_JUDGE_ROWS], blocks.pad(mean)).T)
        penalty = 0.5 * float(jnp.vdot(mean, mean)) / rows.n
        return penalty - float(jnp.mean(likelihood.expected_log_prob(judged, values, variance)))

    averaged = judge(state.mean_average) <= judge(state.mean)
    mean = state.mean_average if averaged else state.mean
    return StochasticFit(
        basis=basis,
        likelihood=likelihood,
        mean=mean[0] if plan.functions == 1 else mean,
        columns=state.columns_average if plan.dense_columns else None,
        diagonal=diagonal_columns(
            basis,
            1.0 / float(state.curvature) if not plan.gaussian else noise,
            X,
            rows.n,
            plan.dense_columns,
        ),
        averaged=averaged,
        loop=loop,
        sampling=None
        if plan.gaussian
        else sampling_report(plan, problem, state, X[:_REPORT_ROWS], judged[:_REPORT_ROWS]),
    )


def diagonal_columns(
    basis: RandomFourierBasis,
    noise_variance: float,
    X: Float[Array, "s d"],
    num_rows: int,
    dense_columns: int,
) -> Float[Array, "2 P"]:
    """Return the diagonal columns' entries by Proposition 1, zero for the dense ones.

    ``phi_r^T phi_r`` is ``n / s`` times the sum over the ``s`` rows given. As
    ``phi^2 = s0^2 / m (1 +- cos(2 omega^T x))``, its relative standard error is
    ``sqrt(Var cos(2 omega^T x) / s) <= sqrt(1 / (2 s))``, 1.6 % for 2048 rows, and half of it in ``c_rr``. It is nearly
    independent between frequencies, so that a predictive variance, a sum over thousands of them, has no error to
    speak of. With all rows it is exact.
    """
    noise, rows = jnp.asarray(noise_variance, X.dtype), jnp.asarray(num_rows, X.dtype)
    return _diagonal(BlockedBasis.cut(basis), X, noise, rows, dense_columns)


@functools.partial(jax.jit, static_argnames="dense_columns")
def _diagonal(
    blocks: BlockedBasis, X: Array, noise_variance: Array, num_rows: Array, dense_columns: int
) -> Float[Array, "2 P"]:
    def body(which: Any, diagonal: Array) -> Array:
        gram = num_rows * jnp.mean(blocks.features(X, which) ** 2, axis=1)
        return blocks.put(diagonal, optimal_diagonal(gram, 1.0, noise_variance)[None], which)

    start = blocks.zeros(1, X.dtype)
    diagonal = jax.lax.fori_loop(0, blocks.num_blocks, body, start)[0, :, : blocks.basis.num_pairs]
    order = np.arange(dense_columns)
    return diagonal.at[order % 2, order // 2].set(0.0) if dense_columns else diagonal
