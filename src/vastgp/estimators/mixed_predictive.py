"""Distributions of new observations that are mixtures of normal ones: with their own densities and quantiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtri, ndtri_exp

from vastgp.data import Standardizer, observations
from vastgp.estimators.predictive import Predictive
from vastgp.likelihoods import Gaussian
from vastgp.likelihoods.quantiles import by_row, rising_roots
from vastgp.linalg.log_sums import log_sum
from vastgp.solvers.averaged_posterior import mixture_moments

# Of a quantile, in units of the mixture.
_ERROR = 1e-7


def mixed_scores(scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return normal scores by a mixture, ``Phi^-1(sum_k w_k Phi(z_k))``, of those by its parts.

    Parameters
    ----------
    scores : ndarray of shape (K, ...)
    weights : ndarray of shape (K,), or (K, n) where the last axis of the scores is one of rows, for each its own
    """
    rows = weights.shape[1:]
    by_part = weights.reshape(len(weights), *[1] * (scores.ndim - 1 - len(rows)), *rows)
    below = log_sum(log_ndtr(scores), by_part)
    above = log_sum(log_ndtr(-scores), by_part)
    # by the smaller of both probabilities, or scores beyond 8 would be one
    return np.asarray(np.where(below < above, ndtri_exp(below), -ndtri_exp(above)))


def mixed_quantiles(
    of_parts: np.ndarray,
    probabilities: Any,
    weights: np.ndarray,
    unit: Any,
    reached: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:
    """Return quantiles of mixtures, (k, n), from those of their parts.

    Parameters
    ----------
    of_parts : ndarray of shape (K, k, n)
    probabilities : array-like of shape (k,), or (k, n) for each row its own
    weights : ndarray of shape (K,), or (K, n) for each row its own
    unit : float, or ndarray of shape (n,)
        Of which quantiles are found to a small part.
    reached : callable
        ``reached(y, rows)``: normal scores by each part of values at rows given by number, (K, m).
    """
    # a mixture's quantile lies between those of its parts: below the least one all have less probability
    low, high = of_parts.min(axis=0), of_parts.max(axis=0)
    rows = np.broadcast_to(np.arange(low.shape[1]), low.shape)
    scores = np.broadcast_to(ndtri(by_row(probabilities)), low.shape)
    units = np.broadcast_to(unit, low.shape[1])

    def above(y: np.ndarray, row: np.ndarray, score: np.ndarray) -> np.ndarray:
        here = weights if weights.ndim == 1 else weights[:, row]
        return mixed_scores(reached(y * units[row], row), here) - score

    centre, step = 0.5 * (low + high) / units, 0.5 * (high - low) / units + _ERROR
    found = rising_roots(
        above, centre.ravel(), step.ravel(), [rows.ravel(), scores.ravel()], _ERROR
    )
    return units * found.reshape(low.shape)


@dataclass(frozen=True)
class MixedPredictive(Predictive):
    """The distribution of a new observation that is one of K normal ones, with given probabilities, at each of n rows.

    Mean and deviation are those of the mixture.

    Attributes
    ----------
    weights : ndarray of shape (K,)
    means, variances : ndarray of shape (K, n)
        Of the function, by part.
    noises : ndarray of shape (K, 1), or (K, n) for each row its own
        Noise variances.
    """

    weights: np.ndarray
    means: np.ndarray
    variances: np.ndarray
    noises: np.ndarray

    @classmethod
    def of(
        cls,
        means: np.ndarray,
        variances: np.ndarray,
        noises: np.ndarray,
        weights: np.ndarray,
        scaling: Standardizer,
    ) -> MixedPredictive:
        """Return the mixture of parts in standardised units; ``noises`` has one value for each."""
        moments = mixture_moments(means, variances, weights)
        likelihood = Gaussian(float(weights @ noises))
        return cls(likelihood, *moments, scaling, weights, means, variances, noises[:, None])

    @property
    def gaussian(self) -> bool:
        """Return False."""
        return False

    @property
    def parts(self) -> list[Predictive]:
        """The normal distributions, in the order of their weights."""
        least = self.noises.min(axis=1)
        # what rows have beyond the least noise counts as the function's, as in `Predictive.with_noise_of`
        variances = self.variances + self.noises - least[:, None]
        return [
            Predictive(Gaussian(float(noise)), mean, variance, self.scaling)
            for noise, mean, variance in zip(least, self.means, variances, strict=True)
        ]

    @property
    def _stds(self) -> np.ndarray:
        return np.sqrt(self.variances + self.noises)

    def with_noise_of(self, y: np.ndarray) -> MixedPredictive:
        target = self.scaling.transform_y(y)
        each = [observations.noise_variances(target, float(noise)) for noise in self.noises[:, 0]]
        found = super().with_noise_of(y)
        assert isinstance(found, MixedPredictive)
        return replace(found, noises=np.stack(each))

    def of_rows(self, rows: np.ndarray) -> MixedPredictive:
        found = super().of_rows(rows)
        assert isinstance(found, MixedPredictive)
        noises = self.noises if self.noises.shape[1] == 1 else self.noises[:, rows]
        return replace(
            found, means=self.means[:, rows], variances=self.variances[:, rows], noises=noises
        )

    def _scores(self, target: np.ndarray, rows: Any = slice(None)) -> np.ndarray:
        """Return normal scores by each part of standardised values at some rows, (K, m)."""
        return (target - self.means[:, rows]) / self._stds[:, rows]

    def log_density(self, y: np.ndarray) -> np.ndarray:
        scores = self._scores(self.scaling.transform_y(y))
        logs = -0.5 * (scores**2 + np.log(2.0 * np.pi)) - np.log(self._stds)
        found = log_sum(logs, self.weights[:, None])
        return np.asarray(found - np.log(self.scaling.y_scale))

    def quantiles(self, probabilities: Any) -> np.ndarray:
        """Return what observations are below with given probabilities, (k,) or (k, n) for each row its own: (k, n)."""
        of_parts = self.means[:, None] + self._stds[:, None] * ndtri(by_row(probabilities))
        unit = self._stds.min(axis=0)
        found = mixed_quantiles(of_parts, probabilities, self.weights, unit, self._scores)
        return self.scaling.inverse_mean(found)

    def normal_scores(self, y: np.ndarray, seed: int = 0) -> np.ndarray:
        """Return targets as standard normal variables, which they are if the distributions are right, (n,)."""
        return mixed_scores(self._scores(self.scaling.transform_y(y)), self.weights)
