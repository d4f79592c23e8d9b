"""Distributions of new observations at some rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtri

from vastgp._precision import precision
from vastgp.data import Standardizer, observations
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.likelihoods.quantiles import quantiles
from vastgp.likelihoods.rowwise import by_rows


def checked_probabilities(probabilities: Any) -> np.ndarray:
    """Return probabilities of quantiles as a vector; ValueError for what is none."""
    try:
        wanted = np.atleast_1d(np.asarray(probabilities, dtype=np.float64))
    except (TypeError, ValueError):
        wanted = np.array([np.nan])  # no numbers, or no vector of them
    if wanted.ndim != 1 or not np.all((wanted > 0.0) & (wanted < 1.0)):
        raise ValueError(
            f"probabilities must be numbers above 0 and below 1, received {probabilities!r}; 95 % is 0.95."
        )
    return wanted


@dataclass(frozen=True)
class Predictive:
    """The distribution of a new observation at each of n rows, in units of the target.

    The function's posterior is taken as normal, with its own mean and variance, and the likelihood integrated over it.

    Attributes
    ----------
    likelihood : Likelihood
        Of the standardised target.
    latent_mean, latent_variance : ndarray of shape (n,), or (C, n) for C functions
        Of the function, in standardised units; the variance is None where only the mean is wanted.
    scaling : Standardizer
    """

    likelihood: Likelihood
    latent_mean: np.ndarray
    latent_variance: Any
    scaling: Standardizer

    def _by_rows(self, method: str, *first: Any) -> Any:
        with precision("float64"):
            return by_rows(self.likelihood, method, *first, self.latent_mean, self.latent_variance)

    def with_noise_of(self, y: np.ndarray) -> Predictive:
        """Return the distributions of observations that have noise of their own, see `vastgp.data.observations`."""
        noise: Any = self.likelihood.noise_variance  # type: ignore[attr-defined]
        more = observations.noise_variances(self.scaling.transform_y(y), noise) - noise
        return replace(self, latent_variance=self.latent_variance + more)

    def with_exposure_of(self, y: np.ndarray) -> Predictive:
        """Return the distributions of counts of other exposures than one, see `vastgp.data.observations`."""
        # e exp(f) = exp(f + log e)
        return replace(self, latent_mean=self.latent_mean + y[:, 1])

    def of_rows(self, rows: np.ndarray) -> Predictive:
        """Return the distributions at some of the rows, by their numbers."""
        variance = self.latent_variance
        return replace(
            self,
            latent_mean=self.latent_mean[..., rows],
            latent_variance=None if variance is None else variance[..., rows],
        )

    @property
    def gaussian(self) -> bool:
        """Whether the distributions are normal."""
        return isinstance(self.likelihood, Gaussian)

    @cached_property
    def mean(self) -> np.ndarray:
        """Means, (n,)."""
        return self.scaling.inverse_mean(self._by_rows("predictive_mean"))

    @cached_property
    def std(self) -> np.ndarray:
        """Standard deviations, (n,): those of the function and of the noise together."""
        return self.scaling.inverse_std(np.sqrt(self._by_rows("predictive_variance")))

    def moments_below(self, most: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return means and deviations of counts that count as no more than ``most``, a number or (n,): (n,) each."""
        law: Any = self.likelihood
        mean, variance = law.moments_below(self.latent_mean, self.latent_variance, most)
        return mean, np.sqrt(variance)

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """Return the logarithms of the densities at targets, (n,), in nats."""
        target = self.scaling.transform_y(y)
        self.likelihood.check_targets(target)
        # a density of y is that of (y - mean) / scale divided by the scale
        return self._by_rows("log_density", target) - np.log(self.scaling.y_scale)

    def quantiles(self, probabilities: Any) -> np.ndarray:
        """Return what observations are below with given probabilities, (k,) or (k, n) for each row its own: (k, n).

        Of counts the least one with at least the probability at or below it.
        """
        scale = self.scaling.y_scale
        near = (self.mean - self.scaling.y_mean) / scale, self.std / scale
        found = quantiles(
            self.likelihood, probabilities, self.latent_mean, self.latent_variance, near
        )
        return self.scaling.inverse_mean(found)

    def normal_scores(self, y: np.ndarray, seed: int = 0) -> np.ndarray:
        """Return targets as standard normal variables, which they are if the distributions are right, (n,).

        Counts jump over an interval of probabilities, of which each takes a place at random (Smith 1985).
        """
        target = self.scaling.transform_y(y)
        moments = self.latent_mean, self.latent_variance
        if self.gaussian:
            return (y - self.mean) / self.std
        reached = self.likelihood.distribution(target, *moments)
        if self.likelihood.counts:
            before = self.likelihood.distribution(target - 1.0, *moments)
            places = np.random.default_rng(seed).uniform(size=len(target))
            reached = before + places * (reached - before)
        return ndtri(np.clip(reached, 1e-16, 1.0 - 1e-16))
