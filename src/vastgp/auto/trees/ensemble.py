"""Regression trees as arrays of numbers: predictions without the library that grew them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

# A tree's leaves are the bits of a number of this type.
LEAVES = np.uint16
MOST_LEAVES = 16
# Rows and trees that are looked at together: comparisons of so many fit the processor's own memory.
_ROWS, _TREES = 512, 50


@dataclass(frozen=True, eq=False)
class Trees:
    """Sums of regression trees, for one or several columns.

    A row goes left at a node where its input is at most the threshold. Instead of being led from node to node, it is
    compared at all nodes of a tree at once (Lucchese et al. 2015, QuickScorer): leaves are numbered from left to right,
    a node that sends the row right rules out the leaves to its left, and of those that no node rules out the first one
    is where the row ends.

    Attributes
    ----------
    feature : ndarray of int, shape (m,)
        The input that each node looks at; the nodes of one tree lie together.
    threshold : ndarray of float, shape (m,)
    keep : ndarray of uint16, shape (m,)
        The leaves, as bits, that remain where a row goes right.
    start : ndarray of int, shape (t,)
        The first node of each tree.
    values : ndarray of float, shape (t, 16)
        Of each tree's leaves, from left to right.
    column : ndarray of int, shape (t,)
        The column that each tree adds to.
    base : ndarray of float, shape (c,)
        What the columns are without trees.
    shares : ndarray of float, shape (d,)
        Each input's share of what the trees explain: the loss that its splits save, of that of all.
    """

    feature: np.ndarray
    threshold: np.ndarray
    keep: np.ndarray
    start: np.ndarray
    values: np.ndarray
    column: np.ndarray
    base: np.ndarray
    shares: np.ndarray

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return the columns for rows, (n, c).

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Finite numbers.
        """
        X = np.asarray(X, np.float64)
        found = np.tile(self.base, (len(X), 1))
        ends = np.append(self.start[1:], len(self.feature))
        for first in range(0, len(X), _ROWS):
            rows = slice(first, first + _ROWS)
            inputs = np.ascontiguousarray(X[rows].T)
            for tree in range(0, len(self.start), _TREES):
                trees = slice(tree, tree + _TREES)
                nodes = slice(int(self.start[tree]), int(ends[trees][-1]))
                found[rows] += self._of_block(inputs, trees, nodes)
        return found

    def _of_block(self, inputs: np.ndarray, trees: slice, nodes: slice) -> np.ndarray:
        """Return what some trees add for some rows, (rows, c), of transposed inputs."""
        right = inputs[self.feature[nodes]] > self.threshold[nodes, None]
        remain = np.where(right, self.keep[nodes, None], LEAVES(0xFFFF))
        left_over = np.bitwise_and.reduceat(remain, self.start[trees] - nodes.start, axis=0)
        # the bits below the lowest one that is set are as many as leaves before it
        leaf = np.bitwise_count((left_over & -left_over) - LEAVES(1))
        values = np.take_along_axis(self.values[trees], leaf.astype(np.intp), axis=1)
        adds_to = self.column[trees, None] == np.arange(len(self.base))
        return values.T @ adds_to.astype(np.float64)

    @classmethod
    def mean_of(cls, parts: Sequence[Trees]) -> Trees:
        """Return one sum of trees that is the mean of several: their leaves and bases, divided by their number."""
        before = np.cumsum([0] + [len(part.feature) for part in parts[:-1]])
        joined = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("feature", "threshold", "keep", "values", "column")
        }
        joined["values"] = joined["values"] / len(parts)
        start = [part.start + shift for part, shift in zip(parts, before, strict=True)]
        return cls(
            **joined,
            start=np.concatenate(start),
            base=np.mean([part.base for part in parts], axis=0),
            shares=np.mean([part.shares for part in parts], axis=0),
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of a file; `Trees` of them is an equal object."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Any]) -> Trees:
        """Return the trees that `to_arrays` gave."""
        return cls(**{one.name: np.asarray(arrays[one.name]) for one in fields(cls)})
