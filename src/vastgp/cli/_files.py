"""Paths that the user gives: inputs that must be there, outputs that can be written."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from vastgp.cli._errors import BadInput, close_match


def existing(path: Path, what: str) -> Path:
    """The path of an input, which must be there.

    Raises
    ------
    BadInput
        With the file of the same folder that has nearly this name, where there is one.
    """
    if path.exists():
        return path
    if not path.parent.is_dir():
        raise BadInput(
            f"{what} {str(path)!r} is not there: the folder {str(path.parent)!r} does not exist."
        )
    siblings = [entry.name for entry in path.parent.iterdir()]
    guess = (
        close_match(path.name, siblings)
        or f" Check the name; the folder is {path.parent.resolve()}."
    )
    raise BadInput(f"{what} {str(path)!r} does not exist.{guess}")


def writable(
    path: Path,
    option: str,
    *,
    force: bool,
    suffixes: Sequence[str] = (),
    others: Mapping[str, Path | None] | None = None,
) -> Path:
    """The path of an output, checked before any work is done for it.

    Parameters
    ----------
    path : Path
        Where the result shall go.
    option : str
        Its name on the command line, for messages.
    force : bool
        Whether a file that is there may be replaced.
    suffixes : sequence of str, optional
        The endings that name a format that can be written.
    others : mapping, optional
        What the command reads, and writes beside: what to call it -> where it is.
    """
    check_suffix(path, option, suffixes)
    refuse_others(path, option, others or {})
    if path.is_dir():
        raise BadInput(f"{option} {str(path)!r} is a folder; give the name of a file in it.")
    refuse_existing(path, option, force)
    require_folder(path.parent, f"{option} {str(path)!r} cannot be written")
    return path


def refuse_others(path: Path, option: str, others: Mapping[str, Path | None]) -> None:
    """Refuse an output in the place of what the same command reads or writes, which --force is not meant for."""
    for what, other in others.items():
        if other is not None and path.resolve() == other.resolve():
            raise BadInput(
                f"{option} {str(path)!r} is {what} as well, which would be lost; choose another name."
            )


def refuse_existing(path: Path, option: str, force: bool) -> None:
    """Refuse an output that is there already, unless it may be replaced."""
    if path.exists() and not force:
        raise BadInput(
            f"{option} {str(path)!r} exists; choose another name, or replace it with --force."
        )


def check_suffix(path: Path, option: str, suffixes: Sequence[str]) -> None:
    """Refuse an output whose ending names no format that can be written."""
    if suffixes and path.suffix.lower() not in suffixes:
        raise BadInput(
            f"{option} {str(path)!r}: the ending names the format, one of {', '.join(suffixes)}; "
            f"got {path.suffix or 'none'!r}."
        )


def require_folder(folder: Path, why: str) -> None:
    """Refuse a folder that no file can be made in. Tried out: permissions do not tell the whole story."""
    if not folder.is_dir():
        raise BadInput(f"{why}: the folder {str(folder)!r} does not exist. Make it first.")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise BadInput(
            f"{why}: no file can be made in the folder {str(folder)!r} ({error.strerror}). Choose another place."
        ) from error
