"""Two classes."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtr
from scipy import special

from vastgp.likelihoods.base import Likelihood, number_of_points
from vastgp.likelihoods.class_weights import checked_weights, weights_of
from vastgp.likelihoods.quadrature import (
    array_module,
    averaged,
    expectation,
    floored_std,
    log_average,
    mode_between,
    together,
)

LINKS = ("logit", "probit")
# Distance from the real axis to the nearest singularity of log p: the sigmoid has poles at +-i pi, the normal
# distribution function zeros at about -1.92 +- 2.82i.
_WIDTH = {"logit": np.pi, "probit": 2.8}
_HALF_LOG_2PI = 0.5 * np.log(2.0 * np.pi)
# Rows up to which averages are made in NumPy: of 2000 in a tenth of the time, of 60,000 in as much.
_IN_NUMPY = 20_000


class Bernoulli(Likelihood):
    """Labels ``y`` in {-1, +1} with ``p(y = 1 | f) = link(f)``.

    No hyperparameters: the scale of the function plays their part. Predictive moments are those of the indicator of
    ``y = 1``, which is 1 or 0.

    Parameters
    ----------
    link : {"logit", "probit"}
        ``1 / (1 + exp(-f))``, or the standard normal distribution function.
    points : int
        Quadrature nodes; 32 keep the error of averages below 2e-6 for latent variances up to 100.
    class_weights : sequence of 2 positive numbers, optional
        What a row counts in a fit, of the classes -1 and +1; predictive quantities know nothing of them.
    """

    name: ClassVar[str] = "bernoulli"
    scales_target: ClassVar[bool] = False
    in_numpy = frozenset({"bound_and_sites"})
    most_in_numpy: ClassVar[float] = _IN_NUMPY
    link: str = eqx.field(static=True)
    class_weights: tuple[float, ...] | None = eqx.field(static=True)
    points: int = eqx.field(static=True)

    def __init__(self, link: Any = "logit", points: Any = 32, *, class_weights: Any = None) -> None:
        if link not in LINKS:
            raise ValueError(f"link must be one of {LINKS}, received {link!r}.")
        self.link = link
        self.class_weights = checked_weights(class_weights, 2)
        self.points = number_of_points(points)

    def log_prob(self, y: Any, f: Any) -> Any:
        """Return ``log p(y | f) = log link(y f)``, elementwise."""
        y, f = together(y, f)
        return jax.nn.log_sigmoid(y * f) if self.link == "logit" else log_ndtr(y * f)

    def expected_log_prob(self, y: Any, mean: Any, variance: Any) -> Any:
        """Return ``E[log p(y | f)]`` for ``f ~ N(mean, variance)``, times the weight of the class, elementwise."""
        return super().expected_log_prob(y, mean, variance) * self._weights(y)

    def sites(self, y: Any, mean: Any, variance: Any) -> tuple[Any, Any]:
        """Return the derivatives as every likelihood does, times the weight of the class."""
        alpha, beta = super().sites(y, mean, variance)
        weight = self._weights(y)
        return alpha * weight, beta * weight

    def bound_and_sites(self, y: Any, mean: Any, variance: Any) -> tuple[Any, Any, Any]:
        """Return `expected_log_prob` and `sites` in NumPy, from averages at the same nodes."""
        of_link = _of_logit if self.link == "logit" else _of_probit
        value, alpha, beta = averaged(self, of_link, y, mean, variance)
        weight = weights_of(self.class_weights, y > 0, mean.dtype)
        return value * weight, alpha * weight, beta * weight

    def _weights(self, y: Any) -> Any:
        if self.class_weights is None:
            return 1.0
        y = jnp.asarray(y)
        return weights_of(self.class_weights, y > 0, jnp.result_type(float, y))

    def feature(self, y: Any) -> tuple[Any, Any]:
        """Return 0 and the width of the link."""
        xp = array_module(y)
        return xp.zeros_like(y), xp.full_like(y, _WIDTH[self.link])

    def most_curvature(self) -> float:
        """Return 1/4 (logit, at 0) or 1 (probit, the limit far on the wrong side)."""
        most = 0.25 if self.link == "logit" else 1.0
        return most * max(self.class_weights or (1.0,))

    def probability(self, y: Any, f: Any) -> Any:
        """Return ``p(y | f)``, elementwise."""
        y, f = together(y, f)
        return jax.nn.sigmoid(y * f) if self.link == "logit" else ndtr(y * f)

    def log_density(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        y, mean, variance = together(y, mean, latent_variance)
        if self.link == "probit":
            # E[Phi(y f)] = Phi(y m / sqrt(1 + v))
            return log_ndtr(y * mean * jax.lax.rsqrt(1.0 + variance))
        # the slope of log p by f lies between 0 and y, so that of z is at most the standard deviation
        end = y * floored_std(variance)
        low, high = jnp.minimum(end, 0.0), jnp.maximum(end, 0.0)
        mode = mode_between(self, y, mean, variance, low, high)
        return log_average(self, y, mean, variance, mode)

    def predictive_mean(self, mean: Any, latent_variance: Any) -> Any:
        """Return the probability of ``y = 1`` for ``f ~ N(mean, latent_variance)``, elementwise."""
        mean, variance = together(mean, latent_variance)
        if self.link == "probit":
            return ndtr(mean * jax.lax.rsqrt(1.0 + variance))
        # weights of the nodes sum to one but for rounding, and 1 - p is the probability of the other class
        return jnp.minimum(expectation(self, "probability", 1.0, mean, variance), 1.0)

    def predictive_variance(self, mean: Any, latent_variance: Any) -> Any:
        """Return ``p (1 - p)`` of the predictive probability ``p``."""
        # p(y = -1) is computed and not subtracted from one, for the sake of small ones
        return self.predictive_mean(mean, latent_variance) * self.predictive_mean(
            -jnp.asarray(mean), latent_variance
        )

    def median(self, mean: Any) -> Any:
        """Return the probability of ``y = 1`` at the latent median: the "posterior median" of Evans and Nair (2020)."""
        return self.probability(1.0, mean)

    def _possible(self, y: np.ndarray) -> tuple[Any, str, str]:
        advice = "Code the two classes as -1 and +1, as np.where(y == positive_class, 1, -1) does."
        return np.isin(y, (-1, 1)), "labels -1 and +1", advice


def _of_logit(y: np.ndarray, f: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ``log s(t)``, ``y s(-t)`` and ``s(t) s(-t)`` with the sigmoid ``s`` and ``t = y f``."""
    t = y * f
    small = np.exp(-np.abs(t))
    larger = 1.0 / (1.0 + small)
    other = np.where(t > 0.0, small, 1.0) * larger
    return np.minimum(t, 0.0) - np.log1p(small), y * other, small * larger**2


def _of_probit(y: np.ndarray, f: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ``log Phi(t)``, ``y r`` and ``r (t + r)`` with ``r = N(t) / Phi(t)`` and ``t = y f``."""
    t = y * f
    value = special.log_ndtr(t)
    ratio = np.exp(-0.5 * t**2 - value - _HALF_LOG_2PI)
    # far on the wrong side r is -t but for 1 / t, and r (t + r) goes to one
    return value, y * ratio, np.clip(ratio * (t + ratio), 0.0, 1.0)
