"""Rows that lie with several processes, each of which has a part of them."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vastgp.data import files, processes
from vastgp.data.labels import check_several_classes, encode, labels_beside, open_labelled
from vastgp.data.open import as_rows, check_values
from vastgp.data.rows import Rows, numbers_of_rows
from vastgp.data.tables import Table
from vastgp.data.validate import check_num_rows


class SharedArray:
    """The rows of all processes as one array, those of process 0 first: read by slices and by row numbers.

    Every process reads the same rows at the same time, and is told those that it does not have. What sums over rows
    takes ``local`` instead, the rows that this process has, and adds up what the processes found.

    Parameters
    ----------
    local : ndarray of shape (rows, ...)
        Of this process. It may have none.
    counts : sequence of int
        How many each process has.
    """

    def __init__(self, local: Any, counts: list[int]) -> None:
        self.local, self._counts = local, counts
        self._ends = np.cumsum(counts)
        self.first = int(self._ends[processes.number()]) - len(local)
        self.shape = (int(self._ends[-1]), *local.shape[1:])
        self.dtype, self.ndim = local.dtype, local.ndim

    def of_each(self, function: Callable[[Any], Any]) -> SharedArray:
        """Return a function of the rows, each by itself."""
        return SharedArray(function(self.local), self._counts)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> np.ndarray:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                begin, end = np.clip([start - self.first, stop - self.first], 0, len(self.local))
                return np.concatenate(processes.gathered(self.local[begin:end]))
            index = np.arange(start, stop, step)
        index = numbers_of_rows(index, len(self))
        owner = np.searchsorted(self._ends, index, side="right")
        mine = owner == processes.number()
        found = np.empty((len(index), *self.shape[1:]), self.dtype)
        for k, part in enumerate(processes.gathered(self.local[index[mine] - self.first])):
            found[owner == k] = part
        return found


def as_shared_rows(X: Any, y: Any, *, min_rows: int, **options: Any) -> Rows:
    """Open training rows, of which every process has a part where there are several.

    A file or a folder is one table, of which each process reads its share; its rows are numbered as where one process
    reads them all, so that a fit draws the same. Arrays and data frames are the parts of those that give them.

    Parameters
    ----------
    X, y, min_rows, **options
        As in `as_rows`; ``min_rows`` of all processes together. Rows that are shared already are returned as they are.

    Raises
    ------
    ValueError
        As `as_rows`, in every process; and where parts have different columns.
    """
    if processes.count() == 1 or (isinstance(X, Rows) and X.local is not X):
        return as_rows(X, y, min_rows=min_rows, **options)
    rows = processes.together(lambda: _own_part(X, y, options))
    described = processes.texts(repr((rows.d, rows.feature_names, rows.target_name)))
    for k, text in enumerate(described):
        if text != described[0]:
            raise ValueError(
                f"the rows of process {k} have other columns than those of process 0 (how many, their names, the "
                f"target's): {text} and {described[0]}. Give every process a part of one table."
            )
    counts = [int(n) for n in processes.gathered(np.int64(rows.n))]
    check_num_rows((sum(counts), rows.d), min_rows)
    X, y = (
        None if part is None else SharedArray(_in_common_type(part), counts)
        for part in (rows.X, rows.y)
    )
    return dataclasses.replace(rows, X=X, y=y, checked=True)


def as_shared_labelled(
    X: Any,
    y: Any,
    *,
    feature_names: list[str] | None = None,
    min_rows: int = 1,
    estimator: str = "model",
) -> tuple[Rows, np.ndarray]:
    """Open rows whose target is a class, of which every process has a part where there are several.

    Parameters and what is returned as in `open_labelled`; classes are those of all processes, and parts as in
    `as_shared_rows`.
    """
    options: dict[str, Any] = {"feature_names": feature_names, "estimator": estimator}
    if processes.count() == 1:
        return open_labelled(X, y, min_rows=min_rows, **options)
    part = processes.together(lambda: _labelled_part(X, y, options))
    told = processes.texts(json.dumps([part.classes.dtype.str, part.classes.tolist()]))
    parts = [np.array(found, kind) for kind, found in map(json.loads, told) if found]
    if len({each.dtype.kind == "U" for each in parts}) > 1:
        raise ValueError(
            "y has text for labels in one process and numbers in another. Give every process a part of one table."
        )
    classes = np.unique(np.concatenate(parts)) if parts else part.classes
    count = sum(int(n) for n in processes.gathered(np.int64(len(part.labels))))
    check_num_rows((count, 1), max(1, min_rows))
    check_several_classes(classes, count, estimator)
    numbers = np.searchsorted(classes, part.labels).astype(np.float64)
    rows = as_shared_rows(
        part.X, numbers, min_rows=min_rows, feature_names=part.names, estimator=estimator
    )
    return dataclasses.replace(rows, target_name=part.target or rows.target_name), classes


class _Labelled(NamedTuple):
    """Rows of a process: inputs, the names of those that are used, labels, the different ones, the target's name."""

    X: Any
    names: list[str] | None
    labels: np.ndarray
    classes: np.ndarray
    target: str | None


def _labelled_part(X: Any, y: Any, options: dict[str, Any]) -> _Labelled:
    """Open the rows that are this process's, with their labels."""
    if isinstance(X, str | os.PathLike):
        table = _part_of_table(X, y)
        if table is None:
            # each reads all, and keeps its share
            rows, classes = open_labelled(X, y, **options)
            part = _share_of(rows)
            assert part.y is not None
            labels = classes[np.asarray(part.y, np.int64)]
            part = dataclasses.replace(part, y=None)
            return _Labelled(part, None, labels, np.unique(labels), rows.target_name)
        X = table
    X, names, labels, name = labels_beside(X, y, options["feature_names"], options["estimator"])
    classes = encode(labels)[0] if len(labels) else labels[:0]
    return _Labelled(X, names, labels, classes, name)


def _part_of_table(X: Any, y: Any) -> Table | None:
    """Return what this process has of a file of which parts can be read, with the target among its columns."""
    path = Path(X).expanduser()
    files.check_exists(path, "X")
    if not files.is_table_file(path):
        return None
    table = files.open_table_file(path)
    if table.part is None or not isinstance(y, str) or y not in table.names:
        return None
    assert table.num_rows is not None
    return table.part(processes.part_of(table.num_rows))


def _own_part(X: Any, y: Any, options: dict[str, Any]) -> Rows:
    """Open the rows that are this process's, and look at every value: what one meets later, the others wait for."""
    if isinstance(X, str | os.PathLike):
        table = _part_of_table(X, y)
        if table is None:
            return _share_of(as_rows(X, y, **options))
        X = table
    rows = as_rows(X, y, min_rows=0, **options)
    check_values(rows)
    return rows


def _share_of(rows: Rows) -> Rows:
    """Return this process's share of rows that all have opened, with every value looked at."""
    some = processes.part_of(rows.n)
    part = dataclasses.replace(rows, X=rows.X[some], y=None if rows.y is None else rows.y[some])
    check_values(part, first_row=some.start)
    return part


def _in_common_type(part: Any) -> Any:
    """Return a part in the type that holds those of all processes."""
    kinds = processes.texts(np.dtype(part.dtype).str)
    common = np.result_type(*map(np.dtype, kinds))
    return part if part.dtype == common else np.asarray(part, common)
