"""Counts whose rates vary by more than the function."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp

from vastgp.likelihoods.base import Likelihood, number_of_points, positive
from vastgp.likelihoods.poisson import Poisson

# Nodes for minibatches.
_ROUGH_POINTS = 24


class PoissonLogNormal(Likelihood):
    """Counts ``y ~ Poisson(rate exp(f + eps))``, ``eps ~ N(0, variance)`` anew for every count.

    Overdispersed: what a Poisson process would take for a function that jumps from row to row is scatter here. For a
    normal ``f`` predictions are those of `Poisson` with ``variance`` added to that of ``f``; ``log p`` is an integral,
    log-concave in ``f`` as what is integrated is so in both (Prekopa 1973).

    Parameters
    ----------
    rate : float
        Median rate where the latent function is 0, in place of standardising the target.
    variance : float
        Of the logarithm of the rate, beside what the function says.
    points : int
        Quadrature nodes over ``eps``, and over ``f`` for averages.
    """

    name: ClassVar[str] = "poisson-log-normal"
    scales_target: ClassVar[bool] = False
    rate: Any
    variance: Any
    points: int = eqx.field(static=True)

    def __init__(self, rate: Any = 1.0, variance: Any = 0.1, points: Any = 32) -> None:
        self.rate = positive("rate", rate)
        self.variance = positive("variance", variance)
        self.points = number_of_points(points)

    def _poisson(self) -> Poisson:
        return Poisson(self.rate, self.points)

    def log_prob(self, y: Any, f: Any) -> Any:
        """Return ``log p(y | f)``, elementwise."""
        return self._poisson().log_density(y, f, self.variance)

    def feature(self, y: Any) -> tuple[Any, Any]:
        """Return where `Poisson` has it, and its width with that of ``eps``."""
        centre, width = self._poisson().feature(y)
        return centre, jnp.sqrt(width**2 + 4.0 * self.variance)

    def log_density(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        """Return ``log E[p(y | f)]`` for ``f ~ N(mean, latent_variance)``, elementwise."""
        return self._poisson().log_density(y, mean, latent_variance + self.variance)

    def predictive_mean(self, mean: Any, latent_variance: Any) -> Any:
        """Return ``rate exp(mean + (latent_variance + variance) / 2)``."""
        return self._poisson().predictive_mean(mean, latent_variance + self.variance)

    def predictive_variance(self, mean: Any, latent_variance: Any) -> Any:
        """Return the mean count plus the variance of the rate."""
        return self._poisson().predictive_variance(mean, latent_variance + self.variance)

    def median(self, mean: Any) -> Any:
        """Return the median count at the median rate, ``rate exp(mean)`` (plug-in)."""
        return self._poisson().median(mean)

    def rough(self) -> PoissonLogNormal:
        """Return the likelihood with fewer nodes."""
        return PoissonLogNormal(self.rate, self.variance, min(self.points, _ROUGH_POINTS))

    def check_targets(self, y: Any) -> None:
        """Refuse negative, fractional and missing counts.

        Raises
        ------
        ValueError
            Naming ``y``, how many entries are wrong and the first of them.
        """
        self._poisson().check_targets(y)
