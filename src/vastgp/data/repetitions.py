"""Rows that repeat each other, and random rows together with all that repeat them."""

from __future__ import annotations

import numpy as np

# Rows that differ by less, in deviations of every input, repeat each other; and the fewest groups that tell anything.
_REPEATED, _FEWEST_GROUPS = 0.01, 20


def repeated(matrix: np.ndarray) -> np.ndarray | None:
    """Return for every row the number of the group of rows that repeat each other, to a hundredth of a deviation.

    None where there is none, and where no input is a number with decimals: of categories and whole numbers alone the
    same rows will come again.

    Parameters
    ----------
    matrix : ndarray of shape (n, d)
        Inputs; encoded ones of a table as those of new rows.
    """
    groups = nearly_repeated(matrix)
    return groups if _FEWEST_GROUPS <= np.max(groups) + 1 < len(groups) else None


def nearly_repeated(matrix: np.ndarray) -> np.ndarray:
    """Return for every row the number of its group, see `repeated`: its own where there is none that repeats it."""
    varies = np.any(matrix != np.round(matrix), axis=0)
    if not varies.any():
        return np.arange(len(matrix))
    scale = np.std(matrix, axis=0)
    cells = np.round((matrix - matrix[0]) / np.where(scale > 0.0, _REPEATED * scale, 1.0))
    # a random number for each input makes one of each row, which are equal where the rows are
    mixing = np.random.default_rng(0).normal(size=matrix.shape[1])
    return np.unique(cells @ mixing, return_inverse=True)[1]


def has_few_places(matrix: np.ndarray) -> bool:
    """Return whether rows are of few places and repeat each other nearly: none of them will come again.

    Rows that repeat each other exactly are those of a design, and new ones may be of the same places.
    """
    places = np.max(nearly_repeated(matrix)) + 1
    few = places < min(_FEWEST_GROUPS, len(matrix))
    return bool(few and len(np.unique(matrix, axis=0)) > places)


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
