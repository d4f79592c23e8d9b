"""Scales that a target is modelled on: its own, or one where a skewed target is nearer to normal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import boxcox, inv_boxcox
from scipy.stats import skew, yeojohnson, yeojohnson_normmax

from vastgp.data.minibatch import fixed_indices

# Targets are tried on another scale from this skewness on; the log only where all are positive.
_SKEWED = 0.7
_GROWN = 2.0
# Powers of a scale that reaches from minus to plus infinity. Below 0 it ends at t = -1 / p, above 2 at 1 / (2 - p):
# what a normal prediction has beyond such an end would be a quantile of millions of deviations.
_POWERS = (0.0, 2.0)
# Rows that the parameter of a scale is found on: it is one number.
_MOST_ROWS = 20_000
# The use of the seed for them, see `fixed_indices`.
_SOME = 240


@dataclass(frozen=True)
class Own:
    """The target as it is."""

    name: ClassVar[str] = "own"

    def forward(self, y: Any) -> Any:
        """Return targets on the scale of the model."""
        return np.asarray(y, np.float64)

    def back(self, t: Any) -> Any:
        """Return values of the model's scale as targets."""
        return np.asarray(t, np.float64)

    def log_slope(self, y: Any) -> Any:
        """Return ``log dt/dy``, which makes a density of the model's scale one of the target."""
        return np.zeros(np.shape(y))

    def to_state(self) -> dict[str, Any]:
        """Return plain data, from which `warp_from_state` makes an equal object."""
        return {"name": self.name}


@dataclass(frozen=True)
class Log(Own):
    """``t = log y`` of a positive target: its errors are shares of it."""

    name: ClassVar[str] = "log"

    def forward(self, y: Any) -> Any:
        y = np.asarray(y, np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(y)

    def back(self, t: Any) -> Any:
        with np.errstate(over="ignore"):
            return np.exp(np.asarray(t, np.float64))

    def log_slope(self, y: Any) -> Any:
        return -self.forward(y)


@dataclass(frozen=True)
class YeoJohnson(Own):
    """The power transformation of Yeo and Johnson (2000) of ``y / unit``: of both signs.

    Attributes
    ----------
    power : float
        1 leaves the target as it is.
    unit : float
        Of the target: its deviation, so that numbers are neither tiny nor huge.
    """

    power: float
    unit: float
    name: ClassVar[str] = "yeo-johnson"

    def forward(self, y: Any) -> Any:
        u = np.asarray(y, np.float64) / self.unit
        # ((u + 1)^p - 1) / p above zero, -((1 - u)^(2 - p) - 1) / (2 - p) below: Box and Cox's of 1 + |u|
        size, power = self._parts(u)
        return np.sign(u) * boxcox(1.0 + size, power)

    def back(self, t: Any) -> Any:
        t = np.asarray(t, np.float64)
        size, power = self._parts(t)
        # beyond the end of a scale that has one lies nothing: its values are that end's
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            inside = np.where(power * size > -1.0 + 1e-12, size, (-1.0 + 1e-12) / power)
            return np.sign(t) * (inv_boxcox(inside, power) - 1.0) * self.unit

    def log_slope(self, y: Any) -> Any:
        u = np.asarray(y, np.float64) / self.unit
        size, power = self._parts(u)
        return (power - 1.0) * np.log1p(size) - np.log(self.unit)

    def _parts(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.abs(values), np.where(values >= 0.0, self.power, 2.0 - self.power)

    def to_state(self) -> dict[str, Any]:
        return {"name": self.name, "power": self.power, "unit": self.unit}


def warps_to_try(y: np.ndarray, seed: int = 0, *, series: bool = False) -> list[Own]:
    """Return the scales that a target may be nearer to normal on; its own is the first.

    None but its own where it is not skewed, or holds so few values that no scale can help. Of a ``series`` the log is
    the first where the largest target is twice the smallest: what grows does so by shares of what there is, and few
    stretches of time seldom tell beyond doubt.
    """
    y = np.asarray(y, np.float64)
    if len(y) > _MOST_ROWS:
        y = y[fixed_indices(seed, _SOME, len(y), _MOST_ROWS)]
    spread = float(np.std(y))
    if spread <= 1e-9 * float(np.max(np.abs(y), initial=0.0)) or len(np.unique(y)) < 10:
        return [Own()]
    if series and np.max(y) > _GROWN * np.min(y) > 0.0:
        return [Log(), Own()]
    skewness = float(skew(y / spread))  # in the target's unit its cube may overflow
    if abs(skewness) < _SKEWED:
        return [Own()]
    if np.min(y) > 0.0 and skewness > 0.0:
        return [Own(), Log()]
    power = float(yeojohnson_normmax(y / spread))
    found = YeoJohnson(float(np.clip(power, *_POWERS)), spread)
    assert np.allclose(found.forward(y[:5]), yeojohnson(y[:5] / spread, found.power))
    return [Own(), found]


def warp_from_state(state: Any) -> Own:
    """Return the scale that `Own.to_state` described."""
    kinds: dict[str, type[Own]] = {kind.name: kind for kind in (Own, Log, YeoJohnson)}
    values = dict(state)
    return kinds[values.pop("name")](**values)
