"""The way in: whatever holds rows becomes `Rows`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vastgp._warn import warn
from vastgp.data import column_names, files, validate
from vastgp.data.row_labels import warn_of_other_order
from vastgp.data.rows import Rows
from vastgp.data.spool import MEMORY_BUDGET, Spool
from vastgp.data.tables import BLOCK_BYTES, Table, column_named, open_frame

_SCAN_BYTES = 64 << 20


def as_rows(
    X: Any,
    y: Any = None,
    *,
    feature_names: Sequence[str] | np.ndarray | None = None,
    n_features: int | None = None,
    require_y: bool = False,
    min_rows: int = 1,
    memory_budget: float = MEMORY_BUDGET,
    estimator: str = "model",
) -> Rows:
    """Open a data set, wherever it is, and check its form.

    Parameters
    ----------
    X
        Inputs, one row per observation: a NumPy array or memory map, nested lists, a pandas or polars DataFrame, a
        `pyarrow.Table`, or the path of a file: ``.npy`` (used where it lies, as a memory map), ``.npz`` with arrays
        ``X`` and ``y``, ``.csv`` with a line of names, ``.parquet``, or a folder of Parquet files (read in the order
        of their names; not those that begin with a dot or an underscore).
    y
        Targets: an array, list or Series; a path of a ``.npy`` file; or, when ``X`` is a table, the name of the column
        that is the target, which then is no input.
    feature_names
        Names of the inputs of a fitted model. They are picked from a table by name, whatever other columns it has: from
        a file in whatever order, from a data frame in that of the fit, as scikit-learn wants it.
    n_features
        Number of inputs of a fitted model, for data without names.
    require_y
        Whether to insist on targets.
    min_rows
        Fewer rows are an error.
    memory_budget
        Tables in files that take more bytes than this are copied once, by blocks, to a temporary memory map, so that
        memory stays bounded and a random row costs the same everywhere.
    estimator
        Name of the model's class, for messages.

    Returns
    -------
    Rows
        Values keep the type that they are stored in (columns of mixed types become float32 if that holds them all
        without loss, otherwise float64).

    Raises
    ------
    ValueError, TypeError, FileNotFoundError
        For input that cannot be used; the message says what to do.
    OSError
        When the disk has no room for the temporary memory map.
    """
    X = open_frame(X)
    if isinstance(X, Rows):
        if y is not None and X.y is not None:
            raise ValueError("X already has its targets (it is a Rows object). Pass y=None.")
        rows = X if y is None else _with_targets(X, y)
        _check_same_names(rows, feature_names, n_features, estimator)
    elif isinstance(X, Table):
        warn_of_other_order(X, y, "y")
        if X.in_memory:
            _refuse_other_order(X, feature_names)
            memory_budget = float("inf")
        rows = _from_table(X, y, feature_names, n_features, estimator, memory_budget)
    elif isinstance(X, str | os.PathLike):
        path = Path(X).expanduser()
        rows = _from_path(path, y, feature_names, n_features, estimator, memory_budget)
    else:
        rows = _from_arrays(validate.as_matrix(X), y)
    if rows.feature_names is None:
        _check_unnamed(rows, feature_names, n_features, estimator)
    if require_y:
        validate.check_target_given(rows.y, estimator)
    validate.check_num_rows(rows.X.shape, min_rows)
    if rows.y is not None:
        validate.check_same_length(rows.n, rows.y.shape[0])
    if rows.in_memory:
        check_values(rows)
    return rows


# ---------------------------------------------------------------- arrays


def _from_arrays(X: np.ndarray, y: Any) -> Rows:
    if isinstance(y, str | os.PathLike):
        y = target_from_path(Path(y), "X is an array without column names")
    target_name = _series_name(y)
    if y is not None:
        y = validate.as_target(y)
    return Rows(X, y, target_name=target_name)


def _with_targets(rows: Rows, y: Any) -> Rows:
    name = _series_name(y) or rows.target_name
    y = validate.as_target(y)
    validate.check_finite(y, "y")
    return dataclasses.replace(rows, y=y, target_name=name)


def target_from_path(path: Path, why_not_a_name: str) -> np.ndarray:
    """The array of a .npy file that the target is, unless the text is no such path."""
    path = path.expanduser()
    if path.suffix.lower() != ".npy":
        raise ValueError(
            f"y={str(path)!r} is a string. Expected an array, or the path of a .npy file; a column name can "
            f"be given only when X is a table, and {why_not_a_name}."
        )
    files.check_exists(path, "y")
    return files.open_npy(path, "y")


def check_values(rows: Rows, first_row: int = 0) -> None:
    """Look at every value that was not looked at yet now, while the caller can say which argument it was.

    Parameters
    ----------
    rows
        All rows, or a part of them.
    first_row
        Number of their first row in the whole.
    """
    step = max(1, _SCAN_BYTES // (8 * rows.d))
    for start in range(0, 0 if rows.checked else rows.n, step):
        some, number = slice(start, start + step), first_row + start
        validate.check_finite(rows.X[some], "X", first_row=number, names=rows.feature_names)
        if rows.y is not None:
            validate.check_finite(rows.y[some], "y", first_row=number)
    rows.checked = True


def _check_same_names(
    rows: Rows,
    feature_names: Sequence[str] | np.ndarray | None,
    n_features: int | None,
    estimator: str,
) -> None:
    """Rows that are open already have their columns in one order, which has to be that of the model."""
    if n_features is not None:
        validate.check_num_features(rows.d, n_features, estimator)
    if feature_names is None or rows.feature_names is None:
        return
    wanted = [str(name) for name in feature_names]
    if wanted != rows.feature_names:
        missing = [name for name in wanted if name not in rows.feature_names]
        extra = [name for name in rows.feature_names if name not in wanted]
        if not missing:
            raise ValueError(
                f"The rows have the columns {validate.listed(rows.feature_names)}, but {estimator} was fitted with "
                f"{validate.listed(wanted)}, in this order. Open them with as_rows(..., feature_names=...)."
            )
        raise column_names.missing_features_error(missing, extra, "the rows", estimator)


def _refuse_other_order(table: Table, feature_names: Sequence[str] | np.ndarray | None) -> None:
    """Refuse a data frame that has the columns of the fit in another order, whatever others stand between them."""
    wanted = [] if feature_names is None else [str(name) for name in feature_names]
    found = [name for name in table.names if name in set(wanted)]
    if table.named and found != wanted and len(found) == len(wanted):
        raise ValueError(
            "The feature names should match those that were passed during fit.\n"
            "Feature names must be in the same order as they were in fit.\n"
            f"{table.where} has them as {validate.listed(found)}. Reorder the columns: X[list(feature_names_in_)]."
        )


def _check_unnamed(
    rows: Rows,
    feature_names: Sequence[str] | np.ndarray | None,
    n_features: int | None,
    estimator: str,
) -> None:
    """Columns without names are taken by position, so at least their number has to be right."""
    if feature_names is not None:
        n_features = len(feature_names)
    if n_features is not None:
        validate.check_num_features(rows.d, n_features, estimator)
    if feature_names is not None:
        warn(
            f"X does not have valid feature names, but {estimator} was fitted with feature names. Its columns are "
            "taken in the order of the fit."
        )


# ---------------------------------------------------------------- files


def _from_path(
    path: Path,
    y: Any,
    feature_names: Sequence[str] | np.ndarray | None,
    n_features: int | None,
    estimator: str,
    memory_budget: float,
) -> Rows:
    files.check_exists(path, "X")
    if files.is_table_file(path):
        table = files.open_table_file(path)
        return _from_table(table, y, feature_names, n_features, estimator, memory_budget)
    suffix = files.suffix_of(path)
    if suffix == ".npy":
        return _from_arrays(validate.as_matrix(files.open_npy(path, "X")), y)
    if suffix == ".npz":
        return _from_npz(path, y, memory_budget)
    raise files.unknown_format_error(path, "X")


def _from_npz(path: Path, y: Any, memory_budget: float) -> Rows:
    names = files.npz_names(path)
    where = repr(str(path))
    if "X" not in names:
        raise ValueError(
            f"{where} has no array X; it has {validate.listed(names)}. Write numpy.savez(path, X=X, y=y)."
        )
    target = None
    if isinstance(y, str) and (y in names or not y.lower().endswith(".npy")):
        if y not in names:
            raise column_names.missing_target_error(
                y, [name for name in names if name != "X"], where
            )
        target = y
    elif y is None and "y" in names:
        target = "y"
    arrays = files.open_npz(path, ["X"] if target is None else ["X", target], memory_budget)
    rows = _from_arrays(validate.as_matrix(arrays["X"]), y if target is None else arrays[target])
    rows.target_name = target or rows.target_name
    return rows


# ---------------------------------------------------------------- tables


def _from_table(
    table: Table,
    y: Any,
    feature_names: Sequence[str] | np.ndarray | None,
    n_features: int | None,
    estimator: str,
    memory_budget: float,
) -> Rows:
    target, y = _split_target(table, y)
    columns = _select_features(table, target, feature_names, n_features, estimator)
    target_name = target if target is not None else _series_name(y)
    X, y_column = _read(table, columns, target, memory_budget)
    if target is not None:
        y = y_column
    elif y is not None:
        y = validate.as_target(y)
        validate.check_same_length(X.shape[0], y.shape[0])
        validate.check_finite(y, "y")
    return Rows(
        X, y, feature_names=columns if table.named else None, target_name=target_name, checked=True
    )


def _split_target(table: Table, y: Any) -> tuple[str | None, Any]:
    """The name of the target column, or the target itself."""
    y = column_named(y, table.names)
    if not isinstance(y, str | os.PathLike):
        return None, y
    name = os.fspath(y)
    if name in table.names:
        if name in table.not_numeric:
            raise ValueError(
                f"The target column y={name!r} of {table.where} holds {table.not_numeric[name]}. Expected numbers: "
                "choose another column, or convert this one."
            )
        return name, None
    if name.lower().endswith(".npy"):
        return None, target_from_path(Path(name), f"{table.where} has no column of that name")
    raise column_names.missing_target_error(name, table.names, table.where)


def _series_name(y: Any) -> str | None:
    name = getattr(y, "name", None)
    return name if isinstance(name, str) else None


def _select_features(
    table: Table,
    target: str | None,
    feature_names: Sequence[str] | np.ndarray | None,
    n_features: int | None,
    estimator: str,
) -> list[str]:
    """Names of the columns to read as inputs."""
    available = [name for name in table.names if name != target]
    if feature_names is not None and table.named:
        columns = [str(name) for name in feature_names]
        missing = [name for name in columns if name not in table.names]
        if missing:
            extra = [name for name in available if name not in columns]
            raise column_names.missing_features_error(missing, extra, table.where, estimator)
        if target in columns:
            raise column_names.input_as_target_error(target, available, columns, estimator)
    else:
        columns = available
        nameless = next((j for j, name in enumerate(table.names) if not name.strip()), None)
        if nameless is not None:
            raise ValueError(
                f"Column {nameless} of {table.where} has no name. Row numbers written by pandas look like this, and "
                "they are no input: write the table with index=False, or name the column if it is one."
            )
        if n_features is not None:
            validate.check_num_features(len(columns), n_features, estimator)
    if not columns:
        shape = (table.num_rows if table.num_rows is not None else 0, 0)
        raise ValueError(
            f"Found array with 0 feature(s) (shape={shape}) while a minimum of 1 is required. "
            f"{table.where} needs at least one column of numbers beside the target."
        )
    reasons = {name: table.not_numeric[name] for name in columns if name in table.not_numeric}
    if reasons:
        raise column_names.not_numeric_error(reasons, table.where)
    return columns


def _read(
    table: Table, columns: list[str], target: str | None, memory_budget: float
) -> tuple[np.ndarray, np.ndarray | None]:
    """All rows of some columns, checked for missing and infinite values as they come."""
    # float32 if it holds all columns without loss (float16, integers of up to 16 bits, booleans), otherwise float64.
    dtype = np.result_type(np.float32, *(table.dtypes[name] for name in columns))
    dtype = np.dtype(np.float32) if dtype == np.float32 else np.dtype(np.float64)
    spool = Spool(
        len(columns),
        dtype,
        target is not None,
        num_rows=table.num_rows,
        memory_budget=memory_budget,
        what=table.where,
    )
    wanted = columns if target is None else [*columns, target]
    block_rows = max(256, min(65_536, BLOCK_BYTES // (8 * len(wanted))))
    with spool:
        first_row = 0
        for vectors in table.blocks(wanted, block_rows):
            X = np.empty((vectors[0].shape[0], len(columns)), dtype=dtype)
            for j in range(len(columns)):
                X[:, j] = vectors[j]
            where: Any = {"first_row": first_row, "place": table.place}
            validate.check_finite(X, "X", names=columns, **where)
            y = None if target is None else np.asarray(vectors[-1], dtype=np.float64)
            if y is not None:
                validate.check_finite(y, f"y (column {target!r})", **where)
            spool.append(X, y)
            first_row += X.shape[0]
        return spool.finish()
