"""Mixtures of distributions of new observations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from vastgp.estimators.mixed_predictive import MixedPredictive, mixed_quantiles, mixed_scores
from vastgp.estimators.predictive import Predictive
from vastgp.linalg.log_sums import log_sum
from vastgp.solvers.averaged_posterior import mixture_moments


def mixed_moments(
    means: np.ndarray, stds: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation of a mixture, (n,) each, of those of its parts, (K, n); weights as in `Mixture`."""
    mean, variance = mixture_moments(means, stds**2, weights)
    return mean, np.sqrt(variance)


@dataclass(frozen=True)
class Mixture:
    """The distribution of a new observation at each of n rows: one of several, taken with given probabilities.

    It has what `Predictive` has.

    Attributes
    ----------
    parts : tuple of Predictive
    weights : ndarray of shape (K,), or (K, n) for each row its own
    """

    parts: Sequence[Predictive]
    weights: np.ndarray
    gaussian = False

    def with_noise_of(self, y: np.ndarray) -> Mixture:
        """Return the distributions of observations that have noise of their own."""
        return replace(self, parts=tuple(part.with_noise_of(y) for part in self.parts))

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        means = np.stack([part.mean for part in self.parts])
        return mixed_moments(means, np.stack([part.std for part in self.parts]), self.weights)

    @property
    def mean(self) -> np.ndarray:
        """Means, (n,)."""
        return self._moments[0]

    @property
    def std(self) -> np.ndarray:
        """Standard deviations, (n,); infinite where those of a part are."""
        return self._moments[1]

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """Return the logarithms of the densities at targets, (n,), in nats."""
        of_parts = np.stack([part.log_density(y) for part in self.parts])
        return log_sum(of_parts, self.weights.reshape(len(of_parts), -1))

    def normal_scores(self, y: np.ndarray, seed: int = 0) -> np.ndarray:
        """Return targets as standard normal variables, which they are if the distributions are right, (n,)."""
        return mixed_scores(np.stack([p.normal_scores(y, seed) for p in self.parts]), self.weights)

    def quantiles(self, probabilities: Any) -> np.ndarray:
        """Return what observations are below with given probabilities, (k,) or (k, n) for each row its own: (k, n)."""
        of_parts = np.stack([part.quantiles(probabilities) for part in self.parts])
        unit = np.median(np.concatenate([part.std for part in self.parts]))
        unit = unit if np.isfinite(unit) and unit > 0.0 else 1.0

        def reached(y: np.ndarray, rows: np.ndarray) -> np.ndarray:
            return np.stack([_scores_of_rows(part, y, rows) for part in self.parts])

        return mixed_quantiles(of_parts, probabilities, self.weights, unit, reached)


def mixture_parts(found: Predictive | Mixture) -> list[tuple[Predictive, np.ndarray]]:
    """Return the distributions that one is the average of, with their weights; of a plain one itself.

    None of them is an average: a part that is one is told by its own parts.
    """
    if not isinstance(found, Mixture | MixedPredictive):
        return [(found, np.ones(()))]
    return [
        (part, np.asarray(weight * inner))
        for one, weight in zip(found.parts, found.weights, strict=True)
        for part, inner in mixture_parts(one)
    ]


def _scores_of_rows(part: Predictive, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return normal scores of targets of some of the rows."""
    if part.gaussian:
        return (y - part.mean[rows]) / part.std[rows]
    return part.of_rows(rows).normal_scores(y)
