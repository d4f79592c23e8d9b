"""Counts that scatter more than Poisson's law says."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from scipy import special

from vastgp.likelihoods.base import Likelihood, number_of_points, positive
from vastgp.likelihoods.gammas import log_gamma_constant
from vastgp.likelihoods.poisson import Poisson, distribution_of_counts, moments_below
from vastgp.likelihoods.quadrature import (
    averaged,
    floored_std,
    log_average,
    mode_between,
    together,
)

# The logarithm of the law bends as that of a logistic one does.
_WIDTH = 1.5
# Rows up to which averages are made in NumPy, in half of the time or less.
_IN_NUMPY = 20_000
_ROUGH_POINTS = 20
# What is added up in a logarithm is its largest part beyond this, and overflows in single precision a little later.
_MOST = 80.0
# Odds from which on a chance of single precision has none of the digits of the other one, and of double half of them.
_NEAR_ONE = 16.0
# Halvings of the interval that holds a median.
_HALVINGS = 64


class NegativeBinomial(Likelihood):
    """Counts with the mean ``m = rate exp(f)`` and the variance ``m + m^2 / size``: Poisson's with gamma rates.

    ``p(y | f) = Gamma(y + a) / (Gamma(a) y!) (a / (a + m))^a (m / (a + m))^y`` with ``a`` the size (Cameron and Trivedi
    2013, section 3.3), which is log-concave in ``f``. A small size has many zeros and a long tail, a large one is
    Poisson's law. Beside `PoissonLogNormal` its tail is shorter, and its mean that of the function alone.

    Parameters
    ----------
    rate : float
        Mean count where the latent function is 0, in place of standardising the target.
    size : float
        Shape of the gamma law of rates.
    points : int
        Quadrature nodes; 32 keep the error of averages below 1e-5 for latent variances up to 25.
    """

    name: ClassVar[str] = "negative-binomial"
    scales_target: ClassVar[bool] = False
    counts: ClassVar[bool] = True
    in_numpy = frozenset({"bound_and_sites"})
    most_in_numpy: ClassVar[float] = _IN_NUMPY
    rate: Any
    size: Any
    points: int = eqx.field(static=True)

    def __init__(self, rate: Any = 1.0, size: Any = 10.0, points: Any = 32) -> None:
        self.rate = positive("rate", rate)
        self.size = positive("size", size)
        self.points = number_of_points(points)

    def log_prob(self, y: Any, f: Any) -> Any:
        # in the precision of all, but what is of counts alone not once more for each of many f
        y, rate, size, _ = together(y, self.rate, self.size, jnp.zeros((), jnp.result_type(f)))
        total, some, none = y + size, jnp.where(y > 0.0, y, 1.0), jnp.where(y > 0.0, 0.0, 1.0)
        # log p(y | m = y) - n [log(1 + w (e^t - 1)) - w t]  with n = y + a, t = log(m / y) and w = y / n, and so with
        # a and -t in place of y and t: by the smaller of both, as large numbers leave nothing of a sum of size one
        few = y <= size
        part, lead = jnp.where(few, y, size), jnp.where(few, some, size)
        t = jnp.where(few, 1.0, -1.0) * (f + (jnp.log(rate) - jnp.log(some)))
        within = jnp.minimum(t, _MOST)
        bend = jnp.log1p((lead * jnp.expm1(within) + none) / total) + (t - within)
        return _at_the_count(y, size) - (total * bend - part * t)

    def feature(self, y: Any) -> tuple[Any, Any]:
        """Return where the mean is the size, and the width of the bend there."""
        if isinstance(y, np.ndarray):
            return np.full_like(y, np.log(float(self.size) / float(self.rate))), np.full_like(
                y, _WIDTH
            )
        y, rate, size = together(y, self.rate, self.size)
        return jnp.log(size / rate), jnp.full_like(y, _WIDTH)

    def bound_and_sites(self, y: Any, mean: Any, variance: Any) -> tuple[Any, Any, Any]:
        """Return `expected_log_prob` and `sites` in NumPy and double precision, from averages at the same nodes."""
        size, log_odds = float(self.size), math.log(float(self.rate) / float(self.size))

        def parts(y: np.ndarray, f: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            # log p = y x - n log(1 + e^x) + constant,  n = y + a,  x = f + log(rate / a);  slopes y - n s, -n s (1 - s)
            x, n = f + log_odds, y + size
            small = np.exp(-np.abs(x))
            chance = np.where(x > 0.0, 1.0, small) / (1.0 + small)
            value = y * x - n * (np.maximum(x, 0.0) + np.log1p(small))
            return value, y - n * chance, n * small / (1.0 + small) ** 2

        value, alpha, beta = averaged(self, parts, y, mean, variance)
        # Gamma(y + a) / (Gamma(a) y!) = 1 / ((y + a) B(a, y + 1))
        return value - special.betaln(size, y + 1.0) - np.log(y + size), alpha, beta

    def log_density(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        """Return ``log E[p(y | f)]`` for ``f ~ N(mean, latent_variance)``, elementwise."""
        y, mean, variance, rate, size = together(y, mean, latent_variance, self.rate, self.size)
        std = floored_std(variance)
        # the mode lies between 0 and where the mean is the count, and the slope by f between -a and y
        count = (jnp.log(jnp.maximum(y, 0.1) / rate) - mean) / std
        none = jnp.where(y > 0.0, count, -jnp.inf)
        low = jnp.maximum(jnp.minimum(none, 0.0), -size * std)
        high = jnp.minimum(jnp.maximum(count, 0.0), y * std)
        return log_average(
            self, y, mean, variance, mode_between(self, y, mean, variance, low, high)
        )

    def distribution(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        """Return ``P(count <= y)`` for ``f ~ N(mean, latent_variance)``, continuous in ``y``."""
        shape = np.maximum(y + 1.0, 0.0)
        rate, size = float(self.rate), float(self.size)
        # of y < 0 there is none
        counts = np.maximum(shape, np.finfo(np.float64).tiny)

        def reached(f: Any) -> Any:
            return _reached(counts, size, np.log(size / rate) - f)

        fall = 2.0 * np.sqrt(1.0 / (shape + 0.5) + 1.0 / size)
        return distribution_of_counts(reached, shape, fall, rate, mean, latent_variance)

    def predictive_mean(self, mean: Any, latent_variance: Any) -> Any:
        """Return ``rate exp(mean + latent_variance / 2)``."""
        return Poisson(self.rate).predictive_mean(mean, latent_variance)

    def predictive_variance(self, mean: Any, latent_variance: Any) -> Any:
        """Return the mean variance plus the variance of the mean."""
        count = self.predictive_mean(mean, latent_variance)
        _, variance, size = together(mean, latent_variance, self.size)
        # E[m + m^2 / a] + Var[m],  E[m^2] = E[m]^2 e^v
        return count + count**2 * (jnp.expm1(variance) + jnp.exp(variance) / size)

    def moments_below(self, mean: Any, latent_variance: Any, most: Any) -> Any:
        """Return mean and variance of counts that count as no more than ``most``."""
        rate, size = float(self.rate), float(self.size)

        def up_to(most: Any, f: Any) -> tuple[Any, Any, Any]:
            count, odds = rate * np.exp(f), np.log(size / rate) - f
            # k p_a(k) = m p_{a + 1}(k - 1) with the same odds, whose mean is m (a + 1) / a
            parts = [_reached(most + 1.0 - k, size + k, odds) for k in range(2)]
            pairs = np.where(
                most > 1.0, _reached(np.maximum(most - 1.0, 1.0), size + 2.0, odds), 0.0
            )
            return parts[0], count * parts[1], count**2 * (1.0 + 1.0 / size) * pairs

        width = min(max(2.0 / size**0.5, 0.3), 0.5 * np.pi)
        return moments_below(up_to, rate, width, mean, latent_variance, most)

    def median(self, mean: Any) -> Any:
        """Return the median count at the latent median: the least ``k`` with ``P(y <= k) >= 1/2``."""
        rate, size = float(self.rate), float(self.size)
        mean = np.asarray(mean, np.float64)
        count, odds = rate * np.exp(mean), np.log(size / rate) - mean
        # the median of a law that leans to the right is below its mean, up to a step
        low, high = -np.ones_like(count), np.ceil(count) + 1.0
        for _ in range(_HALVINGS):
            middle = np.floor(0.5 * (low + high))
            enough = (middle >= 0.0) & (_reached(np.maximum(middle, 0.0) + 1.0, size, odds) >= 0.5)
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return high

    def rough(self) -> NegativeBinomial:
        """Return the likelihood with fewer nodes."""
        return NegativeBinomial(self.rate, self.size, min(self.points, _ROUGH_POINTS))

    def _possible(self, y: np.ndarray) -> tuple[Any, str, str]:
        return Poisson(self.rate)._possible(y)


def _reached(shape: Any, size: float, odds: Any) -> Any:
    """Return ``P(count < shape)``, given ``odds = log(a / m)``.

    ``I_p(a, shape) = 1 - I_{1 - p}(shape, a)`` with ``p = a / (a + m)``, of which the second keeps the digits of a
    chance that is near one. That difference has none below 1e-16, which normal scores do not see.
    """
    shape, odds = np.broadcast_arrays(shape, odds)
    found, near_one = np.empty(shape.shape), odds > _NEAR_ONE
    special.betainc(size, shape, special.expit(odds), out=found, where=~near_one)
    special.betainc(shape, size, special.expit(-odds), out=found, where=near_one)
    return np.where(near_one, 1.0 - found, found)


def _at_the_count(y: Any, size: Any) -> Any:
    """Return ``log p(y)`` where the mean is ``y``.

    With ``g(a) = a log a - a - log Gamma(a)``, which is of the size of ``log a``, it is
    ``g(a) + g(y) - g(y + a) - log y``, and 0 of no count.
    """
    some = jnp.where(y > 0.0, y, 1.0)
    found = log_gamma_constant(size) - log_gamma_constant(size + some)
    return jnp.where(y > 0.0, found + log_gamma_constant(some) - jnp.log(some), 0.0)
