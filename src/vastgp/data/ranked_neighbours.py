"""Nearest neighbours in one order: by distance, and of equal distances the earlier point first.

Which of several equally near points a tree finds depends on the tree. Where processes have parts of the points, each
with a tree of its own, the nearest of all must not depend on who has which. So distances are those of each pair by
itself, to the last bit, and points that are as far as the last of the nearest are all looked at.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from vastgp.data.neighbours import NeighbourIndex

# Entries of a block of distances.
_TILE_ENTRIES = 2**21
# Distances that differ by less than this share may be in another order where a tree adds them up.
_ROUNDING = 1e-12
# So many times as many places are looked at where those looked at leave open which are nearest.
_WIDER = 4


class _Places(NamedTuple):
    """Where points are, each place once: an index of places, and the numbers of the points at each, rising."""

    finder: NeighbourIndex
    points: np.ndarray
    starts: np.ndarray

    @classmethod
    def of(cls, points: np.ndarray) -> _Places:
        order = np.lexsort(points.T)  # keeps the order of those that are the same
        apart = np.any(np.diff(points[order], axis=0) != 0.0, axis=1)
        starts = np.concatenate([[0], np.flatnonzero(apart) + 1, [len(points)]])
        first = points[order[starts[:-1]]]
        return cls(NeighbourIndex(first, np.ones(points.shape[1]), "exact"), order, starts)


class RankedIndex:
    """`NeighbourIndex` whose answers are in one order, whatever else is among the points. There may be none.

    Parameters
    ----------
    Z, scales, method
        As of `NeighbourIndex`.

    Attributes
    ----------
    size : int
        Number of points.
    recall : float
        As of `NeighbourIndex`. Where it is below one the order is that of the points that are found.
    """

    def __init__(self, Z: np.ndarray, scales: np.ndarray, method: str = "auto") -> None:
        self.size, self._scales = len(Z), np.asarray(scales, np.float64)
        self._index = NeighbourIndex(Z, scales, method) if len(Z) else None
        self.recall = 1.0 if self._index is None else self._index.recall

    def query(self, X: np.ndarray, count: int) -> np.ndarray:
        """Return the numbers of the nearest points, the nearest first, int32 of shape (n, count)."""
        return self.ranked(X, count)[1]

    def ranked(self, X: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return squared distances and numbers of the nearest points, both of shape (n, count).

        Parameters
        ----------
        X : ndarray of shape (n, d)
        count : int
            At most the number of points.
        """
        distance = np.empty((len(X), count))
        found = np.empty((len(X), count), np.int32)
        if self._index is None or not count:
            return distance, found
        points = np.asarray(X, np.float64) / self._scales
        tile = max(1, _TILE_ENTRIES // (count + 1))
        for start in range(0, len(X), tile):
            here = slice(start, start + tile)
            distance[here], found[here], is_open = self._looked(points[here], count)
            for first in range(0, len(is_open), tile):
                row = start + is_open[first : first + tile]
                distance[row], found[row] = self._by_places(points[row], count)
        return distance, found

    def _looked(self, X: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return distances and numbers, and the rows for which others may be as near."""
        index = self._index
        assert index is not None
        distance, found = _in_order(index, X, min(count + 1, self.size))
        known = found[:, :count]
        if self.size <= count or index.method == "approximate":
            return distance[:, :count], known, np.zeros(0, np.int64)
        least = _least_beyond(index, X, distance[:, count - 1])
        return distance[:, :count], known, np.flatnonzero(distance[:, count] <= least)

    @cached_property
    def _places(self) -> _Places:
        assert self._index is not None
        return _Places.of(self._index.points)

    def _by_places(self, X: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return distances and numbers by looking at places as far as any that counts."""
        distance, found = np.empty((len(X), count)), np.empty((len(X), count), np.int32)
        places, left = self._places, np.arange(len(X))
        number = len(places.starts) - 1
        wide = min(count + 1, number)
        while len(left):
            open_rows = []
            tile = max(1, _TILE_ENTRIES // wide)
            for start in range(0, len(left), tile):
                rows = left[start : start + tile]
                far, near = _in_order(places.finder, X[rows], wide)
                held = np.cumsum(np.diff(places.starts)[near], axis=1)
                last = np.argmax(held >= count, axis=1)
                border = far[np.arange(len(rows)), last]
                enough = held[:, -1] >= count
                settled = enough & (far[:, -1] > _least_beyond(places.finder, X[rows], border))
                settled |= wide == number
                open_rows.append(rows[~settled])
                for k in np.flatnonzero(settled):
                    some = far[k] <= border[k]
                    distance[rows[k], :], found[rows[k], :] = _first_of(
                        places, far[k, some], near[k, some], count
                    )
            left, wide = np.concatenate(open_rows), min(_WIDER * wide, number)
        return distance, found


def _in_order(index: NeighbourIndex, X: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return squared distances and numbers of scaled points that an index finds, in the one order."""
    found = index.query(X * index.scales, count)
    # an input of all points fits a cache, and points far apart do not: for 1000 rows of 784 inputs, 513 of 60,000
    # points each, 3.3 s and 1.8
    many = found.size > len(index.points)
    # one input after the other, whatever the shapes
    distance = np.zeros(found.shape)
    for k in range(X.shape[1]):
        values = index.points[:, k]
        distance += ((values.copy() if many else values)[found] - X[:, k, None]) ** 2
    order = np.lexsort((found, distance))
    return np.take_along_axis(distance, order, axis=1), np.take_along_axis(found, order, axis=1)


def _least_beyond(index: NeighbourIndex, X: np.ndarray, border: np.ndarray) -> np.ndarray:
    """Return what the farthest point looked at must be beyond for none of the others to be within a border."""
    least = border * (1.0 + _ROUNDING)
    if not index.by_differences:
        # |z|^2 - 2 x.z is off by the rounding of its parts
        sizes = np.einsum("ij,ij->i", X, X) + index.largest
        least = least + 8.0 * (X.shape[1] + 4) * np.finfo(np.float64).eps * sizes
    return least


def _first_of(
    places: _Places, far: np.ndarray, near: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return distances and numbers of the first points at some places."""
    members = [places.points[places.starts[k] : places.starts[k + 1]][:count] for k in near]
    found = np.concatenate(members)
    distance = np.repeat(far, [len(each) for each in members])
    order = np.lexsort((found, distance))[:count]
    return distance[order], found[order]
