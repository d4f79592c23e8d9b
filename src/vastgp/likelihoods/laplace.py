"""Laplace (double exponential) observation noise."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf, log_ndtr
from jaxtyping import Array
from scipy import special

from vastgp.likelihoods.base import Likelihood, positive
from vastgp.likelihoods.quadrature import Values, floored_std, together

_FRACTIONS = 30  # of Laplace's continued fraction: 1e-12 at an argument of 5


class Laplace(Likelihood):
    """Observations ``y = f(x) + e`` with ``p(e) = exp(-|e| / scale) / (2 scale)``: regression of the median.

    Everything has a closed form (Challis and Barber 2013; appendix H.2 of Evans and Nair 2020).

    Parameters
    ----------
    scale : float
        Mean absolute value of the noise, ``b``; its variance is ``2 b^2``.
    """

    name: ClassVar[str] = "laplace"
    scale: Any

    def __init__(self, scale: Any) -> None:
        self.scale = positive("scale", scale)

    def in_units(self, y_scale: float) -> Laplace:
        return Laplace(self.scale * y_scale)

    def log_prob(self, y: Any, f: Any) -> Any:
        y, f, scale = together(y, f, self.scale)
        return -jnp.abs(y - f) / scale - jnp.log(2.0 * scale)

    def expected_log_prob(self, y: Any, mean: Any, variance: Any) -> Any:
        """Return ``E[log p(y | f)]`` for ``f ~ N(mean, variance)``, elementwise.

        A standard deviation below rounding of ``scale`` counts as that: at ``y = mean`` the expectation has an
        infinite slope by a variance of 0.
        """
        y, mean, variance, scale = together(y, mean, variance, self.scale)
        return -folded_mean(y - mean, self._floored(variance, scale)) / scale - jnp.log(2.0 * scale)

    def sites(self, y: Any, mean: Any, variance: Any) -> tuple[Any, Any]:
        """Return ``alpha = erf((y - mean) / sqrt(2 variance)) / b`` and ``beta = 2 N(y | mean, variance) / b``."""
        y, mean, variance, scale = together(y, mean, variance, self.scale)
        variance = self._floored(variance, scale)
        # alpha = E[sign(y - f)] / b;  beta = 2 E[delta(y - f)] / b
        alpha = _mean_sign(y - mean, variance) / scale
        return alpha, 2.0 * _normal(y - mean, variance) / scale

    def _floored(self, variance: Values, scale: Values) -> Values:
        least = jax.lax.stop_gradient(jnp.finfo(variance.dtype).eps * scale) ** 2
        return jnp.maximum(variance, least)

    def log_density(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        y, mean, variance, scale = together(y, mean, latent_variance, self.scale)
        std, d = floored_std(variance), y - mean
        # p(y) = 1/(2b) sum over both signs of exp(v / (2 b^2) -+ d/b) Phi(+-d/s - s/b)
        sides = jnp.logaddexp(_tail(d, std, scale), _tail(-d, std, scale))
        return sides - jnp.log(2.0 * scale)

    def distribution(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        """Return ``P(observation <= y)`` for ``f ~ N(mean, latent_variance)``."""
        d, b = y - mean, float(self.scale)
        std = floored_std(np.asarray(latent_variance, np.float64))

        def side(d: Any) -> Any:
            # exp(v / 2b^2 - d/b) Phi(d/s - s/b), of which the first factor overflows where the second vanishes
            return np.exp(0.5 * (std / b) ** 2 - d / b + special.log_ndtr(d / std - std / b))

        # Phi(d/s) + 1/2 (side(-d) - side(d))
        return special.ndtr(d / std) + 0.5 * (side(-d) - side(d))

    def predictive_mean(self, mean: Any, latent_variance: Any) -> Any:
        """Return ``mean``."""
        return mean

    def predictive_variance(self, mean: Any, latent_variance: Any) -> Any:
        """Return ``latent_variance + 2 scale^2``."""
        return latent_variance + 2.0 * self.scale**2


@jax.custom_jvp
def folded_mean(d: Values, variance: Values) -> Values:
    """Return ``E|d + sqrt(variance) z|`` for ``z ~ N(0, 1)`` and ``variance > 0``: the mean of a folded normal."""
    # s sqrt(2/pi) exp(-d^2 / 2v) + d erf(d / sqrt(2v))
    bell = jnp.sqrt(2.0 * variance / jnp.pi) * jnp.exp(-0.5 * d**2 / variance)
    return bell + d * _mean_sign(d, variance)


@folded_mean.defjvp
def _folded_mean_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    # The formula differentiated term by term holds d^2 / v^(3/2), which cancels on paper and overflows in practice.
    change = _mean_sign(*primals) * tangents[0] + _normal(*primals) * tangents[1]
    return folded_mean(*primals), change


def _mean_sign(d: Values, variance: Values) -> Values:
    """Return ``E[sign(d + sqrt(variance) z)]``."""
    return erf(d * jax.lax.rsqrt(2.0 * variance))


def _normal(d: Values, variance: Values) -> Values:
    """Return the density ``N(d | 0, variance)``."""
    return jnp.exp(-0.5 * d**2 / variance) * jax.lax.rsqrt(2.0 * jnp.pi * variance)


def _tail(d: Values, std: Values, scale: Values) -> Values:
    """Return ``log(exp(v / (2 b^2) - d/b) Phi(d/s - s/b))`` without cancellation between the factors."""
    a = std / scale - d / std
    # log Phi(-a) = -a^2/2 + log R(a) - log sqrt(2 pi), and v / (2 b^2) - d/b - a^2/2 = -d^2 / 2v
    near = (
        -0.5 * (d / std) ** 2 + _log_mills(jnp.where(a > 0, a, 0.0)) - 0.5 * jnp.log(2.0 * jnp.pi)
    )
    # for a <= 0, s/b <= d/s: no cancellation left
    far = jnp.minimum(0.5 * (std / scale) ** 2 - d / scale, 0.0) + log_ndtr(
        -jnp.where(a > 0, 0.0, a)
    )
    return jnp.where(a > 0, near, far)


def _log_mills(a: Values) -> Values:
    """Return ``log(Phi(-a) / N(a | 0, 1))`` for ``a >= 0``."""
    # not minimum and maximum: at a tie each passes half the gradient on
    small, large = jnp.where(a < 5.0, a, 5.0), jnp.where(a < 5.0, 5.0, a)
    fraction = large
    for k in range(_FRACTIONS, 0, -1):  # R(a) = 1 / (a + 1 / (a + 2 / (a + ...)))
        fraction = large + k / fraction
    direct = log_ndtr(-small) + 0.5 * small**2 + 0.5 * jnp.log(2.0 * jnp.pi)
    return jnp.where(a < 5.0, direct, -jnp.log(fraction))
