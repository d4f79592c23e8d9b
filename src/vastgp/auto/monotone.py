"""A smooth increasing function of the whole line through given points, with its inverse and slope in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class MonotoneSpline:
    """A monotone rational quadratic spline, straight beyond its end knots.

    Between two knots it is a quotient of quadratics (Gregory and Delbourgo 1982; Durkan et al. 2019, eqs. 4 to 8),
    which has a positive slope wherever the slopes at the knots are positive, and an inverse that solves a quadratic:
    no cubic between monotone data has both. Beyond the end knots the line goes on with the slope there.

    Attributes
    ----------
    x, y : ndarray of shape (k,)
        Knots, both strictly increasing, k >= 2.
    slope : ndarray of shape (k,)
        Derivatives at the knots, positive.
    """

    x: np.ndarray
    y: np.ndarray
    slope: np.ndarray

    def __call__(self, at: Any) -> np.ndarray:
        """Return the values at points of any shape."""
        shape, at = np.shape(at), np.ravel(at).astype(np.float64)
        found, k, inside = self._beyond(at, self.x, self.y, self.slope)
        x0, y0, h, w, s, d0, d1 = self._piece(k)
        # eq. (4): with t in [0, 1] along the piece, y0 + h (s t^2 + d0 t (1 - t)) / (s + (d1 + d0 - 2 s) t (1 - t))
        t = (at[inside] - x0) / w
        bend = t * (1.0 - t)
        found[inside] = y0 + h * (s * t**2 + d0 * bend) / (s + (d1 + d0 - 2.0 * s) * bend)
        return found.reshape(shape)

    def inverse(self, values: Any) -> np.ndarray:
        """Return the points at which the values are taken."""
        shape, values = np.shape(values), np.ravel(values).astype(np.float64)
        found, k, inside = self._beyond(values, self.y, self.x, 1.0 / self.slope)
        x0, y0, h, w, s, d0, d1 = self._piece(k)
        rise = values[inside] - y0
        curve = rise * (d1 + d0 - 2.0 * s)
        # eqs. (6) to (8): the root of a t^2 + b t + c = 0 that lies in [0, 1], in the form that does not cancel
        a, b, c = h * (s - d0) + curve, h * d0 - curve, -s * rise
        root = np.sqrt(np.maximum(b**2 - 4.0 * a * c, 0.0))
        found[inside] = x0 + w * (2.0 * c / (-b - root))
        return found.reshape(shape)

    def derivative(self, at: Any) -> np.ndarray:
        """Return the slopes at points."""
        shape, at = np.shape(at), np.ravel(at).astype(np.float64)
        found = np.where(at < self.x[0], self.slope[0], self.slope[-1])
        inside = (at >= self.x[0]) & (at <= self.x[-1])
        x0, _, _, w, s, d0, d1 = self._piece(self._number(at[inside], self.x))
        t = (at[inside] - x0) / w
        # eq. (5)
        bend = t * (1.0 - t)
        above = d1 * t**2 + 2.0 * s * bend + d0 * (1.0 - t) ** 2
        found[inside] = s**2 * above / (s + (d1 + d0 - 2.0 * s) * bend) ** 2
        return found.reshape(shape)

    def _beyond(
        self, at: np.ndarray, ends: np.ndarray, values: np.ndarray, slope: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values on the straight parts, the number of the piece of each other point, and which those are."""
        first = values[0] + slope[0] * (at - ends[0])
        last = values[-1] + slope[-1] * (at - ends[-1])
        inside = (at >= ends[0]) & (at <= ends[-1])
        return np.where(at < ends[0], first, last), self._number(at[inside], ends), inside

    def _number(self, at: np.ndarray, knots: np.ndarray) -> np.ndarray:
        return np.clip(np.searchsorted(knots, at, side="right") - 1, 0, len(knots) - 2)

    def _piece(self, k: np.ndarray) -> tuple[np.ndarray, ...]:
        w, h = self.x[k + 1] - self.x[k], self.y[k + 1] - self.y[k]
        return self.x[k], self.y[k], h, w, h / w, self.slope[k], self.slope[k + 1]


def through(x: np.ndarray, y: np.ndarray, first: float, last: float) -> MonotoneSpline:
    """Return the spline through knots with given slopes at both ends.

    The slopes between are weighted harmonic means of those of the chords (Fritsch and Butland 1984), as in PCHIP.
    """
    w = np.diff(x)
    chord = np.diff(y) / w
    before, after = w[:-1], w[1:]
    between = (3.0 * (before + after)) / (
        (2.0 * after + before) / chord[:-1] + (after + 2.0 * before) / chord[1:]
    )
    return MonotoneSpline(x, y, np.concatenate([[first], between, [last]]))
