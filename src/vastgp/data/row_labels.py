"""Labels of rows, the index of pandas: rows are matched by position, and labels tell where that cannot be meant."""

from __future__ import annotations

from typing import Any

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
    if ours is None or theirs is None or len(ours) != len(theirs) or ours.equals(theirs):
        return
    # other labels say nothing of these rows, and of those that come twice nobody knows which is which
    if not (ours.is_unique and theirs.is_unique and bool(theirs.isin(ours).all())):
        return
    row = int((ours != theirs).argmax())
    here, there = text_of_name(ours[row]), text_of_name(theirs[row])
    warn(
        f"The index of {argument} has the labels of X in another order, and rows are matched by position: row {row} "
        f"of X (counted from 0) is labelled {here}, and is given what {argument} has for {there}. If one of them was "
        f"shuffled, {argument}.loc[X.index] has the order of X; {argument}.to_numpy() has no labels."
    )
