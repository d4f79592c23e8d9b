"""Counts."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaincc, gammaln

from vastgp.likelihoods.base import Likelihood, number_of_points, positive
from vastgp.likelihoods.quadrature import floored_std, log_average, mode_between, together


class Poisson(Likelihood):
    """Counts ``y ~ Poisson(rate exp(f))``.

    Parameters
    ----------
    rate : float
        Mean count where the latent function is 0, in place of standardising the target.
    points : int
        Quadrature nodes of `log_density`, the one method without a closed form.
    """

    name: ClassVar[str] = "poisson"
    scales_target: ClassVar[bool] = False
    rate: Any
    points: int = eqx.field(static=True)

    def __init__(self, rate: Any = 1.0, points: Any = 48) -> None:
        self.rate = positive("rate", rate)
        self.points = number_of_points(points)

    def log_prob(self, y: Any, f: Any) -> Any:
        """Return ``log p(y | f)``, elementwise."""
        y, f, rate = together(y, f, self.rate)
        # y (f + log rate) - rate e^f - log y!
        return y * (f + jnp.log(rate)) - rate * jnp.exp(f) - gammaln(y + 1.0)

    def feature(self, y: Any) -> tuple[Any, Any]:
        """Return where the mean count is about ``y``, and the width of the likelihood there, at most pi/2."""
        # beyond pi/2 off the real axis exp(-rate e^f) grows instead of falling
        return jnp.log((y + 0.5) / self.rate), jnp.minimum(2.0 / jnp.sqrt(y + 0.5), 0.5 * jnp.pi)

    def expected_log_prob(self, y: Any, mean: Any, variance: Any) -> Any:
        """Return ``E[log p(y | f)]`` for ``f ~ N(mean, variance)``, elementwise."""
        y, mean, variance, rate = together(y, mean, variance, self.rate)
        # E[e^f] = e^(m + v/2)
        count = rate * jnp.exp(mean + 0.5 * variance)
        return y * (mean + jnp.log(rate)) - count - gammaln(y + 1.0)

    def sites(self, y: Any, mean: Any, variance: Any) -> tuple[Any, Any]:
        """Return ``alpha = y - E[rate e^f]`` and ``beta = E[rate e^f]``."""
        y, mean, variance, rate = together(y, mean, variance, self.rate)
        beta = rate * jnp.exp(mean + 0.5 * variance)
        return y - beta, beta

    def log_density(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        """Return ``log E[p(y | f)]`` for ``f ~ N(mean, latent_variance)``, elementwise."""
        y, mean, variance, rate = together(y, mean, latent_variance, self.rate)
        std = floored_std(variance)
        # The mode z solves z = s (y - rate e^(m + s z)). Above: z <= s y. Below: with y = 0 it is
        # s z = -W(rate v e^m), and Lambert's W(x) <= log(1 + x).
        low = -jnp.logaddexp(0.0, jnp.log(rate * std**2) + mean) / std
        mode = mode_between(self, y, mean, variance, low, std * y)
        return log_average(self, y, mean, variance, mode)

    def predictive_mean(self, mean: Any, latent_variance: Any) -> Any:
        """Return ``rate exp(mean + latent_variance / 2)``."""
        mean, variance, rate = together(mean, latent_variance, self.rate)
        return rate * jnp.exp(mean + 0.5 * variance)

    def predictive_variance(self, mean: Any, latent_variance: Any) -> Any:
        """Return the mean count plus the variance of the rate."""
        count = self.predictive_mean(mean, latent_variance)
        # E[lambda] + Var[lambda],  Var[e^f] = E[e^f]^2 (e^v - 1)
        return count + count**2 * jnp.expm1(jnp.asarray(latent_variance))

    def median(self, mean: Any) -> Any:
        """Return the median count at the latent median: the least ``k`` with ``P(y <= k) >= 1/2``."""
        mean, rate = together(mean, self.rate)
        count = rate * jnp.exp(mean)
        # lambda - log 2 <= median < lambda + 1/3 (Choi 1994): two integers at most;  P(y <= k) = Q(k + 1, lambda)
        least = jnp.maximum(jnp.ceil(count - jnp.log(2.0)), 0.0)
        return jnp.where(gammaincc(least + 1.0, count) >= 0.5, least, least + 1.0)

    def check_targets(self, y: Any) -> None:
        """Refuse negative, fractional and missing counts.

        Raises
        ------
        ValueError
            Naming ``y``, how many entries are wrong and the first of them.
        """
        y = np.asarray(y)
        whole = np.isfinite(y) & (y >= 0) & (np.floor(y) == y)
        self._refuse(
            y,
            ~whole,
            "counts 0, 1, 2, ...",
            "Give unscaled counts; for real numbers choose 'gaussian', 'laplace' or 'student-t'.",
        )
