"""How far the factor of very many rows gets in what is left of a budget."""

from __future__ import annotations

from collections.abc import Callable

from vastgp.fitting.clock import now
from vastgp.fitting.run import Run
from vastgp.linalg.device_cholesky import belongs_on_device
from vastgp.linalg.panels import PANEL_ROWS
from vastgp.solvers.plan import (
    affordable_exact,
    operations_a_second,
    operations_of_exact,
    seconds_of_exact_on_device,
)

# The rate that was measured may fall; so many panels measure it better than a product does beforehand.
_SLACK, _TELLING = 1.15, 4


def rows_within(seconds: float, itemsize: int) -> int:
    """Return of how many rows the exact posterior takes so many seconds on this machine, now; one at least."""
    return max(1, affordable_exact(seconds / _SLACK, itemsize))


class Pace:
    """The clock of a factorisation, by operations and the rate at which they have gone so far.

    Parameters
    ----------
    run : Run
    panel_rows : int
        Rows of a panel of the factor.
    rows : int
        Of all of it.
    on_panel : callable, optional
        Told the rows that are done before each panel.
    """

    def __init__(
        self,
        run: Run,
        panel_rows: int,
        rows: int,
        on_panel: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._on_panel = on_panel
        self._run, self._rate, self._rows = run, operations_a_second(), panel_rows
        # asked now: the factor takes the memory that it says is free
        self._on_device = {size: belongs_on_device(rows, size) for size in (4, 8)}
        self._last = self._first = (0, 0.0)

    def has_time(self, seconds: float) -> bool:
        """Return whether there are so many seconds left."""
        left = self._run.seconds_left()
        return left is None or left >= seconds

    def is_enough(self, done: int) -> bool:
        """Return whether a factor in float64 that is begun now gets no further than so many rows."""
        left = self._run.seconds_left()
        return left is not None and rows_within(left, 8) <= done

    def go_on(self, done: int, itemsize: int) -> bool:
        """Return whether another panel, and the posterior of all rows then, fit into what is left.

        Parameters
        ----------
        done : int
            Rows so far; fewer than when last asked begin another factor.
        itemsize : int
            Bytes of a number of the factor.
        """
        self._on_panel(done)
        left, time = self._run.seconds_left(), now()
        if left is None:
            return True
        if self._on_device[itemsize]:
            # the rate is that of products of tiles: the time so far tells more of compilation
            so_far, then = map(seconds_of_exact_on_device, (done, done + self._rows))
            return _SLACK * (then - so_far) <= left
        if done <= self._last[0] or not self._last[0]:
            self._first = done, time
        self._last = done, time
        # in operations of this precision
        rate = self._rate * 4 / itemsize
        if done >= _TELLING * PANEL_ROWS and time > self._first[1]:
            rate = (done**3 - self._first[0] ** 3) / 3 / (time - self._first[1])
        # counted from the beginning, less the factor so far
        more = operations_of_exact(done + self._rows, itemsize) * 4 / itemsize - done**3 / 3
        return _SLACK * more / rate <= left
