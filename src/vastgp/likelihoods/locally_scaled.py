"""Normal observations of a function, both on a scale that is the row's own and known up to a factor."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import numpy as np
from scipy.special import gammaln, stdtr

from vastgp.likelihoods.base import positive
from vastgp.likelihoods.function_and_noise import FunctionAndNoise
from vastgp.likelihoods.gaussian import Gaussian


def student_log_density(off: Any, square: Any, degrees: Any) -> Any:
    """Return the log density of a Student distribution, so far from its centre, of the square of its width: NumPy."""
    # Gamma((nu+1)/2) / (Gamma(nu/2) sqrt(pi nu) s) (1 + r^2 / (nu s^2))^(-(nu+1)/2)
    constant = gammaln(0.5 * (degrees + 1.0)) - gammaln(0.5 * degrees)
    tail = 0.5 * (degrees + 1.0) * np.log1p(off**2 / (degrees * square))
    return constant - 0.5 * np.log(np.pi * degrees * square) - tail


class LocallyScaled(FunctionAndNoise):
    """Function and noise have the variances ``u v`` and ``u noise_variance exp(f_2(x))``, and ``u`` is not known.

    ``u`` has mean one, and ``(nu - 2) / u`` is chi-squared with ``nu`` degrees of freedom, so that an observation has a
    Student distribution whose variance is the sum of both,

        y ~ m + sqrt((nu - 2) / nu (v + noise_variance exp(f_2))) t_nu.

    Arrays of latent moments have the function and ``f_2`` as the *first* axis; ``f_2`` is known. It tells how
    observations scatter around a posterior that has been found; models cannot be fitted by it.

    Parameters
    ----------
    noise_variance : float
        Where ``f_2`` is zero.
    degrees_of_freedom : float
        ``nu``, above 2.
    """

    name: ClassVar[str] = "locally-scaled"
    log_concave: ClassVar[bool] = False
    in_numpy = frozenset({"predictive_mean", "predictive_variance", "log_density"})
    noise_variance: Any
    degrees_of_freedom: Any

    def __init__(self, noise_variance: Any, degrees_of_freedom: Any) -> None:
        self.noise_variance = positive("noise_variance", noise_variance)
        self.degrees_of_freedom = positive("degrees_of_freedom", degrees_of_freedom)
        if not isinstance(self.degrees_of_freedom, jax.Array) and self.degrees_of_freedom <= 2.0:
            raise ValueError(
                f"degrees_of_freedom must be above 2, or there is no variance; received {degrees_of_freedom}."
            )

    @property
    def to_fit(self) -> Gaussian:
        """Normal noise, as it was before rows had a scale of their own."""
        return Gaussian(self.noise_variance)

    def in_units(self, y_scale: float) -> LocallyScaled:
        """Return a likelihood of the standardised target in the units of the target; ``f_2`` has none."""
        return LocallyScaled(self.noise_variance * y_scale**2, self.degrees_of_freedom)

    def log_prob(self, y: Any, f: Any) -> Any:
        """Return ``log p(y | f)``: noise alone, whose scale is not known."""
        return self.log_density(y, f, f * 0.0)

    def log_density(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        """Return the logarithm of the Student density."""
        square = self._square(mean, latent_variance)
        return student_log_density(y - mean[0], square, self.degrees_of_freedom)

    def distribution(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        """Return ``P(observation <= y)``."""
        width = np.sqrt(np.asarray(self._square(mean, latent_variance), np.float64))
        return stdtr(float(self.degrees_of_freedom), (y - mean[0]) / width)

    def predictive_variance(self, mean: Any, latent_variance: Any) -> Any:
        """Return ``v + noise_variance exp(f_2)``."""
        return latent_variance[0] + self.noise_variance * np.exp(mean[1])

    def _square(self, mean: Any, latent_variance: Any) -> Any:
        """Return the square of the distribution's width."""
        nu = self.degrees_of_freedom
        return (nu - 2.0) / nu * self.predictive_variance(mean, latent_variance)
