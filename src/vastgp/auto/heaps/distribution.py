"""Distributions that have mass at heaps and a density elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtr, ndtri

from vastgp.auto.calibration import Calibration
from vastgp.auto.distribution import FARTHEST, Distribution, between
from vastgp.auto.stacking.mixture import mixed_moments

# Of a probability: what a classifier calls impossible costs 28 nats where it happens, as of classes.
_LEAST = 1e-12
# Levels of the rest keep as far from 0 and 1 as they can.
_LEAST_LEVEL = 1e-16
_LESS = 1.0 - 1e-9


@dataclass(frozen=True)
class HeapedDistribution:
    """The distribution of a new observation at each of n rows: mass at heaps, a density elsewhere.

    Attributes
    ----------
    rest : Distribution
        Of observations that are at no heap, calibrated.
    values : ndarray of shape (K,)
        Of the heaps.
    probabilities : ndarray of shape (n, K + 1)
        Of each heap, and last of none.
    intervals : Calibration, optional
        Of the levels of quantiles, where these are conformal: of the masses and the density it says nothing.
    """

    rest: Distribution
    values: np.ndarray
    probabilities: np.ndarray
    intervals: Calibration | None = None
    gaussian: ClassVar[bool] = False

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        return heaped_moments(self.values, self.probabilities, self.rest.mean, self.rest.std)

    @property
    def mean(self) -> np.ndarray:
        """Means, (n,): of heaps and rest together."""
        return self._moments[0]

    @property
    def std(self) -> np.ndarray:
        """Standard deviations, (n,), of heaps and rest together."""
        return self._moments[1]

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """Return at heaps the logarithms of their masses, elsewhere those of the densities, (n,), in nats."""
        y = np.asarray(y, np.float64)
        return heaped_log_density(self.values, self.probabilities, y, self.rest.log_density(y))

    def normal_scores(self, y: np.ndarray, seed: int = 0) -> np.ndarray:
        """Return targets as standard normal variables, which they are if the distributions are right, (n,).

        At a heap the distribution function jumps, and each row takes a place in the jump at random, as counts do.
        """
        y = np.asarray(y, np.float64)
        scores = self.rest.normal_scores(y, seed)
        return heaped_scores(self.values, self.probabilities, y, scores, seed)

    def quantiles(self, probabilities: Any) -> np.ndarray:
        """Return the least value that observations are at or below with given probabilities, (k, n).

        Where a level falls into the mass of a heap, the quantile is exactly the heap.
        """
        if self.intervals is None:
            return self._quantiles(np.asarray(probabilities, np.float64))
        levels = np.asarray(self.intervals.levels(probabilities))
        # a hair outwards: where a heap is as likely in all rows, the level is the very edge of its jump
        levels = np.where(levels < 0.5, levels * _LESS, levels)
        levels = np.where(levels > 0.5, 1.0 - (1.0 - levels) * _LESS, levels)
        ends = np.where(levels <= 0.0, -np.inf, np.inf)[:, None]
        inside = ((levels > 0.0) & (levels < 1.0))[:, None]
        return np.where(inside, self._quantiles(np.where(inside[:, 0], levels, 0.5)), ends)

    def _quantiles(self, probabilities: np.ndarray) -> np.ndarray:
        n, none = len(self.probabilities), self.probabilities[:, -1]
        levels = np.broadcast_to(probabilities[:, None], (len(probabilities), n))
        passed, low = np.zeros(levels.shape), np.full(levels.shape, -np.inf)
        high, at_heap = np.full(levels.shape, np.inf), np.zeros(levels.shape, bool)
        before = np.zeros(n)
        for k in np.argsort(self.values):
            value, mass = self.values[k], self.probabilities[:, k]
            # F(h-) = sum of the masses below + p_0 F_0(h),  F(h) = F(h-) + p_h
            reached = before + none * ndtr(self.rest.normal_scores(np.full(n, value)))
            beyond, below = levels > reached + mass, levels <= reached
            passed += np.where(beyond, mass, 0.0)
            low[beyond] = value
            high = np.where(below | ~beyond, np.minimum(high, value), high)
            here = ~beyond & ~below
            low[here], at_heap = value, at_heap | here
            before = before + mass
        # between heaps F(y) = passed masses + p_0 F_0(y), so that the level of the rest is
        with np.errstate(divide="ignore", invalid="ignore"):
            own = np.clip((levels - passed) / none, _LEAST_LEVEL, 1.0 - _LEAST_LEVEL)
        own = np.where(at_heap | ~np.isfinite(own), 0.5, own)
        return np.clip(self.rest.quantiles(own), low, high)


def interval_log_score(found: Any, y: np.ndarray, width: float) -> np.ndarray:
    """Return log probabilities of the intervals that targets were rounded to, (n,), in nats.

    ``log P(|Y - y| <= w/2) = log (F(y + w/2) - F(y - w/2))`` is a proper score of the rounded target by any
    distribution, with mass or without. Where the density is even over the interval it is ``log p(y) + log w``, and at a
    heap the log mass, as long as the density adds little to it.

    Parameters
    ----------
    found : object
        With ``normal_scores(y)`` of a density, such as what `GPRegressor.distribution` returns where targets are no
        counts.
    y : ndarray of shape (n,)
    width : float
        To which targets were rounded, such as 1 of whole numbers.
    """
    return between(*(found.normal_scores(y + side * width / 2.0) for side in (-1.0, 1.0)))


# ---------------------------------------------------------------- of what the parts say of each row


def heaped_moments(
    values: np.ndarray, probabilities: np.ndarray, mean: np.ndarray, std: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation of heaps and rest together, (n,) each, of those of the rest."""
    heaps = np.broadcast_to(values[:, None], (len(values), len(mean)))
    # a mixture, of which a heap is a part without deviation
    return mixed_moments(
        np.vstack([heaps, mean]), np.vstack([np.zeros(heaps.shape), std]), probabilities.T
    )


def heaped_log_density(
    values: np.ndarray, probabilities: np.ndarray, y: np.ndarray, log_density: np.ndarray
) -> np.ndarray:
    """Return log masses at heaps and log densities elsewhere, (n,), of the log densities of the rest."""
    at = y[:, None] == values
    mass = np.sum(probabilities[:, :-1] * at, axis=1)
    heaped = at.any(axis=1)
    part = np.log(np.maximum(np.where(heaped, mass, probabilities[:, -1]), _LEAST))
    # log p = log p_{part of y} + [at no heap] log f(y)
    return part + np.where(heaped, 0.0, log_density)


def heaped_scores(
    values: np.ndarray, probabilities: np.ndarray, y: np.ndarray, scores: np.ndarray, seed: int = 0
) -> np.ndarray:
    """Return randomised normal scores by the whole, (n,), of those by the rest."""
    below, above, mass = _beside(values, probabilities, y, scores)
    place = np.random.default_rng(seed).uniform(size=len(mass))
    # a row at a heap takes the place P(Y < y) + U P(Y = y)
    return _score_at(below + place * mass, above + (1.0 - place) * mass)


def nearest_scores(
    values: np.ndarray, probabilities: np.ndarray, y: np.ndarray, scores: np.ndarray
) -> np.ndarray:
    """Return of the normal scores that a row may take the one nearest to zero, (n,).

    Its size is that of the least central interval, ends included, that holds the row: the interval from the level
    ``Phi(-r)`` to ``Phi(r)`` holds what has ``P(Y < y) <= Phi(r)`` and ``P(Y <= y) >= Phi(-r)``. That is what conformal
    intervals rank (distributional conformal prediction, Chernozhukov et al. 2021), of targets with mass as of others.
    """
    below, above, mass = _beside(values, probabilities, y, scores)
    return np.clip(0.0, _score_at(below, above + mass), _score_at(below + mass, above))


def _beside(
    values: np.ndarray, probabilities: np.ndarray, y: np.ndarray, scores: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return P(Y < y), P(Y > y) and P(Y = y), (n,) each."""
    at, none = probabilities[:, :-1], probabilities[:, -1]
    y = y[:, None]
    below = np.sum(at * (values < y), axis=1) + none * ndtr(scores)
    above = np.sum(at * (values > y), axis=1) + none * ndtr(-scores)
    return below, above, np.sum(at * (values == y), axis=1)


def _score_at(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the normal scores of places with probabilities below and above them."""
    # by the smaller of both, or scores beyond 8 would be one
    found = np.where(low < high, ndtri(np.minimum(low, 1.0)), -ndtri(np.minimum(high, 1.0)))
    return np.clip(found, -FARTHEST, FARTHEST)
