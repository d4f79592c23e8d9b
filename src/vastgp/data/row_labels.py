"""Labels of rows, the index of pandas: rows are matched by position, and labels tell where that cannot be meant."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from vastgp._warn import warn
from vastgp.data.tables import Table, text_of_name


def row_labels(values: Any) -> Any:
    """Return the index of a table, data frame or series of pandas; None of anything else."""
    if isinstance(values, Table):
        return values.row_labels
    index = getattr(values, "index", None)
    return index if type(index).__module__.partition(".")[0] == "pandas" else None


def warn_of_other_order(X: Any, given: Any, argument: str) -> None:
    """Say that what was given beside rows has their labels in another order: it is not aligned by them.

    Parameters
    ----------
    X : table, data frame or anything else
    given : series, data frame or anything else
        Targets, weights or whatever has a value for each row.
    argument : str
        What it is called.
    """
    ours, theirs = row_labels(X), row_labels(given)
    if ours is None or theirs is None or len(ours) != len(theirs):
        return
    places = _places(ours, theirs)
    expected = np.arange(len(ours))
    # other labels say nothing of these rows
    if places is None or not np.array_equal(np.sort(places), expected):
        return
    moved = np.flatnonzero(places != expected)
    # the same labels may be of another type: of other categories, or by the clocks of another zone
    if not len(moved):
        return
    row = int(moved[0])
    here, there = text_of_name(ours[row]), text_of_name(theirs[row])
    warn(
        f"The index of {argument} has the labels of X in another order, and rows are matched by position: row {row} "
        f"of X (counted from 0) is labelled {here}, and is given what {argument} has for {there}. If one of them was "
        f"shuffled, {argument}.loc[X.index] has the order of X; {argument}.to_numpy() has no labels."
    )


def _places(ours: Any, theirs: Any) -> np.ndarray | None:
    """Return where each of our labels is among theirs, -1 for none; None where they are equal, or where nobody can say.

    Of labels that come twice it is not known which is which, and some pandas cannot look up, such as lists, or tuples
    of other lengths than theirs.
    """
    try:
        with warnings.catch_warnings():
            # of pandas, about types that it will tell apart one day
            warnings.simplefilter("ignore")
            if ours.equals(theirs) or not (ours.is_unique and theirs.is_unique):
                return None
            return np.asarray(theirs.get_indexer(ours))
    except Exception:  # no fit is to end where only a word of caution would be said
        return None
