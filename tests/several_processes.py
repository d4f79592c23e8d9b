"""Several processes at once, as tests start them."""

import os
import socket
import subprocess
import sys
import threading


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
