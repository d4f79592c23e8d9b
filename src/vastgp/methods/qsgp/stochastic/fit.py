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
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from vastgp._memory import return_freed_memory
from vastgp._precision import precision
from vastgp._programs import program
from vastgp.bases import RandomFourierBasis
from vastgp.data import Rows, Standardizer, processes
from vastgp.data.minibatch import chunk_of_minibatches
from vastgp.data.split import held_out_indices, without
from vastgp.estimators.evidence_fits import nats_left
from vastgp.fitting.clock import now
from vastgp.fitting.early_stopping import no_progress
from vastgp.fitting.history import History
from vastgp.fitting.loop import ShouldStop, Stop, steps_of_chunk
from vastgp.fitting.minibatch_runner import MinibatchRunner, mean_and_error
from vastgp.fitting.run import Answer, Run
from vastgp.likelihoods import Likelihood
from vastgp.methods.qsgp.stochastic.finish import (
    StochasticFit,
    finish,
    operations_of_the_end,
)
from vastgp.methods.qsgp.stochastic.likelihood import (
    add_dense,
    isotropic_covariance,
    likelihood_residual,
)
from vastgp.methods.qsgp.stochastic.options import Stochastic, check_stochastic
from vastgp.methods.qsgp.stochastic.parts import layouts, products
from vastgp.methods.qsgp.stochastic.posterior import ChevronPosterior
from vastgp.methods.qsgp.stochastic.sample import current_basis
from vastgp.methods.qsgp.stochastic.setup import (
    NOISE_FLOOR,
    make_plan,
    make_problem,
    start_state,
)
from vastgp.methods.qsgp.stochastic.state import (
    StochasticPlan,
    StochasticProblem,
    StochasticState,
    features_made,
)
from vastgp.methods.qsgp.stochastic.step import OBJECTIVE_EVERY, step
from vastgp.solvers.plan import operations_where_arrays_lie

# Steps of a chunk, fewer where they take more than so many operations: 784 inputs and sets of 20,000 functions took
# 24 s of two cores. A multiple of the steps between two records of the bound.
_CHUNK, _CHUNK_OPERATIONS = 50, 2e11
# Of a chunk for each second of a budget: some twentieth of it, where one is short.
_OPERATIONS_A_SECOND = 1.5e9
_MOST_JUDGES = 1000  # rows held out
# Times that a step or a pass takes as long as a product of matrices of as many operations; what steps have of what is
# left of the budget where the end of the fit would take all.
_SLOWER, _LEAST_SHARE = 2.0, 0.3
# Steps before their records may say that there is no progress, which is this share of `tol` noise standard deviations.
_PATIENCE, _LEAST_PROGRESS = 2000, 0.01
_PHASE = "stochastic"
RATE = 1e-3  # of Adam on logarithms of hyperparameters, where nobody chooses another
# Records whose last value is part of the diagnosis, where they are kept.
_REPORTED = (
    "objective", "objective_se", "residual", "support_residual", "held_out_rmse", "sampling_error",
)  # fmt: skip

OnChunk = Callable[[StochasticState, StochasticProblem, int], Mapping[str, float]]


def fit_stochastic(
    rows: Rows,
    standardizer: Standardizer,
    basis: RandomFourierBasis,
    likelihood: Likelihood,
    options: Stochastic | None = None,
    run: Run | None = None,
    *,
    rate: float | None = None,
    noise_floor: float = NOISE_FLOOR,
    tol: float | None = None,
    dtype: str = "float32",
    on_chunk: OnChunk | None = None,
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
    options : Stochastic, optional
        Sizes, control variates, optimiser.
    run : Run, optional
        Budget, file and seed: of rows, support rows and index sets.
    rate : float, optional
        Learn lengthscales, variance and noise (empirical Bayes) by Adam with this rate, on logarithms. None: held.
    noise_floor : float
        Least noise variance that is learned.
    tol : float, optional
        Converged when the residual, or the error of rows held out, no longer falls by a hundredth of so many standard
        deviations of the noise, see `no_progress`, and the bound stands still. None: all steps, or all of the budget.
    dtype : {"float32", "float64"}
    on_chunk : callable, optional
        Called with the state, the problem and the steps done after every chunk; what it returns joins the record. It
        must not keep the arrays: the next chunk takes their memory.

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
    options, run = options or Stochastic(), run or Run()
    check_stochastic(options, likelihood, basis.num_basis)
    rows, judges = _hold_out(rows, standardizer, options, run.seed, dtype)
    watched = (
        "held_out_rmse" if judges else "support_residual" if options.control_rank else "residual"
    )
    plan = make_plan(options, rows.n, basis, likelihood, rate is not None)
    noise_variance, chunk = 1.0 / likelihood.most_curvature(), _steps_of_a_chunk(plan, rows.d, run)
    end = _seconds_of_the_end(plan, rows.d, run)
    with precision(dtype):
        problem = make_problem(
            plan, options, rows, standardizer, basis, likelihood, run.seed, dtype, rate or 0.0,
            noise_floor,
        )  # fmt: skip

        def summarise(state: StochasticState, records: Any, done: int) -> dict[str, float]:
            found = _diagnostics(plan, problem, state, records, done)
            if judges:
                found["held_out_rmse"] = float(_error(plan, problem, state, *judges))
            return found | dict(on_chunk(state, problem, done) if on_chunk else {})

        draw = functools.partial(
            chunk_of_minibatches, rows, standardizer, run.seed, batch=plan.row_batch, dtype=dtype
        )
        with MinibatchRunner(
            step,
            plan,
            problem,
            chunk=chunk,
            draw=draw,
            summarise=summarise,
            last=options.max_steps,
        ) as runner:
            # before there are arrays of the basis's length: the compiler needs 200 MB itself
            return_freed_memory()
            start, shapes, placed = _starting(plan, problem, noise_variance, dtype)
            row = np.zeros((plan.row_batch, rows.d), dtype)
            began = now()
            runner.compile(shapes, (row, row[:, 0]))
            compiling = now() - began
            return_freed_memory()
            left = run.seconds_left()
            state, loop = run.steps(
                _PHASE,
                lambda state, *steps: runner(placed(state), *steps),
                start(),
                max_iter=options.max_steps,
                chunk=chunk,
                should_stop=_ended(
                    watched, tol, noise_variance, bool(judges), _PATIENCE // chunk, rows.n
                ),
                share=max(1.0 - end / left, _LEAST_SHARE) if left else 1.0,
                label="QSGP stochastic",
            )
        return_freed_memory()
        # it takes as long as compiling a step, and changes nothing
        left = run.seconds_left()
        report = not plan.gaussian and processes.agreed(left is None or left > compiling)
        return finish(plan, problem, state, rows, standardizer, loop, run.seed, dtype, report)


def _starting(
    plan: StochasticPlan, problem: StochasticProblem, noise_variance: float, dtype: str
) -> tuple[Callable[[], StochasticState], Any, Callable[[StochasticState], StochasticState]]:
    """Return what makes the first state, its shapes, and what puts a state on the devices that it is for."""

    def start(problem: StochasticProblem) -> StochasticState:
        return start_state(plan, problem, noise_variance, dtype)

    shapes = jax.eval_shape(start, problem)
    if plan.devices == 1:
        return lambda: start(problem), shapes, lambda state: state
    where = layouts(plan, shapes)
    shapes = jax.tree.map(
        lambda leaf, own: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=own), shapes, where
    )
    # never whole on one device
    made = functools.partial(jax.jit(start, out_shardings=where), problem)
    return made, shapes, lambda state: jax.device_put(state, where)


def fit_stochastic_answers(
    rows: Rows,
    standardizer: Standardizer,
    basis: RandomFourierBasis,
    likelihood: Likelihood,
    options: Stochastic,
    run: Run,
    *,
    rate: float | None,
    noise_floor: float,
    tol: float,
    dtype: str,
) -> Iterator[Answer]:
    """Give the answer of `fit_stochastic`."""
    fit = fit_stochastic(
        rows, standardizer, basis, likelihood, options, run,
        rate=rate, noise_floor=noise_floor, tol=tol, dtype=dtype,
    )  # fmt: skip
    history = fit.loop.history
    diagnosis = {name: history.last(name) for name in _REPORTED if name in history.values}
    diagnosis |= {"averaged": fit.averaged, "dense_columns": options.dense_columns}
    if fit.sampling is not None:
        diagnosis |= {
            "sampling_gap": fit.sampling.relative,
            "sampling_gap_se": fit.sampling.standard_error / abs(fit.sampling.full),
        }
    yield Answer(
        fit.basis.kernel,
        fit.likelihood,
        lambda: ChevronPosterior(fit.basis, fit.mean, fit.columns, fit.diagonal),
        fit.loop.num_iter,
        fit.loop.reason,
        fit.loop.converged,
        history,
        advice="the mean may still move, see history_, and standard deviations do not include what is left undone: "
        "give more time (max_seconds, Stochastic(max_steps=...)), or use solver='block' where it fits",
        attributes={"diagnosis_": diagnosis},
    )


def _steps_of_a_chunk(plan: StochasticPlan, d: int, run: Run) -> int:
    """Return the steps between two looks at the clock."""
    most = np.inf if run.max_seconds is None else _OPERATIONS_A_SECOND * run.max_seconds
    operations = min(_CHUNK_OPERATIONS, most)
    return steps_of_chunk(_CHUNK, operations, plan.operations(d), OBJECTIVE_EVERY)


def _seconds_of_the_end(plan: StochasticPlan, d: int, run: Run) -> float:
    """Return about what is to be kept of a budget for what follows the steps.

    Raises
    ------
    OutOfTime
        Where no step would have any time, and another answer stands.
    """
    if run.max_seconds is None:
        return 0.0
    rate = operations_where_arrays_lie() / _SLOWER
    end = operations_of_the_end(plan, d) / rate
    if run.needs is not None and not run.has(_PHASE):
        run.needs += end + OBJECTIVE_EVERY * plan.operations(d) / rate
        run.check_time()
    return end


def _ended(
    watched: str,
    tol: float | None,
    noise_variance: float,
    held_out: bool,
    patience: int,
    num_rows: int,
) -> ShouldStop | None:
    if tol is None:
        return None
    least = _LEAST_PROGRESS * tol * noise_variance**0.5
    rule = no_progress(watched, patience=patience, min_change=least, held_out=held_out)
    window = max(patience // 2, 2)

    def ended(now: Mapping[str, float], history: History) -> Stop | None:
        # the columns of the covariance are in no residual: they may diverge while the mean stands still
        return (
            None if _bound_moves(history, window, nats_left(tol) * num_rows) else rule(now, history)
        )

    return ended


def _bound_moves(history: History, window: int, most: float) -> bool:
    """Return whether the bound still rises or falls by more than ``most`` nats beyond doubt (two standard errors)."""
    values = np.asarray(history.objective)
    values = values[np.isfinite(values)]
    if len(values) < 2 * window:
        return True
    last, before = values[-window:], values[-2 * window : -window]
    error = float(((np.var(last, ddof=1) + np.var(before, ddof=1)) / window) ** 0.5)
    return abs(float(np.mean(last) - np.mean(before))) - 2.0 * error > most


def _hold_out(
    rows: Rows, standardizer: Standardizer, options: Stochastic, seed: int, dtype: str
) -> tuple[Rows, tuple[np.ndarray, np.ndarray] | None]:
    """Return the rows to train on, and standardised ones that decide when to stop."""
    if not options.validation_fraction:
        return rows, None
    chosen = held_out_indices(rows.n, options.validation_fraction, seed, _MOST_JUDGES)
    X, y = rows.take(chosen)
    assert y is not None
    judges = standardizer.transform_X(X).astype(dtype), standardizer.transform_y(y).astype(dtype)
    return without(rows, chosen), judges


@program(work=features_made, static_argnums=0)
def _error(
    plan: StochasticPlan, problem: StochasticProblem, state: StochasticState, X: Array, y: Array
) -> Array:
    """Return the root mean square error of the average of iterates."""
    basis, _ = current_basis(problem, state.hyper, plan)
    mean = products(plan, basis, X, state.mean_average)[:, 0]
    return jnp.mean((y - mean) ** 2) ** 0.5


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


@program(static_argnums=0)
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
