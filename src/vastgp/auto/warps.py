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
# Targets are rounded to a unit that matters where the least has so many of them at most, and all have whole numbers.
_FEW_UNITS, _MOST_UNITS = 20.0, 1e6
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
    """``t = log(y + shift)`` of a positive target: its errors are shares of it.

    Attributes
    ----------
    shift : float
        Half of the unit that targets are rounded to, where the least of them are a few units: a new one may be rounded
        to zero, of which a logarithm says that it cannot be. What is below zero is zero.
    """

    shift: float = 0.0
    name: ClassVar[str] = "log"

    def forward(self, y: Any) -> Any:
        y = np.asarray(y, np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(y + self.shift)

    def back(self, t: Any) -> Any:
        with np.errstate(over="ignore"):
            return np.maximum(np.exp(np.asarray(t, np.float64)) - self.shift, 0.0)

    def log_slope(self, y: Any) -> Any:
        return -self.forward(y)

    def to_state(self) -> dict[str, Any]:
        return {"name": self.name, "shift": self.shift}


@dataclass(frozen=True)
class YeoJohnson(Own):
    """The power transformation of Yeo and Johnson (2000) of ``y / unit``: of both signs.

    Attributes
    ----------
    power : float
        1 leaves the target as it is.
    unit : float
        Of the target: its deviation, so that numbers are neither tiny nor huge.
    farthest : float, optional
        The farthest target on the side where the scale's power is above 1, beyond which it goes on as a line. There
        ``t`` grows as ``|y|^1.7``, say, and a normal density of it falls as ``exp(-|y|^3.4)``, which no data beyond the
        farthest have spoken for: of 40 heavy-tailed rows new ones had an NLPD of 26, on the target's own scale 2.2.
    one_sided : bool
        Whether all targets are on that side of zero. On the other side the power is 2 less the power, which is that of
        a logarithm for 2: 20,000 rows of how far one can see, ten miles mostly, had intervals from -1e22 on. There it
        goes on as a line from zero, too.
    """

    power: float
    unit: float
    farthest: float | None = None
    one_sided: bool = False
    name: ClassVar[str] = "yeo-johnson"

    def forward(self, y: Any) -> Any:
        u = np.asarray(y, np.float64) / self.unit
        known = np.clip(u, *self._ends)
        with np.errstate(invalid="ignore"):
            return self._of(known) + (u - known) * np.exp(self._log_slope(known))

    def back(self, t: Any) -> Any:
        t = np.asarray(t, np.float64)
        low, high = self._ends
        known = np.clip(t, self._of(low), self._of(high))
        size, power = self._parts(known)
        # beyond the end of a scale that has one lies nothing: its values are that end's
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            inside = np.where(power * size > -1.0 + 1e-12, size, (-1.0 + 1e-12) / power)
            u = np.sign(known) * (inv_boxcox(inside, power) - 1.0)
            return (u + (t - known) / np.exp(self._log_slope(u))) * self.unit

    def log_slope(self, y: Any) -> Any:
        u = np.asarray(y, np.float64) / self.unit
        return self._log_slope(np.clip(u, *self._ends)) - np.log(self.unit)

    @property
    def _ends(self) -> tuple[float, float]:
        """Between what the scale is one of powers, in units."""
        if self.farthest is None:
            return -np.inf, np.inf
        end, none = self.farthest / self.unit, self.one_sided
        if self.power > 1.0:
            return (0.0 if none else -np.inf), end
        return end, (0.0 if none else np.inf)

    def _of(self, u: Any) -> Any:
        # ((u + 1)^p - 1) / p above zero, -((1 - u)^(2 - p) - 1) / (2 - p) below: Box and Cox's of 1 + |u|
        size, power = self._parts(u)
        return np.sign(u) * boxcox(1.0 + size, power)

    def _log_slope(self, u: Any) -> Any:
        size, power = self._parts(u)
        return (power - 1.0) * np.log1p(size)

    def _parts(self, values: Any) -> tuple[Any, Any]:
        return np.abs(values), np.where(values >= 0.0, self.power, 2.0 - self.power)

    def to_state(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "power": self.power,
            "unit": self.unit,
            "farthest": self.farthest,
            "one_sided": self.one_sided,
        }


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
        return [_log_of(y), Own()]
    skewness = float(skew(y / spread))  # in the target's unit its cube may overflow
    if abs(skewness) < _SKEWED:
        return [Own()]
    if np.min(y) > 0.0 and skewness > 0.0:
        return [Own(), _log_of(y)]
    power = float(np.clip(yeojohnson_normmax(y / spread), *_POWERS))
    # of targets all on the other side the scale begins to go on as a line at zero
    farthest = max(float(np.max(y)), 0.0) if power > 1.0 else min(float(np.min(y)), 0.0)
    one_sided = bool(np.min(y) >= 0.0 if power > 1.0 else np.max(y) <= 0.0)
    found = YeoJohnson(power, spread, farthest, one_sided)
    assert np.allclose(found.forward(y[:5]), yeojohnson(y[:5] / spread, found.power))
    return [Own(), found]


def _log_of(y: np.ndarray) -> Log:
    """Return the logarithmic scale of positive targets."""
    values = np.unique(y)
    unit = float(np.min(np.diff(values)))
    units = values / unit
    rounded = units[0] <= _FEW_UNITS and units[-1] < _MOST_UNITS
    if rounded and np.allclose(units, np.rint(units), rtol=0.0, atol=1e-3):
        return Log(0.5 * unit)
    return Log()


def warp_from_state(state: Any) -> Own:
    """Return the scale that `Own.to_state` described."""
    kinds: dict[str, type[Own]] = {kind.name: kind for kind in (Own, Log, YeoJohnson)}
    values = dict(state)
    return kinds[values.pop("name")](**values)
