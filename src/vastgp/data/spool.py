"""Rows that arrive in blocks: kept in memory while they are few, on disk as a memory map once they are many."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from typing import IO, Any

import numpy as np

from vastgp.data.whole_files import DISK_FULL

# Tables up to this many bytes go to memory.
MEMORY_BUDGET = 256 << 20


def temporary_file() -> IO[bytes]:
    """A temporary file that cannot be left behind.

    It has no name (on systems that can do so), so the system removes it when its last user goes: the handle and the
    memory maps made of it, or the whole process, killed or not. Elsewhere it is removed as its last handle closes.
    """
    return tempfile.TemporaryFile(prefix="vastgp-")


def disk_full_error(
    error: OSError, what: str, needed: int, *, exact: bool = True, free: int | None = None
) -> OSError:
    """The error to raise for one met while writing temporary data: what it takes, where, and what to do.

    Errors that are not about room are returned as they are.
    """
    if error.errno not in DISK_FULL:
        return error
    folder = tempfile.gettempdir()
    have = "" if free is None else f", which has {free:,} bytes free"
    return OSError(
        error.errno,
        f"{os.strerror(error.errno)}: {what} takes {'' if exact else 'more than '}{needed:,} bytes as a temporary "
        f"memory map in {folder}{have}. Set the environment variable TMPDIR to a folder with more room before starting "
        "Python, choose fewer columns, or give a .npy file, which is used where it lies. Nothing was left behind",
        folder,
    )


class Spool:
    """Collects blocks of inputs and targets and returns them as whole arrays.

    Parameters
    ----------
    d
        Number of inputs.
    dtype
        Type that inputs are stored in; targets are float64.
    with_target
        Whether blocks bring targets.
    num_rows
        Number of rows to come, when it is known.
    memory_budget
        Bytes that may stay in memory.
    what
        What is being read, for messages.
    """

    def __init__(
        self,
        d: int,
        dtype: np.dtype,
        with_target: bool,
        *,
        num_rows: int | None = None,
        memory_budget: float = MEMORY_BUDGET,
        what: str = "the table",
    ) -> None:
        self._dtypes = (
            (np.dtype(dtype), np.dtype(np.float64)) if with_target else (np.dtype(dtype),)
        )
        self._tails: tuple[tuple[int, ...], ...] = ((d,), ())[: len(self._dtypes)]
        self._bytes_per_row = d * self._dtypes[0].itemsize + 8 * with_target
        self._expected, self._budget, self._what = num_rows, memory_budget, what
        self._blocks: list[tuple[np.ndarray, ...]] = []
        self._whole: tuple[np.ndarray, ...] | None = None
        self._files: tuple[IO[bytes], ...] | None = None
        self.num_rows = 0
        if num_rows is not None:
            if num_rows * self._bytes_per_row > memory_budget:
                self._open_files()
            else:  # filled in place: no second copy at the end
                self._whole = tuple(
                    np.empty((num_rows, *tail), dtype)
                    for dtype, tail in zip(self._dtypes, self._tails, strict=True)
                )

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, X: np.ndarray, y: np.ndarray | None) -> None:
        """Add a block, which must not be changed afterwards."""
        parts = (X,) if y is None else (X, y)
        block = tuple(
            np.ascontiguousarray(part, dtype=dtype)
            for part, dtype in zip(parts, self._dtypes, strict=True)
        )
        start, self.num_rows = self.num_rows, self.num_rows + X.shape[0]
        if self._whole is not None:
            for array, part in zip(self._whole, block, strict=True):
                array[start : self.num_rows] = part
            return
        if self._files is None and self.num_rows * self._bytes_per_row > self._budget:
            self._open_files()
        if self._files is None:
            self._blocks.append(block)
        else:
            self._write(block)

    def finish(self) -> tuple[np.ndarray, np.ndarray | None]:
        """All rows. The spool is empty afterwards."""
        if self._whole is not None:
            arrays = tuple(array[: self.num_rows] for array in self._whole)
        elif self._files is not None:
            arrays = tuple(
                _map(file, dtype, (self.num_rows, *tail))
                for file, dtype, tail in zip(self._files, self._dtypes, self._tails, strict=True)
            )
        else:
            arrays = tuple(
                np.concatenate(
                    [block[i] for block in self._blocks] or [np.empty((0, *tail), dtype)]
                )
                for i, (dtype, tail) in enumerate(zip(self._dtypes, self._tails, strict=True))
            )
        self.close()
        return arrays[0], arrays[1] if len(arrays) > 1 else None

    def close(self) -> None:
        """Let go of everything that `finish` has not returned."""
        for file in self._files or ():
            file.close()
        self._files, self._whole, self._blocks = None, None, []

    # ------------------------------------------------------------ disk

    def _open_files(self) -> None:
        if self._expected is not None:
            # Better to know now than after an hour of copying.
            needed, free = (
                self._expected * self._bytes_per_row,
                shutil.disk_usage(tempfile.gettempdir()).free,
            )
            if needed > free:
                full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                raise disk_full_error(full, self._what, needed, free=free)
        self._files = tuple(temporary_file() for _ in self._dtypes)
        blocks, self._blocks = self._blocks, []
        for block in blocks:
            self._write(block)

    def _write(self, block: tuple[np.ndarray, ...]) -> None:
        assert self._files is not None
        try:
            for file, part in zip(self._files, block, strict=True):
                file.write(_bytes(part))
                file.flush()
        except OSError as error:
            self.close()
            rows = self._expected or self.num_rows
            raise disk_full_error(
                error, self._what, rows * self._bytes_per_row, exact=self._expected is not None
            ) from error


def _bytes(part: np.ndarray) -> Any:
    return part.reshape(-1).view(np.uint8).data


def _map(file: IO[bytes], dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    # The map keeps the nameless file alive after its handle is closed. Nothing can be mapped of an empty file.
    return (
        np.memmap(file, dtype=dtype, mode="r", shape=shape) if shape[0] else np.empty(shape, dtype)
    )
