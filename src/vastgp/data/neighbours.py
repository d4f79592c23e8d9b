"""Nearest neighbours: exact by a tree or by all distances, approximate by an index whose recall is measured."""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import Any

import numpy as np

from vastgp.data.spool import MEMORY_BUDGET, disk_full_error, temporary_file

METHODS = ("auto", "exact", "approximate")
# A tree is fast in few dimensions; from there on all distances are, up to so many points.
_MOST_TREE_DIMENSIONS, _MOST_TREE_POINTS = 5, 20_000
_LEAF = 40
# Without a word, indices beyond these become approximate.
_FEWEST_APPROXIMATE = 20_000
# An approximate index is searched ever wider until the share of true neighbours found among some rows is this one.
_LEAST_RECALL, _JUDGES = 0.98, 200
# Entries of a block of distances.
_TILE_ENTRIES = 2**22


def load_faiss() -> Any:
    """Return the faiss module.

    Raises
    ------
    ImportError
        Naming the extra that brings it.
    """
    try:
        return importlib.import_module("faiss")
    except ImportError:
        raise ImportError(
            "approximate neighbours need faiss, which is not installed. Install it with "
            "pip install 'vastgp[neighbors]', or set neighbor_search='exact'."
        ) from None


def has_faiss() -> bool:
    """Whether approximate neighbours are to be had."""
    return importlib.util.find_spec("faiss") is not None


class NeighbourIndex:
    """Finds the points nearest to others, where each input has a scale of its own.

    Parameters
    ----------
    Z : ndarray of shape (m, d)
        The points.
    scales : ndarray of shape (d,)
        Lengthscales: distances are between inputs divided by them.
    method : {"auto", "exact", "approximate"}
        ``"exact"``: a k-d tree (scikit-learn) in up to 5 dimensions or for up to 20,000 points, all distances
        otherwise. ``"approximate"``: an inverted file (faiss), searched so widely that 98 of 100 neighbours found are
        true ones, as measured on the points themselves. ``"auto"``: approximate where neither tree is fast, if faiss is
        installed.

    Attributes
    ----------
    recall : float
        Measured share of true neighbours; 1 for an exact index.
    by_differences : bool
        Whether distances are of differences of inputs, rather than of products, whose rounding is that of squares.
    largest : float
        The largest squared length of a point over its scales.
    """

    def __init__(self, Z: np.ndarray, scales: np.ndarray, method: str = "auto") -> None:
        self.scales = np.asarray(scales, np.float64)
        self.points = np.ascontiguousarray(np.asarray(Z, np.float64) / self.scales)
        size, width = self.points.shape
        fits_tree = width <= _MOST_TREE_DIMENSIONS or size <= _MOST_TREE_POINTS
        if method == "auto":
            approximate = not fits_tree and size > _FEWEST_APPROXIMATE and has_faiss()
            method = "approximate" if approximate else "exact"
        self.method, self.recall = method, 1.0
        self._tree: Any = None
        self._file: Any = None
        if method == "approximate":
            self._build_file()
        elif width <= _MOST_TREE_DIMENSIONS or (size > 256 and width <= 10 and fits_tree):
            from sklearn.neighbors import KDTree

            self._tree = KDTree(self.points, leaf_size=_LEAF)
        self.by_differences = self._tree is not None
        self.largest = float(np.max(np.einsum("ij,ij->i", self.points, self.points), initial=0.0))

    def query(self, X: np.ndarray, count: int) -> np.ndarray:
        """Return the numbers of the ``count`` points nearest to each row of ``X``, the nearest first.

        Parameters
        ----------
        X : ndarray of shape (n, d)
        count : int
            At most the number of points.

        Returns
        -------
        ndarray of int32, shape (n, count)
        """
        X = np.asarray(X, np.float64) / self.scales
        if self._file is not None:
            return self._search_file(X, count)
        if self._tree is not None:
            return self._tree.query(X, count, return_distance=False).astype(np.int32)
        return nearest(X, self.points, count)

    # ------------------------------------------------------------ approximate

    def _build_file(self) -> None:
        faiss = load_faiss()
        points = self.points.astype(np.float32)
        size, width = points.shape
        lists = int(np.clip(2.0 * size**0.5, 1, max(size // 39, 1)))  # faiss asks for 39 a list
        coarse = faiss.IndexFlatL2(width)
        index = faiss.IndexIVFFlat(coarse, width, lists)
        # a million points of eleven inputs: 0.2 s, where all of them, ten times, in twice as many lists took 5 s and
        # found the same neighbours
        index.cp.seed, index.cp.niter, index.cp.max_points_per_centroid = 1, 5, 64
        index.train(points)
        index.add(points)
        self._file, self._coarse = index, coarse
        judges = points[:: max(1, size // _JUDGES)][:_JUDGES]
        _, truth = faiss.knn(judges, points, min(64, size))
        self._tune(judges, truth, lists)

    def _tune(self, judges: np.ndarray, truth: np.ndarray, lists: int) -> None:
        """Widen the search until it finds what there is."""
        self._file.nprobe = max(1, lists // 64)
        while True:
            self.recall = overlap(truth, self._search_file(judges, truth.shape[1]))
            if self.recall >= _LEAST_RECALL or self._file.nprobe >= lists:
                return
            self._file.nprobe = min(2 * self._file.nprobe, lists)

    def _search_file(self, X: np.ndarray, count: int) -> np.ndarray:
        _, found = self._file.search(np.ascontiguousarray(X, np.float32), count)
        short = np.flatnonzero((found < 0).any(axis=1))
        if len(short):  # fewer points than asked for in the lists searched
            found[short] = nearest(X[short], self.points, count)
        return found.astype(np.int32)


def nearest(X: np.ndarray, Z: np.ndarray, count: int) -> np.ndarray:
    """Return the numbers of the ``count`` rows of ``Z`` nearest to each row of ``X``, the nearest first.

    By all distances; ties go to the earlier one.
    """
    tile = max(1, _TILE_ENTRIES // len(Z))
    found = np.empty((len(X), count), np.int32)
    square = np.einsum("ij,ij->i", Z, Z)
    for start in range(0, len(X), tile):
        part = X[start : start + tile]
        # |x|^2 is the same for all
        distance = square - 2.0 * (part @ Z.T)
        found[start : start + tile] = smallest(distance, count)
    return found


def smallest(values: np.ndarray, count: int) -> np.ndarray:
    """Return the columns of the ``count`` smallest entries of each row, in rising order."""
    if count < values.shape[1]:
        chosen = np.argpartition(values, count - 1, axis=1)[:, :count]
        chosen.sort(axis=1)
    else:
        chosen = np.broadcast_to(np.arange(values.shape[1]), values.shape)
    order = np.argsort(np.take_along_axis(values, chosen, axis=1), axis=1, kind="stable")
    return np.take_along_axis(chosen, order, axis=1).astype(np.int32)


def overlap(truth: np.ndarray, found: np.ndarray) -> float:
    """Return the mean share of the entries in each row of ``truth`` that are in the same row of ``found``."""
    shared = [len(np.intersect1d(a, b)) for a, b in zip(truth, found, strict=True)]
    return float(np.mean(shared)) / truth.shape[1]


def nearest_predecessors(
    Z: np.ndarray, scales: np.ndarray, count: int, method: str = "auto"
) -> np.ndarray:
    """Return the numbers of the ``count`` points nearest to each among those before it, -1 where there are fewer.

    Exact for the first few thousand points. Beyond, points are taken in blocks that grow by a quarter, and a point
    chooses among those before its block: at least four fifths of its predecessors.

    Returns
    -------
    ndarray of int32, shape (m, count)
    """
    points = np.asarray(Z, np.float64) / np.asarray(scales, np.float64)
    size = len(points)
    found = np.full((size, count), -1, np.int32)
    exact = min(size, max(2048, 5 * count))
    square = np.einsum("ij,ij->i", points[:exact], points[:exact])
    tile = max(1, _TILE_ENTRIES // exact)
    for start in range(0, exact, tile):
        stop = min(start + tile, exact)
        distance = square[:stop] - 2.0 * points[start:stop] @ points[:stop].T
        own = np.arange(start, stop)[:, None]
        distance = np.where(np.arange(stop) < own, distance, np.inf)
        chosen = smallest(distance, min(count, stop))
        found[start:stop, : chosen.shape[1]] = np.where(chosen < own, chosen, -1)
    start = exact
    ones = np.ones(points.shape[1])
    while start < size:
        stop = min(size, start + max(1, start // 4))
        index = NeighbourIndex(points[:start], ones, method)
        found[start:stop] = index.query(points[start:stop], count)
        start = stop
    return found


def _reserve(descriptor: int, size: int) -> None:
    """Make a file so long; where the system can, its room on the disk is taken now and not when it is written."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.truncate(descriptor, size)


class NeighbourTable:
    """Neighbours of numbered rows, found when a row is first asked for and kept: in memory, on disk if they are many.

    Parameters
    ----------
    num_rows, count : int
        Rows that may be asked for, and neighbours of each.
    memory_budget : float
        Bytes that may stay in memory.
    """

    def __init__(self, num_rows: int, count: int, memory_budget: float = MEMORY_BUDGET) -> None:
        self._known = np.zeros(num_rows, bool)
        self.on_disk = num_rows * count * 4 > memory_budget
        if not self.on_disk:
            self._kept = np.empty((num_rows, count), np.int32)
            return
        file = temporary_file()
        try:
            _reserve(file.fileno(), num_rows * count * 4)
            self._kept = np.memmap(file, np.int32, "r+", shape=(num_rows, count))
        except OSError as error:
            file.close()
            raise disk_full_error(error, "the table of neighbours", num_rows * count * 4) from error

    def forget(self) -> None:
        """Forget all neighbours: the points or their metric have changed."""
        self._known[:] = False

    def lookup(self, rows: np.ndarray, X: np.ndarray, index: NeighbourIndex) -> np.ndarray:
        """Return neighbours of rows by their numbers.

        Parameters
        ----------
        rows : ndarray of int, shape (n,)
        X : ndarray of shape (n, d)
            Their inputs, for those that are not known.
        index : NeighbourIndex
        """
        missing = np.flatnonzero(~self._known[rows])
        if len(missing):
            self._kept[rows[missing]] = index.query(X[missing], self._kept.shape[1])
            self._known[rows[missing]] = True
        return np.asarray(self._kept[rows])
