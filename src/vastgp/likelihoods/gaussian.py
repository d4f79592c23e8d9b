"""Gaussian observation noise."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from scipy.special import ndtr

from vastgp.data.observations import noise_variances, targets
from vastgp.likelihoods.base import Likelihood, positive
from vastgp.likelihoods.quadrature import array_module, together


class Gaussian(Likelihood):
    """Observations ``y = f(x) + e`` with independent ``e ~ N(0, noise_variance)``.

    Like a kernel, a pytree whose leaves are all positive, so that ``jax.tree.map(jnp.log, likelihood)`` is its
    unconstrained form.

    In the fit of rows with noise of their own the targets come with it, ``y`` of shape (n, 3) for n function values
    (`vastgp.data.observations`): `log_prob`, `expected_log_prob` and `sites` take that too.

    Parameters
    ----------
    noise_variance : float
        Variance of the noise: in squared units of the target for ``likelihood_`` of a fitted estimator.
    """

    name: ClassVar[str] = "gaussian"
    in_numpy = frozenset({"predictive_mean", "predictive_variance", "log_density"})
    noise_variance: Any

    def __init__(self, noise_variance: Any) -> None:
        self.noise_variance = positive("noise_variance", noise_variance)

    @property
    def noise_std(self) -> Any:
        """Standard deviation of the noise."""
        return self.noise_variance**0.5

    def in_units(self, y_scale: float) -> Gaussian:
        return Gaussian(self.noise_variance * y_scale**2)

    def log_prob(self, y: Any, f: Any) -> Any:
        y, f, noise = together(*self._observed(y, f))
        return -0.5 * ((y - f) ** 2 / noise + jnp.log(2.0 * jnp.pi * noise))

    def expected_log_prob(self, y: Any, mean: Any, variance: Any) -> Any:
        """Return ``E[log p(y | f)]`` for ``f ~ N(mean, variance)``, elementwise."""
        target, mean, noise = self._observed(y, mean)
        target, mean, variance, noise = together(target, mean, variance, noise)
        # E[(y - f)^2] = (y - m)^2 + v
        return self.log_prob(y, mean) - 0.5 * variance / noise

    def sites(self, y: Any, mean: Any, variance: Any) -> tuple[Any, Any]:
        """Return ``alpha = (y - mean) / noise_variance`` and ``beta = 1 / noise_variance``."""
        y, mean, noise = self._observed(y, mean)
        y, mean, variance, noise = together(y, mean, variance, noise)
        return (y - mean) / noise, 1.0 / noise

    def _observed(self, y: Any, f: Any) -> tuple[Any, Any, Any]:
        """Return targets, function values, and the noise variances of the former."""
        shape = np.shape(f)
        if len(shape) and np.shape(y) == (*shape, 3):
            return targets(y), f, noise_variances(y, self.noise_variance)
        return y, f, self.noise_variance

    def most_curvature(self) -> float:
        """Return ``1 / noise_variance``."""
        return 1.0 / float(self.noise_variance)

    def log_density(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        variance = latent_variance + self.noise_variance
        xp = array_module(variance)
        return -0.5 * ((y - mean) ** 2 / variance + xp.log(2.0 * np.pi * variance))

    def distribution(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        """Return ``P(observation <= y)`` for ``f ~ N(mean, latent_variance)``."""
        return ndtr((y - mean) / np.sqrt(latent_variance + float(self.noise_variance)))

    def predictive_mean(self, mean: Any, latent_variance: Any) -> Any:
        """Return ``mean``."""
        return mean

    def predictive_variance(self, mean: Any, latent_variance: Any) -> Any:
        """Return ``latent_variance + noise_variance``."""
        return latent_variance + self.noise_variance
