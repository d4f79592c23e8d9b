"""When a climb by L-BFGS has converged: what its rules look at after every iteration."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from vastgp.fitting.history import History
from vastgp.fitting.newton_decrement import NewtonDecrement

# Iterations that have to gain little: a single one of a bound with plateaus may gain nothing a thousand iterations
# before the end.
_PATIENCE = 20
# Share of `tol` that these may gain where slopes are looked at too: in a flat valley either alone is short of the end.
# A slope of `tol` left 20 times that to gain of 200 rows of housing, and little gain 20 times of energy.
_OF_TOL = 0.01
_FLAT = "converged: a step changes nothing"
_UNFINISHED = "no step gains anything, though slopes or what they leave to gain exceed tol"


@runtime_checkable
class Rule(Protocol):
    """What ends a climb. Points and slopes are those of what is minimised, the negated objective over its scale."""

    def begins(self, point: np.ndarray, slope: np.ndarray) -> None:
        """Note where the climb begins."""

    def settled(self, point: np.ndarray, slope: np.ndarray, history: History) -> str | None:
        """Return why it has converged after an iteration that ended at a point, None while it has not."""

    def ended(self, flat: bool) -> tuple[bool, str]:
        """Return whether it has converged, and why, where a step changes nothing (``flat``) or none was found."""


class NearMaximum:
    """Slopes and the Newton decrement are below ``tol``; where no step gains anything, half its square is."""

    def __init__(self, bounds: np.ndarray, tol: float) -> None:
        self._decrement, self._tol = NewtonDecrement(bounds), tol

    def begins(self, point: np.ndarray, slope: np.ndarray) -> None:
        """Note where the climb begins."""
        self._decrement.note(point, slope)

    def settled(self, point: np.ndarray, slope: np.ndarray, history: History) -> str | None:
        """Return why it has converged, if so."""
        del history
        self._decrement.note(point, slope)
        if self._decrement.is_below(self._tol, self._tol):
            return "converged: slopes and the Newton decrement are below tol"
        return None

    def ended(self, flat: bool) -> tuple[bool, str]:
        """Return whether it has converged, and why."""
        del flat
        # half the square of the decrement is left to gain, and that is tol
        most = np.sqrt(2.0 * self._tol)
        if self._decrement.is_below(most, self._tol):
            return (
                True,
                "converged: slopes are below tol, and rounding hides what is left to gain",
            )
        return False, _UNFINISHED


class SmallGains:
    """Twenty iterations gained less than ``tol`` of ``max(|objective|, scale)`` each, and no more is left to gain.

    What is left is half the square of the Newton decrement. Where no step gains anything, that alone is asked.
    """

    def __init__(self, tol: float, scale: float) -> None:
        self._tol, self._scale = tol, scale
        self._decrement = NewtonDecrement(np.empty((0, 2)))

    def begins(self, point: np.ndarray, slope: np.ndarray) -> None:
        """Note where the climb begins."""
        self._decrement = NewtonDecrement(np.tile([-np.inf, np.inf], (len(point), 1)))
        self._decrement.note(point, slope)

    def settled(self, point: np.ndarray, slope: np.ndarray, history: History) -> str | None:
        """Return why it has converged, if so."""
        self._decrement.note(point, slope)
        relative = max(abs(history.objective[-1]) / self._scale, 1.0)
        gained = gain_of_last(history, _PATIENCE) / self._scale
        if gained < _PATIENCE * self._tol * relative and self._leaves_little(relative):
            return f"converged: {_PATIENCE} iterations gained less than tol, and no more is left"
        return None

    def ended(self, flat: bool) -> tuple[bool, str]:
        """Return whether it has converged, and why."""
        if flat:
            return True, _FLAT
        if self._leaves_little(1.0):
            return True, "converged: less than tol is left to gain, and rounding hides the rest"
        return False, _UNFINISHED

    def _leaves_little(self, relative: float) -> bool:
        return 0.5 * self._decrement.value() ** 2 <= self._tol * relative


class Level:
    """The slope's length is at most ``tol``, and the last iterations gained less than a hundredth of it.

    Of a long search these are a tenth of all: slow iterations tell what is left by as many as may follow.
    """

    def __init__(self, bounds: np.ndarray, tol: float, scale: float) -> None:
        self._bounds, self._tol, self._scale = bounds, tol, scale
        self._length = np.inf

    def begins(self, point: np.ndarray, slope: np.ndarray) -> None:
        """Note the slope."""
        self._length = free_length(point, slope, self._bounds)

    def settled(self, point: np.ndarray, slope: np.ndarray, history: History) -> str | None:
        """Return why it has converged, if so."""
        self.begins(point, slope)
        gained = gain_of_last(history, max(_PATIENCE, len(history) // 10))
        if self._length <= self._tol and gained < _OF_TOL * self._tol * self._scale:
            return "converged: the slope is shorter than tol, and the last iterations gained less than tol / 100"
        return None

    def ended(self, flat: bool) -> tuple[bool, str]:
        """Return whether it has converged, and why: where the slope is long it has not."""
        if flat and self._length <= self._tol:
            return True, _FLAT
        if self._length <= _OF_TOL * self._tol:
            return (
                True,
                "converged: the slope is shorter than tol / 100, and rounding hides the rest",
            )
        return False, _UNFINISHED


def gain_of_last(history: History, iterations: int) -> float:
    """Return what the last iterations gained, infinity of fewer."""
    if len(history) <= iterations:
        return np.inf
    return history.objective[-1] - history.objective[-1 - iterations]


def free_length(point: np.ndarray, slope: np.ndarray, bounds: np.ndarray) -> float:
    """Return the length of the slope of what is minimised, without what leads across a bound."""
    low, high = bounds.T
    across = ((point <= low) & (slope > 0.0)) | ((point >= high) & (slope < 0.0))
    return float(np.linalg.norm(slope[~across]))
