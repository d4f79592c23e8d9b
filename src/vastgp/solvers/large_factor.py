"""The factor of the covariance of very many rows where it fits: on an accelerator, in the host's memory, on a disk."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vastgp._memory import available_bytes
from vastgp.linalg.device_cholesky import (
    belongs_on_device,
    factorize_on_device,
    rows_on_device,
    tile_rows,
)
from vastgp.linalg.panel_folder import SpilledCholesky
from vastgp.linalg.panels import (
    PANEL_ROWS,
    GrowingFactor,
    PanelCholesky,
    factorize_panels,
    rows_of_bytes,
)
from vastgp.solvers.row_covariance import RowCovariance

# Up to here a factor in float64 takes seconds and no precision needs to be chosen.
WIDE_ROWS = 10_000
# Share of the memory that is available that a factor may take; predictions need some beside it.
_MEMORY_SHARE = 0.5


def affordable_rows(itemsize: int, available: int | None = None) -> int:
    """Return the rows of the largest factor that the memory holds, by its share of what is available.

    The accelerator's memory, where there is one and it holds more than the host.
    """
    return max(_rows_on_host(itemsize, available), rows_on_device(itemsize) or 0)


def _rows_on_host(itemsize: int, available: int | None) -> int:
    available = available_bytes() if available is None else available
    if available is None:
        return WIDE_ROWS
    return rows_of_bytes(_MEMORY_SHARE * available, itemsize)


def factor_of(
    matrix: RowCovariance,
    dtype: str,
    panel_rows: int = PANEL_ROWS,
    go_on: Callable[[int, int], bool] | None = None,
    begun: PanelCholesky | None = None,
    most_jitter: float = np.inf,
) -> GrowingFactor:
    """Return the factor of a matrix: on an accelerator where there is one that holds it, else in panels of the host.

    Parameters
    ----------
    matrix : RowCovariance
    dtype : {"float32", "float64"}
    panel_rows, go_on, most_jitter
        See `factorize_panels`.
    begun : PanelCholesky, optional
        Of leading rows, which goes on where it lies.
    """
    n, largest = len(matrix.X), float(np.max(matrix.diagonal))
    if begun is None and belongs_on_device(n, np.dtype(dtype).itemsize):
        size = tile_rows(n)
        return factorize_on_device(
            matrix.tiles(size), n, dtype, largest=largest, tile=size, go_on=go_on, most_jitter=most_jitter
        )  # fmt: skip
    return factorize_panels(
        matrix.write, n, dtype, largest=largest, panel_rows=panel_rows, go_on=go_on, factor=begun,
        most_jitter=most_jitter,
    )  # fmt: skip


class RemadeFactor:
    """The factor of a posterior that was loaded: read or made when somebody asks for a variance.

    Parameters
    ----------
    matrix : RowCovariance
    dtype, panel_rows
        As it was made with.
    folder : str, optional
        Where its panels lay, in units of ``unit``. They are read there, where all are whole; nothing is written.
    unit : float, default 1.0
    """

    def __init__(
        self,
        matrix: RowCovariance,
        dtype: str,
        panel_rows: int,
        folder: str | None = None,
        unit: float = 1.0,
    ) -> None:
        self.matrix, self.dtype, self.panel_rows = matrix, np.dtype(dtype), panel_rows
        self.folder, self.unit = folder, unit

    @cached_property
    def made(self) -> GrowingFactor:
        """The factor."""
        n = len(self.matrix.X)
        if self.folder is not None:
            found = SpilledCholesky.there(Path(self.folder), n, self.dtype, self.panel_rows)
            if found is not None:
                found.scale(self.unit)
                return found
            most = affordable_rows(self.dtype.itemsize)
            if n > most:
                raise ValueError(
                    f"standard deviations need the factor of {n} rows, which lay in {self.folder} and is not whole "
                    f"there; the memory that is available holds one of {most} rows. Means need no factor. Bring the "
                    "folder back, or fit again with this kernel and noise (hyperparameters=Fixed(noise_std=...)) and "
                    "max_rows=Spill(folder)."
                )
        return factor_of(self.matrix, str(self.dtype), self.panel_rows)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "made":
            raise AttributeError(name)
        return getattr(self.made, name)
