"""Rows that repeat each other, what they count, and random rows together with all that repeat them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from vastgp.data import processes

# Rows that differ by less, in deviations of every input, repeat each other, if that is also less than a share of the
# distance between neighbours, about n^(-1/d): of one input or two many rows are as near by chance. And the fewest
# groups that tell anything.
_REPEATED, _OF_SPACING, _FEWEST_GROUPS = 0.01, 0.1, 20


class Repetitions(NamedTuple):
    """What rows of a matrix repeat each other, to a hundredth of a deviation of every input at most.

    Attributes
    ----------
    groups : ndarray of int, or None
        See `repeated`.
    few_places : bool
        Whether rows are of few places and repeat each other nearly: none of them will come again. Rows that repeat each
        other exactly are those of a design, and new ones may be of the same places.
    design : bool
        Whether rows are of few places and repeat each other exactly.
    """

    groups: np.ndarray | None
    few_places: bool
    design: bool

    @classmethod
    def of(cls, matrix: np.ndarray) -> Repetitions:
        """Look through the rows of a matrix of shape (n, d)."""
        groups = nearly_repeated(matrix)
        places = np.max(groups) + 1
        several = _FEWEST_GROUPS <= places < len(groups)
        few = bool(places < min(_FEWEST_GROUPS, len(matrix)))
        # looked at where it counts alone: of 47 million numbers it takes three seconds
        nearly = few and len(np.unique(matrix, axis=0)) > places
        return cls(groups if several else None, nearly, few and not nearly)


@dataclass(frozen=True)
class Places:
    """Which rows are of one place: those tell as much as one, so that each place counts by the mean of its rows.

    Attributes
    ----------
    of_row : ndarray of int, shape (n,)
        The number of each row's place, from zero on without gaps.
    design : bool, default False
        Whether all rows are of the few places of a design: what is said of some tells nothing of other places.
    others : int, default 0
        How many rows more there are, of which nothing is said.
    """

    of_row: np.ndarray
    design: bool = False
    others: int = 0

    @classmethod
    def of(cls, groups: np.ndarray | None, rows: np.ndarray, design: bool = False) -> Places:
        """Return the places of some rows, of the groups of all (see `repeated`); None: each row has its own."""
        if groups is None:
            return cls(np.arange(len(rows)), design)
        return cls(np.unique(groups[rows], return_inverse=True)[1], design)

    @property
    def count(self) -> int:
        """Number of places."""
        return int(np.max(self.of_row, initial=-1)) + 1

    @property
    def apart(self) -> bool:
        """Whether each row has a place of its own."""
        return self.count == len(self.of_row)

    def means(self, values: Any, weight: np.ndarray | None = None) -> np.ndarray:
        """Return a value for each place, (count,), whose mean is the mean of places, or the weighted one.

        Parameters
        ----------
        values : array-like of shape (n,)
        weight : ndarray of shape (n,), optional
            What each row counts within and beside others; a place counts by the mean of its rows' weights.
        """
        if weight is None:
            return self._mean(np.asarray(values, np.float64))
        of_place = self._mean(weight)
        return self._mean(values * weight) / np.mean(of_place)

    def shares(self, weight: np.ndarray | None = None) -> np.ndarray | None:
        """Return what each row counts, (n,), with a sum of `count`; None where all count alike."""
        if weight is None and self.apart:
            return None
        share = 1.0 / np.bincount(self.of_row)[self.of_row]
        if weight is None:
            return np.asarray(share)
        return np.asarray(share * weight * (self.count / np.sum(share * weight)))

    def some(self, rows: np.ndarray) -> Places:
        """Return the places of some rows, a mask or their numbers."""
        found = Places.of(self.of_row, np.arange(len(self.of_row))[rows], self.design)
        return replace(found, others=self.others)

    def _mean(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self.of_row, values) / np.bincount(self.of_row)


def repeated(matrix: np.ndarray) -> np.ndarray | None:
    """Return for every row the number of the group of rows that repeat each other.

    None where there is none, where groups are too few to tell anything, and where no input is a number with decimals:
    of categories and whole numbers alone the same rows will come again.

    Parameters
    ----------
    matrix : ndarray of shape (n, d)
        Inputs; encoded ones of a table as those of new rows.
    """
    return Repetitions.of(matrix).groups


def nearly_repeated(matrix: np.ndarray) -> np.ndarray:
    """Return for every row the number of its group, see `repeated`: its own where there is none that repeats it."""
    cells = Cells.of(matrix)
    if cells is None:
        return np.arange(len(matrix))
    return np.unique(cells.keys(matrix), return_inverse=True)[1]


class Cells(NamedTuple):
    """The cells of a lattice, of which each holds rows that repeat each other.

    Attributes
    ----------
    low, width : ndarray of shape (d,)
        Where they begin: at the least value of each input, whichever the order of the rows; and how wide they are.
    """

    low: np.ndarray
    width: np.ndarray

    @classmethod
    def of(cls, matrix: Any) -> Cells | None:
        """Return the cells of all rows; None where all are whole numbers.

        Parameters
        ----------
        matrix : ndarray or SharedArray of shape (n, d)
            Of the latter each process looks at those that it has.
        """
        shared = hasattr(matrix, "local")
        own = matrix.local if shared else matrix
        varies = np.any(own != np.round(own), axis=0)
        low = np.min(own, axis=0, initial=np.inf).astype(np.float64)
        if shared:
            varies = np.any(processes.gathered(varies), axis=0)
            low = np.min(processes.gathered(low), axis=0)
        if not varies.any():
            return None
        # sums over many rows of float32 are off by several deviations where these are far from zero
        deviation = _deviation if shared else partial(np.std, axis=0, dtype=np.float64)
        n, scale = len(matrix), deviation(matrix)
        d = int(np.count_nonzero(scale))
        near = min(_REPEATED, _OF_SPACING * n ** (-1.0 / max(d, 1)))
        return cls(low, np.where(scale > 0.0, near * scale, 1.0))

    def keys(self, matrix: np.ndarray) -> np.ndarray:
        """Return a number for each row, the same where they repeat each other."""
        cells = np.round((matrix - self.low) / self.width)
        # a random number for each input makes one of each row, which are equal where the rows are: all are added up in
        # one order, which those of BLAS are not
        mixing = np.random.default_rng(0).normal(size=len(self.low))
        return np.einsum("...j,j->...", cells, mixing)


def _deviation(matrix: Any) -> np.ndarray:
    """Return the standard deviation of rows that processes share; zero of what does not vary."""
    own, n = matrix.local, len(matrix)
    low = np.min(processes.gathered(np.min(own, axis=0, initial=np.inf)), axis=0)
    high = np.max(processes.gathered(np.max(own, axis=0, initial=-np.inf)), axis=0)
    mean = processes.added(own.sum(axis=0, dtype=np.float64)) / n
    square = processes.added(((own - mean) ** 2).sum(axis=0)) / n
    return np.where(high > low, np.sqrt(square), 0.0)


def rows_of_groups(groups: np.ndarray, order: np.ndarray, most: int) -> np.ndarray:
    """Return the rows of the first groups that together have no more rows than asked for, ascending.

    Parameters
    ----------
    groups : ndarray of int, shape (n,)
        The group of each row.
    order : ndarray of int
        All groups, in the order in which they are taken.
    most : int
        Rows; the first group is taken where it alone has more.
    """
    sizes = np.cumsum(np.bincount(groups)[order])
    return np.flatnonzero(np.isin(groups, order[sizes <= max(most, sizes[0])]))
