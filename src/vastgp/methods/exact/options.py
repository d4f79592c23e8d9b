"""Where the factor of very many rows lies."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vastgp._arguments import Options, Positive


@dataclass(frozen=True)
class Spill(Options):
    """The factor of more rows than memory holds, in files of a folder.

    The folder keeps ``4 n^2 / 2`` bytes for n rows in float32, twice that in float64: 20 GB for 100,000 rows. It is
    read once for each thousand rows that are predicted with standard deviations, and stays after the fit: a model that
    was saved finds it there, and a fit that was ended goes on from the panels that it had made. Delete the folder when
    nobody predicts with the model.

    Parameters
    ----------
    folder : path
        Made where it is missing. ``~`` is the home folder. A disk of this machine: a network may be slower than the
        products are.
    """

    folder: str | os.PathLike[str]

    def __post_init__(self) -> None:
        if not isinstance(self.folder, (str, os.PathLike)) or not str(self.folder):
            raise ValueError(f"Spill(folder) must be a path, received {self.folder!r}.")
        super().__post_init__()

    def made(self) -> Path:
        """Return the folder, which is there afterwards.

        Raises
        ------
        OSError
            When it cannot be made, or something else has its name.
        """
        place = Path(self.folder).expanduser()
        if place.exists() and not place.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "Spill(folder) is not a folder", str(place))
        if not place.parent.is_dir():
            raise FileNotFoundError(
                errno.ENOENT,
                f"the folder {place.parent} for Spill(folder) does not exist: make it first, or choose another place",
                str(place),
            )
        place.mkdir(exist_ok=True)
        return place


@dataclass(frozen=True)
class MaxRows:
    """A positive integer, what says that a folder holds the factor, or None."""

    def __call__(self, name: str, value: Any) -> None:
        if not isinstance(value, Spill):
            Positive(integer=True, none="what memory holds, or Spill(folder)")(name, value)

    def resolve(self, name: str, value: Any) -> Spill:
        """Return the object whose fields are set: the one that is there, or one of this folder."""
        del name
        return value if isinstance(value, Spill) else Spill(".")
