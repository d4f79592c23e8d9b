"""One fit for one checkpoint: a second one is told, before any work."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# A file whose other user ends in this moment is made anew. There are file systems on which an open file and its name
# never tell the same numbers: what was locked is held there.
_TRIES = 20
_BUSY = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}


@contextlib.contextmanager
def alone_with(path: str | os.PathLike[str], what: str = "checkpoint") -> Iterator[None]:
    """Hold the right to write a checkpoint, or ``what`` else an argument of that name tells the place of.

    The system gives it back however the process ends. The empty file ``.NAME.lock`` beside the checkpoint that it hangs
    on is removed at the end of the block; one that a killed process left is taken over. Where no file can be made
    or the file system has no locks nothing is held: writing the checkpoint itself will tell.

    Raises
    ------
    ValueError
        When another fit, of this process or of another one, has it.
    """
    place = Path(path).expanduser()
    lock = place.with_name(f".{place.name}.lock")
    descriptor = _taken(lock, place, what)
    try:
        yield
    finally:
        if descriptor is not None:
            # the name first: who opens it from now on makes another file
            with contextlib.suppress(OSError):
                lock.unlink()
            os.close(descriptor)


def _taken(lock: Path, place: Path, what: str) -> int | None:
    """Return the descriptor of the lock; None where there are no locks."""
    if fcntl is None:
        return None
    for again in range(_TRIES, 0, -1):
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno not in _BUSY:
                return None
            raise ValueError(
                f"{what}: another fit is at work with {str(place)!r}. Wait for its end, or give this one a path of "
                "its own."
            ) from None
        with contextlib.suppress(OSError):
            if again == 1 or os.path.samestat(os.fstat(descriptor), lock.stat()):
                return descriptor
        os.close(descriptor)  # it ended in between, and took the name along
    return None
