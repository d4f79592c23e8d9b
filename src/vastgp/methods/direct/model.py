"""Discrete weights: the values that they can take, their prior, their approximate posterior, and what the data say.

The prior of chapter 7 of Evans (2022) gives every weight a few values. All combinations of ``b`` weights with ``k``
values each are ``k^b`` hypotheses, a tensor grid, over which factorised distributions are Kronecker products and
their logarithms Kronecker sums: expectations become products and sums of ``b`` short dot products (Propositions 7.1
and 7.2).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from vastgp._programs import program

# Learned spacings: the least value that is not zero comes to at most so many standard deviations of the prior, whose
# mass beyond is 1e-8 then; logarithms of factors may always rise by a little, and fall by so much.
_FARTHEST, _LEAST_ROOM, _MOST_FALL = 6.0, 0.7, 12.0
# Values that are all but impossible keep this log probability beside the likeliest: their slope does not vanish.
LEAST_LOGIT = -40.0
# Standard deviation of the logarithms of learned spacings beforehand. Without one, spacings are as many hyperparameters
# as there are weights: with more of these than rows they explain the noise (30 rows, 200 weights: NLPD 1.5, 0.6 with it
# and without learning). A half or a quarter learn little where rows are many (36,000 of kin40k).
_SPREAD = 1.0


class QuadraticLikelihood(NamedTuple):
    """``log p(y | w, v) = -count/2 log(2 pi v) - (square - 2 w^T target + w^T gram w) / (2 v)``, v the noise variance.

    For Gaussian noise these are the sufficient statistics of the rows, ``n``, ``y^T y``, ``Phi^T y`` and
    ``Phi^T Phi``. A quadratic lower bound of another likelihood has ``count = square = 0`` and ``v = 1``.
    """

    count: Any
    square: Any
    target: Float[Any, " b"]
    gram: Float[Any, "b b"]


class DiscretePrior(NamedTuple):
    """A finite mixture of factorised priors, ``p = sum_i weight_i prod_j p_j^(i)``; one part is a factorised prior.

    Attributes
    ----------
    log_mass : Array of shape (p, b, k), or (p, 1, k) where all weights have the same
        ``log p_j^(i)``: each sums to one over its values.
    log_weights : Array of shape (p,)
    """

    log_mass: Float[Any, "p c k"]
    log_weights: Float[Any, " p"]


class DiscreteModel(eqx.Module):
    """What is fixed while the bound is maximised.

    Parameters
    ----------
    likelihood : QuadraticLikelihood
    values : Array of shape (b, k)
        What each weight can be.
    prior : DiscretePrior
    noise : Array of shape (s,)
        What the noise variance can be; one value where it is known.
    log_noise_prior : Array of shape (s,)
    """

    likelihood: QuadraticLikelihood
    values: Float[Any, "b k"]
    prior: DiscretePrior
    noise: Float[Any, " s"]
    log_noise_prior: Float[Any, " s"]


def discrete_model(
    likelihood: QuadraticLikelihood, values: np.ndarray, prior: DiscretePrior, noise: np.ndarray
) -> DiscreteModel:
    """Return the model of some weights, as arrays of JAX, with equal prior masses of the noise variances."""
    return DiscreteModel(
        QuadraticLikelihood(
            float(likelihood.count),
            float(likelihood.square),
            _on_device(likelihood.target),
            _on_device(likelihood.gram),
        ),
        _on_device(values),
        DiscretePrior(*map(_on_device, prior)),
        _on_device(noise),
        _on_device(np.full(len(noise), -np.log(len(noise)))),
    )


class DiscreteLogits(NamedTuple):
    """Parameters of the approximate posterior: softmax makes probabilities of each, over its last axis.

    Attributes
    ----------
    weights : Array of shape (r, b, k)
        Of the values of each weight, in each of ``r`` components; ``r = 1`` is mean-field.
    mixture : Array of shape (r,)
        Of the components.
    noise : Array of shape (s,)
        Of the values of the noise variance.
    spacing : Array of shape (b,) or None
        Of a factor of each weight's values, where these are learned: its logarithm, before `bounded_spacing`. The
        prior is then the relaxed normal one at the values as they are.
    """

    weights: Float[Any, "r b k"]
    mixture: Float[Any, " r"]
    noise: Float[Any, " s"]
    spacing: Float[Any, " b"] | None = None


def evenly_spaced(num_values: int, reach: float = 3.0) -> np.ndarray:
    """Return values evenly spaced from ``-reach`` to ``reach``: standard deviations of a whitened weight.

    Those on both sides of zero are the same, and the middle one of an odd number is zero without rounding.
    """
    return reach * np.arange(1 - num_values, num_values, 2) / (num_values - 1)


def with_slopes(logits: Any) -> Array:
    """Return the same probabilities over the last axis by logits none of which is so small that its slope vanishes."""
    return jnp.maximum(logits - jnp.max(logits, axis=-1, keepdims=True), LEAST_LOGIT)


def codes_below(
    uniform: Float[np.ndarray, "*s"], probabilities: Float[np.ndarray, "*p k"]
) -> Int[np.ndarray, "*s"]:
    """Return the numbers of the values in whose share of ``[0, 1)`` uniform numbers are: int8, of many values int16.

    The shapes of both broadcast, but for the last axis of the probabilities.
    """
    below = np.cumsum(probabilities, axis=-1)[..., :-1]
    codes = np.sum(uniform[..., None] > below, axis=-1)
    # numbers beyond 127 would come out negative in eight bits
    few = probabilities.shape[-1] <= np.iinfo(np.int8).max + 1
    return codes.astype(np.int8 if few else np.int16)


def relaxed_normal(values: Any) -> Any:
    """Return the log masses of the standard normal density at some values, normalised over the last axis."""
    return jax.nn.log_softmax(-0.5 * jnp.asarray(values) ** 2, axis=-1)


def learned_values(logits: DiscreteLogits, values: Float[Any, "b k"]) -> Float[Array, "b k"]:
    """Return what the weights can be, given what they could be before learning."""
    if logits.spacing is None:
        return jnp.asarray(values)
    return jnp.exp(bounded_spacing(logits.spacing, values))[:, None] * values


def values_and_prior(
    logits: DiscreteLogits, model: DiscreteModel
) -> tuple[Float[Array, "b k"], DiscretePrior]:
    """Return what the weights can be and their prior, as learned or as given."""
    values = learned_values(logits, model.values)
    if logits.spacing is None:
        return values, model.prior
    return values, DiscretePrior(relaxed_normal(values)[None], jnp.zeros(1))


def spacing_density(spacing: Any) -> Any:
    """Return the log density of spacings' parameters beforehand, relative to where nothing has been learned."""
    return -0.5 * jnp.square(spacing / _SPREAD)


def bounded_spacing(spacing: Float[Any, " b"], values: Float[Any, "b k"]) -> Float[Array, " b"]:
    """Return the logarithm of the factor of each weight's values, given parameters without bounds.

    The spacing of a weight that the data do not need runs away: towards infinity its prior has no mass but at zero,
    towards zero all its values are. Factors of 1e16 would gain nothing more. ``u tanh(s / u)`` is ``s`` up to third
    order and stays below ``u``, one ``u`` for either side.
    """
    size = jnp.abs(values)
    least = jnp.min(jnp.where(size > 0.0, size, jnp.inf), axis=1)
    most = jnp.maximum(jnp.log(_FARTHEST / least), _LEAST_ROOM)
    reach = jnp.where(spacing > 0.0, most, _MOST_FALL)
    return reach * jnp.tanh(spacing / reach)


class Weights(NamedTuple):
    """Mean and variance of the weights of one function."""

    mean: Float[np.ndarray, " b"]
    variance: Float[np.ndarray, " b"]


def _on_device(part: Any) -> Array:
    return jax.device_put(np.asarray(part))


def values_now(logits: DiscreteLogits, values: Float[Any, "b k"]) -> Float[np.ndarray, "b k"]:
    """Return `learned_values` in plain numbers."""
    return np.asarray(values if logits.spacing is None else _learned_values(logits, values))


_learned_values = program(learned_values)


def weights_moments(logits: DiscreteLogits, values: Float[Any, "b k"]) -> Weights:
    """Return mean and variance of the weights under a mixture of components, given what they can be before learning."""
    return Weights(*(np.asarray(part) for part in _mixture_moments(logits, values)))


@jax.jit
def _mixture_moments(logits: DiscreteLogits, values: Float[Any, "b k"]) -> tuple[Array, Array]:
    means, variances = moments_of(jax.nn.softmax(logits.weights), learned_values(logits, values))
    alpha = jax.nn.softmax(logits.mixture)
    mean = alpha @ means
    return mean, alpha @ (variances + (means - mean) ** 2)


def moments_of(
    probabilities: Float[Any, "r b k"], values: Float[Any, "b k"]
) -> tuple[Float[Array, "r b"], Float[Array, "r b"]]:
    """Return mean and variance of every weight in every component."""
    mean = jnp.sum(probabilities * values, axis=-1)
    # around the mean: the difference of squares loses the digits of a weight that is all but certain
    return mean, jnp.sum(probabilities * (values - mean[..., None]) ** 2, axis=-1)
