"""Increasing maps of normal scores: none, a scale, and a smooth map through the empirical distribution."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import log_ndtr, ndtr, ndtri

from vastgp.auto.monotone import MonotoneSpline, through

_LEAST = 1e-300  # of a level: quantiles there are finite
_MOST = 1.0 - 2.0**-53  # the number before one

# Held-out rows that are imagined beside the real ones, with the deviation that the model states. The factor then has a
# prior spread of 1 / sqrt(2 x 10) = 22 %, which is about how far stated deviations of fitted models are off; ten real
# rows count as much as it, and five hundred leave 2 % of it.
PSEUDO_ROWS = 10.0
# Rows of the fit that are not held out tell of deviations, too: that many more are imagined, at most, where they are to
# be narrowed. Of 380 rows with outliers the 100 that were held out had none, and said that six tenths of what all rows
# had taught were enough (NLPD of new rows -0.9, as stated -1.8). Of two thousand held out this is a tenth.
_MOST_OTHERS = 200.0
# Of these as many beyond each end knot of the empirical map, for the slope of the tail.
_PSEUDO_TAIL = 5.0
_LEAST_KNOTS, _MOST_KNOTS = 3, 19
_NODES = 33  # of the quadrature of squares


class Calibration(ABC):
    """An increasing map of levels; see the module. The classes are frozen and hold plain numbers."""

    name: ClassVar[str]

    @abstractmethod
    def scores(self, z: Any) -> Any:
        """Return the calibrated normal scores ``t(z)`` of the model's own, any shape."""

    @abstractmethod
    def base_scores(self, z: Any) -> Any:
        """Return the model's own normal scores of calibrated ones: ``t^-1(z)``.

        Of a normal prediction the quantile of level p is ``mean + std * base_scores(Phi^-1(p))``, at any level.
        """

    @abstractmethod
    def log_slope(self, z: Any) -> Any:
        """Return ``log t'(z)``."""

    @abstractmethod
    def to_state(self) -> dict[str, Any]:
        """Return plain numbers for JSON, from which `calibration_from_state` makes an equal object."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Calibration) and self.to_state() == other.to_state()

    def __hash__(self) -> int:
        return hash(str(self.to_state()))

    def levels(self, p: Any) -> Any:
        """Return at which level of the model's own distribution the calibrated one has probability p.

        Parameters
        ----------
        p : array-like
            Probabilities from 0 to 1.

        Returns
        -------
        ndarray
            Of the shape of `p`. Exactly 0 or 1 stand for an infinite quantile; other levels are kept off them.
        """
        p = np.asarray(p, dtype=np.float64)
        if not np.all((p >= 0.0) & (p <= 1.0)):
            raise ValueError(f"p: expected probabilities from 0 to 1, got {p}; 95 % is 0.95")
        base = self.base_scores(ndtri(p))
        return np.where(np.isfinite(base), np.clip(ndtr(base), _LEAST, _MOST), base > 0.0)

    def pit(self, u: Any) -> Any:
        """Return the calibrated PIT values of the model's own ones, uniform if the calibration is right."""
        return ndtr(self.scores(normal_scores(u)))

    def log_density_change(self, z: Any) -> Any:
        """Return what is added to the model's log density at a target with normal score z, in nats."""
        z = np.asarray(z, dtype=np.float64)
        # F_cal = Phi(t(z)) with z = Phi^-1(F), so that f_cal = f phi(t(z)) t'(z) / phi(z)
        t = self.scores(z)
        return 0.5 * (z - t) * (z + t) + self.log_slope(z)

    @property
    def std_factor(self) -> float:
        """The calibrated deviation, around the model's mean, over the model's own.

        ``E[t^-1(z)^2]^(1/2)`` for a standard normal z, by quadrature: tails count, or a mean and two deviations would
        hold less than they promise. Where some levels are infinite, half of what lies between t^-1(-1) and t^-1(1).
        """
        low, high = self.base_scores(np.array([-1.0, 1.0]))
        middle = float(0.5 * (high - low))
        nodes, weights = hermegauss(_NODES)
        values = self.base_scores(nodes)
        if not np.all(np.isfinite(values)):
            return middle
        return float(np.sqrt(weights @ values**2 / weights.sum()))


@dataclass(frozen=True, eq=False)
class Identity(Calibration):
    """The model's own distribution."""

    name: ClassVar[str] = "none"

    def scores(self, z: Any) -> Any:
        """Return the scores themselves."""
        return np.asarray(z, dtype=np.float64)

    base_scores = scores

    def log_slope(self, z: Any) -> Any:
        """Return zeros."""
        return np.zeros(np.shape(z))

    def to_state(self) -> dict[str, Any]:
        """Return the name."""
        return {"name": self.name}


@dataclass(frozen=True, eq=False)
class Scale(Calibration):
    """Deviations times one factor: ``g(p) = Phi(s Phi^-1(p))``.

    Attributes
    ----------
    factor : float
        s, above 1 where the model states too little.
    """

    factor: float
    name: ClassVar[str] = "scale"

    @classmethod
    def fit(cls, z: np.ndarray, share: np.ndarray | None = None, others: int = 0) -> Scale:
        """Return the scale of largest held-out density, with `PSEUDO_ROWS` rows of factor 1 beside the real ones.

        Parameters
        ----------
        z : ndarray of shape (n,)
        share : ndarray of shape (n,), optional
            As how many rows each counts; None: one each.
        others : int, default 0
            How many rows were not held out.
        """
        share = np.ones(len(z)) if share is None else share
        # sum_i log N(z_i; 0, s^2) is largest at s^2 = mean z^2
        total, count = np.sum(share * z**2), np.sum(share)
        imagined = imagined_rows(total < count, others)
        return cls(float(np.sqrt((total + imagined) / (count + imagined))))

    def scores(self, z: Any) -> Any:
        """Return ``z / s``."""
        return np.asarray(z, dtype=np.float64) / self.factor

    def base_scores(self, z: Any) -> Any:
        """Return ``s z``."""
        return np.asarray(z, dtype=np.float64) * self.factor

    def log_slope(self, z: Any) -> Any:
        """Return ``-log s``."""
        return np.full(np.shape(z), -np.log(self.factor))

    def to_state(self) -> dict[str, Any]:
        """Return the factor."""
        return {"name": self.name, "factor": self.factor}


@dataclass(frozen=True, eq=False)
class Isotonic(Calibration):
    """The empirical distribution of the held-out PIT values, smoothed, in normal scores (Kuleshov et al. 2018).

    The map goes through about ``n^(1/3)`` (3 to 19) sample quantiles of the normal scores and is straight beyond them,
    so that no level ends at the largest score seen; the slopes of these tails have the largest density of the rows
    there.

    Attributes
    ----------
    spline : MonotoneSpline
        t.
    """

    spline: MonotoneSpline
    name: ClassVar[str] = "isotonic"

    @classmethod
    def fit(cls, z: np.ndarray, share: np.ndarray | None = None, others: int = 0) -> Isotonic:
        """Return the map of n scores, drawn towards a mere scale by `PSEUDO_ROWS` rows of it.

        Arguments as for `Scale.fit`.
        """
        scale, order = Scale.fit(z, share, others).factor, np.argsort(z, kind="stable")
        ordered, own = z[order], None if share is None else share[order]
        reached = np.arange(len(z) + 1.0)
        if own is not None:
            reached = np.append(0.0, np.cumsum(own))
        n = reached[-1]
        count = int(np.clip(round(n ** (1.0 / 3.0)), _LEAST_KNOTS, _MOST_KNOTS))
        at = np.arange(1, count + 1) / (count + 1.0)
        if own is None:
            knots = np.unique(np.quantile(ordered, at))
        else:
            knots = np.unique(np.quantile(ordered, at, weights=own, method="inverted_cdf"))
        # halves of ties count as below, so that a sample and its mirror image have mirrored maps
        ends = (np.searchsorted(ordered, knots, side) for side in ("left", "right"))
        below = 0.5 * sum(reached[end] for end in ends)
        imagined = imagined_rows(scale < 1.0, others)
        reached = (below + imagined * ndtr(knots / scale)) / (n + imagined)
        # knots that rounding or ties put on one point would make a slope of 0 / 0
        apart = np.concatenate([[True], np.diff(knots) > 1e-6])
        knots, reached = knots[apart], reached[apart]
        if len(knots) < 2:  # all scores are one: nothing but their size can be learned
            knots = np.array([-1.0, 1.0])
            return cls(through(knots, knots / scale, 1.0 / scale, 1.0 / scale))
        t = ndtri(reached)
        first = _tail_slope(-ordered, -knots[0], -t[0], scale, own)
        last = _tail_slope(ordered, knots[-1], t[-1], scale, own)
        return cls(through(knots, t, first, last))

    def scores(self, z: Any) -> Any:
        """Return ``t(z)``."""
        return self.spline(z)

    def base_scores(self, z: Any) -> Any:
        """Return ``t^-1(z)``."""
        return self.spline.inverse(z)

    def log_slope(self, z: Any) -> Any:
        return np.log(self.spline.derivative(z))

    def to_state(self) -> dict[str, Any]:
        """Return the knots and slopes."""
        parts = {part: getattr(self.spline, part).tolist() for part in ("x", "y", "slope")}
        return {"name": self.name, **parts}


def imagined_rows(narrows: Any, others: int) -> float:
    """Return how many rows as the model states them are imagined beside the held-out ones."""
    return PSEUDO_ROWS + (min(float(others), _MOST_OTHERS) if narrows else 0.0)


def _tail_slope(
    z: np.ndarray, knot: float, t: float, scale: float, share: np.ndarray | None
) -> float:
    """The slope of the map beyond its last knot that gives the scores there the largest density."""
    beyond = z[z > knot] - knot
    count = np.ones(len(beyond)) if share is None else share[z > knot]
    # m rows at distances d add up to sum_i log phi(t + b d_i) + log b, largest where b^2 sum d^2 + b t sum d = m.
    # Under a slope of 1/scale the mean distance is scale (lam - t), the mean square scale^2 (1 - t lam + t^2), with
    # lam = phi(t) / Phi(-t): that many of the pseudo-rows are added.
    lam = float(np.exp(-0.5 * t**2 - log_ndtr(-t))) / np.sqrt(2.0 * np.pi)
    first = np.sum(count * beyond) + _PSEUDO_TAIL * scale * (lam - t)
    second = np.sum(count * beyond**2) + _PSEUDO_TAIL * scale**2 * (1.0 - t * lam + t**2)
    m = np.sum(count) + _PSEUDO_TAIL
    return float((-t * first + np.sqrt((t * first) ** 2 + 4.0 * m * second)) / (2.0 * second))


def normal_scores(u: Any) -> np.ndarray:
    """Return ``Phi^-1(u)``, with 0 and 1 as the numbers beside them."""
    u = np.asarray(u, dtype=np.float64)
    if not np.all((u >= 0.0) & (u <= 1.0)):
        raise ValueError(
            "u: expected PIT values from 0 to 1, the model's distribution function at each target; got "
            f"values from {np.min(u):.4g} to {np.max(u):.4g}"
        )
    return ndtri(np.clip(u, _LEAST, _MOST))
