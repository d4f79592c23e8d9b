"""Distributions of new observations as the front door gives them: on the target's own scale, and calibrated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import ndtr, ndtri

from vastgp.auto.calibration import Calibration, Identity
from vastgp.auto.stacking.by_spread import finite_spread
from vastgp.auto.stacking.mixture import Mixture
from vastgp.auto.warps import Own
from vastgp.estimators.predictive import Predictive

# Levels that mean and deviation are summed over where they have no closed form.
_NODES = 33
# Counts count as so much of their range beyond the largest. Of eleven tables that laws of counts describe best two have
# mostly zeros and some hundreds: RMSE of new rows 0.55 and 0.61 deviations so, 1.44 and 1.47 where rates of up to twice
# the largest count had a say, 1.01 and 0.60 by the mean of all. Of the others it is the same but for one (0.69, 0.64).
# Where the median has grown beyond all of them, so many deviations of the law.
_COUNTS_BEYOND, _LAW_BEYOND = 0.25, 4.0
# How far beyond the training targets a median counts on a scale that is not their own, and how far from its mean a
# quantile is, in the range of the targets there.
_FAR, _QUANTILE_FAR = 2.0, 5.0
# Of a probability of which a logarithm is taken.
_LEAST = 1e-12
# Of the intervals that a report draws.
SHOWN_LEVEL = 0.95
# A normal score beyond has no probability in 64 bits.
FARTHEST = 38.0


@dataclass(frozen=True)
class Distribution:
    """The distribution of a new observation at each of n rows, in units of the target.

    Attributes
    ----------
    model : Predictive or Mixture
        Of the model, on its scale.
    warp : Own
        That scale.
    calibration : Calibration
        Of the levels.
    seen : tuple of float
        Least and largest target of the training rows; infinite where moments are to know no end.
    whole : bool
        Whether observations are whole numbers from zero on though the model knows nothing of that: a number has the
        probability of the interval of one around it.
    """

    model: Predictive | Mixture
    warp: Own
    calibration: Calibration
    seen: tuple[float, float]
    whole: bool = False

    @cached_property
    def mean(self) -> np.ndarray:
        """Means, (n,)."""
        return self._moments[0] if self.is_bounded else self.model.mean

    @cached_property
    def std(self) -> np.ndarray:
        """Standard deviations of observations, (n,).

        Tails so heavy that there is none (Student's t of two degrees of freedom) have half the distance between the
        levels that lie one deviation to either side of a normal mean.
        """
        if self.is_bounded:
            return self._moments[1]
        return finite_spread(self.model.std * self.calibration.std_factor, self.quantiles)

    @property
    def is_bounded(self) -> bool:
        """Whether moments are those of quantiles, or of counts, that are not far beyond the training targets."""
        return type(self.warp) is not Own or self._counts_below is not None

    @property
    def _counts_below(self) -> Predictive | None:
        """The model where it has a law of counts, and training targets say how far these count."""
        law = isinstance(self.model, Predictive) and self.model.likelihood.counts
        return self.model if law and np.isfinite(self.seen[1]) else None  # type: ignore[return-value]

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation by Gauss-Hermite quadrature of the quantiles: ``E[y] = E[Q(Phi(z))]``, z normal.

        Quantiles count as no farther beyond the training targets than these are from each other: far from all rows the
        exponential of a wide normal variable has a mean of millions, of which its upper thousandth is the reason. What
        grows has its median beyond them: it counts as one of them. Of counts the same moments are sums.
        """
        counts = self._counts_below
        if counts is not None:
            mean, std = counts.moments_below(self._most(counts))
            return mean, std * self.calibration.std_factor
        nodes, weights = hermegauss(_NODES)
        near = np.abs(nodes) < 8.0
        nodes, weights = nodes[near], weights[near] / weights[near].sum()
        values = self._quantiles(ndtr(nodes))
        values = np.clip(values, *self._reach(values[len(nodes) // 2]))
        mean = weights @ values
        return mean, np.sqrt(weights @ (values - mean) ** 2)

    def _reach(self, median: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return how far below and above values count at each row, whose median is given, (n,) each.

        A median counts as no more than twice as far beyond them as these are from each other on the scale of the model:
        where an input is a hundred times what it ever was, a line on that of logarithms is at 1e55.
        """
        low, high = self.warp.forward(np.array(self.seen))
        beyond = _FAR * (high - low)
        if np.isfinite(beyond):
            median = np.clip(median, *self.warp.back(np.array([low - beyond, high + beyond])))
        low, high = np.minimum(self.seen[0], median), np.maximum(self.seen[1], median)
        return low - (high - low), high + (high - low)

    def _most(self, counts: Predictive) -> np.ndarray:
        """Return what counts count as at most: of a median beyond all that were seen, what the law has there."""
        low, high = self.seen
        certain = replace(counts, latent_variance=np.zeros_like(counts.latent_variance))
        middle = np.asarray(counts.likelihood.median(counts.latent_mean), np.float64)
        far = (certain.mean + _LAW_BEYOND * certain.std) / np.maximum(middle, 1.0)
        return high + _COUNTS_BEYOND * (high - low) + far * np.maximum(middle - high, 0.0)

    def quantiles(self, probabilities: Any) -> np.ndarray:
        """Return what observations are below with given probabilities, (k, n).

        Parameters
        ----------
        probabilities : array-like of shape (k,), or (k, n) for each row its own
        """
        found = self._quantiles(probabilities)
        # the least k with P(Y <= k) = F(k + 1/2) of at least the probability
        return np.maximum(np.ceil(found - 0.5), 0.0) if self.whole else found

    def _quantiles(self, probabilities: Any) -> np.ndarray:
        wanted = np.asarray(probabilities, np.float64)
        levels = np.asarray(self.calibration.levels(wanted))
        inside = (levels > 0.0) & (levels < 1.0)
        if wanted.ndim > 1:
            endless = np.where(levels <= 0.0, -np.inf, np.inf)
            wanted, levels = np.where(inside, wanted, 0.5), np.where(inside, levels, 0.5)
            return np.where(inside, self._back(self._of_model(wanted, levels)), endless)
        found = np.empty((len(levels), len(self.model.mean)))
        found[levels <= 0.0], found[levels >= 1.0] = -np.inf, np.inf
        if inside.any():
            found[inside] = self._back(self._of_model(wanted[inside], levels[inside]))
        return found

    def _back(self, t: np.ndarray) -> np.ndarray:
        """Return quantiles of the model's scale as targets, none farther from the mean there than all reason.

        Noise that varies may be e^100 at a new row: an interval of 1e84 inches (72 days, of rain on most of them none).
        """
        low, high = self.warp.forward(np.array(self.seen))
        far = _QUANTILE_FAR * (high - low)
        if type(self.warp) is not Own and np.isfinite(far):
            t = np.clip(t, self.model.mean - far, self.model.mean + far)
        return self.warp.back(t)

    def _of_model(self, probabilities: np.ndarray, levels: np.ndarray) -> np.ndarray:
        """Return the model's quantiles at levels; normal ones by scores, which go on where levels round to 0 and 1."""
        if not self.model.gaussian:
            return self.model.quantiles(levels)
        scores = np.asarray(self.calibration.base_scores(ndtri(probabilities)))
        scores = scores[:, None] if scores.ndim == 1 else scores
        return self.model.mean + self.model.std * scores

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """Return the logarithms of the densities at targets, of whole numbers of their probabilities, (n,), in nats."""
        if self.whole:
            # a density may be as high as one likes at a number that is repeated, a probability is not
            return between(self._normal_scores(y - 0.5), self._normal_scores(y + 0.5))
        t = self.warp.forward(y)
        inside = np.isfinite(t)  # the logarithm has no negative targets
        t = np.where(inside, t, 0.0)
        found = self.model.log_density(t) + self.warp.log_slope(y)
        if not isinstance(self.calibration, Identity):
            scores = self.model.normal_scores(t)
            found = found + self.calibration.log_density_change(scores)
        return np.where(inside, found, -np.inf)

    def normal_scores(self, y: np.ndarray, seed: int = 0) -> np.ndarray:
        """Return targets as standard normal variables, which they are if the distributions are right, (n,).

        A whole number has a place at random in its interval, as counts have by a law of their own.
        """
        if self.whole:
            y = y + np.random.default_rng(seed).uniform(-0.5, 0.5, len(y))
        return self._normal_scores(y, seed)

    def _normal_scores(self, y: np.ndarray, seed: int = 0) -> np.ndarray:
        t = self.warp.forward(y)
        inside = np.isfinite(t)
        found = self.calibration.scores(self.model.normal_scores(np.where(inside, t, 0.0), seed))
        return np.where(inside, found, -np.inf)


def between(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return log probabilities that a standard normal variable lies between two numbers, (n,), in nats."""
    # Phi(b) - Phi(a) = Phi(-a) - Phi(-b), by the side where both are small
    turned = low > 0.0
    low, high = np.where(turned, -high, low), np.where(turned, -low, high)
    return np.log(np.maximum(ndtr(high) - ndtr(low), _LEAST))


def interval_levels(level: float) -> np.ndarray:
    """Return the two probabilities that a central interval lies between."""
    return np.array([0.5 - 0.5 * level, 0.5 + 0.5 * level])
