"""Ctrl-C during a fit: obeyed at once, or when the chunk at work is done and saved."""

from __future__ import annotations

import signal
import threading
from types import FrameType


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
        """Return the one that is at work, or a new one."""
        return cls._active or cls()

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

    def _note(self, number: int, frame: FrameType | None) -> None:
        again, self.seen = self.seen, True
        if again or not self.holding:
            raise KeyboardInterrupt

    def raise_if_seen(self) -> None:
        """Obey what was held back or swallowed."""
        if self.seen:
            raise KeyboardInterrupt
