"""More than two classes: the function whose disturbed value is the largest."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, logsumexp
from jaxtyping import Array, Float

from vastgp.likelihoods.base import number_of_points
from vastgp.likelihoods.several_classes import SeveralClasses, number_of_classes, of_label

# Nodes reach this many standard deviations from where the largest value lies, or a label's own one.
_DEVIATIONS = 7.0
# Newton steps to where a label's integrand is largest; they rise to it from below and double the digits.
_NEWTON_STEPS = 12
_HALF_LOG_2PI = 0.5 * np.log(2.0 * np.pi)


class MultinomialProbit(SeveralClasses):
    """Labels ``y`` in {0, ..., C - 1}: the number of the largest ``f_c + eps_c``, ``eps_c ~ N(0, 1)``.

        p(y = c | f) = int phi(u - f_c) prod_{k != c} Phi(u - f_k) du,

    which for independent normal ``f_c`` is the same integral with their variances added to one: predictive
    probabilities are one-dimensional. For what has latent values (Albert and Chib 1993); averages of ``log p`` have no
    such form, for which there is `vastgp.likelihoods.Softmax`. As there, arrays of latent values have the functions as
    the first axis.

    Parameters
    ----------
    num_classes : int
        C >= 2.
    points : int
        Quadrature nodes; 64 keep the error of log probabilities below 1e-9 where standard deviations differ by less
        than a factor of three, and below 1e-4 up to ten.
    """

    name: ClassVar[str] = "multinomial-probit"
    shift_invariant: ClassVar[bool] = True
    num_classes: int = eqx.field(static=True)
    points: int = eqx.field(static=True)

    def __init__(self, num_classes: Any = 3, points: Any = 64) -> None:
        self.num_classes = number_of_classes(num_classes)
        self.points = number_of_points(points)

    def log_prob(self, y: Any, f: Any) -> Any:
        """Return ``log p(y | f)``."""
        return self.log_density(y, f, jnp.zeros(()))

    def log_density(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        """Return ``log E[p(y | f)]`` for independent normal functions: also where it is far below zero."""
        mean, std = _with_noise(mean, latent_variance)
        own = self.is_label(y, mean.ndim)
        scale, centre = of_label(std, y), of_label(mean, y)
        # u = m_y + s_y x: log-concave in x, with a second derivative of at most -1
        a, b = (centre - mean) / std, scale / std
        z = _DEVIATIONS * jnp.linspace(-1.0, 1.0, self.points, dtype=mean.dtype)
        x = _mode(jnp.where(own, jnp.inf, a), b)[..., None] + z
        rivals = log_ndtr(a[..., None] + b[..., None] * x)
        logs = jnp.sum(jnp.where(own[..., None], 0.0, rivals), axis=0) - 0.5 * x**2 - _HALF_LOG_2PI
        return logsumexp(logs, axis=-1) + jnp.log(z[1] - z[0])

    def predictive_mean(self, mean: Any, latent_variance: Any) -> Any:
        """Return the probability of each class, ``(C, *s)``, for independent normal functions: they sum to one."""
        mean, std = _with_noise(mean, latent_variance)
        low = jnp.max(mean - _DEVIATIONS * std, axis=0)
        high = jnp.max(mean + _DEVIATIONS * std, axis=0)
        t = jnp.linspace(0.0, 1.0, self.points, dtype=mean.dtype)
        u = low[..., None] + (high - low)[..., None] * t
        z = (u - mean[..., None]) / std[..., None]
        log_below = log_ndtr(z)
        # density of the largest value where it is that of class c
        log_density = -0.5 * z**2 - jnp.log(std)[..., None] - log_below
        density = jnp.exp(log_density + jnp.sum(log_below, axis=0))
        return jnp.sum(density, axis=-1) / jnp.sum(density, axis=(0, -1))

    def median(self, mean: Any) -> Any:
        """Return the probabilities at the latent medians."""
        return self.predictive_mean(mean, jnp.zeros(()))


def _with_noise(mean: Any, latent_variance: Any) -> tuple[Array, Array]:
    """Return means, and standard deviations with the noise of one, of one shape."""
    mean = jnp.asarray(mean)
    mean = mean.astype(jnp.result_type(mean, jnp.float32))
    std = jnp.sqrt(1.0 + jnp.asarray(latent_variance, mean.dtype))
    return mean, jnp.broadcast_to(std, mean.shape)


def _mode(a: Float[Array, "C *s"], b: Float[Array, "C *s"]) -> Float[Array, "*s"]:
    """Return where ``-x^2 / 2 + sum_k log Phi(a_k + b_k x)`` is largest; ``a_k`` is infinite where k does not count.

    Its slope is convex and falls, and one rival alone has its root above ``-a b / (1 + b^2)``: Newton's method from
    the largest of these, or from zero, never goes past the root.
    """
    counts = jnp.isfinite(a)
    rivals = jnp.where(counts, a, 0.0)
    alone = jnp.where(counts, -rivals * b / (1.0 + b**2), 0.0)
    x = jnp.maximum(jnp.max(alone, axis=0), 0.0)

    def step(_: Any, x: Array) -> Array:
        t = rivals + b * x
        # the inverse Mills ratio, and minus its slope
        mills = jnp.exp(-0.5 * t**2 - _HALF_LOG_2PI - log_ndtr(t))
        slope = -x + jnp.sum(jnp.where(counts, b * mills, 0.0), axis=0)
        bend = 1.0 + jnp.sum(jnp.where(counts, b**2 * mills * (t + mills), 0.0), axis=0)
        return x + slope / bend

    return jax.lax.fori_loop(0, _NEWTON_STEPS, step, x)
