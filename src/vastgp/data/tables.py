"""Tables with named columns, in memory or in files, read by blocks of rows."""

from __future__ import annotations

import decimal
import json
import numbers
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vastgp.data.column_names import check_unique_names
from vastgp.data.validate import describe

# A block of a table holds about this many bytes: small beside the memory budget, large beside the cost of a call.
BLOCK_BYTES = 16 << 20
_COLUMN_ROWS = 65_536
# Types of NumPy that narwhals has by the same names.
_PLAIN = {np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)}
_PLAIN |= {np.dtype(np.float32), np.dtype(np.float64)}


class LateTextError(ValueError):
    """A column of a CSV file holds numbers at first and text further down.

    From then on the column is text to the table that raised it: reading it again gives it as that.
    """


# Whole numbers up to here are what they were after they are floats.
_MOST_WHOLE = 2.0**53


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
    frames
        Given column names and a number of rows, yields blocks of them as narwhals data frames.
    num_rows
        Number of rows, when it is known before reading.
    in_memory
        Whether the table already is in memory.
    named
        Whether the column names are names, rather than positions.
    part
        Gives the table of some rows that follow each other, of which no others are read; None where all would be.
    place
        What to call a row by its number here, in messages: of a part that is the number in the whole table, and of
        several files the one that has it; None: "row", and the number.
    whole
        Columns of a text file that begin with whole numbers, and are read as floating point ones: labels among them
        are whole numbers if all of the column are.
    row_labels
        The index of pandas; None of other tables.
    all_names
        Names of the columns in the order of the table, by which their numbers count: also of those that are among
        ``names`` no more, as targets and weights.
    """

    where: str
    names: list[str]
    not_numeric: dict[str, str]
    dtypes: dict[str, np.dtype]
    frames: Callable[[Sequence[str], int], Iterator[Any]]
    num_rows: int | None
    in_memory: bool = True
    named: bool = True
    part: Callable[[slice], Table] | None = None
    place: Callable[[int], str] | None = None
    whole: frozenset[str] = frozenset()
    row_labels: Any = None
    all_names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.all_names = self.all_names or self.names

    def blocks(self, columns: Sequence[str], rows: int) -> Iterator[list[np.ndarray]]:
        """Yield blocks of rows as lists of one vector of numbers per column, missing values as NaN."""
        for frame in self.frames(columns, rows):
            if len(frame):
                yield [as_numbers(frame[:, j]) for j in range(len(columns))]

    def labels(self, name: str) -> np.ndarray:
        """Return all values of a column as they are, missing ones as None or NaN."""
        while True:
            try:
                parts = [as_labels(frame[:, 0]) for frame in self.frames([name], _COLUMN_ROWS)]
                found = np.concatenate(parts) if parts else np.zeros(0)
                return _as_whole(found) if name in self.whole else found
            except LateTextError:  # it is text now, all of it
                continue


def open_frame(values: Any) -> Any:
    """Return the `Table` that a data frame is (of pandas, polars, Arrow, ...), and anything else as it is.

    A lazy frame is collected, so what it returns should be handed on instead of ``values``.
    """
    if isinstance(values, Table | np.ndarray):
        return values  # narwhals reads what every installed package says of itself before it knows
    import narwhals as nw

    if type(values).__module__.startswith("pyarrow.") and hasattr(values, "to_struct_array"):
        import pyarrow as pa

        values = pa.Table.from_batches([values]) if isinstance(values, pa.RecordBatch) else values
    try:
        frame = nw.from_native(values, pass_through=True)
    except nw.exceptions.DuplicateError:
        given = getattr(values, "column_names", values.columns)
        check_unique_names([str(name) for name in given], "the data frame X")
        raise
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect()
    return _table_in_memory(frame) if isinstance(frame, nw.DataFrame) else values


def column_named(y: Any, names: Sequence[str]) -> Any:
    """Return the name of the target column where ``y`` is one in a form that pandas has, and other targets as they are.

    Columns of pandas may be called by numbers, or by tuples where they have several levels; names of a table are text.
    """
    if isinstance(y, list) and len(y) == 1 and isinstance(y[0], str) and y[0] in names:
        return y[0]
    if isinstance(y, int | np.integer | tuple) and text_of_name(y) in names:
        return text_of_name(y)
    return y


def text_of_name(name: Any) -> str:
    """Return a column's name as text, whether numbers in it are NumPy's or Python's."""
    if isinstance(name, tuple):
        return str(tuple(part.item() if isinstance(part, np.generic) else part for part in name))
    return str(name)


def _table_in_memory(frame: Any) -> Table:
    package = frame.implementation.value
    where = "the Arrow table X" if package == "pyarrow" else f"the {package} DataFrame X"
    given = list(frame.columns)
    strings = [isinstance(name, str) for name in given]
    if any(strings) and not all(strings):
        odd = next(name for name in given if not isinstance(name, str))
        raise ValueError(
            f"{where} has column names of several types, for example {odd!r} ({type(odd).__name__}). Expected strings "
            "only (X.columns = X.columns.astype(str) makes them so) or numbers only."
        )
    names = [text_of_name(name) for name in given]
    check_unique_names(names, where)
    place = {name: j for j, name in enumerate(names)}

    def frames(columns: Sequence[str], rows: int) -> Iterator[Any]:
        chosen = [place[name] for name in columns]
        for start in range(0, len(frame), rows):
            # rows first: pandas copies columns that are chosen
            yield frame[start : start + rows][:, chosen]

    index = _pandas_index(getattr(frame.to_native(), "schema", None))
    names = [name for name in names if name not in index]
    plain = plain_dtypes(frame)
    found = plain if plain is not None else [_kind(column) for column in frame.iter_columns()]
    kinds = {name: kind for name, kind in zip(place, found, strict=True) if name not in index}
    labels = frame.to_native().index if package == "pandas" else None
    more: dict[str, Any] = {"named": bool(strings) and all(strings), "row_labels": labels}
    return _table(where, kinds, frames, num_rows=len(frame), **more)


def from_batches(
    schema: Any,
    batches: Callable[[Sequence[str], int], Iterator[Any]],
    where: str,
    *,
    num_rows: int | None,
) -> Table:
    """A table of Arrow record batches, which come from files."""
    import narwhals as nw
    import pyarrow as pa

    index = _pandas_index(schema)
    names = [name for name in schema.names if name not in index]
    check_unique_names(names, where)
    empty = nw.from_native(schema.empty_table().select(names), eager_only=True)

    def frames(columns: Sequence[str], rows: int) -> Iterator[Any]:
        for batch in batches(columns, rows):
            yield nw.from_native(pa.Table.from_batches([batch]).select(list(columns)))

    kinds = {name: _kind(empty[name]) for name in names}
    return _table(where, kinds, frames, num_rows=num_rows, in_memory=False)


def plain_dtypes(frame: Any) -> list[Any] | None:
    """Return the types of the columns of a pandas data frame that holds NumPy's numbers alone, None for any other.

    Taking out a column costs a tenth of a millisecond: of one row of 2000 columns that was most of a prediction.
    """
    native = frame.to_native()
    if frame.implementation.value != "pandas":
        return None
    dtypes = list(native.dtypes)
    plain = all(isinstance(each, np.dtype) and each in _PLAIN for each in set(dtypes))
    return dtypes if plain and dtypes else None


def _table(
    where: str,
    kinds: dict[str, np.dtype | str],
    frames: Callable[[Sequence[str], int], Iterator[Any]],
    **more: Any,
) -> Table:
    words = {name: kind for name, kind in kinds.items() if isinstance(kind, str)}
    dtypes = {name: kind for name, kind in kinds.items() if isinstance(kind, np.dtype)}
    return Table(where, list(kinds), words, dtypes, frames, **more)


def _pandas_index(schema: Any) -> set[str]:
    """Columns that were the index of a pandas DataFrame: row labels, no data, as in the DataFrame itself."""
    stored = (getattr(schema, "metadata", None) or {}).get(b"pandas")
    if stored is None:
        return set()
    return {name for name in json.loads(stored)["index_columns"] if isinstance(name, str)}


def _kind(column: Any) -> np.dtype | str:
    """NumPy type of a column's numbers, or what it holds when it holds no numbers."""
    import narwhals as nw

    dtype = column.dtype
    if dtype == nw.Boolean:
        return np.dtype(bool)
    if dtype.is_numeric():
        plain = str(dtype).lower()
        return np.dtype(plain if plain in np.sctypeDict else np.float64)  # decimals, 128 bits
    for words, kinds in (
        ("text", (nw.String,)),
        ("categories", (nw.Categorical, nw.Enum)),
        ("dates or times", (nw.Datetime, nw.Date, nw.Time)),
        ("durations", (nw.Duration,)),
    ):
        if dtype in kinds or (words == "dates or times" and in_unread_zone(column)):
            return words
    if dtype not in (nw.Object, nw.Unknown):
        return f"objects of type {dtype}"
    return _kind_by_values(column)


def in_unread_zone(column: Any) -> bool:
    """Whether a column of pandas holds moments of a time zone whose name narwhals cannot read.

    It knows letters and strokes: neither "America/New_York" nor "Etc/GMT+5".
    """
    import narwhals as nw

    own = getattr(column.to_native(), "dtype", None)
    return bool(column.dtype == nw.Unknown and getattr(own, "tz", None) is not None)


def _kind_by_values(column: Any) -> np.dtype | str:
    """The same of a column of Python objects, whose values tell, or of a type that narwhals does not know."""
    values = column.to_numpy()
    if values.ndim > 1:  # of an extension type, such as the intervals of pandas in polars
        return f"objects of type {column.to_native().dtype}"
    if values.dtype.kind in "fiub":  # a sparse column
        return values.dtype
    if values.dtype.kind == "c":
        return "complex numbers"
    arrow_type = getattr(column.to_native(), "type", "null")
    if not len(values) and str(arrow_type) != "null":
        return f"type {arrow_type}"
    for value in values[~column.is_null().to_numpy()]:
        if isinstance(value, str):
            return f"text such as {value!r}"
        if not isinstance(value, numbers.Real | decimal.Decimal | np.bool_):
            return f"objects such as {describe(value)}"
    return np.dtype(np.float64)


def as_numbers(column: Any) -> np.ndarray:
    """Values of a column of numbers as a vector, missing ones as NaN."""
    import narwhals as nw

    if column.dtype in (nw.Boolean, nw.Decimal, nw.Int128, nw.UInt128):
        return column.cast(nw.Float64).to_numpy()
    values = column.to_numpy()
    if values.dtype.kind != "O":
        return values
    present = ~column.is_null().to_numpy()
    found = np.full(values.shape, np.nan)
    found[present] = values[present].astype(np.float64)
    return found


def _as_whole(values: np.ndarray) -> np.ndarray:
    """Return floating point numbers that are whole as integers, missing ones as None; others as they are."""
    if values.dtype.kind != "f":
        return values
    present = ~np.isnan(values)
    if not np.all(np.abs(values[present]) <= _MOST_WHOLE):
        return values  # beyond, several whole numbers are one
    whole = values[present].astype(np.int64)
    if not np.array_equal(whole, values[present]):
        return values
    if present.all():
        return whole
    found = np.full(len(values), None)
    found[present] = whole.tolist()
    return found


def as_labels(values: Any) -> np.ndarray:
    """Return a column or list of any values as a vector, missing ones as None or NaN."""
    import narwhals as nw

    column = nw.from_native(values, pass_through=True, allow_series=True)
    if not isinstance(column, nw.Series):
        # of a list with several types NumPy would make text, and of whole numbers of pandas with gaps floats
        plain = hasattr(values, "dtype") and not type(values).__module__.startswith("pandas.")
        return np.asarray(values) if plain else np.asarray(values, dtype=object)
    missing = column.is_null().to_numpy()
    whole = missing.any() and column.dtype.is_integer()
    found = np.array(column.to_list(), dtype=object) if whole else column.to_numpy()
    if missing.any() and found.dtype.kind != "f":
        found = found.astype(object)
        found[missing] = None
    return found
