"""How far the factor of very many rows gets in what is left of a budget."""

from __future__ import annotations

import time

from vastgp.fitting.run import Run
from vastgp.linalg.panels import PANEL_ROWS
from vastgp.solvers.plan import operations_a_second, operations_of_exact

# The rate that was measured may fall.
_SLACK = 1.15


class Pace:
    """The clock of one factorisation, by operations and the rate at which they have gone so far."""

    def __init__(self, run: Run) -> None:
        self._run, self._began = run, time.perf_counter()
        self._rate = operations_a_second()

    def go_on(self, done: int) -> bool:
        """Return whether another panel, and the posterior of so many rows, fit into what is left."""
        left = self._run.seconds_left()
        if left is None:
            return True
        spent = time.perf_counter() - self._began
        if done >= 4 * PANEL_ROWS:
            self._rate = done**3 / 3 / max(spent, 1e-9)
        # counted from the beginning, less the factor so far
        more = operations_of_exact(done + PANEL_ROWS, 4) - done**3 / 3
        return _SLACK * more / self._rate <= left
