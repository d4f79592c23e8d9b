"""Where the factor of a matrix lies on a disk: a folder for each matrix, so that none takes another's place."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from vastgp._memory import available_bytes
from vastgp.fitting.checkpoint_lock import alone_with
from vastgp.kernels import to_spec
from vastgp.linalg.panel_folder import SPILLED_ROWS, SpilledCholesky
from vastgp.linalg.panels import bytes_of_factor, rows_of_bytes
from vastgp.solvers.row_covariance import RowCovariance

# What the disk keeps for others, of what is free now.
_DISK_SHARE = 0.95
# Beside a panel that is made, one is read, and columns of a third are solved for; of the memory that is available.
_PANELS, _MEMORY_SHARE = 4, 0.5


def rows_on_disk(folder: Path, itemsize: int) -> int:
    """Return the rows of the largest factor that a folder holds, beside panels of which the memory holds some.

    Panels that are there already count as room: they may be those of this factor.
    """
    there = sum(file.stat().st_size for file in folder.glob("*/panel-*.npy"))
    room = _DISK_SHARE * shutil.disk_usage(folder).free + there
    rows = rows_of_bytes(room, itemsize, SPILLED_ROWS)
    available = available_bytes()
    if available is not None:
        rows = min(rows, int(_MEMORY_SHARE * available / (_PANELS * itemsize * SPILLED_ROWS)))
    return max(1, rows)


def refuse_without_room(folder: Path, rows: int, itemsize: int) -> None:
    """Raise ``ValueError`` where the factor of so many rows does not fit."""
    most = rows_on_disk(folder, itemsize)
    if rows > most:
        need, free = bytes_of_factor(rows, itemsize, SPILLED_ROWS), shutil.disk_usage(folder).free
        raise ValueError(
            f"X has {rows} rows, whose factor takes {need / 1e9:.1f} GB in {str(folder)!r}, where {free / 1e9:.1f} GB "
            f"are free, and {_PANELS} panels of it in half of the memory: room for {most} rows. Give a folder on a "
            "larger disk, free memory, or use QSGPRegressor or IterativeGPRegressor, which store no factor."
        )


@contextlib.contextmanager
def spilled(
    matrix: RowCovariance, dtype: str, folder: Path, panel_rows: int
) -> Iterator[SpilledCholesky]:
    """Give the factor of a matrix in a folder, as far as it was made, to whoever makes the rest of it alone.

    Raises
    ------
    ValueError
        When another fit is at work with it.
    """
    name = _name(matrix, dtype, panel_rows)
    with alone_with(folder / name, "spill"):
        yield SpilledCholesky.of(
            folder / name, len(matrix.X), dtype, float(np.max(matrix.diagonal)), panel_rows
        )


def _name(matrix: RowCovariance, dtype: str, panel_rows: int) -> str:
    """Return a name of the matrix: kernel, inputs and noise of all rows count, and how the factor is made."""
    spec, arrays = to_spec(matrix.kernel)
    head = {"kernel": spec, "dtype": dtype, "panel_rows": panel_rows, "shape": matrix.X.shape}
    digest = hashlib.blake2b(json.dumps(head, sort_keys=True).encode(), digest_size=12)
    for array in (*(arrays[key] for key in sorted(arrays)), matrix.X, matrix.noise):
        digest.update(np.ascontiguousarray(array).data)
    return f"factor-{digest.hexdigest()}"
