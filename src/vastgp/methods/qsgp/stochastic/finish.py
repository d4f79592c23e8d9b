"""After the last step of the stochastic solver: the better mean, the diagonal columns, a report on sampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import as_dtype
from vastgp._programs import program
from vastgp.bases import RandomFourierBasis
from vastgp.data import Rows, Standardizer
from vastgp.data.devices import on_first_device
from vastgp.data.padding import repeat_last
from vastgp.fitting.loop import LoopResult
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.methods.qsgp.stochastic.likelihood import (
    NUM_DRAWS,
    add_dense,
    isotropic_covariance,
    latent_values,
    sampling_report,
)
from vastgp.methods.qsgp.stochastic.parts import over_functions, products
from vastgp.methods.qsgp.stochastic.sample import current_basis
from vastgp.methods.qsgp.stochastic.sampled_elbo import optimal_diagonal
from vastgp.methods.qsgp.stochastic.sampled_likelihood import SamplingGap
from vastgp.methods.qsgp.stochastic.setup import fixed_rows
from vastgp.methods.qsgp.stochastic.state import (
    FourierBasis,
    StochasticPlan,
    StochasticProblem,
    StochasticState,
    features_made,
)
from vastgp.solvers.least_squares import BlockedBasis

# Rows that decide between the last and the averaged mean, that are behind the diagonal columns, and of the report on
# sampling: fewer where there are very many functions, see `StochasticPlan.rows_of_a_pass`. Rows that the answer is
# compared with others at.
_JUDGE_ROWS, _DIAGONAL_ROWS, _REPORT_ROWS, _COMPARED_ROWS = 1024, 2048, 256, 500


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


def operations_of_the_end(plan: StochasticPlan, d: int) -> float:
    """Return about what `finish` takes, and a comparison of the answer with others."""
    few = [_JUDGE_ROWS, _DIAGONAL_ROWS] + ([] if plan.gaussian else [_REPORT_ROWS])
    rows = [plan.rows_of_a_pass(d, most) for most in few] + [_COMPARED_ROWS]
    passes = sum(plan.operations_of_pass(each, d) for each in rows)
    draws = 0 if plan.gaussian else plan.draws_of_a_report(d, NUM_DRAWS)
    return passes + draws * plan.operations(d)


def finish(
    plan: StochasticPlan,
    problem: StochasticProblem,
    state: StochasticState,
    rows: Rows,
    standardizer: Standardizer,
    loop: LoopResult,
    seed: int,
    dtype: str,
    report: bool = True,
) -> StochasticFit:
    """Choose the mean and compute the diagonal columns; without ``report`` nothing is said of sampling."""
    most = plan.rows_of_a_pass(rows.d, _DIAGONAL_ROWS)
    X, y = (part.astype(dtype) for part in fixed_rows(rows, standardizer, seed, 1, most))
    given = (np.arange(most) < len(X)).astype(dtype)
    # one shape for any number of rows
    whole = (repeat_last(part, most) for part in (X, y))
    # what others do with it one device does
    mean, diagonal, averaged, kernel, noise = on_first_device(
        _closed(plan, problem, state, *whole, given)
    )
    basis, likelihood = on_first_device((problem.basis, problem.likelihood))
    few = as_dtype((X[:_REPORT_ROWS], y[:_REPORT_ROWS]), dtype)
    return StochasticFit(
        basis=basis.with_kernel(kernel),
        likelihood=Gaussian(float(noise)) if plan.gaussian else likelihood,
        mean=mean,
        columns=on_first_device(state.columns_average) if plan.dense_columns else None,
        diagonal=diagonal,
        averaged=bool(averaged),
        loop=loop,
        sampling=sampling_report(plan, problem, state, *few) if report else None,
    )


@program(work=features_made, static_argnums=0)
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
    few = slice(_JUDGE_ROWS)
    variance = isotropic_covariance(plan, problem, basis, state.curvature)[1]
    columns = (state.columns_average,) if plan.dense_columns and not plan.gaussian else ()
    values = products(plan, basis, X[few], state.mean, state.mean_average, *columns)
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
    diagonal = diagonal_columns(plan, basis, noise, X, problem.numbers.num_rows, given)
    return mean[0] if F == 1 else mean, diagonal, average_is_better, basis.kernel, noise_variance


def diagonal_columns(
    plan: StochasticPlan,
    basis: FourierBasis,
    noise_variance: Any,
    X: Float[Array, "s d"],
    num_rows: Any,
    given: Float[Array, " s"] | None = None,
) -> Float[Array, "2 P"]:
    """Return the diagonal columns' entries by Proposition 1, zero for the dense ones.

    ``phi_r^T phi_r`` is ``n / s`` times the sum over the ``s`` rows given. As
    ``phi^2 = s0^2 / m (1 +- cos(2 omega^T x))``, its relative standard error is
    ``sqrt(Var cos(2 omega^T x) / s) <= sqrt(1 / (2 s))``, 1.6 % for 2048 rows, and half of it in ``c_rr``. It is nearly
    independent between frequencies, so that a predictive variance, a sum over thousands of them, has no error to
    speak of. With all rows it is exact. ``given`` is zero for rows that fill up.
    """
    weights = jnp.full(len(X), 1.0 / len(X), X.dtype) if given is None else given / jnp.sum(given)

    def entries(blocks: BlockedBasis, X: Array, *given: Array) -> Array:
        weights, num_rows, noise_variance = given

        def body(which: Any, diagonal: Array) -> Array:
            gram = num_rows * (blocks.features(X, which) ** 2 @ weights)
            return blocks.put(diagonal, optimal_diagonal(gram, 1.0, noise_variance)[None], which)

        start = blocks.zeros(1, X.dtype)
        found = jax.lax.fori_loop(0, blocks.num_blocks, body, start)
        return found[0, :, : blocks.num_pairs]

    numbers = (jnp.asarray(number, X.dtype) for number in (num_rows, noise_variance))
    diagonal = over_functions(plan, entries, basis, X, weights, *numbers, summed=False)
    order = np.arange(plan.dense_columns)
    return diagonal.at[order % 2, order // 2].set(0.0) if plan.dense_columns else diagonal
