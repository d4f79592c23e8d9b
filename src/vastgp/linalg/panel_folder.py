"""Panels of a factor in files of a folder, for factors larger than memory.

A product with a panel does as many operations for each number that it reads as the other side has columns: a thousand
and more, both in making a factor and in predicting many rows at once, which is slower than any disk. So panels are read
where they are needed and forgotten. Each is written whole or not at all, and a factor that was left goes on.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import MutableSequence
from pathlib import Path
from typing import Any

import numpy as np

from vastgp.data.whole_files import DISK_FULL, written_whole
from vastgp.linalg.panels import PanelCholesky

# Rows of a panel: twice those of one in memory halve what is read to make a factor, n^3 / 6 numbers over this.
SPILLED_ROWS = 2048
_NUMBERS = "factor.json"


class PanelFolder(MutableSequence[np.ndarray]):
    """Panels in the files ``panel-00000.npy``, ... of a folder, each read when it is asked for.

    Parameters
    ----------
    place : path
        Of the folder.
    count : int
        How many panels of it are taken.
    """

    def __init__(self, place: Path, count: int = 0) -> None:
        self.place, self._count = place, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, i: Any) -> Any:
        if not -self._count <= i < self._count:
            raise IndexError(i)
        file = self._file(i % self._count)
        try:
            return np.load(file, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise OSError(
                errno.EIO,
                f"a panel of the factor cannot be read ({error}). It is needed as long as standard deviations are "
                "predicted; the fit makes it again",
                str(file),
            ) from error

    def append(self, panel: np.ndarray) -> None:
        """Write a panel, whole or not at all."""
        try:
            with written_whole(self._file(self._count)) as partial, partial.open("wb") as out:
                np.save(out, panel, allow_pickle=False)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            raise OSError(
                error.errno,
                f"{os.strerror(error.errno)}: the next panel of the factor takes {panel.nbytes:,} bytes, and "
                f"{shutil.disk_usage(self.place).free:,} are free. The {self._count} panels so far stay: make room, "
                "and the same fit goes on from them",
                str(self.place),
            ) from error
        self._count += 1

    def insert(self, index: int, value: np.ndarray) -> None:
        """Not possible: a factor grows at its end."""
        raise TypeError("panels of a factor are appended")

    __setitem__ = __delitem__ = insert  # type: ignore[assignment]

    def _file(self, i: int) -> Path:
        return self.place / f"panel-{i:05d}.npy"

    def whole(self, i: int, shape: tuple[int, int], dtype: np.dtype) -> bool:
        """Return whether the file of a panel is there, with this shape and type."""
        try:
            found = np.load(self._file(i), mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return False
        return bool(found.shape == shape and found.dtype == dtype)


class SpilledCholesky(PanelCholesky):
    """The factor whose panels lie in a folder, with a file of the numbers that belong to them."""

    panels: PanelFolder

    @property
    def place(self) -> Path:
        """The folder."""
        return self.panels.place

    @classmethod
    def of(cls, place: Path, size: int, dtype: Any, largest: float, rows: int) -> SpilledCholesky:
        """Return the factor in a folder, as far as it was made, or the beginning of one.

        Parameters
        ----------
        place : path
            Of the folder, which belongs to this matrix alone; made where it is missing.
        size : int
            Rows of the matrix.
        dtype
            Of the factor.
        largest : float
            See `GrowingFactor`.
        rows : int
            Of a panel.
        """
        place.mkdir(exist_ok=True)
        factor = cls(np.dtype(dtype), largest, panels=PanelFolder(place))
        for end, jitter, pivots in _known(place):
            shape = (end, end - factor.size)
            expected = end == min(factor.size + rows, size)
            if not (expected and factor.panels.whole(len(factor.ends), shape, factor.dtype)):
                break
            factor._note(end, jitter, pivots)
        factor.panels = PanelFolder(place, len(factor.ends))
        return factor

    @classmethod
    def there(cls, place: Path, size: int, dtype: Any, rows: int) -> SpilledCholesky | None:
        """Return the whole factor in a folder; None where a part of it is missing."""
        if not place.is_dir():
            return None
        found = cls.of(place, size, dtype, 1.0, rows)
        return found if found.size == size else None

    def append(self, panel: np.ndarray) -> None:
        """As `PanelCholesky.append`; the panel is in the folder afterwards."""
        super().append(panel)
        known = list(zip(self.ends, self.jitters, self.log_pivots, strict=True))
        with written_whole(self.place / _NUMBERS) as partial:
            partial.write_text(json.dumps({"panels": known}))

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.place, ignore_errors=True)


def _known(place: Path) -> list[tuple[int, float, float]]:
    """Return the numbers of the panels that were made; none where the file is not whole."""
    try:
        found = json.loads((place / _NUMBERS).read_text())["panels"]
        return [(int(end), float(jitter), float(pivots)) for end, jitter, pivots in found]
    except (OSError, ValueError, TypeError, KeyError):
        return []
