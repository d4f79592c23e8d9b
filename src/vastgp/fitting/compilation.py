"""How long compilation takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import jax

# Tracing, lowering and making machine code all begin so.
_COMPILING = "/jax/core/compile/"


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
