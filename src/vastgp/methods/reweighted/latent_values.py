"""Latent values ``z = f + eps`` of labels and counts: where chains begin, and new ones given the functions.

Given ``z`` the observations say nothing more of the functions, and these are regressions. For labels ``eps`` has
variance one for each function, which is the probit likelihood of two classes and of several (Albert and Chib 1993); for
counts it is what their rates vary by beside the function.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Float

from vastgp.likelihoods.poisson import mode_of_counts

# E|eps| of a standard normal: where latent values begin.
_FIRST = (2.0 / np.pi) ** 0.5
# Beyond this many standard deviations the tail of a normal is an exponential to single precision.
_FAR = 30.0
# Scale of logistic proposals, relative to the width of the law: about its standard deviation.
_LOGISTIC = 0.6
_NEWTON_STEPS = 10

_Values = Float[Array, "C n"]
_Observed = Float[Array, " n"]
# New values from a key, those before, means, and the side of zero that they lie on.
_Move = Callable[[Array, Array, Array, Array], Array]


class LatentModel(eqx.Module):
    """What observations say of the latent values of C functions.

    Attributes
    ----------
    num_turns : int
        How often a step of a chain takes the `opposite` of its values.
    learns_noise : bool
        Whether the variance of ``eps`` is a hyperparameter; it is one otherwise.
    """

    num_turns: ClassVar[int]
    learns_noise: ClassVar[bool] = False

    @abc.abstractmethod
    def first(self, y: np.ndarray) -> np.ndarray:
        """Return values to begin with, shape (C, n), that agree with the observations."""

    @abc.abstractmethod
    def renewed(self, key: Array, f: _Values, z: _Values, y: _Observed, noise: Any) -> _Values:
        """Return new values by a random step that leaves their law given functions and observations as it is.

        Parameters
        ----------
        key : Array
        f, z : Array of shape (C, n)
            The functions, and the values before.
        y : Array of shape (n,)
            Observations.
        noise : scalar
            Variance of ``eps``.
        """

    @abc.abstractmethod
    def opposite(self, key: Array, f: _Values, z: _Values, y: _Observed, noise: Any) -> _Values:
        """Return values on the other side of their law, by steps that leave the law as it is."""


class Signs(LatentModel):
    """Two classes, -1 and 1: the sign of one latent value."""

    # sonar, ionosphere: 1.6 to 2.1 times the effective draws in 1.3 times the time; ten turns have no more
    num_turns: ClassVar[int] = 3

    def first(self, y: np.ndarray) -> np.ndarray:
        return _FIRST * y[None]

    def renewed(self, key: Array, f: _Values, z: _Values, y: _Observed, noise: Any) -> _Values:
        # whatever the values were: a draw from their law itself
        return signed_normal(key, f[0], y)[None]

    def opposite(self, key: Array, f: _Values, z: _Values, y: _Observed, noise: Any) -> _Values:
        return opposite_normal(z[0], f[0], y)[None]


class Largest(LatentModel):
    """C classes: the number of the function whose latent value is the largest.

    Attributes
    ----------
    num_classes : int
        C.
    """

    # iris, wine: 10 to 12 times the effective draws in four times the time
    num_turns: ClassVar[int] = 10
    num_classes: int = eqx.field(static=True)

    def first(self, y: np.ndarray) -> np.ndarray:
        own = np.arange(self.num_classes)[:, None] == y
        return _FIRST * (own - 1.0 / self.num_classes)

    def renewed(self, key: Array, f: _Values, z: _Values, y: _Observed, noise: Any) -> _Values:
        def drawn(key: Array, _: Array, mean: Array, sign: Array) -> Array:
            return signed_normal(key, mean, sign)

        return self._in_turn(key, f, z, y, drawn)

    def opposite(self, key: Array, f: _Values, z: _Values, y: _Observed, noise: Any) -> _Values:
        def mirrored(_: Array, z: Array, mean: Array, sign: Array) -> Array:
            return opposite_normal(z, mean, sign)

        return self._in_turn(key, f, z, y, mirrored)

    def _in_turn(self, key: Array, f: Array, z: Array, y: Array, move: _Move) -> Array:
        """Move the largest value given the others, then these, independent of each other, given the largest."""
        of_largest, of_others = jax.random.split(key)
        own = jnp.arange(self.num_classes)[:, None] == y
        second = jnp.max(jnp.where(own, -jnp.inf, z), axis=0)
        mean, before = (jnp.sum(jnp.where(own, part, 0.0), axis=0) for part in (f, z))
        largest = second + move(of_largest, before - second, mean - second, jnp.ones_like(mean))
        others = largest + move(of_others, z - largest, f - largest, -jnp.ones_like(f))
        return jnp.where(own, largest, others)


class Counts(LatentModel):
    """Counts ``y ~ Poisson(rate exp(z))``: their logarithms' rates vary by ``eps`` beside the function.

    New values are proposed around the mode of ``p(z | f, y)``, which is log-concave, and accepted or not.

    Attributes
    ----------
    rate : float
        Mean count where ``z`` is zero.
    """

    rate: Any
    num_turns: ClassVar[int] = 3
    learns_noise: ClassVar[bool] = True

    def first(self, y: np.ndarray) -> np.ndarray:
        return np.log((y + 0.5) / float(self.rate))[None]

    def renewed(self, key: Array, f: _Values, z: _Values, y: _Observed, noise: Any) -> _Values:
        of_value, of_decision = jax.random.split(key)
        mode, width = self._mode(f, y, noise)
        # a logistic law, whose tails are longer
        width = _LOGISTIC * width
        fresh = mode + width * jax.random.logistic(of_value, z.shape, z.dtype)

        def log_proposal(z: Array) -> Array:
            away = jnp.abs(z - mode) / width
            return -away - 2.0 * jnp.log1p(jnp.exp(-away))

        gain = self._log_law(fresh, f, y, noise) - self._log_law(z, f, y, noise)
        return _accepted(of_decision, z, fresh, gain + log_proposal(z) - log_proposal(fresh))

    def opposite(self, key: Array, f: _Values, z: _Values, y: _Observed, noise: Any) -> _Values:
        fresh = 2.0 * self._mode(f, y, noise)[0] - z
        gain = self._log_law(fresh, f, y, noise) - self._log_law(z, f, y, noise)
        return _accepted(key, z, fresh, gain)

    def _log_law(self, z: Array, f: Array, y: Array, noise: Any) -> Array:
        return y * z - self.rate * jnp.exp(z) - 0.5 * (z - f) ** 2 / noise

    def _mode(self, f: Array, y: Array, noise: Any) -> tuple[Array, Array]:
        """Return where the law is highest, and its width there; what the search leaves is paid for by acceptance."""
        z = f + jnp.sqrt(noise) * mode_of_counts(y, f, jnp.sqrt(noise), self.rate, _NEWTON_STEPS)
        return z, jax.lax.rsqrt(self.rate * jnp.exp(z) + 1.0 / noise)


def _accepted(key: Array, old: Array, fresh: Array, log_ratio: Array) -> Array:
    """Return what Metropolis and Hastings take of proposals."""
    u = jax.random.uniform(key, old.shape, old.dtype, jnp.finfo(old.dtype).tiny, 1.0)
    return jnp.where(jnp.log(u) < log_ratio, fresh, old)


def signed_normal(
    key: Array, mean: Float[Array, "*n"], sign: Float[Array, "*n"]
) -> Float[Array, "*n"]:
    """Return draws of normals of variance one that have the signs asked for."""
    # eps = sign (z - mean) is a standard normal above a
    a = -sign * mean
    u = jax.random.uniform(key, mean.shape, mean.dtype, jnp.finfo(mean.dtype).tiny, 1.0)
    near = -ndtri(u * ndtr(-jnp.minimum(a, _FAR)))
    far = a - jnp.log(u) / jnp.maximum(a, _FAR)
    # rounding must not take the sign
    return sign * jnp.maximum(sign * mean + jnp.where(a > _FAR, far, near), 0.0)


def opposite_normal(
    z: Float[Array, "*n"], mean: Float[Array, "*n"], sign: Float[Array, "*n"]
) -> Float[Array, "*n"]:
    """Return the values of `signed_normal` that exceed as many draws as those given fall short of: an involution."""
    a, eps = -sign * mean, sign * (z - mean)
    least = jnp.finfo(mean.dtype).tiny
    reach = jnp.minimum(a, _FAR)
    # P(larger | above a) becomes one less it
    larger = jnp.minimum(ndtr(-jnp.minimum(eps, _FAR + 7.0)) / ndtr(-reach), 1.0)
    near = -ndtri(jnp.maximum(1.0 - larger, least) * ndtr(-reach))
    rate = jnp.maximum(a, _FAR)
    smaller = -jnp.expm1(-rate * jnp.maximum(eps - a, 0.0))
    far = a - jnp.log(jnp.maximum(smaller, least)) / rate
    return sign * jnp.maximum(sign * mean + jnp.where(a > _FAR, far, near), 0.0)
