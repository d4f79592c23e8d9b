"""Rows of a data set: read in order by batches, or at random by index, from memory or from disk."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vastgp.data.validate import check_finite


@dataclass(eq=False)
class Rows:
    """Inputs and targets of a data set, in memory or on disk.

    Made by `vastgp.data.as_rows`. Values keep the type that they are stored in and become float64 as they are read.
    Every block read is checked for NaN and infinity, once: what was checked when it came in is not checked again.

    Parameters
    ----------
    X : array-like, shape (n, d)
        Inputs: whatever takes slices and integer arrays as row index (`numpy.ndarray`, `numpy.memmap`).
    y : array-like, shape (n,), (n, 3) or (n, 2), optional
        Targets; with noise that rows have of their own in two more columns, or counts with their exposure in one, see
        `vastgp.data.observations`. Batches and selections of rows have both.
    feature_names : list of str, optional
        Names of the columns, when they came with some.
    target_name : str, optional
        Name of the target column, when it came with one.
    checked : bool, default False
        Whether all values are known to be finite.
    """

    X: Any
    y: Any = None
    feature_names: list[str] | None = None
    target_name: str | None = None
    checked: bool = False
    _maps: list[mmap.mmap] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._maps = [found for found in (_map_of(self.X), _map_of(self.y)) if found is not None]
        # A view of the plain type: indexing a numpy.memmap makes another one each time, which costs microseconds.
        self.X, self.y = _plain(self.X), _plain(self.y)

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def d(self) -> int:
        """Number of features."""
        return int(self.X.shape[1])

    @property
    def local(self) -> Rows:
        """Those of these rows that this process has: all, unless several processes share them."""
        if not hasattr(self.X, "local"):
            return self
        y = None if self.y is None else self.y.local
        return replace(self, X=self.X.local, y=y)

    @property
    def first(self) -> int:
        """Number of the first of the rows that this process has."""
        return int(getattr(self.X, "first", 0))

    @property
    def in_memory(self) -> bool:
        """Whether the rows are in memory, rather than in a file that is mapped into it."""
        return not self._maps

    def batches(self, batch_rows: int) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """Read all rows in order. A block may be the stored values themselves; it is read-only then.

        Parameters
        ----------
        batch_rows
            Rows in a batch; the last one may have fewer.

        Yields
        ------
        X : ndarray of float64, shape (rows, d)
        y : ndarray of float64, shape (rows,), or None

        Raises
        ------
        ValueError
            For a NaN or an infinity, naming its row and column.
        """
        if batch_rows < 1:
            raise ValueError(f"batch_rows is {batch_rows}. Expected at least 1.")
        for start in range(0, self.n, batch_rows):
            stop = min(start + batch_rows, self.n)
            self._expect("MADV_SEQUENTIAL")
            X = _float64(self.X[start:stop])
            y = None if self.y is None else _float64(self.y[start:stop])
            if not self.checked:
                self._check(X, y, np.arange(start, stop))
            yield X, y

    def take(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Read some rows, in the order asked for; a row may be asked for more than once.

        Parameters
        ----------
        indices : ndarray of int, shape (b,)
            Row numbers, from 0 to n - 1.

        Returns
        -------
        X : ndarray of float64, shape (b, d)
        y : ndarray of float64, shape (b,), or None
        """
        indices = np.asarray(indices)
        if indices.ndim != 1 or indices.dtype.kind not in "iu":
            raise ValueError(
                f"indices have shape {indices.shape} and dtype {indices.dtype}. Expected row numbers: one dimension of "
                "integers (numpy.flatnonzero turns a mask into them)."
            )
        if indices.size and (indices.min() < 0 or indices.max() >= self.n):
            raise IndexError(
                f"indices run from {indices.min()} to {indices.max()}, but rows are numbered 0 to {self.n - 1}."
            )
        order = None
        if self._maps:
            # In the order of the file, so that each page of it is touched once and the disk reads forwards.
            self._expect("MADV_RANDOM")
            order = np.argsort(indices, kind="stable")
            indices = indices[order]
        X = np.ascontiguousarray(self.X[indices], dtype=np.float64)
        y = None if self.y is None else np.ascontiguousarray(self.y[indices], dtype=np.float64)
        if not self.checked:
            self._check(X, y, indices)
        if order is not None:
            back = np.empty_like(order)
            back[order] = np.arange(order.size)
            X = X[back]
            y = None if y is None else y[back]
        return X, y

    def numbers(self, indices: np.ndarray) -> np.ndarray:
        """Return row numbers in the whole of some rows, where these are a part of it."""
        return self.X.row_numbers(indices) if hasattr(self.X, "row_numbers") else indices

    @property
    def numbered(self) -> int:
        """How many rows the whole has that `numbers` count in."""
        return int(getattr(self.X, "num_numbered", self.n))

    def _check(self, X: np.ndarray, y: np.ndarray | None, indices: np.ndarray) -> None:
        """Raise for what is not finite, with the row numbers of the whole where these rows are a part of it."""
        numbers = self.numbers(indices)
        check_finite(X, "X", row_numbers=numbers, names=self.feature_names)
        if y is not None:
            check_finite(y, "y", row_numbers=numbers)

    def _expect(self, advice: str) -> None:
        """Tell the system how the files will be read; a hint that changes no values.

        Left to itself it reads ahead around every random row: 88 MB for 500 rows of a 1.8 GB file out of cache, against
        2 MB with the hint (44 bytes a row), and the other way round a pass in order takes eight times as long without
        reading ahead.
        """
        for mapped in self._maps:
            if hasattr(mmap, advice):
                mapped.madvise(getattr(mmap, advice))


def numbers_of_rows(index: Any, n: int) -> np.ndarray:
    """Return the numbers of the rows, of n, that an array asks for as NumPy has it: by number or by a mask.

    Raises
    ------
    IndexError
        For a row that is not there, and a mask of another length.
    """
    index = np.asarray(index)
    if index.dtype == bool:
        if index.shape != (n,):
            raise IndexError(f"a mask of shape {index.shape} for {n} rows. Expected shape ({n},).")
        return np.flatnonzero(index)
    index = index.astype(np.int64)
    if index.size and (index.min() < -n or index.max() >= n):
        raise IndexError(f"rows {index.min()} to {index.max()}, of {n}.")
    # from the end, where negative
    return np.where(index < 0, index + n, index)


def _float64(block: np.ndarray) -> np.ndarray:
    """Float64 values of a slice of rows, read-only where they are the stored values themselves."""
    values = np.ascontiguousarray(block, dtype=np.float64)
    if np.may_share_memory(values, block):
        values = values.view()
        values.flags.writeable = False
    return values


def _map_of(array: object) -> mmap.mmap | None:
    """The mapped file that an array's memory is, also when the array is a view of it."""
    while array is not None:
        if isinstance(array, mmap.mmap):
            return array
        array = getattr(array, "_mmap" if isinstance(array, np.memmap) else "base", None)
    return None


def _plain(array: Any) -> Any:
    return array.view(np.ndarray) if isinstance(array, np.memmap) else array
