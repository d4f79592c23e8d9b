"""A process that is gone: named by the others, in place of what JAX says of a connection."""

from __future__ import annotations

import atexit
import ctypes
import json
import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

# A connection ends before the process behind it has: it is looked for so long.
_LOOK_SECONDS, _LOOK_EVERY = 3.0, 0.1
# How long a process stays that knows: where process 0 leaves, JAX ends all others at once, whatever they have to say.
_STAY_SECONDS = 5.0
# How long one whose process 0 is gone may go on with work of its own until it notices.
_UNHEARD_SECONDS = 20.0
# What C calls where the process aborts; it lives as long as the process.
_of_abort: list[Any] = []


class ProcessLostError(ConnectionError):
    """Another process of the same fit has ended, so that none can go on."""


def described() -> str:
    """Return what others can find this process by: the machine, and its number there."""
    return json.dumps([socket.gethostname(), os.getpid()])


class Others:
    """The processes of a fit, by what each said of itself when they met.

    Parameters
    ----------
    said : list of str
        What `described` returns, by number.
    """

    def __init__(self, said: list[str]) -> None:
        self.places = [tuple(json.loads(each)) for each in said]
        # one of another machine of the same name, or behind the walls of a container, cannot be looked for
        self.visible = [host == socket.gethostname() and _lives(pid) for host, pid in self.places]

    def lost(self, error: Exception) -> ProcessLostError:
        """Return what to raise where nothing was heard of another process any more.

        JAX waits at its end for the one that is gone until its heartbeat is missed (100 s), and aborts then. This
        process ends without that, once it has said why.
        """
        heard = time.monotonic()
        atexit.register(_leave, heard)
        gone: list[int] = []
        while not gone and time.monotonic() < heard + _LOOK_SECONDS:
            gone = [
                k for k, (_, pid) in enumerate(self.places) if self.visible[k] and not _lives(pid)
            ]
            time.sleep(0.0 if gone else _LOOK_EVERY)
        return ProcessLostError(self._in_words(gone, error))

    def outlive_first(self) -> None:
        """Let this process end in its own words where JAX aborts it, as process 0 is gone, through which all meet.

        JAX aborts from a thread of its own as soon as that connection ends. The thread is held there until the program
        has heard by itself and said what it has to say, or for so long as work takes that hears of nothing. Any other
        abort stays one. Of process 0 on another machine nothing is known here: there it stays JAX's.
        """
        if os.name != "posix" or not self.visible[0] or _of_abort:
            return
        kind = ctypes.CFUNCTYPE(None, ctypes.c_int)
        libc = ctypes.CDLL(None)
        libc.signal.argtypes, libc.signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p

        def held(number: int) -> None:
            until = time.monotonic() + _LOOK_SECONDS
            while _lives(self.places[0][1]) and time.monotonic() < until:
                time.sleep(_LOOK_EVERY)
            if _lives(self.places[0][1]):
                libc.signal(number, before)
                if before:
                    kind(before)(number)
                return  # and C aborts
            time.sleep(_UNHEARD_SECONDS)
            words = self._in_words([0], ConnectionError("JAX: the coordination service is gone"))
            os.write(2, f"{ProcessLostError.__name__}: {words}\n".encode())
            os._exit(1)

        _of_abort.append(kind(held))
        before = libc.signal(signal.SIGABRT, ctypes.cast(_of_abort[0], ctypes.c_void_p))

    def _in_words(self, gone: list[int], error: Exception) -> str:
        count = len(self.places)
        if gone:
            named = " and ".join(
                f"process {k} of {count} (number {self.places[k][1]} on {self.places[k][0]})"
                for k in gone
            )
            said = f"{named} has ended, and the others end with it."
        else:
            far = [f"{k} on {self.places[k][0]}" for k in range(count) if not self.visible[k]]
            which = f"; it is one of {', '.join(far)}" if far else ""
            said = f"another of {count} processes no longer answers{which}. All end."
        detail = str(error).partition("\n")[0]
        return (
            f"{said} Where it was killed, its memory may have been short. Start the fit again: with checkpoint= it "
            f"goes on from what was saved last, in as many processes or others. ({detail})"
        )


def _lives(pid: int) -> bool:
    """Return whether a process of this machine is at work: one that its parent has not buried yet is not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    try:
        # pid (name) state ...
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return True


def _leave(heard: float) -> None:
    """End, without JAX's own end."""
    time.sleep(max(0.0, heard + _STAY_SECONDS - time.monotonic()))
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
