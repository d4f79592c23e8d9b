"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

# What a system says where there is no room for more.
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def place_of(path: str | os.PathLike[str]) -> Path:
    """Return where a file is written: ``~`` stands for the home folder, a link for what it points to.

    Raises
    ------
    OSError
        When the folder is missing, or the path is a folder.
    ValueError
        For a pipe or a device, which cannot be replaced by a file.
    """
    place = Path(os.path.realpath(Path(path).expanduser()))
    if not place.parent.is_dir():
        raise FileNotFoundError(
            errno.ENOENT,
            f"the folder {place.parent} does not exist: make it first, or choose another place",
            str(path),
        )
    if place.is_dir():
        raise IsADirectoryError(
            errno.EISDIR, "this is a folder: give the name of a file", str(path)
        )
    if place.exists() and not place.is_file():
        raise ValueError(
            f"{os.fspath(path)!r} is a pipe or a device, and a file would take its place. Give the name of a file."
        )
    return place


@contextlib.contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary name beside ``path`` for a new file, which takes its place when the block ends well.

    The new file is on the disk before it takes the place of the old one in one step, and has the mode of the old one.
    When the block raises, the old file is untouched and the temporary one is gone; one that a killed process left is
    removed by the next writer.
    """
    place = place_of(path)
    _remove_leftovers(place)
    partial = place.with_name(f".{place.name}.{_host()}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        if place.exists():
            with contextlib.suppress(OSError):  # not all file systems have modes
                partial.chmod(stat.S_IMODE(place.stat().st_mode))
        os.replace(partial, place)
    finally:
        partial.unlink(missing_ok=True)
    _sync_folder(place.parent)


def _sync_folder(folder: Path) -> None:
    """Make the new name outlive a loss of power; systems that cannot sync a folder do without."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname()) or "host"


def _remove_leftovers(path: Path) -> None:
    """Remove temporary files of this file whose writer, a process of this machine, was killed."""
    pattern = re.compile(
        rf"\.{re.escape(path.name)}\.{re.escape(_host())}\.(\d+)\.[0-9a-f]{{8}}\.tmp"
    )
    for other in path.parent.iterdir():
        match = pattern.fullmatch(other.name)
        if match and not _is_running(int(match.group(1))):
            with contextlib.suppress(OSError):
                other.unlink()


def _is_running(pid: int) -> bool:
    if os.name != "posix":
        return True  # no harmless way to ask: leave the file alone
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
