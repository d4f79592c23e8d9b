"""Gaussian observation noise."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


class Gaussian(eqx.Module):
    """Observations ``y = f(x) + e`` with independent ``e ~ N(0, noise_variance)``.

    Like a kernel, a pytree whose leaves are all positive, so that ``jax.tree.map(jnp.log, likelihood)`` is its
    unconstrained form.

    Parameters
    ----------
    noise_variance : float
        Variance of the noise: in squared units of the target for ``likelihood_`` of a fitted estimator.
    """

    noise_variance: Any

    def __init__(self, noise_variance: Any) -> None:
        if not isinstance(noise_variance, jax.Array):  # traced values pass
            noise_variance = np.asarray(noise_variance, dtype=np.float64)
            if noise_variance.ndim or not (np.isfinite(noise_variance) and noise_variance > 0):
                raise ValueError(
                    f"noise_variance must be one positive finite number, received {noise_variance}."
                )
        self.noise_variance = noise_variance

    @property
    def noise_std(self) -> Any:
        """Standard deviation of the noise."""
        return self.noise_variance**0.5

    def in_units(self, y_scale: float) -> Gaussian:
        """Return a likelihood of the standardised target in the units of the target."""
        return Gaussian(self.noise_variance * y_scale**2)

    def log_density(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        """Return ``log E[p(y | f)]`` for ``f ~ N(mean, latent_variance)``, elementwise."""
        variance = latent_variance + self.noise_variance
        xp = jnp if isinstance(variance, jax.Array) else np
        return -0.5 * ((y - mean) ** 2 / variance + xp.log(2.0 * np.pi * variance))

    def __repr__(self) -> str:
        if isinstance(self.noise_variance, jax.core.Tracer):
            return f"Gaussian({self.noise_variance})"
        return f"Gaussian(noise_variance={float(self.noise_variance):.4g})"
