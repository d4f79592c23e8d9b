"""Counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaincc
from scipy import special

from vastgp.likelihoods.base import Likelihood, number_of_points, positive
from vastgp.likelihoods.gammas import log_gamma_constant
from vastgp.likelihoods.quadrature import evenly, floored_std, together
from vastgp.likelihoods.quantiles import normal_nodes

_LOG_2PI = math.log(2.0 * math.pi)
# What is below e^-30 of an integrand's height is left out.
_FALL = 30.0
_PARABOLA = math.sqrt(2.0 * _FALL)
# From where they start, these come to a mode to its rounding.
_NEWTON_STEPS = 5
# The error of a probability is below 2e-4 for latent variances up to 4, 7e-4 up to 25.
_DISTRIBUTION_POINTS = 24
# No count is below a rate of e^600, and a larger one overflows: nodes of unknown functions go that far.
_MOST_LOG = 600.0
# Of moments, closest in about that width of ``f``: their relative error is below 1e-4 for latent variances up to 44.
# Where the mean is so much above a number, in logarithms, no count is below it.
_MOMENT_POINTS, _BEND, _NO_COUNT_BELOW = 32, 0.3, 30.0


class Poisson(Likelihood):
    """Counts ``y ~ Poisson(rate exp(f))``.

    Parameters
    ----------
    rate : float
        Mean count where the latent function is 0, in place of standardising the target.
    points : int
        Quadrature nodes of `log_density`, the one method without a closed form; 48 keep its error below 1e-8 for latent
        variances up to 25.
    """

    name: ClassVar[str] = "poisson"
    scales_target: ClassVar[bool] = False
    counts: ClassVar[bool] = True
    in_numpy = frozenset({"bound_and_sites"})
    rate: Any
    points: int = eqx.field(static=True)

    def __init__(self, rate: Any = 1.0, points: Any = 48) -> None:
        self.rate = positive("rate", rate)
        self.points = number_of_points(points)

    def log_prob(self, y: Any, f: Any) -> Any:
        y, f, rate = together(y, f, self.rate)
        # y (f + log rate) - rate e^f - log y!  as  [y log y - y - log y!] - y (e^t - 1 - t),  t = f + log rate - log y:
        # of large counts the three are large numbers, nothing of whose sum is left in single precision (Loader 2000)
        near, there = _at_the_count(y)
        t = f + (jnp.log(rate) - jnp.log(near))
        return there - (near * jnp.expm1(t) - y * t)

    def feature(self, y: Any) -> tuple[Any, Any]:
        """Return where the mean count is about ``y``, and the width of the likelihood there, at most pi/2."""
        # beyond pi/2 off the real axis exp(-rate e^f) grows instead of falling
        return jnp.log((y + 0.5) / self.rate), jnp.minimum(2.0 / jnp.sqrt(y + 0.5), 0.5 * jnp.pi)

    def expected_log_prob(self, y: Any, mean: Any, variance: Any) -> Any:
        """Return ``E[log p(y | f)]`` for ``f ~ N(mean, variance)``, elementwise."""
        y, mean, variance, rate = together(y, mean, variance, self.rate)
        # E[e^f] = e^(m + v/2), and E[f] = m
        near, there = _at_the_count(y)
        t = mean + 0.5 * variance + (jnp.log(rate) - jnp.log(near))
        return there - (near * jnp.expm1(t) - y * t) - 0.5 * y * variance

    def sites(self, y: Any, mean: Any, variance: Any) -> tuple[Any, Any]:
        """Return ``alpha = y - E[rate e^f]`` and ``beta = E[rate e^f]``."""
        y, mean, variance, rate = together(y, mean, variance, self.rate)
        beta = rate * jnp.exp(mean + 0.5 * variance)
        return y - beta, beta

    def bound_and_sites(self, y: Any, mean: Any, variance: Any) -> tuple[Any, Any, Any]:
        """Return `expected_log_prob` and `sites` in NumPy and double precision, so that large counts keep digits."""
        log_rate = math.log(float(self.rate)) + mean
        with np.errstate(over="ignore"):  # what tries a rate without end finds no bound
            count = np.exp(log_rate + 0.5 * variance)
        return y * log_rate - count - special.gammaln(y + 1.0), y - count, count

    def log_density(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        highest, parts, _ = self.log_parts(y, mean, latent_variance)
        return highest + jnp.log(jnp.sum(parts, axis=-1))

    def log_parts(self, y: Any, mean: Any, latent_variance: Any) -> tuple[Any, Any, Any]:
        """Return the logarithm of what `log_density` integrates at its mode, parts over that at nodes, and ``f`` there.

        ``int p(y | m + s u) N(u | 0, 1) du``, with ``d`` the distance of ``u`` from the mode ``u_0``, ``x = s d`` and
        the count ``c`` at the mode: the logarithm falls from there by
        ``c (e^x - 1 - x) + [(c - y) s + u_0] d + d^2 / 2``, where what is in brackets is rounding.
        """
        y, mean, variance, rate = together(y, mean, latent_variance, self.rate)
        std = floored_std(variance)
        mode, d, spacing = jax.lax.stop_gradient(self._nodes(y, mean, std, rate))
        near, there = _at_the_count(y)
        # rounded once for both places where it stands: they are a million times as large as their difference
        t = jax.lax.optimization_barrier(mean + std * mode + (jnp.log(rate) - jnp.log(near)))
        rise = near * jnp.expm1(t)
        highest = there - (rise - y * t) - 0.5 * mode**2 - 0.5 * _LOG_2PI
        surplus = rise + (near - y)
        count, slope = (part[..., None] for part in (surplus + y, surplus * std + mode))
        x = std[..., None] * d
        fall = count * (jnp.expm1(x) - x) + (slope + 0.5 * d) * d
        f = mean[..., None] + std[..., None] * (mode[..., None] + d)
        return highest, spacing * jnp.exp(-fall), f

    def _nodes(self, y: Any, mean: Any, std: Any, rate: Any) -> tuple[Any, Any, Any]:
        """Return the mode of a standard normal ``u`` given a count, distances of nodes from it, and their spacing.

        Nodes are closest at the mode, where the width is ``1 / sqrt(1 + s^2 c)`` with the count ``c`` there: downwards
        it may be the prior's, which is far larger.
        """
        mode = mode_of_counts(y, mean, std, rate, _NEWTON_STEPS)
        count = rate * jnp.exp(mean + std * mode)
        width = jax.lax.rsqrt(1.0 + std**2 * count)
        # no nearer than where it has fallen by _FALL: e^x - 1 - x >= x^2 / 2 above 0, and >= -1 - x below
        fall = _FALL / count
        high = jnp.minimum(_PARABOLA * width, jnp.log1p(fall + jnp.sqrt(2.0 * fall)) / std)
        low = jnp.minimum(_PARABOLA, jnp.maximum((fall + 1.0) / std, high))
        first, last = -jnp.arcsinh(low / width), jnp.arcsinh(high / width)
        t, step = evenly(first, last, self.points)
        # cosh and sinh from one exponential
        up = 0.5 * jnp.exp(t)
        down = 0.25 / up
        return mode, width[..., None] * (up - down), (width * step)[..., None] * (up + down)

    def distribution(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        """Return ``P(count <= y)`` for ``f ~ N(mean, latent_variance)``, continuous in ``y``."""
        shape, rate = np.maximum(y + 1.0, 0.0), float(self.rate)

        def reached(f: Any) -> Any:
            # P(count <= y | f) = Q(y + 1, rate e^f)
            return special.gammaincc(shape, rate * np.exp(np.minimum(f, _MOST_LOG)))

        fall = 2.0 / np.sqrt(shape + 0.5)
        return distribution_of_counts(reached, shape, fall, rate, mean, latent_variance)

    def predictive_mean(self, mean: Any, latent_variance: Any) -> Any:
        """Return ``rate exp(mean + latent_variance / 2)``."""
        mean, variance, rate = together(mean, latent_variance, self.rate)
        return rate * jnp.exp(mean + 0.5 * variance)

    def predictive_variance(self, mean: Any, latent_variance: Any) -> Any:
        """Return the mean count plus the variance of the rate."""
        count = self.predictive_mean(mean, latent_variance)
        # E[lambda] + Var[lambda],  Var[e^f] = E[e^f]^2 (e^v - 1)
        return count + count**2 * jnp.expm1(jnp.asarray(latent_variance))

    def moments_below(self, mean: Any, latent_variance: Any, most: Any) -> Any:
        """Return mean and variance of counts that count as no more than ``most``, see `moments_below`."""
        rate = float(self.rate)

        def up_to(most: Any, f: Any) -> tuple[Any, Any, Any]:
            count = rate * np.exp(f)
            # P(count <= c) = Q(c + 1, lambda), and k p(k) = lambda p(k - 1)
            parts = (special.gammaincc(most + 1.0 - k, count) for k in range(3))
            return tuple(count**k * part for k, part in enumerate(parts))

        return moments_below(up_to, rate, _BEND, mean, latent_variance, most)

    def median(self, mean: Any) -> Any:
        """Return the median count at the latent median: the least ``k`` with ``P(y <= k) >= 1/2``."""
        mean, rate = together(mean, self.rate)
        count = rate * jnp.exp(mean)
        # lambda - log 2 <= median < lambda + 1/3 (Choi 1994): two integers at most;  P(y <= k) = Q(k + 1, lambda)
        least = jnp.maximum(jnp.ceil(count - jnp.log(2.0)), 0.0)
        return jnp.where(gammaincc(least + 1.0, count) >= 0.5, least, least + 1.0)

    def _possible(self, y: np.ndarray) -> tuple[Any, str, str]:
        whole = np.isfinite(y) & (y >= 0) & (np.floor(y) == y)
        advice = (
            "Give unscaled counts; for real numbers choose 'gaussian', 'laplace' or 'student-t'."
        )
        return whole, "counts 0, 1, 2, ...", advice


def _at_the_count(y: Any) -> tuple[Any, Any]:
    """Return a mean near the count, ``y`` or one of none, and ``log p(y)`` there: ``y log y - y - log y!``."""
    near = jnp.where(y > 0.0, y, 1.0)
    return near, log_gamma_constant(near) - jnp.log(near)


def distribution_of_counts(
    reached: Callable[[Any], Any],
    shape: Any,
    fall: Any,
    rate: float,
    mean: Any,
    latent_variance: Any,
) -> np.ndarray:
    """Return ``E[P(count <= y | f)]`` for ``f ~ N(mean, latent_variance)``, zero where there is no count.

    Parameters
    ----------
    reached : callable
        ``P(count <= y | f)``.
    shape : array-like
        ``y + 1``.
    fall : array-like
        In about what width of ``f`` it falls, where ``rate e^f`` is the count.
    rate : float
    mean, latent_variance : array-like
    """
    std = floored_std(np.asarray(latent_variance, np.float64))
    centre = np.clip((np.log((shape + 0.5) / rate) - mean) / std, -5.0, 5.0)
    width = np.minimum(np.minimum(fall, 0.5 * np.pi) / std, 1.5)
    nodes = normal_nodes(centre, width, _DISTRIBUTION_POINTS)
    parts = (weight * reached(mean + std * z) for z, weight in nodes)
    return np.where(shape > 0.0, sum(parts), 0.0)


def moments_below(
    up_to: Callable[[Any, Any], tuple[Any, Any, Any]],
    rate: float,
    width: Any,
    mean: Any,
    latent_variance: Any,
    most: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of ``min(y, c)`` for counts of ``f ~ N(mean, latent_variance)``.

    Parameters
    ----------
    up_to : callable
        Of ``c`` and ``f``: ``P(y <= c | f)``, ``E[y; y <= c | f]`` and ``E[y (y - 1); y <= c | f]``.
    rate : float
    width : float or array-like
        In about what width of ``f`` nodes are closest, where ``rate e^f`` is ``c``.
    mean, latent_variance : array-like of shape (n,)
    most : array-like
        ``c``, from one on; of fractions the whole number below.
    """
    most = np.floor(np.maximum(most, 1.0))
    std = floored_std(np.asarray(latent_variance, np.float64))
    bend = np.log(most / rate)
    away = (bend - mean) / std
    # a bend that is met by almost no mass needs no nodes
    width = np.where(np.abs(away) < 5.0, np.minimum(width / std, 1.5), 1.5)
    centre = np.clip(away, -5.0, 5.0)
    found, between, within, total = (np.zeros(np.shape(std)) for _ in range(4))
    for z, weight in normal_nodes(centre, width, _MOMENT_POINTS):
        reached, count, pairs = up_to(most, np.minimum(mean + std * z, bend + _NO_COUNT_BELOW))
        # E[min(y, c)] = E[y; y <= c] + c P(y > c), and so of the square, which is y (y - 1) + y
        beyond = 1.0 - reached
        here = count + most * beyond
        within += weight * np.maximum(pairs + count + most**2 * beyond - here**2, 0.0)
        # the variance of what nodes have, without the difference of two squares of it (West 1979)
        total += weight
        away = here - found
        found += weight / np.maximum(total, np.finfo(np.float64).tiny) * away
        between += weight * away * (here - found)
    return found, within + between


def mode_of_counts(y: Any, mean: Any, std: Any, rate: Any, num_steps: int) -> Any:
    """Return the mode of a standard normal ``u`` given a count, whose mean is ``rate e^(mean + std u)``.

    The logarithm of its law has the slope ``s (y - count) - u``, which is concave and falls: Newton's method from above
    the mode, which lies between 0 and where the mean is the count, comes down to it and never goes past. It comes down
    by one unit of the latent function a step, so it starts at most that far above, however far down the mode lies.
    """
    log_rate = jnp.log(rate) + mean
    above = jnp.maximum((jnp.log(y + 0.5) - log_rate) / std, 0.0)
    # w = s^2 count has  w + log w = s^2 y + log(s^2 rate e^m) = L  at the mode:  w >= L - log L, and e^L / (1 + e^L)
    L = std**2 * y + 2.0 * jnp.log(std) + log_rate
    large = jnp.maximum(L, 1.0)
    w = jnp.where(L > 1.0, large - jnp.log(large), jax.nn.sigmoid(L))
    above = jnp.minimum(above, std * y - w / std)

    def newton(_: Any, u: Any) -> Any:
        count = rate * jnp.exp(mean + std * u)
        return u + (std * (y - count) - u) / (1.0 + std**2 * count)

    return jax.lax.fori_loop(0, num_steps, newton, above)
