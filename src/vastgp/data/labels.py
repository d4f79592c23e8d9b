"""Class labels of any type, as numbers."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np

from vastgp._warn import warn
from vastgp.data import column_names, files, validate
from vastgp.data.missing import missing_in
from vastgp.data.open import as_rows, target_from_path
from vastgp.data.row_labels import warn_of_other_order
from vastgp.data.rows import Rows
from vastgp.data.tables import Table, as_labels, column_named, open_frame


def open_labelled(
    X: Any,
    y: Any,
    *,
    feature_names: list[str] | None = None,
    min_rows: int = 1,
    estimator: str = "model",
) -> tuple[Rows, np.ndarray]:
    """Open a data set whose target is a class.

    Parameters
    ----------
    X, y
        As in `as_rows`, with labels of any one type in ``y``: numbers, booleans, text.
    feature_names
        Columns of a table to use; all but the target by default.
    min_rows, estimator
        As in `as_rows`.

    Returns
    -------
    rows : Rows
        Targets are the numbers of the classes, from 0.
    classes : ndarray of shape (K,)
        The distinct labels, sorted.

    Raises
    ------
    ValueError
        For fewer than two classes, for targets that are not classes (fractions), and as `as_rows`.
    """
    X, names, labels, name = labels_beside(X, y, feature_names, estimator)
    if not len(labels):  # as for any data without rows
        as_rows(X, np.zeros(0), feature_names=names, min_rows=max(1, min_rows), estimator=estimator)
    classes, numbers = encode(labels)
    check_several_classes(classes, len(labels), estimator)
    rows = as_rows(
        X, numbers.astype(np.float64), feature_names=names, min_rows=min_rows, estimator=estimator
    )
    rows.target_name = name or rows.target_name
    return rows, classes


def read_labels(X: Any, y: Any, *, estimator: str = "model") -> np.ndarray:
    """Return the labels that `open_labelled` would encode, as they are."""
    return column_of(X, y, estimator=estimator)[0]


def column_of(X: Any, y: Any, *, estimator: str = "model") -> tuple[np.ndarray, str | None]:
    """Return a target of any type as it is, missing values as None or NaN, and the name of its column."""
    return labels_of(X, y, estimator)[:2]


def encode(labels: np.ndarray, called: str = "y") -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct labels, sorted, and the number of each row's; messages call them so."""
    if labels.dtype.kind == "O":
        missing = np.flatnonzero(missing_in(labels))
        if missing.size:
            raise ValueError(
                f"{called} has a missing label in row {missing[0]} (counted from 0). Remove rows without a label."
            )
        kinds = sorted(
            {"text" if isinstance(label, str) else type(label).__name__ for label in labels}
        )
        if len(kinds) > 1 and "text" in kinds:
            raise ValueError(
                f"{called} has labels of several types: {', '.join(kinds)}. Give one type, for example all as text."
            )
        labels = np.asarray(labels.tolist())
    if labels.dtype.kind == "c":
        raise ValueError(
            f"Complex data not supported: {called} holds complex numbers, for example {labels[0]}. Give each class a "
            "label of its own, a number or text."
        )
    if labels.ndim != 1 or labels.dtype.kind not in "biufU":
        raise ValueError(
            f"{called} holds labels such as {labels[0]!r}. Expected numbers, booleans or text, which a model file can "
            "keep: convert them, for example y.astype(str)."
        )
    if labels.dtype.kind == "f":
        validate.check_finite(labels, called)
        parts = np.flatnonzero(labels != np.round(labels))
        if parts.size:
            raise ValueError(
                f"Unknown label type: continuous. {called} holds numbers with decimals, for example {labels[parts[0]]} "
                f"in row {parts[0]} (counted from 0): a quantity and no classes. Use a regressor, such as GPRegressor, "
                "or make classes of it: pandas.cut by intervals, astype(str) one of each number."
            )
    classes, numbers = np.unique(labels, return_inverse=True)
    return classes, numbers


def encode_as(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the numbers of labels among known classes.

    Raises
    ------
    ValueError
        For a label that is none of them.
    """
    known = {label: number for number, label in enumerate(classes.tolist())}
    try:
        return np.array([known[label] for label in labels.tolist()], dtype=np.int64)
    except KeyError as error:
        raise ValueError(
            f"y holds the label {error.args[0]!r}, which was not among the classes of the fit: "
            f"{validate.listed(classes.tolist())}. Remove these rows, or fit with rows of that class."
        ) from None


def labels_of(X: Any, y: Any, estimator: str) -> tuple[np.ndarray, str | None, list[str] | None]:
    """Return labels, the name of their column, and the names of the other columns where it is one of a table's."""
    X = open_frame(X)
    table = table_of(X)
    y = y if table is None else column_named(y, table.names)
    if isinstance(y, str | os.PathLike) and table is not None:
        name = os.fspath(y)
        if name in table.names:
            return table.labels(name), name, [other for other in table.names if other != name]
        if not name.lower().endswith(".npy"):
            raise column_names.missing_target_error(name, table.names, table.where)
    if isinstance(X, str | os.PathLike) and files.suffix_of(Path(X)) == ".npz":
        name = "y" if y is None else str(y)
        if name in files.npz_names(Path(X).expanduser()):
            with np.load(Path(X).expanduser(), allow_pickle=False) as stored:
                return _one_column(stored[name]), name, None
    if isinstance(y, str | os.PathLike):
        why = "X is an array without column names"
        return _one_column(target_from_path(Path(y), why)), None, None
    if y is None and isinstance(X, Rows):
        y = X.y
    validate.check_target_given(y, estimator)
    warn_of_other_order(X, y, "y")
    found = _one_column(y)
    return found, _name_of(y, found, table), None


def _name_of(y: Any, values: np.ndarray, table: Table | None) -> str | None:
    """Return what a target is called that was given beside a table, as a series or a data frame of one column.

    A column of that name is the target too where it holds the same. What is computed from a column keeps its name, such
    as the next day's ``frame["price"].shift(-1)``: then the column is an input like any other.
    """
    frame = open_frame(y)
    names = frame.names if isinstance(frame, Table) and frame.named else [getattr(y, "name", None)]
    name = names[0] if len(names) == 1 and isinstance(names[0], str) else None
    if table is None or name not in table.names or _same(table.labels(name), values):
        return name
    warn(
        f"The target is called {name!r} like a column of {table.where} that holds other values: that column is an "
        "input. Give the target another name, or leave the column out if it tells what is to be predicted."
    )
    return None


def _same(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two columns hold the same, and are missing in the same rows."""
    if len(first) != len(second):
        return True  # which is an error of its own
    here, there = missing_in(first), missing_in(second)
    return np.array_equal(here, there) and bool(np.all(first[~here] == second[~here]))


def _one_column(y: Any) -> np.ndarray:
    return validate.as_vector(np.asarray(as_labels(y)))


def labels_beside(
    X: Any, y: Any, feature_names: list[str] | None, estimator: str
) -> tuple[Any, list[str] | None, np.ndarray, str | None]:
    """Return inputs for `as_rows`, the names of those that are used, labels, and the name of their column.

    Parameters
    ----------
    X, y, feature_names, estimator
        As in `open_labelled`.
    """
    X = open_frame(X)
    labels, name, others = labels_of(X, y, estimator)
    if feature_names is not None:
        others = feature_names
    elif isinstance(X, Table) and not X.named and others is not None:
        # by position, of which the target is none
        X, others = dataclasses.replace(X, names=others), None
    return X, others, labels, name


def table_of(X: Any) -> Table | None:
    """Return the table that the inputs are, in memory or in a file; None of arrays."""
    if isinstance(X, Table):
        return X
    if isinstance(X, str | os.PathLike):
        path = Path(X).expanduser()
        files.check_exists(path, "X")
        if files.is_table_file(path):
            return files.open_table_file(path)
        if files.suffix_of(path) not in (".npy", ".npz"):
            raise files.unknown_format_error(path, "X")
    return None


def check_several_classes(classes: np.ndarray, num_rows: int, estimator: str) -> None:
    """Raise ``ValueError`` where all rows are of one class."""
    if len(classes) < 2:
        raise ValueError(
            f"y holds one class only ({classes.tolist()[0]!r} in all {num_rows} rows): {estimator} needs rows of at "
            "least two classes. Add rows of another class, or check how the rows were selected."
        )
