"""What the stochastic solver does where the likelihood is not Gaussian.

``-E[log p(y | f)]`` curves by at most ``b = max -d^2 log p / df^2`` in the mean of ``f``. It lies below the parabola
of curvature ``b`` that touches it at the present mean (Boehning and Lindsay 1988), which is what Gaussian noise of
variance ``1 / b`` would give at the targets ``mean + alpha / b``: the step of the Gaussian solver on those goes uphill.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from vastgp._programs import program
from vastgp.bases.draws import purpose_key
from vastgp.likelihoods import Likelihood
from vastgp.methods.qsgp.stochastic.index_sets import stratified_indices
from vastgp.methods.qsgp.stochastic.parts import (
    diagonal_position,
    flat,
    function_order,
    products,
)
from vastgp.methods.qsgp.stochastic.sample import (
    Sample,
    current_basis,
    draw_samples,
)
from vastgp.methods.qsgp.stochastic.sampled_elbo import DiagonalPrior, sampled_product
from vastgp.methods.qsgp.stochastic.sampled_likelihood import (
    SampledBlock,
    SamplingGap,
    plug_in,
    sampling_gap,
    strict_bound,
)
from vastgp.methods.qsgp.stochastic.state import (
    FourierBasis,
    StochasticPlan,
    StochasticProblem,
    StochasticState,
    features_made,
)

# Draws of the report.
NUM_DRAWS = 16


def likelihood_residual(
    plan: StochasticPlan,
    likelihood: Likelihood,
    y: Float[Array, " n"],
    estimate: Float[Array, "n r"],
    noise_variance: Float[Array, ""],
    latent_variance: Float[Array, "*n"],
) -> Float[Array, "n r"]:
    """Return what takes the place of ``Phi mu - y`` (first columns) and ``Phi c`` (dense columns).

    ``-alpha / b`` and ``beta / b Phi c`` with the derivatives of ``E[log p(y | f)]``; with Gaussian noise these are
    the residual and ``Phi c`` themselves.
    """
    if plan.gaussian:
        return estimate.at[:, 0].add(-y)
    alpha, beta = likelihood.sites(y, latent_values(plan, estimate), latent_variance)
    if plan.functions > 1:
        return -noise_variance * alpha.T
    return jnp.concatenate(
        [-noise_variance * alpha[:, None], noise_variance * beta[:, None] * estimate[:, 1:]], axis=1
    )


def latent_values(plan: StochasticPlan, values: Float[Array, "n r"]) -> Float[Array, "*F n"]:
    """Return the functions' values as likelihoods take them: (n,), or (F, n) of several."""
    return values[:, 0] if plan.functions == 1 else values[:, : plan.functions].T


def isotropic_covariance(
    plan: StochasticPlan,
    problem: StochasticProblem,
    basis: FourierBasis,
    curvature: Float[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the square of one diagonal scale for all weights, and the latent variance that it gives.

    Proposition 1 with the mean ``n s0^2 / m`` of ``phi_r^T phi_r`` and the mean precision of the sites:
    ``c^2 = 1 / (1 + n b s0^2 / m)``. The pair's cosine and sine squared add up to a constant, so that the variance
    ``c^2 s0^2`` is the same everywhere and needs no sampling; any value of ``c`` gives a valid bound. The strict bound
    sees it ``m / m~`` times as large. Dense columns take their part of the functions, see `add_dense`.
    """
    variance = basis.kernel.total_variance()
    square = 1.0 / (1.0 + problem.numbers.num_rows * curvature * variance / (2.0 * plan.num_pairs))
    return square, square * variance * (plan.tail_factor if plan.strict else 1.0)


def add_dense(
    plan: StochasticPlan,
    variance: Float[Array, ""],
    squares: Float[Array, "n q"],
    share: float = 1.0,
) -> Float[Array, "*n"]:
    """Return the latent variance with dense columns: ``(1 - q / m)`` of the isotropic one and ``sum_r (Phi c_r)^2``.

    Parameters
    ----------
    plan : StochasticPlan
    variance : scalar Array
        From `isotropic_covariance`.
    squares : Array of shape (n, q)
        ``(Phi c_r)^2`` of some dense columns, or estimates of it, which may be negative.
    share : float
        Number of dense columns over number of those given.
    """
    if not plan.dense_columns:
        return variance
    diagonal = 1.0 - plan.dense_columns / (2.0 * plan.num_pairs)
    return diagonal * variance + jnp.maximum(share * jnp.sum(squares, axis=1), 0.0)


def latent_variance(
    plan: StochasticPlan,
    problem: StochasticProblem,
    basis: FourierBasis,
    state: StochasticState,
    i: Sample,
    j: Sample,
) -> Float[Array, "*n"]:
    """Return the variance of the function at the rows of a minibatch, dense columns estimated by both sets."""
    _, variance = isotropic_covariance(plan, problem, basis, state.curvature)
    if not plan.column_batch:
        return variance
    h_i, h_j = (
        (side.product - state.coefficient.value * side.error)[:, plan.functions :]
        for side in (i, j)
    )
    return add_dense(plan, variance, h_i * h_j, plan.dense_columns / plan.column_batch)


def estimate_likelihood_bound(
    plan: StochasticPlan,
    problem: StochasticProblem,
    hyper: Any,
    X: Float[Array, "n d"],
    y: Float[Array, " n"],
    i: Sample,
    j: Sample,
    chosen: Int[Array, " k"],
    coefficient: Float[Array, ""],
    curvature: Float[Array, ""],
) -> Float[Array, ""]:
    """Return an estimate of the evidence lower bound (erratum 1), differentiable by hyperparameters.

    Both sets' estimates of ``Phi mu`` are freed of the error that the support rows saw. What their noise costs is
    estimated from their difference and given back, see `plug_in`; the strict bound of both sets does without.
    """
    square, _ = isotropic_covariance(
        plan, problem, current_basis(problem, hyper, plan)[0], curvature
    )
    square = jax.lax.stop_gradient(square)
    fit = _sampled_fit(plan, problem, hyper, X, y, (i, j), coefficient, square)
    ones = jnp.ones(i.weights.shape[0], X.dtype)
    F, q = plan.functions, plan.dense_columns
    prior = DiagonalPrior(ones, ones).quadratic(i.weights, j.weights, i.factor, j.factor)
    # KL(N(mu, C C^T) || N(0, I)) of each function: columns c e_r, and dense ones
    diagonal = (2.0 * plan.num_pairs - q) * F * (square - 1.0 - jnp.log(square))
    divergence = 0.5 * (jnp.sum(prior[:F]) + diagonal)
    if plan.column_batch:
        entries = i.weights[diagonal_position(plan, chosen), F + jnp.arange(plan.column_batch)]
        of_columns = jnp.sum(prior[F:] - 1.0 - 2.0 * jnp.log(entries))
        divergence = divergence + 0.5 * q / plan.column_batch * of_columns
    return problem.numbers.num_rows / plan.row_batch * fit - divergence


def _sampled_fit(
    plan: StochasticPlan,
    problem: StochasticProblem,
    hyper: Any,
    X: Float[Array, "n d"],
    y: Float[Array, " n"],
    sides: tuple[Sample, Sample],
    coefficient: Float[Array, ""],
    square: Float[Array, ""],
) -> Float[Array, ""]:
    """Return the estimate of ``sum_l E[log p(y_l | f_l)]`` over the rows given."""
    basis, _ = current_basis(problem, hyper, plan)
    blocks, means, columns = [], [], []
    F, q = plan.functions, plan.dense_columns
    for side in sides:
        phi = flat(plan, basis.features(X, side.pairs)) if plan.learn else side.phi
        dense = jnp.zeros((phi.shape[1], 0), X.dtype)
        scales = jnp.sqrt(square) * (function_order(plan, side.pairs) >= q)
        blocks.append(SampledBlock(phi, side.weights[:, 0], dense, scales, side.factor))
        sampled = sampled_product(phi, side.weights, side.factor) - coefficient * side.error
        means.append(latent_values(plan, sampled))
        columns.append(sampled[:, F:])
    if plan.strict:
        parts = (
            strict_bound(problem.likelihood, y, block, row_factor=1.0, mean=mean)
            for block, mean in zip(blocks, means, strict=True)
        )
        return 0.5 * sum(parts, start=jnp.zeros((), X.dtype))
    share = q / max(plan.column_batch, 1)
    dense = share * jnp.sum(columns[0] * columns[1], axis=1)
    return plug_in(
        problem.likelihood, y, blocks[0], blocks[1],
        row_factor=1.0, means=(means[0], means[1]), dense_variance=dense, correct=True,
    )  # fmt: skip


def sampling_report(
    plan: StochasticPlan,
    problem: StochasticProblem,
    state: StochasticState,
    X: Float[Array, "n d"],
    y: Float[Array, " n"],
) -> SamplingGap:
    """Return how far the sampled fit to some rows is from the one with every basis function.

    A gap that is large beside the fit says that ``basis_batch`` is too small: what was maximised is another objective.
    """
    draws, full = _draws(plan, problem, state, X, y)
    return sampling_gap(np.asarray(draws, np.float64), float(full))


def _features_drawn(plan: StochasticPlan, *args: Any) -> int:
    every = features_made(plan, *args)
    draws = plan.draws_of_a_report(args[-2].shape[1], NUM_DRAWS)
    return every + len(args[-1]) * 2 * draws * 2 * plan.pair_batch


@program(work=_features_drawn, static_argnums=0)
def _draws(
    plan: StochasticPlan,
    problem: StochasticProblem,
    state: StochasticState,
    X: Float[Array, "n d"],
    y: Float[Array, " n"],
) -> tuple[Float[Array, " draws"], Float[Array, ""]]:
    """Return the fit to some rows by sampled basis functions, several times, and by all of them."""
    basis = current_basis(problem, state.hyper, plan)[0]
    values = products(plan, basis, X, state.mean, state.columns)
    square, _ = isotropic_covariance(plan, problem, basis, state.curvature)
    variance = square * basis.kernel.total_variance()
    if plan.dense_columns:
        variance = add_dense(plan, variance, values[:, plan.functions :] ** 2)
    f = latent_values(plan, values)
    full = jnp.sum(problem.likelihood.expected_log_prob(y, f, variance))
    coefficient = state.coefficient.value

    def one(key: Array) -> Array:
        *sets, columns = jax.random.split(key, 3)
        chosen = stratified_indices(columns, plan.column_batch, 0, plan.dense_columns)
        i, j = draw_samples(plan, problem, state, basis, jnp.stack(sets), chosen, X)
        return _sampled_fit(plan, problem, state.hyper, X, y, (i, j), coefficient, square)

    draws = plan.draws_of_a_report(X.shape[1], NUM_DRAWS)
    keys = jax.random.split(purpose_key(problem.seed, "sampling report"), draws)
    return jax.lax.map(one, keys), full
