"""Samples of basis functions with their blocks, and the bound estimated from two of them."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from vastgp.bases.random_fourier import Spectrum, features_of_spectrum
from vastgp.data.devices import dealt
from vastgp.methods.qsgp.stochastic.control_variates import interpolated_error, target_control
from vastgp.methods.qsgp.stochastic.index_sets import stratified_indices
from vastgp.methods.qsgp.stochastic.parts import diagonal_position, flat, function_order
from vastgp.methods.qsgp.stochastic.sampled_elbo import (
    DiagonalPrior,
    constant_objective,
    covariance_objective,
    diagonal_objective,
    elbo,
    mean_objective,
    optimal_diagonal,
    sampled_product,
)
from vastgp.methods.qsgp.stochastic.state import (
    FourierBasis,
    StochasticPlan,
    StochasticProblem,
    StochasticState,
)


class Sample(NamedTuple):
    """One index set with the blocks that belong to it."""

    pairs: Int[Array, " b"]
    spectrum: Spectrum  # at the present hyperparameters
    factor: Float[Array, " c"]  # inverse inclusion probability of its 2 b functions
    phi: Float[Array, "n c"]  # features at the minibatch
    phi_support: Float[Array, "p c"]
    weights: Float[Array, "c r"]  # means of the functions and sampled dense columns
    product: Float[Array, "n r"]  # unbiased estimate of Phi weights at the minibatch
    support_error: Float[Array, "p r"]  # error of the same estimate at the support rows
    error: Float[Array, "n r"]  # what it says about the minibatch


def current_basis(
    problem: StochasticProblem, hyper: Any, plan: StochasticPlan
) -> tuple[FourierBasis, Array]:
    """Return the basis and the noise variance at the present hyperparameters."""
    log_kernel, log_noise = hyper
    if not plan.learn:
        return problem.basis, jnp.exp(log_noise)
    return problem.basis.with_kernel(jax.tree.map(jnp.exp, log_kernel)), jnp.exp(log_noise)


def vector_columns(plan: StochasticPlan, chosen: Int[Array, " k"]) -> Int[Array, " r"]:
    """Return which columns of `StochasticState.support` belong to the means and the chosen dense columns."""
    return jnp.concatenate([jnp.arange(plan.functions, dtype=jnp.int32), plan.functions + chosen])


def draw_pairs(plan: StochasticPlan, key: Array) -> Int[Array, " b"]:
    tail = stratified_indices(key, plan.tail_batch, plan.head, plan.num_pairs)
    return jnp.concatenate([jnp.arange(plan.head, dtype=jnp.int32), tail])


def draw_samples(
    plan: StochasticPlan,
    problem: StochasticProblem,
    state: StochasticState,
    basis: FourierBasis,
    keys: Key[Array, " s"],
    chosen: Int[Array, " k"],
    X: Float[Array, "n d"],
) -> list[Sample]:
    """Draw index sets and make what belongs to each."""
    pairs = jax.vmap(functools.partial(draw_pairs, plan))(keys)
    pairs = dealt(pairs, plan.devices, axis=1)
    cross = problem.basis.kernel(X, problem.support_X)
    # rows of the batch see the present hyperparameters, the support rows those that their operators were made with
    fixed = _spectra(plan, problem.basis, pairs, X)
    present = _spectra(plan, basis, pairs, X) if plan.learn else fixed
    return [
        _sample(plan, problem, state, *each, chosen, X, cross)
        for each in zip(pairs, present, fixed, strict=True)
    ]


def _spectra(
    plan: StochasticPlan, basis: FourierBasis, pairs: Int[Array, "s b"], X: Float[Array, "n d"]
) -> list[Spectrum]:
    """Return the spectrum of each set of pairs."""
    if plan.devices > 1:
        return [basis.spectrum(own, X.shape[1], X.dtype) for own in pairs]
    # the draws behind all frequencies at once
    sets, b = pairs.shape
    whole = basis.spectrum(pairs.reshape(-1), X.shape[1], X.dtype)
    return [jax.tree.map(lambda array, s=s: array[s * b : (s + 1) * b], whole) for s in range(sets)]


def _sample(
    plan: StochasticPlan,
    problem: StochasticProblem,
    state: StochasticState,
    pairs: Int[Array, " b"],
    present: Spectrum,
    fixed: Spectrum,
    chosen: Int[Array, " k"],
    X: Float[Array, "n d"],
    cross: Float[Array, "n p"],
) -> Sample:
    """Gather one index set's weights, make its features, and estimate ``Phi`` times the weights."""
    dtype = X.dtype
    factor = jnp.concatenate(
        [jnp.ones(plan.head, dtype), jnp.full(plan.tail_batch, plan.tail_factor, dtype)]
    )
    factor = flat(plan, jnp.stack([factor, factor]))
    weights = flat(plan, state.mean[..., pairs])
    if plan.column_batch:
        columns = state.columns[chosen[:, None, None], jnp.arange(2)[None, :, None], pairs]
        weights = jnp.concatenate([weights, flat(plan, columns)])
    weights = weights.T
    phi = flat(plan, features_of_spectrum(X, present))
    phi_support = flat(plan, features_of_spectrum(problem.support_X, fixed))
    product = sampled_product(phi, weights, factor)
    running = state.support[:, vector_columns(plan, chosen)]
    support_error = sampled_product(phi_support, weights, factor) - running
    if plan.control == "interpolation":
        error = interpolated_error(cross, problem.interpolator, support_error)
    else:
        error = jnp.zeros_like(product)
    return Sample(pairs, present, factor, phi, phi_support, weights, product, support_error, error)


def estimate_bound(
    plan: StochasticPlan,
    problem: StochasticProblem,
    hyper: Any,
    X: Float[Array, "n d"],
    y: Float[Array, " n"],
    i: Sample,
    j: Sample,
    chosen: Int[Array, " k"],
    coefficient: Float[Array, ""],
    target_product: Float[Array, ""],
) -> Float[Array, ""]:
    """Return an unbiased estimate of the evidence lower bound, differentiable by hyperparameters."""
    basis, noise_variance = current_basis(problem, hyper, plan)
    num_rows = problem.numbers.num_rows
    common: dict[str, Any] = {
        "noise_variance": noise_variance, "row_factor": num_rows / plan.row_batch
    }  # fmt: skip
    phi_i = flat(plan, basis.features(X, i.pairs)) if plan.learn else i.phi
    phi_j = flat(plan, basis.features(X, j.pairs)) if plan.learn else j.phi
    # What is subtracted has mean zero whatever the hyperparameters are.
    f_i = sampled_product(phi_i, i.weights, i.factor) - coefficient * i.error
    f_j = sampled_product(phi_j, j.weights, j.factor) - coefficient * j.error
    ones = jnp.ones(i.weights.shape[0], X.dtype)
    prior = DiagonalPrior(ones, ones).quadratic(i.weights, j.weights, i.factor, j.factor)
    mean = mean_objective(y, f_i[:, 0], f_j[:, 0], prior[0], **common)
    if plan.target_control:
        for side in (i, j):
            assert problem.target is not None
            assert problem.target_support is not None
            expected = target_product + coefficient * (
                problem.target_support @ side.support_error[:, 0]
            )
            mean = mean + 0.5 * target_control(
                flat(plan, problem.target[:, side.pairs]),
                side.weights[:, 0],
                expected,
                basis_factor=side.factor,
                noise_variance=noise_variance,
            )
    # scales of Proposition 1 from rows of their own: independent of the minibatch, so unbiased
    spectrum = basis.spectrum(i.pairs, X.shape[1], X.dtype) if plan.learn else i.spectrum
    scales = flat(plan, features_of_spectrum(problem.scale_X, spectrum))
    gram = num_rows * jnp.mean(scales**2, axis=0)
    diagonal = jax.lax.stop_gradient(optimal_diagonal(gram, 1.0, noise_variance))
    order = function_order(plan, i.pairs)
    covariance = diagonal_objective(
        phi_i, diagonal, 1.0, column_factor=i.factor * (order >= plan.dense_columns), **common
    )
    if plan.column_batch:
        position = diagonal_position(plan, chosen)
        dense = i.weights[position, 1 + jnp.arange(plan.column_batch)]
        covariance = covariance + covariance_objective(
            f_i[:, 1:],
            f_j[:, 1:],
            prior[1:],
            dense,
            column_factor=plan.dense_columns / plan.column_batch,
            **common,
        )
    constant = constant_objective(
        y,
        ones,
        basis_factor=i.factor,
        num_rows=num_rows,
        num_basis=2 * plan.num_pairs,
        **common,
    )
    return elbo(mean, covariance, constant)
