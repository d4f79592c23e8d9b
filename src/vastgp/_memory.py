"""Memory that was freed goes back to the system."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    """Return the C library's function, None where it has none (only glibc does)."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None


def return_freed_memory() -> None:
    """Give back what the C library keeps of freed memory.

    Compilation takes some 200 MB in many small pieces and frees most of them, and glibc keeps what it got, in a pool
    for each thread. After work of that kind, and before work with large arrays, giving it back saves 100 to 200 MB of
    the peak. It takes milliseconds, moves nothing, and changes no setting of the process.
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


def available_bytes() -> int | None:
    """Return the memory that new work can have, None where the system does not tell."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
