"""What the stochastic solver does where the likelihood is not Gaussian.

``-E[log p(y | f)]`` curves by at most ``b = max -d^2 log p / df^2`` in the mean of ``f``. It lies below the parabola
of curvature ``b`` that touches it at the present mean (Boehning and Lindsay 1988), which is what Gaussian noise of
variance ``1 / b`` would give at the targets ``mean + alpha / b``: the step of the Gaussian solver on those goes uphill.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp.bases import RandomFourierBasis
from vastgp.bases.draws import typed_key
from vastgp.likelihoods import Likelihood
from vastgp.objectives.least_squares import BlockedBasis, evaluate
from vastgp.objectives.sampled_elbo import DiagonalPrior, sampled_product
from vastgp.objectives.sampled_likelihood import (
    SampledBlock,
    SamplingGap,
    plug_in,
    sampling_gap,
    strict_bound,
)
from vastgp.training.stochastic_sample import Sample, current_basis, draw_samples, flat
from vastgp.training.stochastic_state import Problem, State, StepPlan

# Draws of the report, and the stream of the seed that they come from: far beyond the steps of any fit.
_DRAWS, _REPORT = 16, 2**31 - 1


def likelihood_residual(
    plan: StepPlan,
    likelihood: Likelihood,
    y: Float[Array, " n"],
    estimate: Float[Array, "n r"],
    noise_variance: Float[Array, ""],
    latent_variance: Float[Array, ""],
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


def latent_values(plan: StepPlan, values: Float[Array, "n r"]) -> Float[Array, "*F n"]:
    """Return the functions' values as likelihoods take them: (n,), or (F, n) of several."""
    return values[:, 0] if plan.functions == 1 else values[:, : plan.functions].T


def isotropic_covariance(
    plan: StepPlan, basis: RandomFourierBasis, curvature: Float[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the square of one diagonal scale for all weights, and the latent variance that it gives.

    Proposition 1 with the mean ``n s0^2 / m`` of ``phi_r^T phi_r`` and the mean precision of the sites:
    ``c^2 = 1 / (1 + n b s0^2 / m)``. The pair's cosine and sine squared add up to a constant, so that the variance
    ``c^2 s0^2`` is the same everywhere and needs no sampling; any value of ``c`` gives a valid bound. The strict bound
    sees it ``m / m~`` times as large.
    """
    variance = basis.kernel.total_variance()
    square = 1.0 / (1.0 + plan.num_rows * curvature * variance / (2.0 * plan.num_pairs))
    return square, square * variance * (plan.tail_factor if plan.strict else 1.0)


def estimate_likelihood_bound(
    plan: StepPlan,
    problem: Problem,
    hyper: Any,
    X: Float[Array, "n d"],
    y: Float[Array, " n"],
    i: Sample,
    j: Sample,
    coefficient: Float[Array, ""],
    curvature: Float[Array, ""],
) -> Float[Array, ""]:
    """Return an estimate of the evidence lower bound (erratum 1), differentiable by hyperparameters.

    Both sets' estimates of ``Phi mu`` are freed of the error that the support rows saw. What their noise costs is
    estimated from their difference and given back, see `plug_in`; the strict bound of both sets does without.
    """
    square, _ = isotropic_covariance(plan, current_basis(problem, hyper, plan)[0], curvature)
    square = jax.lax.stop_gradient(square)
    fit = _sampled_fit(plan, problem, hyper, X, y, (i, j), coefficient, square)
    ones = jnp.ones(i.weights.shape[0], X.dtype)
    F = plan.functions
    prior = jnp.sum(
        DiagonalPrior(ones, ones).quadratic(i.weights[:, :F], j.weights[:, :F], i.factor, j.factor)
    )
    # KL(N(mu, c^2 I) || N(0, I)) of each function
    divergence = 0.5 * (prior + 2.0 * plan.num_pairs * F * (square - 1.0 - jnp.log(square)))
    return plan.num_rows / plan.row_batch * fit - divergence


def _sampled_fit(
    plan: StepPlan,
    problem: Problem,
    hyper: Any,
    X: Float[Array, "n d"],
    y: Float[Array, " n"],
    sides: tuple[Sample, Sample],
    coefficient: Float[Array, ""],
    square: Float[Array, ""],
) -> Float[Array, ""]:
    """Return the estimate of ``sum_l E[log p(y_l | f_l)]`` over the rows given."""
    basis, _ = current_basis(problem, hyper, plan)
    blocks, means = [], []
    for side in sides:
        phi = flat(basis.features(X, side.pairs)) if plan.learn else side.phi
        dense = jnp.zeros((phi.shape[1], 0), X.dtype)
        scales = jnp.full(phi.shape[1], jnp.sqrt(square))
        blocks.append(SampledBlock(phi, side.weights[:, 0], dense, scales, side.factor))
        sampled = sampled_product(phi, side.weights, side.factor) - coefficient * side.error
        means.append(latent_values(plan, sampled))
    if plan.strict:
        parts = (
            strict_bound(problem.likelihood, y, block, row_factor=1.0, mean=mean)
            for block, mean in zip(blocks, means, strict=True)
        )
        return 0.5 * sum(parts, start=jnp.zeros((), X.dtype))
    return plug_in(
        problem.likelihood, y, blocks[0], blocks[1], row_factor=1.0, means=(means[0], means[1]), correct=True
    )  # fmt: skip


def sampling_report(
    plan: StepPlan,
    problem: Problem,
    state: State,
    X: Float[Array, "n d"],
    y: Float[Array, " n"],
) -> SamplingGap:
    """Return how far the sampled fit to some rows is from the one with every basis function.

    A gap that is large beside the fit says that ``basis_batch`` is too small: what was maximised is another objective.
    """
    blocks = BlockedBasis.cut(current_basis(problem, state.hyper, plan)[0])
    f = latent_values(plan, evaluate(blocks, X, blocks.pad(state.mean)).T)
    square, _ = isotropic_covariance(plan, blocks.basis, state.curvature)
    variance = square * blocks.basis.kernel.total_variance()
    full = float(jnp.sum(problem.likelihood.expected_log_prob(y, f, variance)))
    keys = jax.random.split(jax.random.fold_in(typed_key(problem.seed), _REPORT), 2 * _DRAWS)
    draws = [_one_draw(plan, problem, state, X, y, pair) for pair in keys.reshape(_DRAWS, 2)]
    return sampling_gap(np.asarray(draws, np.float64), full)


@functools.partial(jax.jit, static_argnums=0)
def _one_draw(
    plan: StepPlan, problem: Problem, state: State, X: Array, y: Array, keys: Array
) -> Array:
    basis, _ = current_basis(problem, state.hyper, plan)
    square, _ = isotropic_covariance(plan, basis, state.curvature)
    i, j = draw_samples(plan, problem, state, basis, keys, jnp.zeros(0, jnp.int32), X)
    return _sampled_fit(plan, problem, state.hyper, X, y, (i, j), state.coefficient.value, square)
