"""Ctrl-C during a fit: obeyed at once, or when the chunk at work is done and saved."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Do a short piece of work whole: Ctrl-C during it is obeyed at its end, by the handler that was there before.

    For what must be undone as a whole, such as a line on a terminal whose cursor is hidden. Python hears Ctrl-C in the
    main thread alone, so that nothing is changed in others, nor where a handler is none of Python's.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    heard = []
    signal.signal(signal.SIGINT, lambda *_: heard.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        for _ in heard:
            signal.raise_signal(signal.SIGINT)


class Interrupts:
    """Notes Ctrl-C, so that none is lost, and holds the first one back while a chunk is at work that will be saved.

    A ``KeyboardInterrupt`` that Python happens to raise inside a callback of JAX is swallowed there: what was noted is
    raised again between two chunks. The state of an unfinished chunk may have been donated to it, so that there would
    be nothing to save: with ``holding`` the chunk is finished first. A second Ctrl-C acts at once. Outside the main
    thread, or where the program has a handler of its own, nothing is changed.
    """

    _active: Interrupts | None = None

    def __init__(self) -> None:
        self.seen = False
        self.holding = False
        self._depth = 0

    @classmethod
    def watch(cls) -> Interrupts:
        """Return the one that is at work in the main thread, or a new one; other threads have their own, which rest."""
        in_main = threading.current_thread() is threading.main_thread()
        return (cls._active if in_main else None) or cls()

    def __enter__(self) -> Interrupts:
        may = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if self._depth or may:
            self._depth += 1
        if self._depth == 1 and may:
            signal.signal(signal.SIGINT, self._note)
            Interrupts._active = self
        return self

    def __exit__(self, *_: object) -> None:
        if not self._depth:
            return
        self._depth -= 1
        if self._depth == 0:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            Interrupts._active = None

    @contextlib.contextmanager
    def held(self, holding: bool) -> Iterator[None]:
        """Hold the first Ctrl-C back inside the block, or do not, however the block ends."""
        before, self.holding = self.holding, holding
        try:
            yield
        finally:
            self.holding = before

    def _note(self, number: int, frame: FrameType | None) -> None:
        again, self.seen = self.seen, True
        if again or not self.holding:
            raise KeyboardInterrupt

    def raise_if_seen(self) -> None:
        """Obey what was held back or swallowed."""
        if self.seen:
            raise KeyboardInterrupt
