"""How long compilation takes, and what it leaves behind."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import jax

from vastgp._memory import return_freed_memory

# Tracing, lowering and making machine code all begin so.
_COMPILING = "/jax/core/compile/"
# Compiled programs beyond those that stayed the last time, from which on all are let go of: each holds 1.4 to 2 MB.
_MOST_PROGRAMS = 300
_stayed = [0]


@contextmanager
def compile_seconds() -> Iterator[Callable[[], float]]:
    """Give a function that returns the seconds that compiling took in the block so far."""
    total = 0.0

    def note(event: str, duration_secs: float, **kwargs: str | int) -> None:
        del kwargs
        nonlocal total
        if event.startswith(_COMPILING):
            total += duration_secs

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        yield lambda: total
    finally:
        jax.monitoring.unregister_event_duration_listener(note)


def let_go_of_many() -> None:
    """Let go of JAX's compiled programs where there are many, before work that compiles others.

    JAX keeps a program for every shape that it ever met, so that a process that fits tables of ever other numbers of
    rows or inputs takes ever more memory. What is used again is compiled again; results are the same.
    """
    if _held() - _stayed[0] > _MOST_PROGRAMS:
        jax.clear_caches()
        gc.collect()
        return_freed_memory()
        _stayed[0] = _held()


def _held() -> int:
    """Return how many programs this process holds."""
    return len(jax.local_devices()[0].client.live_executables())
