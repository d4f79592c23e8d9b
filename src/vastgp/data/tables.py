"""Tables with named columns, in memory or in files, read by blocks of rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vastgp.data.validate import check_unique_names, describe

# A block of a table holds about this many bytes: small beside the memory budget, large beside the cost of a call.
BLOCK_BYTES = 16 << 20
_COLUMN_ROWS = 65_536


@dataclass
class Table:
    """A table as `as_rows` reads it.

    Parameters
    ----------
    where
        What to call it in messages.
    names
        Column names, in order.
    not_numeric
        For each column that cannot be read as numbers, what it holds instead.
    dtypes
        For the others, the NumPy type of their values.
    blocks
        Given column names and a number of rows, yields blocks as lists of one NumPy vector per column, missing values
        as NaN.
    num_rows
        Number of rows, when it is known before reading.
    in_memory
        Whether the table already is in memory.
    named
        Whether the column names are names, rather than positions.
    column
        Given a column name, all its values as they are, numbers or not; missing ones as None or NaN.
    """

    where: str
    names: list[str]
    not_numeric: dict[str, str]
    dtypes: dict[str, np.dtype]
    blocks: Callable[[Sequence[str], int], Iterator[list[np.ndarray]]]
    num_rows: int | None
    column: Callable[[str], np.ndarray]
    in_memory: bool = True
    named: bool = True


def is_table(values: object) -> bool:
    """Whether something is a table of pandas, polars or Arrow. None of the three is imported for it."""
    return _package_of(values) is not None


def open_table(values: Any) -> Table:
    """The table that a pandas, polars or Arrow object holds."""
    package = _package_of(values)
    if package == "pandas":
        return _pandas_table(values)
    import pyarrow as pa

    if package == "polars":
        if hasattr(values, "collect"):
            values = values.collect()
        return arrow_table(values.to_arrow(), "the polars DataFrame X")
    if isinstance(values, pa.RecordBatch):
        values = pa.Table.from_batches([values])
    return arrow_table(values, "the Arrow table X")


_TABLES = {
    ("pandas", "DataFrame"),
    ("polars", "DataFrame"),
    ("polars", "LazyFrame"),
    ("pyarrow", "Table"),
    ("pyarrow", "RecordBatch"),
}


def _package_of(values: object) -> str | None:
    """The package that a table is of, also when its type is derived from that package's."""
    for kind in type(values).__mro__:
        package = kind.__module__.partition(".")[0]
        if (package, kind.__name__) in _TABLES:
            return package
    return None


# ---------------------------------------------------------------- pandas


def _pandas_table(frame: Any) -> Table:
    import pandas as pd

    where = "the pandas DataFrame X"
    strings = [isinstance(name, str) for name in frame.columns]
    if any(strings) and not all(strings):
        odd = next(name for name in frame.columns if not isinstance(name, str))
        raise ValueError(
            f"{where} has column names of several types, for example {odd!r} ({type(odd).__name__}). Expected strings "
            "only (X.columns = X.columns.astype(str) makes them so) or numbers only."
        )
    named = bool(strings) and all(strings)
    names = [str(name) for name in frame.columns]
    check_unique_names(names, where)
    place = {name: j for j, name in enumerate(names)}
    not_numeric: dict[str, str] = {}
    dtypes: dict[str, np.dtype] = {}
    for j, name in enumerate(names):
        found = _pandas_dtype(frame.iloc[:, j], pd)
        if isinstance(found, str):
            not_numeric[name] = found
        else:
            dtypes[name] = found

    def blocks(columns: Sequence[str], rows: int) -> Iterator[list[np.ndarray]]:
        for start in range(0, len(frame), rows):
            part = frame.iloc[start : start + rows]
            yield [_pandas_values(part.iloc[:, place[name]], dtypes[name]) for name in columns]

    def column(name: str) -> np.ndarray:
        return np.asarray(frame.iloc[:, place[name]])

    return Table(where, names, not_numeric, dtypes, blocks, len(frame), column, named=named)


def _pandas_dtype(column: Any, pd: Any) -> np.dtype | str:
    """NumPy type of a column's numbers, or what it holds when it holds no numbers."""
    dtype = column.dtype
    if isinstance(dtype, pd.SparseDtype):
        dtype = dtype.subtype
    if isinstance(dtype, pd.CategoricalDtype):
        return "categories"
    if isinstance(dtype, pd.ArrowDtype):
        return _arrow_dtype(dtype.pyarrow_dtype)
    if isinstance(dtype, np.dtype):
        if dtype.kind in "fiub":
            return dtype
        if dtype.kind == "O":
            return _object_dtype(column)
        return {"M": "dates", "m": "durations", "c": "complex numbers"}.get(
            dtype.kind, f"dtype {dtype}"
        )
    numpy_dtype = getattr(
        dtype, "numpy_dtype", None
    )  # Int64, Float32, boolean: numbers with a mask
    if isinstance(numpy_dtype, np.dtype) and numpy_dtype.kind in "fiub":
        return numpy_dtype
    if isinstance(dtype, pd.StringDtype):
        return "text"
    if isinstance(dtype, pd.DatetimeTZDtype):
        return "dates"
    return f"dtype {dtype}"


def _object_dtype(column: Any) -> np.dtype | str:
    """A column of Python objects is float64 if all of them are numbers or missing."""
    import decimal
    import numbers

    for value in column:
        if (
            isinstance(value, numbers.Real | decimal.Decimal | np.bool_)
            or value is None
            or value is _pandas_na()
        ):
            continue
        return (
            f"text such as {value!r}"
            if isinstance(value, str)
            else f"objects such as {describe(value)}"
        )
    return np.dtype(np.float64)


def _pandas_na() -> object:
    import pandas as pd

    return pd.NA


def _pandas_values(column: Any, dtype: np.dtype) -> np.ndarray:
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "fiub":
        return column.to_numpy()
    # Masks and missing objects become NaN.
    return column.to_numpy(dtype=dtype if dtype.kind == "f" else np.float64, na_value=np.nan)


# ---------------------------------------------------------------- Arrow


def arrow_table(table: Any, where: str) -> Table:
    """A `pyarrow.Table` in memory."""

    def batches(columns: Sequence[str], rows: int) -> Iterator[Any]:
        yield from table.select(list(columns)).to_batches(max_chunksize=rows)

    return from_batches(table.schema, batches, where, num_rows=table.num_rows, in_memory=True)


def from_batches(
    schema: Any,
    batches: Callable[[Sequence[str], int], Iterator[Any]],
    where: str,
    *,
    num_rows: int | None,
    in_memory: bool,
) -> Table:
    """A table of Arrow record batches, whatever brings them."""
    index = _pandas_index(schema)
    names = [name for name in schema.names if name not in index]
    check_unique_names(names, where)
    not_numeric: dict[str, str] = {}
    dtypes: dict[str, np.dtype] = {}
    for field in schema:
        found = _arrow_dtype(field.type)
        if isinstance(found, str):
            not_numeric[field.name] = found
        else:
            dtypes[field.name] = found

    def blocks(columns: Sequence[str], rows: int) -> Iterator[list[np.ndarray]]:
        for batch in batches(columns, rows):
            if batch.num_rows:
                yield [_arrow_values(batch.column(name)) for name in columns]

    def column(name: str) -> np.ndarray:
        parts = [
            batch.column(name).to_numpy(zero_copy_only=False)
            for batch in batches([name], _COLUMN_ROWS)
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    return Table(where, names, not_numeric, dtypes, blocks, num_rows, column, in_memory=in_memory)


def _pandas_index(schema: Any) -> set[str]:
    """Columns that were the index of a pandas DataFrame: row labels, no data, as in the DataFrame itself."""
    stored = (schema.metadata or {}).get(b"pandas")
    if stored is None:
        return set()
    return {name for name in json.loads(stored)["index_columns"] if isinstance(name, str)}


def _arrow_dtype(kind: Any) -> np.dtype | str:
    import pyarrow.types as types

    if types.is_dictionary(kind):
        inner = _arrow_dtype(kind.value_type)
        return "categories" if isinstance(inner, str) else inner
    if types.is_boolean(kind):
        return np.dtype(bool)
    if types.is_integer(kind) or types.is_floating(kind):
        return np.dtype(kind.to_pandas_dtype())
    if types.is_decimal(kind) or types.is_null(kind):
        return np.dtype(np.float64)
    if types.is_date(kind) or types.is_timestamp(kind) or types.is_time(kind):
        return "dates or times"
    if types.is_duration(kind) or types.is_interval(kind):
        return "durations"
    if types.is_string(kind) or types.is_large_string(kind) or str(kind) == "string_view":
        return "text"
    return f"Arrow type {kind}"


def _arrow_values(column: Any) -> np.ndarray:
    """Values of an Arrow column as a NumPy vector, missing ones as NaN."""
    import pyarrow as pa
    import pyarrow.types as types

    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if types.is_decimal(column.type) or types.is_null(column.type) or types.is_boolean(column.type):
        column = (
            column.cast(pa.uint8()) if types.is_boolean(column.type) else column.cast(pa.float64())
        )
    # Arrow itself turns missing values of floats and integers into NaN here.
    return column.to_numpy(zero_copy_only=False)
