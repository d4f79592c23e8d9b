"""Lines of benchmarks as the reports read them: grouped, compared, and as cells of tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from operator import itemgetter
from typing import Any

import numpy as np

Row = dict[str, Any]


def by(key: str | Callable[[Row], Any], found: list[Row]) -> dict[Any, list[Row]]:
    """Return results grouped by what their lines say under a key, or by a function of them, in order."""
    of_row = key if callable(key) else itemgetter(key)
    groups = defaultdict(list)
    for row in sorted(found, key=of_row):
        groups[of_row(row)].append(row)
    return dict(groups)


def value(row: Row, score: str = "nlpd") -> float:
    """Return a score for a minimum: neither an error nor a NaN is ever the lowest."""
    found = row.get(score, np.inf)
    return np.inf if np.isnan(found) else found


def lowest(found: list[Row], names: Collection[str], score: str = "nlpd") -> Row | None:
    """Return the result with the lowest score of some estimators, if there is any."""
    chosen = (row for row in found if row["estimator"] in names)
    return min(chosen, key=lambda row: value(row, score), default=None)


def as_cell(wrong: list[str]) -> str:
    """Return faults as a cell of a table: what an error says may have line breaks and bars."""
    return " ".join(", ".join(wrong).split()).replace("|", "\\|")
