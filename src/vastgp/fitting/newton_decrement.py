"""What is left to gain near a maximum, along flat ridges too: in the metric that L-BFGS has learned of it."""

from __future__ import annotations

from collections import deque

import numpy as np

# Steps that are remembered, as many as L-BFGS does.
MEMORY = 20
# Steps with a smaller cosine between them and the change of slope say nothing of a curvature.
_LEAST_COSINE = 1e-10


class NewtonDecrement:
    """The Newton decrement ``sqrt(g^T H^-1 g)`` where a function is minimised by L-BFGS, by its last steps.

    Half its square is what a quadratic function has left to gain, and the decrement is that many standard deviations
    of the posterior that one row would have, whatever the units of the parameters. Along a flat ridge slopes ``g`` are
    small and curvatures ``H`` smaller still, so that slopes alone do not say how far the end is.

    Parameters
    ----------
    bounds : ndarray of shape (k, 2)
        Of the parameters. Those that a bound holds are left out.
    """

    def __init__(self, bounds: np.ndarray) -> None:
        self._lower, self._upper = bounds.T
        self._steps: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=MEMORY)
        self._last: tuple[np.ndarray, np.ndarray] | None = None

    def note(self, point: np.ndarray, slope: np.ndarray) -> None:
        """Note the start or where an iteration ended, and the slope there."""
        if self._last is not None:
            self._steps.append((point - self._last[0], slope - self._last[1]))
        self._last = point.copy(), slope.copy()

    def is_below(self, tol: float, slope_tol: float) -> bool:
        """Return whether it is below ``tol`` at the last point, and no slope inside the bounds above ``slope_tol``."""
        projected = self._projected()
        return bool(np.max(np.abs(projected), initial=0.0) <= slope_tol and self.value() <= tol)

    def value(self) -> float:
        """Return the decrement at the last point, by the two loops of Nocedal (1980).

        The curvature is one, as L-BFGS has it, where no step has told another.
        """
        assert self._last is not None
        free = self._projected() != 0.0
        slope = found = self._last[1][free]
        pairs, weights = [], []
        for step, change in self._steps:
            s, y = step[free], change[free]
            if s @ y > _LEAST_COSINE * np.linalg.norm(s) * np.linalg.norm(y):
                pairs.append((s, y, s @ y))
        for s, y, along in reversed(pairs):
            weights.append(s @ found / along)
            found = found - weights[-1] * y
        if pairs:
            _, y, along = pairs[-1]
            found = found * (along / (y @ y))
        for s, y, along in pairs:
            found = found + (weights.pop() - y @ found / along) * s
        return float(np.sqrt(max(slope @ found, 0.0)))

    def _projected(self) -> np.ndarray:
        """Return how far a step against the slope goes inside the bounds."""
        assert self._last is not None
        point, slope = self._last
        return np.asarray(np.clip(point - slope, self._lower, self._upper) - point)
