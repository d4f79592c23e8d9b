"""Calibration of predictive distributions on held-out rows: an increasing map of probability levels.

A model says that a new target lies below some value with probability ``u``, and on held-out rows these probabilities
``u_i = F_i(y_i)`` (PIT values) should be uniform. Where they are not, they say what is wrong: to be right with
probability ``p``, ask the model at the level ``g(p)``. Everything here works on normal scores ``z = Phi^-1(u)``, on
which a calibration is an increasing map ``t`` of the line with ``t(z_i)`` standard normal:
``g(p) = Phi(t^-1(Phi^-1(p)))``.

For discrete targets the PIT values are the randomised ones, see
`vastgp.estimators.predictive.Predictive.normal_scores`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
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
# Of these as many beyond each end knot of the empirical map, for the slope of the tail.
_PSEUDO_TAIL = 5.0
_LEAST_KNOTS, _MOST_KNOTS = 3, 19
_FOLDS = 10
_NODES = 33  # of the quadrature of squares
_FEWEST = 20  # held-out rows, from which on a calibration is chosen by their scores
METHODS = ("scale", "isotonic", "conformal")


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

    @classmethod
    def from_state(cls, state: Any) -> Calibration:
        """Return the calibration that `to_state` described."""
        return calibration_from_state(state)

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
    def fit(cls, z: np.ndarray) -> Scale:
        """Return the scale of largest held-out density, with `PSEUDO_ROWS` rows of factor 1 beside the real ones."""
        # sum_i log N(z_i; 0, s^2) is largest at s^2 = mean z^2
        squares = (np.sum(z**2) + PSEUDO_ROWS) / (len(z) + PSEUDO_ROWS)
        return cls(float(np.sqrt(squares)))

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
    def fit(cls, z: np.ndarray) -> Isotonic:
        """Return the map of n scores, drawn towards a mere scale by `PSEUDO_ROWS` rows of it."""
        n, scale = len(z), Scale.fit(z).factor
        ordered = np.sort(z)
        count = int(np.clip(round(n ** (1.0 / 3.0)), _LEAST_KNOTS, _MOST_KNOTS))
        knots = np.unique(np.quantile(ordered, np.arange(1, count + 1) / (count + 1.0)))
        # halves of ties count as below, so that a sample and its mirror image have mirrored maps
        below = 0.5 * (np.searchsorted(ordered, knots) + np.searchsorted(ordered, knots, "right"))
        reached = (below + PSEUDO_ROWS * ndtr(knots / scale)) / (n + PSEUDO_ROWS)
        # knots that rounding or ties put on one point would make a slope of 0 / 0
        apart = np.concatenate([[True], np.diff(knots) > 1e-6])
        knots, reached = knots[apart], reached[apart]
        if len(knots) < 2:  # all scores are one: nothing but their size can be learned
            knots = np.array([-1.0, 1.0])
            return cls(through(knots, knots / scale, 1.0 / scale, 1.0 / scale))
        t = ndtri(reached)
        first = _tail_slope(-ordered, -knots[0], -t[0], scale)
        last = _tail_slope(ordered, knots[-1], t[-1], scale)
        return cls(through(knots, t, first, last))

    def scores(self, z: Any) -> Any:
        """Return ``t(z)``."""
        return self.spline(z)

    def base_scores(self, z: Any) -> Any:
        """Return ``t^-1(z)``."""
        return self.spline.inverse(z)

    def log_slope(self, z: Any) -> Any:
        """Return ``log t'(z)``."""
        return np.log(self.spline.derivative(z))

    def to_state(self) -> dict[str, Any]:
        """Return the knots and slopes."""
        parts = {part: getattr(self.spline, part).tolist() for part in ("x", "y", "slope")}
        return {"name": self.name, **parts}


def _tail_slope(z: np.ndarray, knot: float, t: float, scale: float) -> float:
    """The slope of the map beyond its last knot that gives the scores there the largest density."""
    beyond = z[z > knot] - knot
    # m rows at distances d add up to sum_i log phi(t + b d_i) + log b, largest where b^2 sum d^2 + b t sum d = m.
    # Under a slope of 1/scale the mean distance is scale (lam - t), the mean square scale^2 (1 - t lam + t^2), with
    # lam = phi(t) / Phi(-t): that many of the pseudo-rows are added.
    lam = float(np.exp(-0.5 * t**2 - log_ndtr(-t))) / np.sqrt(2.0 * np.pi)
    first = np.sum(beyond) + _PSEUDO_TAIL * scale * (lam - t)
    second = np.sum(beyond**2) + _PSEUDO_TAIL * scale**2 * (1.0 - t * lam + t**2)
    m = len(beyond) + _PSEUDO_TAIL
    return float((-t * first + np.sqrt((t * first) ** 2 + 4.0 * m * second)) / (2.0 * second))


@dataclass(frozen=True, eq=False)
class Conformal(Calibration):
    """Split-conformal central intervals from normalised scores (Vovk et al. 2005; Lei et al. 2018, section 5.2).

    The interval of level c has the radius of the ``ceil((n + 1) c)``-th smallest ``|z|`` of n held-out rows. If these
    rows and the new one are exchangeable, it holds the new target with a probability of at least c, whatever the model
    and the distribution (and of at most ``c + 1 / (n + 1)`` without ties). The probability is over the held-out rows
    as well as the new one, and over all new rows alike: it is no promise for each kind of row. Levels above ``n / (n +
    1)`` would need more rows: their intervals are infinite, and `levels` gives 0 and 1. Quantiles are the ends of
    these intervals.

    The intervals are steps and have no density. `scores` and the density are those of the smooth symmetrical map
    (`Isotonic` of the scores and their mirror images), of which the steps are the empirical version.

    Attributes
    ----------
    radii : ndarray of shape (n,)
        ``|z|``, sorted.
    """

    radii: np.ndarray
    smooth: Isotonic = field(init=False, repr=False, compare=False)
    name: ClassVar[str] = "conformal"

    def __post_init__(self) -> None:
        object.__setattr__(self, "smooth", Isotonic.fit(np.concatenate([self.radii, -self.radii])))

    @classmethod
    def fit(cls, z: np.ndarray) -> Conformal:
        """Return the intervals of held-out scores."""
        return cls(np.sort(np.abs(z)))

    def scores(self, z: Any) -> Any:
        """Return those of the smooth map."""
        return self.smooth.scores(z)

    def log_slope(self, z: Any) -> Any:
        """Return that of the smooth map."""
        return self.smooth.log_slope(z)

    def base_scores(self, z: Any) -> Any:
        """Return the ends of the central intervals, infinite where there are too few rows."""
        z = np.asarray(z, dtype=np.float64)
        central = ndtr(np.abs(z)) - ndtr(-np.abs(z))
        # 20 x 0.95 is 19 and not the 20 that rounding of the level would make of it
        rank = np.ceil((len(self.radii) + 1) * central - 1e-9).astype(int)
        radius = np.concatenate([[0.0], self.radii, [np.inf]])[
            np.minimum(rank, len(self.radii) + 1)
        ]
        return np.where(z == 0.0, 0.0, np.where(z > 0.0, radius, -radius))

    def to_state(self) -> dict[str, Any]:
        """Return the radii."""
        return {"name": self.name, "radii": self.radii.tolist()}


def normal_scores(u: Any) -> np.ndarray:
    """Return ``Phi^-1(u)``, with 0 and 1 as the numbers beside them."""
    u = np.asarray(u, dtype=np.float64)
    if not np.all((u >= 0.0) & (u <= 1.0)):
        raise ValueError(
            "u: expected PIT values from 0 to 1, the model's distribution function at each target; got "
            f"values from {np.min(u):.4g} to {np.max(u):.4g}"
        )
    return ndtri(np.clip(u, _LEAST, _MOST))


def calibration_from_state(state: Any) -> Calibration:
    """Return the calibration that `Calibration.to_state` described."""
    name = state["name"]
    if name == Identity.name:
        return Identity()
    if name == Scale.name:
        return Scale(float(state["factor"]))
    if name == Conformal.name:
        return Conformal(np.asarray(state["radii"], dtype=np.float64))
    if name == Isotonic.name:
        parts = (np.asarray(state[part], dtype=np.float64) for part in ("x", "y", "slope"))
        return Isotonic(MonotoneSpline(*parts))
    raise ValueError(f"calibration: expected one of {('none', *METHODS)}, got {name!r}")


def fit_calibration(z: Any, method: Any = "auto", seed: Any = 0) -> Calibration:
    """Return the calibration of a model by the normal scores of held-out rows.

    Parameters
    ----------
    z : array-like of shape (n,)
        Standard normal if the model is right: those of PIT values (see `normal_scores`), or better the model's own,
        which tell values apart far beyond the last PIT value before one.
    method : {"auto", "scale", "isotonic", "conformal", None}, default "auto"
        "auto" compares none, "scale" and "isotonic" by the log density of held-out rows that they were not fitted to
        (ten folds), and takes the richer one only where it is better by more than one standard error of the paired
        difference; with fewer than 20 rows it is none. "conformal" is not among them: its intervals are exact in
        another sense, have no density, and are infinite at levels that few rows cannot tell.
    seed : int, default 0
        Of the folds.

    Returns
    -------
    Calibration
    """
    z = np.asarray(z, dtype=np.float64)
    if method not in ("auto", None, *METHODS):
        raise ValueError(
            f"calibrate: expected 'auto', 'scale', 'isotonic', 'conformal' or None, got {method!r}"
        )
    if not np.all(np.isfinite(z)):
        raise ValueError(
            f"z: expected finite normal scores, got {np.sum(~np.isfinite(z))} that are not"
        )
    if method is None or len(z) == 0:
        return Identity()
    kinds: dict[str, Any] = {"scale": Scale, "isotonic": Isotonic, "conformal": Conformal}
    if method != "auto":
        return kinds[method].fit(z)
    best: Calibration = Identity()
    if len(z) < _FEWEST:
        return best
    score = np.zeros(len(z))
    for name in ("scale", "isotonic"):
        gain = _left_out_gain(kinds[name], z, seed)
        if exceeds(gain - score):
            best, score = kinds[name].fit(z), gain
    return best


def exceeds(differences: np.ndarray) -> bool:
    """Whether paired differences are above zero in the mean by more than one standard error."""
    return bool(np.mean(differences) > np.std(differences, ddof=1) / np.sqrt(len(differences)))


def folds(n: int, seed: int) -> np.ndarray:
    """Return the number of the fold of each row."""
    return np.random.default_rng(seed).permutation(n) % _FOLDS


def _left_out_gain(kind: Any, z: np.ndarray, seed: int) -> np.ndarray:
    """The log density that each row gains by a calibration fitted to the other folds."""
    part, gain = folds(len(z), seed), np.empty(len(z))
    for k in range(_FOLDS):
        gain[part == k] = kind.fit(z[part != k]).log_density_change(z[part == k])
    return gain
