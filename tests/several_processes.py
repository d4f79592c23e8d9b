"""Several processes at once, as tests start them."""

import os
import socket
import subprocess
import sys
import threading
import traceback

import numpy as np

from vastgp.data import processes


def at_once(*commands, seconds=400) -> list[tuple[int, str]]:
    """Run commands at the same time, and end those that do not end; return their statuses and what they said."""
    children = [
        subprocess.Popen(
            [sys.executable, *map(str, command)],
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for command in commands
    ]
    watch = threading.Timer(seconds, lambda: [child.kill() for child in children])
    watch.start()
    said = [child.communicate()[0].decode() for child in children]
    watch.cancel()
    return [(child.returncode, words) for child, words in zip(children, said, strict=True)]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def in_threads(monkeypatch, count, work) -> list:
    """Do ``work(number)`` in threads that stand for processes; return what each returned, or its exception.

    What one tells alone, and the others never, breaks the barrier; what they tell at different places of the program
    raises.
    """
    here, barrier = threading.local(), threading.Barrier(count, timeout=200)
    told, places, found = [None] * count, [None] * count, [None] * count

    def exchange(message):
        told[here.number], places[here.number] = message, _place()
        barrier.wait()
        assert len(set(places)) == 1, places
        everything = np.stack(told)
        barrier.wait()
        return everything

    def run(number):
        here.number = number
        try:
            found[number] = work(number)
        except BaseException as error:
            found[number] = error

    monkeypatch.setattr(processes, "count", lambda: count)
    monkeypatch.setattr(processes, "number", lambda: here.number)
    monkeypatch.setattr(processes, "_told", exchange)
    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    monkeypatch.undo()
    return found


def _place() -> tuple[tuple[str, int], ...]:
    """Where the program is, as far as vastgp goes."""
    frames = traceback.extract_stack()
    return tuple((each.filename, each.lineno) for each in frames if "/vastgp/" in each.filename)
