"""Gaussian observation noise whose variance is a function of the inputs."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array
from scipy.special import ndtr

from vastgp.likelihoods.base import number_of_points, positive
from vastgp.likelihoods.function_and_noise import FunctionAndNoise
from vastgp.likelihoods.quadrature import floored_std, together
from vastgp.likelihoods.quantiles import normal_nodes

# Beyond this a variance overflows in single precision.
_MOST_LOG = 80.0
_DEVIATIONS = 7.0


class HeteroskedasticGaussian(FunctionAndNoise):
    """Observations ``y = f_1(x) + e`` with ``e ~ N(0, noise_variance exp(f_2(x)))`` (Goldberg et al. 1998).

    Two latent functions, independent under prior and approximate posterior, with one kernel for both. Arrays of latent
    values or moments have them as the *first* axis, ``(2, *s)`` where ``y`` is ``(*s)``. What variational inference
    asks for has closed forms (Lazaro-Gredilla and Titsias 2011), and both precisions are positive.

    Parameters
    ----------
    noise_variance : float
        Variance of the noise where ``f_2`` is zero, which is its geometric mean under the prior.
    points : int
        Quadrature nodes of `log_density`.
    """

    name: ClassVar[str] = "heteroskedastic"
    noise_variance: Any
    points: int = eqx.field(static=True)

    def __init__(self, noise_variance: Any, points: Any = 48) -> None:
        self.noise_variance = positive("noise_variance", noise_variance)
        self.points = number_of_points(points)

    def in_units(self, y_scale: float) -> HeteroskedasticGaussian:
        """Return a likelihood of the standardised target in the units of the target; ``f_2`` has none."""
        return HeteroskedasticGaussian(self.noise_variance * y_scale**2, self.points)

    def log_prob(self, y: Any, f: Any) -> Any:
        """Return ``log p(y | f_1, f_2)``."""
        log_variance = f[1] + jnp.log(self.noise_variance)
        square = (y - f[0]) ** 2 * jnp.exp(jnp.minimum(-log_variance, _MOST_LOG))
        return -0.5 * (square + log_variance + np.log(2.0 * np.pi))

    def expected_log_prob(self, y: Any, mean: Any, variance: Any) -> Any:
        """Return ``E[log p(y | f)]`` for independent ``f_c ~ N(mean_c, variance_c)``."""
        square, precision = self._square_and_precision(y, mean, variance)
        # E[(y - f_1)^2] E[exp(-f_2)] = ((y - m_1)^2 + v_1) exp(-m_2 + v_2 / 2)
        log_variance = mean[1] + jnp.log(self.noise_variance)
        return -0.5 * (square * precision + log_variance + np.log(2.0 * np.pi))

    def sites(self, y: Any, mean: Any, variance: Any) -> tuple[Any, Any]:
        """Return the derivatives by each mean, and -2 times those by each variance."""
        square, precision = self._square_and_precision(y, mean, variance)
        half = 0.5 * square * precision
        return jnp.stack([(y - mean[0]) * precision, half - 0.5]), jnp.stack([precision, half])

    def _square_and_precision(self, y: Any, mean: Any, variance: Any) -> tuple[Array, Array]:
        mean, variance = jnp.asarray(mean), jnp.asarray(variance)
        exponent = 0.5 * variance[1] - mean[1] - jnp.log(self.noise_variance)
        return (y - mean[0]) ** 2 + variance[0], jnp.exp(jnp.minimum(exponent, _MOST_LOG))

    def log_density(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        """Return ``log E[p(y | f)]``: over ``f_1`` in closed form, over ``f_2`` by the trapezoid rule."""
        mean, variance = together(mean, latent_variance)
        z = jnp.linspace(-_DEVIATIONS, _DEVIATIONS, self.points, dtype=mean.dtype)
        weights = -0.5 * z**2 - logsumexp(-0.5 * z**2)
        log_variance = mean[1][..., None] + floored_std(variance[1])[..., None] * z
        noise = self.noise_variance * jnp.exp(jnp.minimum(log_variance, _MOST_LOG))
        width = variance[0][..., None] + noise
        square = (y - mean[0])[..., None] ** 2
        density = -0.5 * (square / width + jnp.log(2.0 * np.pi * width))
        return logsumexp(weights + density, axis=-1)

    def distribution(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        """Return ``P(observation <= y)``: over ``f_1`` in closed form, over ``f_2`` by the trapezoid rule."""
        std = np.sqrt(latent_variance[1])
        parts = (
            weight
            * ndtr(
                (y - mean[0])
                / np.sqrt(
                    latent_variance[0]
                    + float(self.noise_variance) * np.exp(np.minimum(mean[1] + std * z, _MOST_LOG))
                )
            )
            for z, weight in normal_nodes(0.0, 1.5, self.points)
        )
        return sum(parts)

    def predictive_variance(self, mean: Any, latent_variance: Any) -> Any:
        """Return ``v_1 + noise_variance exp(m_2 + v_2 / 2)``."""
        exponent = jnp.minimum(mean[1] + 0.5 * latent_variance[1], _MOST_LOG)
        return latent_variance[0] + self.noise_variance * jnp.exp(exponent)
