"""Rows in tiles of one size: what is compiled for a tile serves all of them, and data of similar sizes share it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from vastgp.data.padding import repeat_last
from vastgp.data.rows import Rows
from vastgp.data.scaling import Standardizer


class Tile(NamedTuple):
    """Some rows, and copies of the last one that count nothing.

    Attributes
    ----------
    X : ndarray of shape (size, d)
        Standardised.
    y : ndarray of shape (size,) or (size, 3)
    weight : ndarray of shape (size,)
        One for rows, zero for the filling.
    num_rows : int
        Number of rows.
    """

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    num_rows: int


def tile_size(num_rows: int, most: int, least: int = 32) -> int:
    """Return how many rows a tile has: a power of two that all fit into, or ``most``."""
    return min(most, max(least, 1 << (num_rows - 1).bit_length()))


def tile_of(X: np.ndarray, y: np.ndarray, size: int) -> Tile:
    """Return standardised rows as a tile."""
    weight = (np.arange(size) < len(y)).astype(X.dtype)
    return Tile(repeat_last(X, size), repeat_last(y, size), weight, len(y))


def array_tiles(X: np.ndarray, y: np.ndarray, size: int) -> Iterator[Tile]:
    """Yield the tiles of standardised rows in memory."""
    for start in range(0, len(y), size):
        here = slice(start, start + size)
        yield tile_of(X[here], y[here], size)


def row_tiles(
    rows: Rows,
    standardizer: Standardizer,
    size: int,
    dtype: Any = "float64",
    index: np.ndarray | None = None,
) -> Iterator[Tile]:
    """Yield the tiles of rows, standardised; read block by block, so that they may lie on disk.

    Parameters
    ----------
    rows : Rows
        With targets.
    standardizer : Standardizer
    size : int
        Rows of a tile.
    dtype : {"float64", "float32"}, default "float64"
        Of the inputs; targets are in float64.
    index : ndarray of int, optional
        Numbers of the rows to read. None: all, in their order.
    """
    parts = (
        rows.batches(size)
        if index is None
        else (rows.take(index[start : start + size]) for start in range(0, len(index), size))
    )
    for X, y in parts:
        assert y is not None
        scaled = standardizer.transform_X(X, dtype=np.dtype(dtype))
        yield tile_of(scaled, standardizer.transform_y(y), size)


def over_tiles(
    function: Callable[..., Any], *arrays: Any, most: int, least: int = 32, axis: int = 0
) -> Iterator[Any]:
    """Yield ``function(*tiles)`` of one tile of arrays after another, without what it says of the filling.

    Parameters
    ----------
    function : callable
        Gives arrays, or a pytree of them, with the rows along ``axis``.
    *arrays : array, or None
        With the rows along ``axis``. None is handed on.
    most, least : int
        See `tile_size`.
    axis : {0, -1}, default 0
    """
    import jax

    given = [None if array is None else np.moveaxis(np.asarray(array), axis, 0) for array in arrays]
    n = next(len(array) for array in given if array is not None)
    size = tile_size(n, most, least)
    for start in range(0, n, size):
        count = min(size, n - start)
        some = (
            None if array is None else np.moveaxis(repeat_last(array[start : start + count], size), 0, axis)
            for array in given
        )  # fmt: skip
        kept = np.s_[:count] if axis == 0 else np.s_[..., :count]
        yield jax.tree.map(lambda part, kept=kept: np.asarray(part)[kept], function(*some))
