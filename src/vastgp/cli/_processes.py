"""``--processes``: the same command in several processes of this machine, started and watched by this one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

import numpy as np

from vastgp.cli._errors import BadInput
from vastgp.data import processes
from vastgp.estimators.registry import METHODS
from vastgp.estimators.sharing import listed, sharing

# What tells a process that it is one of several: their number, its own, and where they meet.
_VARIABLE = "VASTGP_PROCESS"
_LOOK_SECONDS = 0.1
# The others notice by themselves that one is gone, say so, and end within some ten seconds.
_GRACE_SECONDS = 5.0
# Until all have met. Starting Python and JAX takes seconds, on busy cores some ten.
_MEETING_SECONDS = 120.0


def run_in_processes(
    count: int, checkpoint: Path | None = None, environment: Mapping[str, str] | None = None
) -> None:
    """Run this command in so many processes, and end as they do.

    Parameters
    ----------
    count : int
    checkpoint : path, optional
        Where what they do is saved.
    environment : mapping, optional
        Variables that they are given.

    Raises
    ------
    SystemExit
        Where one failed: the others are ended, so that none waits for it.
    """
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    children = [_start(number, count, port, environment or {}) for number in range(count)]
    # a scheduler that ends this one ends them
    before = signal.signal(signal.SIGTERM, _end)
    try:
        while True:
            codes = [child.poll() for child in children]
            failed = [k for k, code in enumerate(codes) if code]
            if failed:
                _wait(children, _GRACE_SECONDS)
                raise SystemExit(_told(children, failed[0], count, _what_is_saved(checkpoint)))
            if None not in codes:
                return
            time.sleep(_LOOK_SECONDS)
    except KeyboardInterrupt:
        # the terminal told them, too: they may save what they have
        _wait(children, _GRACE_SECONDS)
        raise
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
                child.wait()
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _end(number: int, frame: FrameType | None) -> None:
    """End as the system would, but after the ``finally`` of whatever is at work."""
    raise SystemExit(128 + number)


def joined() -> bool:
    """Join the other processes where this is one of several; return whether it is to be silent, as they say the same.

    Cores are shared out, where there are enough: threads that wait for each other's cores cost many times what they do.
    """
    which = which_of()
    if which is None:
        return False
    number, count, port = which
    share_cores(number, count)
    _meet(port, count, number)
    return number > 0


def which_of() -> tuple[int, int, int] | None:
    """Return the number of this process, how many there are, and where they meet; None where it is alone."""
    given = os.environ.get(_VARIABLE)
    if given is None:
        return None
    number, count, port = (int(part) for part in given.split("/"))
    return number, count, port


def share_cores(number: int, count: int) -> None:
    """Keep to the cores that are this process's, where there are enough."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) >= count:
            os.sched_setaffinity(0, cores[number::count])


def _what_is_saved(checkpoint: Path | None) -> str:
    """Return what a failed fit leaves, in words."""
    if checkpoint is None:
        return "nothing was saved"
    if not checkpoint.exists():
        return f"nothing was saved in {checkpoint} yet"
    return f"what is in {checkpoint} is gone on from"


def _meet(port: int, count: int, number: int) -> None:
    """Join the others and tell them something, so that what keeps them apart is said here, and in words.

    JAX's messages between processors (Gloo) go to the address that the name of the machine has, and wait without end
    where nobody answers.
    """
    import jax

    watch = threading.Timer(_MEETING_SECONDS + 10.0, _give_up)
    watch.daemon = True
    watch.start()
    try:
        jax.distributed.initialize(
            coordinator_address=f"127.0.0.1:{port}",
            num_processes=count,
            process_id=number,
            initialization_timeout=int(_MEETING_SECONDS),
        )
        processes.gathered(np.zeros(1))
    except RuntimeError as error:
        raise BadInput(_apart(str(error))) from error
    finally:
        watch.cancel()


def _apart(why: str) -> str:
    name = socket.gethostname()
    return (
        f"--processes: the processes did not reach each other ({why}). They use the address of this machine's name, "
        f"{name!r}: add the line '127.0.0.1 {name}' to /etc/hosts where it has none, or leave --processes out."
    )


def _give_up() -> None:
    sys.stderr.write(_apart(f"no answer within {_MEETING_SECONDS:.0f} s") + "\n")
    sys.stderr.flush()
    os._exit(1)


def check_processes(count: int, method: str, auto: str) -> None:
    """Refuse numbers and methods that several processes cannot have."""
    shared = sharing(METHODS.values())
    if METHODS.get(method) in shared:
        return
    names = listed({name: shared[full] for name, full in METHODS.items() if full in shared})
    raise BadInput(
        f"--processes {count} is for a named method whose work can be shared: --method {names}."
        if method == auto
        else f"--method {method} is fitted by one process. --processes {count} is for --method {names}."
    )


def _start(number: int, count: int, port: int, more: Mapping[str, str]) -> subprocess.Popen[bytes]:
    own = sys.argv[1:]
    at = next(i for i, word in enumerate(own) if word.partition("=")[0] == "--processes")
    del own[at : at + (1 if "=" in own[at] else 2)]
    environment = os.environ | {_VARIABLE: f"{number}/{count}/{port}", **more}
    return subprocess.Popen(
        [sys.executable, "-m", "vastgp", *own],
        env=environment,
        # all say the same
        stdout=None if number == 0 else subprocess.DEVNULL,
        stderr=None if number == 0 else subprocess.DEVNULL,
    )


def _wait(children: list[subprocess.Popen[bytes]], seconds: float) -> None:
    """Let those end that end by the same fault."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and any(child.poll() is None for child in children):
        time.sleep(_LOOK_SECONDS)


def _told(children: list[subprocess.Popen[bytes]], first: int, count: int, saved: str) -> int:
    """Say what happened, unless process 0 has; return the exit status."""
    code = children[first].returncode
    if code > 0 and (children[0].returncode or 0) > 0:
        return children[0].returncode
    how = f"was ended by signal {-code}" if code < 0 else f"ended with status {code}"
    sys.stderr.write(
        f"Process {first} of {count} {how}; the others were ended, and {saved}. Run the command again, with "
        "fewer --processes if memory was short.\n"
    )
    return code if code > 0 else 1
