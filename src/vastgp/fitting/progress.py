"""A line of progress with the time left, for people at a terminal."""

from __future__ import annotations

import sys
import time
from typing import Any

from vastgp.fitting.interrupts import held_back

# A fit shorter than this needs no progress line.
_QUIET_SECONDS = 2.0


class Progress:
    """One line on standard error: what is done, the objective, the time spent and the time left.

    Nothing is shown unless it is asked for, standard error is a terminal, and the work has lasted two seconds.

    Parameters
    ----------
    label : str
        What is being done.
    enabled : bool
        ``verbose`` of the estimator.
    """

    def __init__(self, label: str, enabled: bool) -> None:
        self._label = label
        self._enabled = bool(enabled) and sys.stderr.isatty()
        self._started = time.perf_counter()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            with held_back():
                self._bar.stop()

    def update(self, fraction: float, text: str = "") -> None:
        """Show that ``fraction`` (0 to 1) of the work is done; ``text`` stands beside the bar."""
        if not self._enabled:
            return
        if self._bar is None:
            if time.perf_counter() - self._started < _QUIET_SECONDS:
                return
            # half begun or half ended, rich hides the cursor for good: Ctrl-C waits for it
            with held_back():
                self._open()
        self._bar.update(self._task, completed=min(max(fraction, 0.0), 1.0), text=text)

    def _open(self) -> None:
        # imported here: most fits never show a line, and rich takes a tenth of a second to load
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[text]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.start()
        self._task = self._bar.add_task(self._label, total=1.0, text="")
