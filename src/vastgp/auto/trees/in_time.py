"""Whether a budget is for trees, and for how many rows."""

from __future__ import annotations

from vastgp.auto.trees.grown import (
    FEWEST_ROWS,
    columns_of,
    most_rows,
    seconds_to_grow,
    seconds_to_tell,
)

# Trees have leaves of twenty rows at least; in fewer rows than this they find next to nothing.
_FEWEST = 150
# They are grown in the race and again for all rows, and may take this share of the budget each time; half as long again
# may take what they say of rows that they were not grown on.
_SHARE, _SHARE_OF_TELLING = 0.2, 0.5
# Of numbers so many rows are enough for trees where there is no time for all (a table of dates, shops, places and
# prices, 45 columns, noise 1.12: RMSE of trees of 32,000 rows 1.20, of exact processes and of what is near in 27 s 1.47
# and 1.44).
_ENOUGH = 10_000


def has_trees(n: int, d: int, seconds: float | None, classes: int = 0) -> bool:
    """Whether there are rows for boosted trees, and time: for all rows, or for a part of them that says enough."""
    left, grown_on = seconds_for_trees(seconds), min(n, FEWEST_ROWS if classes else _ENOUGH)
    in_time = left is None or seconds_to_grow(grown_on, d, columns_of(classes)) <= left
    return n >= _FEWEST and d > 1 and in_time


def seconds_for_trees(seconds: float | None) -> float | None:
    """Return what trees may take of a budget each time that they are grown."""
    return None if seconds is None else _SHARE * seconds


def rows_told(n: int, d: int, seconds: float | None, classes: int = 0) -> int | None:
    """Return of how many rows trees are grown and say something in time; None: of all."""
    left = seconds_for_trees(seconds)
    if left is None:
        return None
    columns = columns_of(classes)
    more = int(_SHARE_OF_TELLING * left / seconds_to_tell(1, columns))
    found = most_rows(d, columns, left) + more
    return None if found >= n else found
