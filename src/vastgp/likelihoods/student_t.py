"""Student-t observation noise: robust regression."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import special
from scipy.special import ndtr

from vastgp.likelihoods.base import Likelihood, number_of_points, positive
from vastgp.likelihoods.gammas import log_gamma_constant, log_gamma_ratio
from vastgp.likelihoods.log_precisions import range_of_log_precisions
from vastgp.likelihoods.quadrature import Values, evenly, together

# Nodes of distribution functions are no farther apart than this, as far down as that takes no more than 400 of them.
_APART, _LOWEST = 0.5, -160.0


class StudentT(Likelihood):
    """Observations ``y = f(x) + scale * t``, ``t`` of a Student distribution: outliers have bounded influence.

    Not log-concave: an observation far from ``f`` lowers the precision (``beta < 0``). See `site_bound`.

    Parameters
    ----------
    scale : float
        ``s``. The noise has variance ``s^2 nu / (nu - 2)``.
    degrees_of_freedom : float
        ``nu``. At 2 and below the variance is infinite, at 1 and below there is no mean. Gaussian noise in the limit.
    points : int
        Quadrature nodes; 48 keep the error of averages below 1e-4 for a scale of 1 % of the latent standard deviation,
        and far below for usual ones.
    """

    name: ClassVar[str] = "student-t"
    log_concave: ClassVar[bool] = False
    in_numpy = frozenset({"bound_and_sites"})
    scale: Any
    degrees_of_freedom: Any
    points: int = eqx.field(static=True)

    def __init__(self, scale: Any, degrees_of_freedom: Any = 4.0, points: Any = 48) -> None:
        self.scale = positive("scale", scale)
        self.degrees_of_freedom = positive("degrees_of_freedom", degrees_of_freedom)
        self.points = number_of_points(points)

    def in_units(self, y_scale: float) -> StudentT:
        return StudentT(self.scale * y_scale, self.degrees_of_freedom, self.points)

    def log_prob(self, y: Any, f: Any) -> Any:
        y, f, scale, nu = together(y, f, self.scale, self.degrees_of_freedom)
        # Gamma((nu+1)/2) / (Gamma(nu/2) sqrt(pi nu) s) (1 + r^2 / (nu s^2))^(-(nu+1)/2)
        return _log_normaliser(scale, nu) - 0.5 * (nu + 1.0) * jnp.log1p(
            ((y - f) / scale) ** 2 / nu
        )

    def feature(self, y: Any) -> tuple[Any, Any]:
        """Return ``y`` and ``s sqrt(nu)``: the logarithm is singular at ``f = y +- i s sqrt(nu)``."""
        return y, self.scale * jnp.sqrt(self.degrees_of_freedom)

    def site_bound(self, y: Any, mean: Any, variance: Any) -> Any:
        """Return ``log p`` at the root mean square of ``y - f``, a lower bound of `expected_log_prob`.

        ``log p`` is convex in ``u = (y - f)^2`` (Jensen): ``E[log p(u)] >= log p(E u)``, ``E u = (y - m)^2 + v``. It is
        what expectation maximisation over the Gaussian scale mixture maximises; its site has the precision
        ``(nu + 1) / (nu s^2 + E u) > 0``, the weight of iteratively reweighted least squares.
        """
        y, mean, variance, scale, nu = together(
            y, mean, variance, self.scale, self.degrees_of_freedom
        )
        square = ((y - mean) ** 2 + variance) / scale**2
        return _log_normaliser(scale, nu) - 0.5 * (nu + 1.0) * jnp.log1p(square / nu)

    def bound_and_sites(self, y: Any, mean: Any, variance: Any) -> tuple[Any, Any, Any]:
        """Return `site_bound` and its sites in NumPy: with ``u = (y - m)^2 + v`` and ``w`` the precision of the site.

        ``alpha = w (y - m)`` and ``beta = w = (nu + 1) / (nu s^2 + u)``.
        """
        scale, nu = float(self.scale), float(self.degrees_of_freedom)
        off = y - mean
        square = off**2 + variance
        weight = (nu + 1.0) / (nu * scale**2 + square)
        constant = special.gammaln(0.5 * (nu + 1.0)) - special.gammaln(0.5 * nu)
        constant -= 0.5 * np.log(np.pi * nu) + np.log(scale)
        value = constant - 0.5 * (nu + 1.0) * np.log1p(square / scale**2 / nu)
        return value, weight * off, weight

    def most_curvature(self) -> float:
        """Return ``(nu + 1) / (nu s^2)``, that at ``f = y``."""
        nu = float(self.degrees_of_freedom)
        return (nu + 1.0) / (nu * float(self.scale) ** 2)

    def log_density(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        """Return ``log E[p(y | f)]`` for ``f ~ N(mean, latent_variance)``, elementwise.

        As an average over precisions, ``int Gamma(l | nu/2, nu/2) N(y | mean, latent_variance + s^2 / l) dl``: one
        smooth integral in ``log l`` whichever of both widths is larger. Over ``f`` the integrand may have two peaks of
        different widths. With 48 points (96 nodes) the relative error of the density is below 1e-7; up to 1e-5 below
        one degree of freedom, and where an outlier is farther away than there are nodes for both of its explanations.
        """
        y, mean, variance, scale, nu = together(
            y, mean, latent_variance, self.scale, self.degrees_of_freedom
        )
        a = 0.5 * nu
        low, high, top = range_of_log_precisions(
            *jax.lax.stop_gradient(((y - mean) ** 2, variance, scale**2, a))
        )
        x, step = evenly(low, high, 2 * self.points)
        # log Gamma(l | a, a) dl = a log a - log Gamma(a) + a x - a e^x,  x = log l
        width = variance[..., None] + scale[..., None] ** 2 * jnp.exp(-x)
        data = -0.5 * ((y - mean)[..., None] ** 2 / width + jnp.log(width))
        parts = jnp.exp(a[..., None] * (x - jnp.expm1(x)) + data - top[..., None])
        constant = log_gamma_constant(a) + top - 0.5 * np.log(2.0 * np.pi)
        return constant + jnp.log(step * jnp.sum(parts, axis=-1))

    def distribution(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        """Return ``P(observation <= y)`` for ``f ~ N(mean, latent_variance)``, as an average over precisions too."""
        scale, nu = float(self.scale), float(self.degrees_of_freedom)
        off, variance = np.asarray(y - mean, np.float64), np.asarray(latent_variance, np.float64)
        # 1/2 + int Gamma(l | a, a) [Phi((y - m) / sqrt(v + s^2 / l)) - 1/2] dl,  x = log l evenly spaced
        low = -9.0 * np.sqrt(2.0 / nu) - 50.0 / nu
        high = np.log1p(9.0 * np.sqrt(2.0 / nu) + 40.0 / nu)
        count = max(2 * self.points, int((high - max(low, _LOWEST)) / _APART))
        if low < _LOWEST:
            # the law of few degrees of freedom has half of its mass farther down, where what is in brackets falls
            # as sqrt(l); what is farther away than 1e150 is so at every node
            square = np.minimum((off / scale) ** 2 + variance / scale**2, 1e300)
            below = 9.0 * np.sqrt(2.0 / (nu + 1.0)) + 50.0 / (nu + 1.0)
            low = np.maximum(low, np.log((nu + 1.0) / (nu + square)) - below)
        step = (high - low) / (count - 1)
        constant = float(log_gamma_constant(np.float64(0.5 * nu)))
        parts = (
            step
            * np.exp(0.5 * nu * (x - np.expm1(x)) + constant)
            * (ndtr(off / np.sqrt(variance + scale**2 * np.exp(-x))) - 0.5)
            for x in (low + k * step for k in range(count))
        )
        return 0.5 + sum(parts)

    def predictive_mean(self, mean: Any, latent_variance: Any) -> Any:
        """Return ``mean``: for ``nu <= 1``, where no mean exists, the centre of symmetry."""
        return mean

    def predictive_variance(self, mean: Any, latent_variance: Any) -> Any:
        """Return ``latent_variance + s^2 nu / (nu - 2)``, infinite where ``nu <= 2``."""
        variance, scale, nu = together(latent_variance, self.scale, self.degrees_of_freedom)
        finite = nu > 2.0
        noise = scale**2 * nu / jnp.where(finite, nu - 2.0, 1.0)
        return jnp.where(finite, variance + noise, jnp.inf)


def _log_normaliser(scale: Values, nu: Values) -> Values:
    return log_gamma_ratio(0.5 * nu) - 0.5 * jnp.log(jnp.pi * nu) - jnp.log(scale)
