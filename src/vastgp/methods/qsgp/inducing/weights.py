"""Steps with any inducing inputs: the paper's stochastic gradients of the weights, preconditioned.

Rows l and two independent sets i, j of basis functions (Theorem 1) give half the gradient of ``L_mu`` by ``mu_i``,

    n / (n~ sigma^2) K_il (f_j(x_l) - y_l) + f_j(z_i),        f_j(x) = m / m~ K_xj mu_j - control variate,

as ``(S mu)_i`` is the function at ``z_i``. The control variate interpolates the error that the support rows P see,
``K_xP (K_PP + nugget I)^-1 (m / m~ K_Pj mu_j - a)`` with ``a = K_PZ mu`` kept up to date (Proposition 3). For the
second term that is the Nystrom control variate of F.2 as corrected.

Of several devices of a process each makes the features of its part of a set, at all rows, and its rows of the prior's
blocks. Inducing inputs and weights are whole on each.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from vastgp.bases.draws import purpose_key
from vastgp.data.devices import dealt, whole
from vastgp.fitting.averages import average_weight
from vastgp.methods.qsgp.inducing.state import (
    InducingPlan,
    InducingProblem,
    InducingState,
    renewed,
)
from vastgp.methods.qsgp.stochastic.control_variates import interpolated_error, running_product
from vastgp.methods.qsgp.stochastic.index_sets import stratified_indices
from vastgp.methods.qsgp.stochastic.sampled_elbo import (
    DensePrior,
    mean_gradient,
    mean_objective,
    sampled_product,
)

# Of the step that the damping is for: the other half is for the prior's part of the curvature.
_STEP = 0.5


class WeightSample(NamedTuple):
    """One set of basis functions with what belongs to it."""

    indices: Int[Array, " b"]
    phi: Float[Array, "n b"]  # features at the rows
    phi_support: Float[Array, "p b"]
    weights: Float[Array, " b"]
    product: Float[Array, " n"]  # estimate of the function at the rows
    correction: Float[Array, " p"]  # (K_PP + nugget I)^-1 times the error at the support rows


def draw_weights(
    plan: InducingPlan,
    problem: InducingProblem,
    mean: Float[Array, " m"],
    support: Float[Array, " p"],
    key: Array,
    X: Float[Array, "n d"],
    cross: Float[Array, "n p"],
) -> WeightSample:
    """Draw a set and estimate the function at some rows with it."""
    basis = problem.basis
    chosen = whole(stratified_indices(key, plan.basis_batch, 0, plan.num_basis), plan.devices)
    factor = plan.num_basis / plan.basis_batch
    part = dealt(chosen, plan.devices)
    phi, phi_support = basis.features(X, part), basis.features(problem.support_X, part)
    weights = mean[part]
    product = sampled_product(phi, weights[:, None], factor)[:, 0]
    if plan.whole:
        return WeightSample(chosen, phi, phi_support, weights, product, jnp.zeros_like(support))
    error = sampled_product(phi_support, weights[:, None], factor)[:, 0] - support
    correction = problem.interpolator @ error
    product = product - interpolated_error(cross, problem.interpolator, error[:, None])[:, 0]
    return WeightSample(chosen, phi, phi_support, weights, product, correction)


def half_gradient(
    plan: InducingPlan,
    problem: InducingProblem,
    own: WeightSample,
    other: WeightSample,
    y: Float[Array, " n"],
) -> Float[Array, " b"]:
    """Return half the gradient of ``L_mu`` at one set, unbiased given it."""
    factor = plan.num_basis / plan.basis_batch
    # (S mu)_i from the other set, and its control variate (F.2)
    block = _prior_block(plan, problem, own, other)
    prior = factor * (block @ other.weights) - own.phi_support.T @ other.correction
    residual = (other.product - y)[None]
    return mean_gradient(
        own.phi,
        residual,
        prior[None],
        noise_variance=problem.noise_variance,
        row_factor=problem.num_rows / plan.row_batch,
    )[0]


def _prior_block(
    plan: InducingPlan, problem: InducingProblem, i: WeightSample, j: WeightSample
) -> Float[Array, "i j"]:
    """Return the prior's block of two sets, of which each device makes its rows."""
    block = problem.basis.prior_block(dealt(i.indices, plan.devices), j.indices)
    return dealt(block, plan.devices)


def precondition(
    plan: InducingPlan, problem: InducingProblem, own: WeightSample, gradient: Float[Array, " b"]
) -> Float[Array, " b"]:
    """Return about ``(d I + G^T G / p)^-1 gradient`` with the features ``G`` of the set at the support rows (Woodbury).

    The inverse inside is that of the expected ``p d I + G G^T`` (exact where a set is everything); one refinement
    takes its error to second order, see `vastgp.methods.qsgp.stochastic.nystrom`.
    """
    G, d, p = own.phi_support, problem.damping, plan.support
    right = G @ gradient
    solution = problem.solver @ right
    if not plan.whole:
        rest = right - p * d * solution - G @ (G.T @ solution)
        solution = solution + problem.solver @ rest
    return (gradient - G.T @ solution) / d


def step_weights(
    plan: InducingPlan,
    problem: InducingProblem,
    state: InducingState,
    batch: tuple[Float[Array, "n d"], Float[Array, " n"]],
    number: Int[Array, ""],
) -> tuple[InducingState, dict[str, Array]]:
    """Take one step on one minibatch of rows: a `vastgp.fitting.minibatch_runner.Step`.

    Returns
    -------
    state : InducingState
    record : dict of Array
        Estimate of the bound's part that the mean moves, and of the mean square of the residual.
    """
    X, y = batch
    key = jax.random.fold_in(purpose_key(problem.seed, "sampled functions"), number)
    state = whole(renewed(plan, problem, state, number), plan.devices)
    cross = problem.basis.kernel(X, problem.support_X)
    draw = functools.partial(draw_weights, plan, problem, state.mean, state.support, X=X, cross=cross)  # fmt: skip
    i = draw(key=jax.random.fold_in(key, 0))
    j = i if plan.whole else draw(key=jax.random.fold_in(key, 1))
    mean, support, average = state.mean, state.support, state.average
    share = (1.0 if plan.whole else 2.0) * plan.basis_batch / plan.num_basis
    weight = average_weight(number * share, problem.averaging)
    for own, other in ((i, j),) if plan.whole else ((i, j), (j, i)):
        scale = _STEP * problem.noise_variance / problem.num_rows
        gradient = half_gradient(plan, problem, own, other, y) * scale
        change = -precondition(plan, problem, own, gradient) * (1.0 if plan.whole else 0.5)
        # told to all devices, which each have all weights
        mean = mean.at[own.indices].add(whole(change, plan.devices))
        support = running_product(support[:, None], own.phi_support, change[:, None])[:, 0]
    for side in (i,) if plan.whole else (i, j):
        gap = mean[side.indices] - average[side.indices]
        average = average.at[side.indices].add(weight * gap)
    record = {
        "objective": _objective(plan, problem, i, j, y),
        "residual_square": jnp.mean((i.product - y) * (j.product - y)),
    }
    return whole(InducingState(mean, average, support), plan.devices), record


def _objective(
    plan: InducingPlan,
    problem: InducingProblem,
    i: WeightSample,
    j: WeightSample,
    y: Float[Array, " n"],
) -> Float[Array, ""]:
    """Return an unbiased estimate of ``-1/2 (L_mu + y^T y / sigma^2 + n log(2 pi sigma^2))``."""
    noise, factor = problem.noise_variance, plan.num_basis / plan.basis_batch
    block = _prior_block(plan, problem, j, i)
    prior = DensePrior(block).quadratic(i.weights[:, None], j.weights[:, None], factor, factor)
    scale = problem.num_rows / plan.row_batch
    mean = mean_objective(y, i.product, j.product, prior[0], noise_variance=noise, row_factor=scale)
    constant = scale / noise * jnp.sum(y**2) + problem.num_rows * jnp.log(2.0 * jnp.pi * noise)
    return -0.5 * (mean + constant)
