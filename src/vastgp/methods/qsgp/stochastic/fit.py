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
from vastgp._precision import as_dtype, precision
from vastgp.bases import RandomFourierBasis
from vastgp.data import Rows, Standardizer
from vastgp.data.minibatch import chunk_of_minibatches
from vastgp.data.padding import repeat_last
from vastgp.fitting.checkpoint import Phase
from vastgp.fitting.loop import LoopResult, ShouldStop, run_chunks
from vastgp.fitting.minibatch_runner import MinibatchRunner, mean_and_error
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.methods.qsgp.stochastic.likelihood import (
    add_dense,
    isotropic_covariance,
    latent_values,
    likelihood_residual,
    sampling_report,
)
from vastgp.methods.qsgp.stochastic.sample import current_basis, products
from vastgp.methods.qsgp.stochastic.sampled_elbo import optimal_diagonal
from vastgp.methods.qsgp.stochastic.sampled_likelihood import SamplingGap
from vastgp.methods.qsgp.stochastic.setup import (
    StochasticOptions,
    fixed_rows,
    make_plan,
    make_problem,
    start_state,
)
from vastgp.methods.qsgp.stochastic.state import StochasticPlan, StochasticProblem, StochasticState
from vastgp.methods.qsgp.stochastic.step import OBJECTIVE_EVERY, step
from vastgp.solvers.least_squares import BlockedBasis

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
    on_chunk: Callable[[StochasticState, StochasticProblem], Mapping[str, float]] | None = None,
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
    options = options or StochasticOptions()
    plan = make_plan(options, rows.n, basis, likelihood)
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
        problem = make_problem(plan, options, rows, standardizer, basis, likelihood, seed, dtype)

        def summarise(state: StochasticState, records: Any, done: int) -> dict[str, float]:
            found = _diagnostics(plan, problem, state, records, done)
            return found | dict(on_chunk(state, problem) if on_chunk else {})

        draw = functools.partial(
            chunk_of_minibatches, rows, standardizer, seed, batch=plan.row_batch, dtype=dtype
        )
        with MinibatchRunner(
            step, plan, problem, chunk=_CHUNK, draw=draw, summarise=summarise, last=max_iter
        ) as runner:
            # before there are arrays of the basis's length: the compiler needs 200 MB itself
            return_freed_memory()
            shapes = jax.eval_shape(lambda: start_state(plan, problem, noise_variance, dtype))
            row = np.zeros((plan.row_batch, rows.d), dtype)
            runner.compile(shapes, (row, row[:, 0]))
            return_freed_memory()
            state, loop = run_chunks(
                runner,
                start_state(plan, problem, noise_variance, dtype),
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


def _diagnostics(
    plan: StochasticPlan,
    problem: StochasticProblem,
    state: StochasticState,
    records: dict[str, np.ndarray],
    done: int,
) -> dict[str, float]:
    """Return what a chunk adds to the history."""
    residual = float(np.mean(records["residual"], dtype=np.float64))
    if not np.isfinite(residual):
        rate = float(problem.numbers.learning_rate)
        raise FloatingPointError(
            f"the stochastic solver diverged before step {done}: the residual is no longer finite. Give a smaller "
            f"learning_rate (it is {rate:g}), a larger basis_batch, or a larger control_rank."
        )
    first = done - len(records["objective"])
    of_bound = records["objective"][-first % OBJECTIVE_EVERY :: OBJECTIVE_EVERY]
    found = mean_and_error(of_bound) | {"residual": residual**0.5}
    report = _report(plan, problem, state)
    if plan.support_rows:
        found["support_residual"] = float(report["support_residual"])
        found["sampling_error"] = float(np.mean(records["sampling_error"]) ** 0.5)
        found["control_coefficient"] = float(report["control_coefficient"])
    if plan.learn and plan.gaussian:
        found["noise_variance"] = float(report["noise_variance"])
    return found


@functools.partial(jax.jit, static_argnums=0)
def _report(
    plan: StochasticPlan, problem: StochasticProblem, state: StochasticState
) -> dict[str, Array]:
    """Return the residual at the support rows, where the function is known, and what else the state tells."""
    F = plan.functions
    basis, noise_variance = current_basis(problem, state.hyper, plan)
    _, variance = isotropic_covariance(plan, problem, basis, state.curvature)
    variance = add_dense(plan, variance, state.support[:, F:] ** 2)
    residual = likelihood_residual(
        plan, problem.likelihood, problem.support_y, state.support[:, :F], noise_variance, variance
    )
    return {
        "support_residual": jnp.mean(residual[:, :F] ** 2) ** 0.5,
        "control_coefficient": state.coefficient.value,
        "noise_variance": noise_variance,
    }


def _finish(
    plan: StochasticPlan,
    problem: StochasticProblem,
    state: StochasticState,
    rows: Rows,
    standardizer: Standardizer,
    loop: LoopResult,
    seed: int,
    dtype: str,
) -> StochasticFit:
    """Choose the mean and compute the diagonal columns."""
    X, y = (part.astype(dtype) for part in fixed_rows(rows, standardizer, seed, 1, _DIAGONAL_ROWS))
    given = (np.arange(_DIAGONAL_ROWS) < len(X)).astype(dtype)
    # one shape for any number of rows
    whole = (repeat_last(part, _DIAGONAL_ROWS) for part in (X, y))
    mean, diagonal, averaged, kernel, noise = _closed(plan, problem, state, *whole, given)
    few = as_dtype((X[:_REPORT_ROWS], y[:_REPORT_ROWS]), dtype)
    return StochasticFit(
        basis=problem.basis.with_kernel(kernel),
        likelihood=Gaussian(float(noise)) if plan.gaussian else problem.likelihood,
        mean=mean,
        columns=state.columns_average if plan.dense_columns else None,
        diagonal=diagonal,
        averaged=bool(averaged),
        loop=loop,
        sampling=None if plan.gaussian else sampling_report(plan, problem, state, *few),
    )


@functools.partial(jax.jit, static_argnums=0)
def _closed(
    plan: StochasticPlan,
    problem: StochasticProblem,
    state: StochasticState,
    X: Float[Array, "n d"],
    y: Float[Array, " n"],
    given: Float[Array, " n"],
) -> tuple[Array, Array, Array, Kernel, Array]:
    """Return the mean, the diagonal columns, whether the mean is the average, kernel and noise variance.

    The better mean is the one that takes less from the bound (eq. (2)), per row, by some rows; ``given`` is zero for
    those that fill up.
    """
    basis, noise_variance = current_basis(problem, state.hyper, plan)
    likelihood: Likelihood = Gaussian(noise_variance) if plan.gaussian else problem.likelihood
    blocks, few = BlockedBasis.cut(basis), slice(_JUDGE_ROWS)
    variance = isotropic_covariance(plan, problem, basis, state.curvature)[1]
    columns = (state.columns_average,) if plan.dense_columns and not plan.gaussian else ()
    values = products(blocks, X[few], state.mean, state.mean_average, *columns)
    F = plan.functions
    if columns:
        variance = add_dense(plan, variance, values[:, 2 * F :] ** 2)

    def loss(mean: Array, values: Array) -> Array:
        log_prob = likelihood.expected_log_prob(y[few], latent_values(plan, values), variance)
        penalty = 0.5 * jnp.vdot(mean, mean) / problem.numbers.num_rows
        return penalty - jnp.sum(given[few] * log_prob) / jnp.sum(given[few])

    average_is_better = loss(state.mean_average, values[:, F:]) <= loss(state.mean, values)
    mean = jnp.where(average_is_better, state.mean_average, state.mean)
    noise = noise_variance if plan.gaussian else 1.0 / state.curvature
    num_rows, q = problem.numbers.num_rows, plan.dense_columns
    diagonal = diagonal_columns(basis, noise, X, num_rows, q, given)
    return mean[0] if F == 1 else mean, diagonal, average_is_better, basis.kernel, noise_variance


def diagonal_columns(
    basis: RandomFourierBasis,
    noise_variance: Any,
    X: Float[Array, "s d"],
    num_rows: Any,
    dense_columns: int,
    given: Float[Array, " s"] | None = None,
) -> Float[Array, "2 P"]:
    """Return the diagonal columns' entries by Proposition 1, zero for the dense ones.

    ``phi_r^T phi_r`` is ``n / s`` times the sum over the ``s`` rows given. As
    ``phi^2 = s0^2 / m (1 +- cos(2 omega^T x))``, its relative standard error is
    ``sqrt(Var cos(2 omega^T x) / s) <= sqrt(1 / (2 s))``, 1.6 % for 2048 rows, and half of it in ``c_rr``. It is nearly
    independent between frequencies, so that a predictive variance, a sum over thousands of them, has no error to
    speak of. With all rows it is exact. ``given`` is zero for rows that fill up.
    """
    blocks = BlockedBasis.cut(basis)
    weights = jnp.full(len(X), 1.0 / len(X), X.dtype) if given is None else given / jnp.sum(given)

    def body(which: Any, diagonal: Array) -> Array:
        gram = num_rows * (blocks.features(X, which) ** 2 @ weights)
        return blocks.put(diagonal, optimal_diagonal(gram, 1.0, noise_variance)[None], which)

    start = blocks.zeros(1, X.dtype)
    diagonal = jax.lax.fori_loop(0, blocks.num_blocks, body, start)[0, :, : basis.num_pairs]
    order = np.arange(dense_columns)
    return diagonal.at[order % 2, order // 2].set(0.0) if dense_columns else diagonal
