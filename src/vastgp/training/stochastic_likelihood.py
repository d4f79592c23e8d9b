"""What the stochastic solver does where the likelihood is not Gaussian.

``-E[log p(y | f)]`` curves by at most ``b = max -d^2 log p / df^2`` in the mean of ``f``. It lies below the parabola
of curvature ``b`` that touches it at the present mean (Boehning and Lindsay 1988), which is what Gaussian noise of
variance ``1 / b`` would give at the targets ``mean + alpha / b``: the step of the Gaussian solver on those goes uphill.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vastgp.bases import RandomFourierBasis
from vastgp.likelihoods import Likelihood
from vastgp.objectives.sampled_elbo import DiagonalPrior
from vastgp.objectives.sampled_likelihood import SampledBlock, plug_in
from vastgp.training.stochastic_sample import Sample, current_basis, flat
from vastgp.training.stochastic_state import Problem, StepPlan


def likelihood_residual(
    plan: StepPlan,
    likelihood: Likelihood,
    y: Float[Array, " n"],
    estimate: Float[Array, "n r"],
    noise_variance: Float[Array, ""],
    latent_variance: Float[Array, ""],
) -> Float[Array, "n r"]:
    """Return what takes the place of ``Phi mu - y`` (first column) and ``Phi c`` (dense columns).

    ``-alpha / b`` and ``beta / b Phi c`` with the derivatives of ``E[log p(y | f)]``; with Gaussian noise these are
    the residual and ``Phi c`` themselves.
    """
    if plan.gaussian:
        return estimate.at[:, 0].add(-y)
    alpha, beta = likelihood.sites(y, estimate[:, 0], latent_variance)
    return jnp.concatenate(
        [-noise_variance * alpha[:, None], noise_variance * beta[:, None] * estimate[:, 1:]], axis=1
    )


def isotropic_covariance(
    plan: StepPlan, basis: RandomFourierBasis, curvature: Float[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the square of one diagonal scale for all weights, and the latent variance that it gives.

    Proposition 1 with the mean ``n s0^2 / m`` of ``phi_r^T phi_r`` and the mean precision of the sites:
    ``c^2 = 1 / (1 + n b s0^2 / m)``. The pair's cosine and sine squared add up to a constant, so that the variance
    ``c^2 s0^2`` is the same everywhere and needs no sampling; any value of ``c`` gives a valid bound.
    """
    variance = basis.kernel.total_variance()
    square = 1.0 / (1.0 + plan.num_rows * curvature * variance / (2.0 * plan.num_pairs))
    return square, square * variance


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
    """Return the corrected plug-in estimate of the evidence lower bound (erratum 1), differentiable by hyperparameters.

    Both sets' estimates of ``Phi mu`` are freed of the error that the support rows saw. What their noise costs is
    estimated from their difference and given back, see `plug_in`.
    """
    basis, _ = current_basis(problem, hyper, plan)
    square, _ = isotropic_covariance(plan, basis, curvature)
    square = jax.lax.stop_gradient(square)
    blocks, means = [], []
    for side in (i, j):
        phi = flat(basis.features(X, side.pairs)) if plan.learn else side.phi
        scales = jnp.full(phi.shape[1], jnp.sqrt(square))
        weights = side.weights[:, 0]
        block = SampledBlock(
            phi, weights, jnp.zeros((len(weights), 0), X.dtype), scales, side.factor
        )
        blocks.append(block)
        means.append(block.latent_mean() - coefficient * side.error[:, 0])
    fit = plug_in(
        problem.likelihood,
        y,
        blocks[0],
        blocks[1],
        row_factor=plan.num_rows / plan.row_batch,
        means=(means[0], means[1]),
        correct=True,
    )
    ones = jnp.ones(i.weights.shape[0], X.dtype)
    prior = DiagonalPrior(ones, ones).quadratic(
        i.weights[:, :1], j.weights[:, :1], i.factor, j.factor
    )[0]
    # KL(N(mu, c^2 I) || N(0, I))
    divergence = 0.5 * (prior + 2.0 * plan.num_pairs * (square - 1.0 - jnp.log(square)))
    return fit - divergence
