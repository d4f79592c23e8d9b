"""The fit of a sparse-within-sparse Gaussian process: where inducing inputs are, how their variables are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from vastgp.data import Rows, Standardizer, observations, processes
from vastgp.data.minibatch import fixed_indices, fixed_rows, generator
from vastgp.estimators.inducing_inputs import inducing_attributes
from vastgp.fitting.inducing_points import select_inducing
from vastgp.fitting.noise_left import noise_left
from vastgp.fitting.run import Answer, Run
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.methods.swsgp.options import SwsgpOptions
from vastgp.methods.swsgp.sparse import SparseFit, fit_sparse, given_means
from vastgp.methods.swsgp.sparse_system import build_sparse
from vastgp.methods.swsgp.training import SwsgpFit, fit_swsgp
from vastgp.solvers.neighbour_posterior import NeighbourPosterior

# Up to so many inducing inputs k-means places them, with so many rows.
_MOST_CLUSTERED, _CLUSTERED_ROWS = 1000, 20_000
# What numbers drawn for inducing inputs are for, and which rows that are drawn once are chosen and judged with.
_ORDER, _CHOSEN, _JUDGED = 11, 1, 4
# Rows that say how much noise the means of a stopped fit leave; share of the budget for steps before the solution.
_JUDGE_ROWS, _FOR_STEPS = 8192, 0.7
# Of what is left of the budget, for the weights of all rows; solutions come after.
_FOR_WEIGHTS = 0.7


class Inputs(NamedTuple):
    """Inducing inputs: in standardised units, or how to choose how many.

    Attributes
    ----------
    given : ndarray of shape (M, d) or None
    choice : {"auto", "kmeans", "greedy", "random"}
    size : int
    asked : bool
        Whether the number is the user's.
    """

    given: np.ndarray | None
    choice: str
    size: int
    asked: bool


def placed(
    rows: Rows, standardizer: Standardizer, kernel: Kernel, inputs: Inputs, seed: int
) -> np.ndarray:
    """Return inducing inputs in standardised units, none twice, in random order.

    The ordered prior lets each depend on those before it, and an order without pattern keeps those near.
    """
    Z = inputs.given
    if Z is None:
        Z = _chosen(rows, standardizer, kernel, inputs, seed)
    return Z[generator(seed, 0, _ORDER).permutation(len(Z))]


def _chosen(
    rows: Rows, standardizer: Standardizer, kernel: Kernel, inputs: Inputs, seed: int
) -> np.ndarray:
    count, method = inputs.size, inputs.choice
    if method == "auto":
        method = "kmeans" if count <= _MOST_CLUSTERED else "random"
    most = min(rows.n, max(count, _CLUSTERED_ROWS))
    if method == "random":
        # somewhat more than asked for, as rows may repeat
        most = min(rows.n, count + max(100, count // 10))
    numbers = np.sort(fixed_indices(seed, _CHOSEN, rows.n, most))
    X = distinct(standardizer.transform_X(rows.take(numbers)[0]))
    if len(X) < count and most < rows.n:
        X = distinct(standardizer.transform_X(rows.take(np.arange(rows.n))[0]))
    if len(X) < count and inputs.asked:
        raise ValueError(
            f"num_inducing={count}, but X has {len(X)} distinct rows: two inducing inputs at one place are one. Give "
            f"at most {len(X)}, or leave it out."
        )
    return distinct(select_inducing(method, kernel, X, min(count, len(X)), seed))


def distinct(X: np.ndarray) -> np.ndarray:
    """Return the rows that differ, in their order."""
    _, first = np.unique(X, axis=0, return_index=True)
    return X[np.sort(first)]


def fit_neighbourhoods(
    rows: Rows,
    standardizer: Standardizer,
    first: tuple[Kernel, Likelihood],
    Z: np.ndarray,
    options: SwsgpOptions,
    run: Run,
    *,
    sparse: bool,
    dtype: str,
) -> Answer:
    """Find the inducing variables, and hyperparameters and inducing inputs where they are learned.

    Parameters
    ----------
    rows, standardizer
    first : tuple
        Kernel and likelihood in standardised units.
    Z : ndarray of shape (M, d)
        Inducing inputs.
    options : SwsgpOptions
    run : Run
    sparse : bool
        Whether by sparse linear algebra.
    dtype : {"float64", "float32"}
        Of steps.
    """
    kernel, likelihood = first
    if not sparse:
        fit = fit_swsgp(rows, standardizer, kernel, likelihood, Z, options, run, dtype=dtype)
        return _of_steps(fit, rows, standardizer, options, run.seed, dtype)
    found, noisy = _solve(rows, standardizer, kernel, likelihood, Z, options, run, "sparse solution")  # fmt: skip
    if not options.learn:
        return _of_sparse(found, kernel, noisy, Z, standardizer, options)
    start = found.mean, found.variances
    fit = fit_swsgp(
        rows, standardizer, kernel, noisy, Z, options, run, dtype=dtype, share=_FOR_STEPS, start=start
    )  # fmt: skip
    start = fit.mean, fit.spread
    found, noisy = _solve(
        rows, standardizer, fit.kernel, fit.likelihood, Z, options, run, "sparse solution of what was learned", start
    )  # fmt: skip
    loop = fit.loop if not fit.loop.converged else replace(
        fit.loop, converged=found.loop.converged, reason=fit.loop.reason if found.loop.converged else found.loop.reason
    )  # fmt: skip
    fit = replace(fit, likelihood=noisy, mean=found.mean, spread=found.variances, loop=loop)
    return _of_steps(fit, rows, standardizer, options, run.seed, dtype, found)


def _solve(
    rows: Rows,
    standardizer: Standardizer,
    kernel: Kernel,
    likelihood: Likelihood,
    Z: np.ndarray,
    options: SwsgpOptions,
    run: Run,
    name: str,
    start: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple[SparseFit, Likelihood]:
    """Return mean and variances, and the likelihood that they go with.

    Raises
    ------
    OutOfTime
        Where weights would take too much of the budget, and nothing has been solved before.
    """
    first = start is None and not run.has(name)
    on_tile = _stop_if_late(run) if first and processes.count() == 1 else None
    system = build_sparse(
        rows, standardizer, kernel, Z, options, verbose=run.verbose, on_tile=on_tile
    )
    found = fit_sparse(system, likelihood, tol=options.tol, run=run, name=name, start=start)
    if found.loop.converged or options.given or not isinstance(likelihood, Gaussian):
        return found, likelihood
    return given_means(system, found, options.noise_floor)


def _stop_if_late(run: Run) -> Callable[[float], None]:
    """Return what is told the share of the weights that is done, and ends the work that would end too late."""
    began: tuple[float, float] | None = None

    def on_tile(share: float) -> None:
        nonlocal began
        seconds = run.elapsed()
        if began is None:  # the first tile had its program compiled
            began = share, seconds
            return
        run.needs = (1.0 - share) * (seconds - began[1]) / (share - began[0]) / _FOR_WEIGHTS
        run.check_time()

    return on_tile


def _of_sparse(
    found: SparseFit,
    kernel: Kernel,
    likelihood: Likelihood,
    Z: np.ndarray,
    standardizer: Standardizer,
    options: SwsgpOptions,
) -> Answer:
    posterior = _posterior(kernel, Z, found.mean, found.variances, options, "float64")
    diagnosis = {
        "objective": found.bound,
        "objective_se": 0.0,
        "residual": found.residual,
        "recall": found.recall,
    }
    loop = found.loop
    return Answer(
        kernel,
        likelihood,
        lambda: posterior,
        loop.num_iter,
        loop.reason,
        loop.converged,
        loop.history,
        advice=f"residual {found.residual:.2g} (tol = {options.tol:g}). Give more time (max_seconds), or a larger tol.",
        attributes={"diagnosis_": diagnosis, "solver_": "sparse"}
        | inducing_attributes(Z, standardizer),
    )


def _of_steps(
    fit: SwsgpFit,
    rows: Rows,
    standardizer: Standardizer,
    options: SwsgpOptions,
    seed: int,
    dtype: str,
    solved: SparseFit | None = None,
) -> Answer:
    """Return what steps found, or what was solved for after them, in float64 and with its jitter."""
    made_in = dtype if solved is None else "float64"
    posterior = _posterior(fit.kernel, fit.Z, fit.mean, fit.spread, options, made_in)
    loop, history, likelihood = fit.loop, fit.loop.history, fit.likelihood
    converged, reason = loop.converged, loop.reason
    advice = "the bound may still grow, see history_. Give more time (max_seconds, max_steps), or a larger tol."
    if solved is None and _explains_nothing(fit, options, rows, standardizer):
        converged, reason = False, "the bound ended below that of noise alone"
        advice = (
            "inducing inputs much closer than a lengthscale hold each other, and single steps do not move them. Take "
            "solver='sparse' where it applies, fewer inducing inputs, or more steps (max_steps)."
        )
    if not converged and solved is None and not options.given and isinstance(likelihood, Gaussian):
        likelihood = Gaussian(_noise_left(posterior, rows, standardizer, options, seed))
    diagnosis = {
        "objective": history.last("objective"),
        "objective_se": history.last("objective_se"),
        "searches": int(fit.searches),
        "recall": float(fit.recall),
        "stale": float(fit.stale),
    }
    if solved is not None:
        diagnosis |= {"objective": solved.bound, "objective_se": 0.0, "residual": solved.residual}
    return Answer(
        fit.kernel,
        likelihood,
        lambda: posterior,
        loop.num_iter,
        reason,
        converged,
        history,
        advice=advice,
        attributes={"diagnosis_": diagnosis, "solver_": "stochastic"}
        | inducing_attributes(fit.Z, standardizer),
    )


def _posterior(
    kernel: Kernel,
    Z: np.ndarray,
    mean: np.ndarray,
    spread: np.ndarray,
    options: SwsgpOptions,
    dtype: str,
) -> NeighbourPosterior:
    neighbors = min(options.predict_neighbors or options.num_neighbors, len(Z))
    jitter = options.least_jitter(dtype)
    return NeighbourPosterior(
        kernel, Z, mean, spread, neighbors, jitter, options.taper, options.search
    )


def _noise_left(
    posterior: NeighbourPosterior,
    rows: Rows,
    standardizer: Standardizer,
    options: SwsgpOptions,
    seed: int,
) -> float:
    """Return the noise variance of highest bound for means and variances as they are, on some rows.

    Means that were stopped on their way leave more than the noise of a converged fit.
    """
    X, y = fixed_rows(rows, standardizer, seed, _JUDGED, _JUDGE_ROWS)
    return noise_left(y, *posterior.mean_and_latent_variance(X), options.noise_floor)


def _explains_nothing(
    fit: SwsgpFit, options: SwsgpOptions, rows: Rows, standardizer: Standardizer
) -> bool:
    """Whether the bound is below the evidence of a standardised target as noise alone, by more than it scatters.

    Known of Gaussian noise, and of the ordered prior, whose objective is a bound of the evidence.
    """
    if options.prior != "ordered" or not isinstance(fit.likelihood, Gaussian):
        return False
    history = fit.loop.history
    noise_alone = -0.5 * rows.n * (np.log(2.0 * np.pi) + 1.0)
    if observations.has_own_noise(rows.y):
        # the variance of the standardised target that known errors leave is one
        y = standardizer.transform_y(rows.y[:])
        each = observations.noise_variances(y, 1.0)
        square = observations.targets(y) ** 2
        noise_alone = -0.5 * float(np.sum(np.log(2.0 * np.pi * each) + square / each))
    return bool(history.last("objective") + 3.0 * history.last("objective_se") < noise_alone)
