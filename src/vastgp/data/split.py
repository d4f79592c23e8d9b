"""Rows kept back for early stopping and validation, and the rest of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from vastgp.data.minibatch import _HELD_OUT, generator
from vastgp.data.repetitions import rows_of_groups
from vastgp.data.rows import Rows, numbers_of_rows

# A held-out score has a standard error of about 1/sqrt(2 * rows) of itself: 0.7 % at this many, enough to stop by.
MAX_HELD_OUT = 10_000


def held_out_indices(
    n: int,
    fraction: float,
    seed: int,
    max_rows: int | None = MAX_HELD_OUT,
    groups: np.ndarray | None = None,
) -> np.ndarray:
    """Choose random rows to keep out of the training.

    Parameters
    ----------
    n
        Number of rows.
    fraction
        Share of the rows to keep back, between 0 and 1; at least one row is, and at least one is left.
    seed
        Any integer from 0. The minibatches of the same seed use other random numbers.
    max_rows
        Never more than this, since more would not make the score noticeably sharper and a very large data set should
        not be copied for it. None for no limit.
    groups : ndarray of int, shape (n,), optional
        Rows of one group are held out together: a model that has seen a row would be praised for its repetition. Then
        there are at most as many rows as asked for, unless every group has more; those that do come last.

    Returns
    -------
    ndarray of int64
        Sorted. Without groups, time and memory are of the order of its length, whatever ``n`` is.
    """
    if not 0.0 < fraction < 1.0:
        raise ValueError(
            f"fraction={fraction}. Expected a number between 0 and 1, for example 0.1."
        )
    if n < 2:
        raise ValueError(
            f"n={n}: a held-out part needs at least two rows, one for each side. Turn it off or add rows."
        )
    size = max(1, min(round(fraction * n), n - 1))
    if max_rows is not None:
        size = min(size, max_rows)
    draw = generator(seed, 0, _HELD_OUT)
    if groups is None:
        return np.sort(draw.choice(n, size=size, replace=False, shuffle=False))
    large = np.bincount(groups) > size
    order = draw.permutation(len(large))
    return rows_of_groups(groups, order[np.argsort(large[order], kind="stable")], size)


def without(rows: Rows, held_out: np.ndarray) -> Rows:
    """The rows that are not held out, as rows of their own, without copying any.

    Row ``k`` of the result is the ``k``-th row that is not in ``held_out``.

    Parameters
    ----------
    rows
        All rows.
    held_out : ndarray of int
        Row numbers to leave out, each once.
    """
    held_out = np.unique(np.asarray(held_out, dtype=np.int64))
    if held_out.size and (held_out[0] < 0 or held_out[-1] >= rows.n):
        raise IndexError(
            f"held_out runs from {held_out[0]} to {held_out[-1]}, but rows are numbered 0 to {rows.n - 1}."
        )
    if held_out.size >= rows.n:
        raise ValueError(f"All {rows.n} rows are held out. Leave at least one for training.")
    return Rows(
        X=_Without(rows.X, held_out),
        y=None if rows.y is None else _Without(rows.y, held_out),
        feature_names=rows.feature_names,
        target_name=rows.target_name,
        checked=rows.checked,
    )


class _Without:
    """An array without some of its rows, indexed as if they were not there."""

    def __init__(self, base: Any, held_out: np.ndarray) -> None:
        self.base = base
        self._held_out = held_out
        # held_out[i] - i kept rows stand before the i-th one left out.
        self._kept_before = held_out - np.arange(held_out.size)
        self.dtype: np.dtype = base.dtype
        self.shape: tuple[int, ...] = (base.shape[0] - held_out.size, *base.shape[1:])
        self.ndim: int = len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def _in_base(self, k: np.ndarray) -> np.ndarray:
        """Row numbers in the whole of the k-th kept rows: k, and as many as are left out before it."""
        return k + np.searchsorted(self._kept_before, k, side="right")

    def row_numbers(self, k: np.ndarray) -> np.ndarray:
        """Row numbers in the data set that all of this is a part of."""
        inner = self._in_base(k)
        return self.base.row_numbers(inner) if isinstance(self.base, _Without) else inner

    @property
    def num_numbered(self) -> int:
        """Rows of the data set that all of this is a part of."""
        return int(self.base.num_numbered if isinstance(self.base, _Without) else len(self.base))

    def __getattr__(self, name: str) -> Any:
        # of rows that several processes share (see `SharedArray`): those that this one has, and the number of the first
        if name not in ("local", "first") or not hasattr(self.base, "local"):
            raise AttributeError(name)
        first, local = self.base.first, self.base.local
        before, after = np.searchsorted(self._held_out, [first, first + len(local)])
        if name == "first":
            return first - int(before)
        return _Without(local, self._held_out[before:after] - first)

    def __getitem__(self, index: slice | np.ndarray) -> np.ndarray:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                return self[np.arange(start, stop, step)]
            if stop <= start:
                return np.asarray(self.base[:0])
            first, last = self._in_base(np.array([start, stop - 1]))
            block = self.base[first : last + 1]
            inside = self._held_out[(self._held_out > first) & (self._held_out < last)]
            return np.delete(block, inside - first, axis=0) if inside.size else np.asarray(block)
        return np.asarray(self.base[self._in_base(numbers_of_rows(index, len(self)))])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        values = self[:]
        return values if dtype is None else values.astype(dtype, copy=False)
