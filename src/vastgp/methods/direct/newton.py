"""Newton's method for independent discrete weights: what a maximum of the bound looks like, and steps that lead there.

With everything but the weights fixed, the bound of Theorem 7.1 (Evans 2022) depends on the distribution of a weight
through its mean alone, but for terms of each weight: its maxima are of the form

    q_j(w) = p_j(w) exp(a_j w - b_j w^2 / 2 - A_j),     b_j = tau G_jj,     a_j = tau (c_j - sum_{l != j} G_jl s_l),

with ``tau = E[1 / v]``, ``G = Phi^T Phi``, ``c = Phi^T y``, ``s_j = E[w_j] = dA_j / da_j`` and the log normaliser
``A_j``. In these two numbers for each weight the bound is, but for constants,

    tau (c^T s - s^T (G - D) s / 2) + sum_j (A_j - a_j s_j),     D = diag(G).

Its Hessian by the means is ``-(tau (G - D) + diag(1 / V))`` with the variances ``V_j``, so that a step of Newton's
method costs one factorisation. Logits of all values, as L-BFGS moves them, are many times as many numbers, and take
thousands of iterations where weights depend on each other.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp.methods.direct.elbo import (
    best_noise,
    mean_field_elbo,
    shares_of_parts,
)
from vastgp.methods.direct.model import (
    DiscreteLogits,
    DiscreteModel,
    DiscretePrior,
    bounded_spacing,
    moments_of,
    relaxed_normal,
    spacing_density,
    values_and_prior,
    with_slopes,
)

# A step is halved so often before none is taken.
_MOST_HALVINGS = 30
# Logarithms of spacings move by so much in one of so many steps at most, uphill where nothing is concave.
_MOST_MOVE, _FOLLOWING = 0.3, 3
_LEAST_BEND, _LEAST_VARIANCE = 1e-10, 1e-300
# Spacings that a weight is offered, as logarithms, before `bounded_spacing`.
_OFFERED = np.linspace(-6.0, 3.0, 37)
_ROUNDING = 1e-12


class Tilted(NamedTuple):
    """Independent weights ``q_j(w) = p_j(w) exp(slope_j w - bend_j w^2 / 2 - A_j)``, and what is learned beside them.

    Attributes
    ----------
    slope, bend : Array of shape (b,)
    noise : Array of shape (s,)
        Logits of the values of the noise variance.
    share : Array of shape (p,)
        Of the parts of the prior, in the expectation of its logarithm (Theorem 7.4).
    spacing : Array of shape (b,) or None
        As in `DiscreteLogits`.
    """

    slope: Float[Any, " b"]
    bend: Float[Any, " b"]
    noise: Float[Any, " s"]
    share: Float[Any, " p"]
    spacing: Float[Any, " b"] | None = None


class Step(NamedTuple):
    """Where a step led, the bound there, what it gained, and what a whole one was expected to gain, in nats."""

    point: Tilted
    bound: Float[Array, ""]
    gain: Float[Array, ""]
    expected: Float[Array, ""]


def alternates(model: DiscreteModel) -> bool:
    """Return whether there is more than weights and spacings: a noise or shares of a prior, which change bends."""
    return len(model.noise) > 1 or len(model.prior.log_weights) > 1


@jax.jit
def logits_of(point: Tilted, model: DiscreteModel) -> DiscreteLogits:
    """Return the logits of tilted weights."""
    empty = DiscreteLogits(jnp.zeros((1, 1, 1)), jnp.zeros(1), point.noise, point.spacing)
    values, prior = values_and_prior(empty, model)
    logit = _log_mass(point.share, prior, values)
    logit += point.slope[:, None] * values - 0.5 * point.bend[:, None] * values**2
    return empty._replace(weights=with_slopes(logit)[None])


@jax.jit
def tilted_from(logits: DiscreteLogits, model: DiscreteModel) -> Tilted:
    """Return tilted weights after every weight, one after the other, took its best distribution given all others.

    With the others fixed the bound of Theorem 7.1 is ``q_j^T (log p_j - log q_j) + a_j s_j - b_j E[w_j^2] / 2`` and a
    constant. No such sweep lowers it.
    """
    values, prior = values_and_prior(logits, model)
    q = jax.nn.softmax(logits.weights)
    mean, share = moments_of(q, values)[0][0], shares_of_parts(q, prior)[0]
    log_mass = _log_mass(share, prior, values)
    gram, target = jnp.asarray(model.likelihood.gram), model.likelihood.target
    diagonal, tau = jnp.diagonal(gram), _precision(logits.noise, model)

    def one(j: Any, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        slopes, mean, along = state
        slope = tau * (target[j] - along[j] + diagonal[j] * mean[j])
        tilt = slope * values[j] - 0.5 * tau * diagonal[j] * values[j] ** 2
        moved = jax.nn.softmax(log_mass[j] + tilt) @ values[j] - mean[j]
        return slopes.at[j].set(slope), mean.at[j].add(moved), along + moved * gram[j]

    start = (jnp.zeros_like(mean), mean, gram @ mean)
    slope, _, _ = jax.lax.fori_loop(0, len(mean), one, start)
    return Tilted(slope, tau * diagonal, jnp.asarray(logits.noise), share, logits.spacing)


@jax.jit
def coordinate_sweep(logits: DiscreteLogits, model: DiscreteModel) -> DiscreteLogits:
    """Return logits after every weight, then the noise, took its best distribution given all others."""
    logits = logits_of(tilted_from(logits, model), model)
    return logits._replace(noise=best_noise(logits, model))


def _log_mass(
    share: Float[Any, " p"], prior: DiscretePrior, values: Float[Any, "b k"]
) -> Float[Array, "b k"]:
    """Return the expectation of the logarithm of a prior whose parts have shares."""
    shape = (len(prior.log_mass), *values.shape)
    return jnp.einsum("p,pbk->bk", share, jnp.broadcast_to(prior.log_mass, shape))


def _precision(noise: Float[Any, " s"], model: DiscreteModel) -> Float[Array, ""]:
    return jax.nn.softmax(noise) @ (1.0 / model.noise)


def _log_normaliser(
    slope: Any, spacing: Any, bend: Any, values: Float[Any, " k"], log_mass: Float[Any, " k"]
) -> Float[Array, ""]:
    """Return ``A_j`` of one weight, and the log density of its spacing where that is learned."""
    density = 0.0
    if spacing is not None:
        values = jnp.exp(bounded_spacing(spacing[None], values[None])) * values
        log_mass, density = relaxed_normal(values), spacing_density(spacing)
    return jax.nn.logsumexp(log_mass + slope * values - 0.5 * bend * values**2) + density


class _Derivatives(NamedTuple):
    """Of the log normalisers, (b,) each: by the slope, twice, by the spacing, twice, and by both."""

    mean: Array
    variance: Array
    spacing_twice: Array
    spacing_slope: Array


def _derivatives(point: Tilted, model: DiscreteModel) -> _Derivatives:
    log_mass = _log_mass(point.share, model.prior, model.values)

    def of_one(numbers: Any, *given: Any) -> Array:
        return _log_normaliser(*numbers, *given)

    numbers, given = (point.slope, point.spacing), (point.bend, model.values, log_mass)
    first = jax.vmap(jax.grad(of_one))(numbers, *given)
    second = jax.vmap(jax.hessian(of_one))(numbers, *given)
    none = jnp.zeros_like(first[0])
    if point.spacing is None:
        return _Derivatives(first[0], second[0][0], none, none)
    return _Derivatives(first[0], second[0][0], second[1][1], second[1][0])


@partial(jax.jit, static_argnames="follow")
def newton_step(point: Tilted, model: DiscreteModel, follow: bool = True) -> Step:
    """Take a step of Newton's method over the weights, which spacings may follow; then the noise takes its best values.

    Bends are ``tau D``, after a sweep where the noise or the shares of a prior may have changed. With the residual
    ``r = tau (c - (G - D) s) - a``, and the variance ``V' = V - A_ad^2 / A_dd`` where a spacing follows its slope, the
    means move by

        (tau (G - D) + diag(1 / V')) ds = r,

    and the slopes by ``r - tau (G - D) ds``. A ``1 / V'`` under ``1 + tau D`` is raised to it: the matrix is then as
    positive as that of normal weights, and the step leads uphill. It is halved until the bound rises.
    """
    first = bound_of(point, model)
    if alternates(model):
        point = tilted_from(logits_of(point, model), model)
    gram, target = jnp.asarray(model.likelihood.gram), model.likelihood.target
    diagonal, tau = jnp.diagonal(gram), _precision(point.noise, model)
    at = _derivatives(point, model)
    residual = tau * (target - gram @ at.mean + diagonal * at.mean) - point.slope
    # spacings follow the slopes where they are at a maximum of their own
    concave = (at.spacing_twice < -_LEAST_BEND) & follow
    follows = jnp.where(concave, at.spacing_slope / jnp.where(concave, at.spacing_twice, -1.0), 0.0)
    variance = at.variance - follows * at.spacing_slope
    stiff = jnp.maximum(1.0 / jnp.maximum(variance, _LEAST_VARIANCE), 1.0 + tau * diagonal)
    factor = jax.scipy.linalg.cho_factor(tau * gram + jnp.diag(stiff - tau * diagonal), lower=True)
    moved = jax.scipy.linalg.cho_solve(factor, residual)
    more = residual - tau * (gram @ moved - diagonal * moved)

    def moved_by(part: Any) -> Tilted:
        there = point._replace(slope=point.slope + part * more)
        if not follow or point.spacing is None:
            return there
        given = (there.slope, there.bend, model.values)
        return there._replace(spacing=jax.vmap(_better_spacing)(there.spacing, *given))

    before = bound_of(point, model)

    def falls(state: tuple[Array, Array, Array]) -> Array:
        _, bound, halvings = state
        return ~(bound >= before - _ROUNDING * jnp.abs(before)) & (halvings < _MOST_HALVINGS)

    def halve(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        part, _, halvings = state
        return 0.5 * part, bound_of(moved_by(0.5 * part), model), halvings + 1

    whole = (jnp.ones(()), bound_of(moved_by(1.0), model), jnp.zeros((), int))
    part, _, halvings = jax.lax.while_loop(falls, halve, whole)
    stays = halvings == _MOST_HALVINGS
    point = jax.tree.map(lambda a, b: jnp.where(stays, a, b), point, moved_by(part))
    point = point._replace(noise=best_noise(logits_of(point, model), model))
    bound = bound_of(point, model)
    return Step(point, bound, bound - first, 0.5 * (residual @ moved))


def _of_spacing(spacing: Any, slope: Any, bend: Any, values: Any) -> Float[Array, ""]:
    """Return what a weight adds to the bound where its slope and bend are the best."""
    return _log_normaliser(slope, spacing, bend, values, jnp.zeros_like(values))


def _better_spacing(spacing: Any, *given: Any) -> Float[Array, ""]:
    """Return a spacing nearer to the maximum of what its weight adds."""
    for _ in range(_FOLLOWING):
        first = jax.grad(_of_spacing)(spacing, *given)
        second = jax.grad(jax.grad(_of_spacing))(spacing, *given)
        concave = second < -_LEAST_BEND
        move = jnp.where(concave, -first / jnp.where(concave, second, -1.0), jnp.sign(first))
        spacing = spacing + jnp.clip(move, -_MOST_MOVE, _MOST_MOVE)
    return spacing


def bound_of(point: Tilted, model: DiscreteModel) -> Float[Array, ""]:
    """Return the bound of Theorem 7.1."""
    return mean_field_elbo(logits_of(point, model), model)


@jax.jit
def offer_spacings(point: Tilted, model: DiscreteModel) -> Step:
    """Let one weight after the other choose among spacings, each with the best distribution given all other weights.

    Given the others' means a weight adds ``A_j`` at its best slope and bend to the bound: the spacing of the largest is
    the best. The bound has maxima where single spacings are far from where they would be, and no step leads there.
    """
    gram, target = jnp.asarray(model.likelihood.gram), model.likelihood.target
    diagonal, tau = jnp.diagonal(gram), _precision(point.noise, model)
    before = bound_of(point, model)
    mean_of = jax.grad(_of_spacing, argnums=1)

    def one(j: Any, state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        slopes, spacings, mean, along = state
        slope = tau * (target[j] - along[j] + diagonal[j] * mean[j])
        given = (slope, tau * diagonal[j], model.values[j])
        offered = jnp.append(jnp.asarray(_OFFERED), spacings[j])
        best = offered[jnp.argmax(jax.vmap(lambda each: _of_spacing(each, *given))(offered))]
        nearer = _better_spacing(best, *given)
        better = _of_spacing(nearer, *given) > _of_spacing(best, *given)
        spacing = jnp.where(better, nearer, best)
        moved = mean_of(spacing, *given) - mean[j]
        return (
            slopes.at[j].set(slope), spacings.at[j].set(spacing),
            mean.at[j].add(moved), along + moved * gram[j],
        )  # fmt: skip

    mean = _derivatives(point, model).mean
    start = (point.slope, point.spacing, mean, gram @ mean)
    slope, spacing, _, _ = jax.lax.fori_loop(0, len(mean), one, start)
    moved = point._replace(slope=slope, bend=tau * diagonal, spacing=spacing)
    moved = moved._replace(noise=best_noise(logits_of(moved, model), model))
    bound = bound_of(moved, model)
    return Step(moved, bound, bound - before, jnp.zeros(()))
