"""The nearest of points that lie with several processes, each of which has a part of them.

Inputs whose neighbours are looked for go round all processes in tiles, from each to the next. Each looks among its own
points, and keeps with the inputs the nearest of those that they have met so far, with what is known there. After one
round they are back home with the nearest of all. So no process holds more than its own points, and the neighbours of
one tile; and as the order of neighbours is that of `RankedIndex`, it does not depend on who has which points.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from vastgp.data import processes
from vastgp.data.joint_programs import passed_on
from vastgp.data.ranked_neighbours import RankedIndex

# Numbers of a tile that travels, at most, and its inputs.
_TILE_ENTRIES, _MOST_ROWS = 2**20, 1024


class Near(NamedTuple):
    """What is nearest to some inputs.

    Attributes
    ----------
    rows : slice
        Of which inputs, of all that this process asked for.
    numbers : ndarray of int64, shape (n, count)
        Numbers of their neighbours in the whole, the nearest first.
    values : ndarray of shape (n, count, w)
        What is known at the neighbours.
    """

    rows: slice
    numbers: np.ndarray
    values: np.ndarray


class _Tile(NamedTuple):
    """Inputs on their way, NaN where a process has fewer, with squared distances, numbers and values of the nearest."""

    X: np.ndarray
    distance: np.ndarray
    numbers: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray, size: int, count: int, width: int) -> _Tile:
        blank = np.full((size - len(X), X.shape[1]), np.nan)
        return cls(
            np.concatenate([X, blank]),
            np.full((size, count), np.inf),
            np.zeros((size, count), np.int64),
            np.zeros((size, count, width)),
        )

    def nearer(self, distance: np.ndarray, numbers: np.ndarray, values: np.ndarray) -> _Tile:
        """Return the tile with those of the neighbours that it has and of others that are nearest."""
        far = np.concatenate([self.distance, distance], axis=1)
        number = np.concatenate([self.numbers, numbers], axis=1)
        order = np.lexsort((number, far))[:, : self.distance.shape[1]]
        known = np.concatenate([self.values, values], axis=1)
        return _Tile(
            self.X,
            np.take_along_axis(far, order, axis=1),
            np.take_along_axis(number, order, axis=1),
            np.take_along_axis(known, order[..., None], axis=1),
        )

    def passed_on(self) -> _Tile:
        """Return the tile that the process before this one has."""
        size, shapes = len(self.X), [part.shape for part in self]
        # numbers of rows are whole below 2^53
        told = passed_on(np.concatenate([part.reshape(size, -1) for part in self], axis=1, dtype=float))  # fmt: skip
        ends = np.cumsum([int(np.prod(shape[1:])) for shape in shapes])[:-1]
        X, distance, numbers, values = (
            part.reshape(shape)
            for part, shape in zip(np.split(told, ends, axis=1), shapes, strict=True)
        )
        return _Tile(X, distance, numbers.astype(np.int64), values)


class SharedNeighbours:
    """The points of all processes, of which each has a part, those of process 0 first.

    All processes make this, and ask, at the same place of the program.

    Parameters
    ----------
    Z : ndarray of shape (m, d)
        Those of this process; it may have none.
    values : ndarray of shape (m, w)
        What is known there, and comes with each neighbour.
    scales : ndarray of shape (d,)
    method : {"auto", "exact", "approximate"}
        As of `NeighbourIndex`; ``"auto"`` is exact, so that the nearest are those of one process. Approximate indices
        are of each process, and other ones of other parts.

    Attributes
    ----------
    size : int
        Number of all points.
    recall : float
        The least of all processes.
    """

    def __init__(
        self, Z: np.ndarray, values: np.ndarray, scales: np.ndarray, method: str = "auto"
    ) -> None:
        self._index = RankedIndex(Z, scales, "exact" if method == "auto" else method)
        self._values = values
        counts = [int(n) for n in processes.gathered(np.int64(len(Z)))]
        self.size, self._first = sum(counts), sum(counts[: processes.number()])
        self.recall = float(np.min(processes.gathered(np.float64(self._index.recall))))

    def near(self, X: np.ndarray, count: int) -> Iterator[Near]:
        """Give the points nearest to each row of ``X``, tile by tile.

        All processes ask for as many neighbours, each of rows of its own, of which it may have none, and take all that
        is given.

        Parameters
        ----------
        X : ndarray of shape (n, d)
        count : int
            At most the number of all points.
        """
        most = int(np.max(processes.gathered(np.int64(len(X)))))
        width = X.shape[1] + count * (2 + self._values.shape[1])
        size = min(_MOST_ROWS, max(1, _TILE_ENTRIES // width), 1 << max(most - 1, 0).bit_length())
        for start in range(0, most, size):
            rows = slice(min(start, len(X)), min(start + size, len(X)))
            tile = _Tile.of(X[rows], size, count, self._values.shape[1])
            for _ in range(processes.count()):
                tile = self._among_own(tile, count).passed_on()
            some = rows.stop - rows.start
            if some:
                yield Near(rows, tile.numbers[:some], tile.values[:some])

    def _among_own(self, tile: _Tile, count: int) -> _Tile:
        """Return a tile that has met the points of this process."""
        some = ~np.isnan(tile.X[:, 0])
        own = min(count, self._index.size)
        distance = np.full((len(some), own), np.inf)
        found = np.zeros((len(some), own), np.int32)
        distance[some], found[some] = self._index.ranked(tile.X[some], own)
        values = self._values[found] if own else tile.values[:, :0]
        return tile.nearer(distance, self._first + found.astype(np.int64), values)
