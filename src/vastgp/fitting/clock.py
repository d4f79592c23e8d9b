"""The clock that decides: how long a fit may go on, and how much fits into the time that is left.

Several processes that fit one model decide alike, or one would wait for what another never says. So the clock that
they decide by is that of process 0. It is asked by all of them at the same places of the program.
"""

from __future__ import annotations

import time

import numpy as np

from vastgp.data import processes


def now() -> float:
    """Return the time in seconds, from some origin: that of process 0 in all of them."""
    here = time.perf_counter()
    return here if processes.count() == 1 else float(processes.from_first(np.float64(here)))


def deadline_in(seconds: float | None) -> float | None:
    """Return when a budget that begins now will end; None without one."""
    return None if seconds is None else now() + seconds


def seconds_until(deadline: float | None) -> float | None:
    """Return what is left until a deadline, zero beyond it; None without one."""
    return None if deadline is None else max(deadline - now(), 0.0)
