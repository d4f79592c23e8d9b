"""Whatever holds rows, as columns that are read by blocks in the forms of `vastgp.auto.values`."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vastgp.auto.values import (
    Values,
    form_of_objects,
    level_text,
    objects_as,
    seconds_of,
    text_of,
    text_values,
)
from vastgp.auto.zones import zone_of
from vastgp.data import files, validate
from vastgp.data.rows import Rows
from vastgp.data.tables import (
    BLOCK_BYTES,
    LateTextError,
    Table,
    as_numbers,
    in_unread_zone,
    open_frame,
    plain_dtypes,
)

_WHOLE = 1 << 62


def names_of_array(columns: int) -> list[str]:
    """Return what the columns of an array are called."""
    return [f"x{j}" for j in range(columns)]


def block_rows(columns: int) -> int:
    """Return the rows of a block of so many columns, where nobody asks for others."""
    return max(256, min(65_536, BLOCK_BYTES // (8 * max(1, columns))))


@dataclass
class Source:
    """Rows with columns of any types.

    Attributes
    ----------
    where : str
        What to call it in messages.
    names : list of str
        Names of the columns, in order; x0, x1, ... for an array.
    named : bool
        Whether these are names rather than positions.
    num_rows : int, optional
        Number of rows, where it is known before reading.
    read : callable
        Given column names, a number of rows and time zones by column, yields blocks of `Values`.
    refused : dict
        For each column that nothing can be made of, what it holds.
    table : Table, optional
        The table it is.
    space : Space, optional
        What two columns are together, where they are read as one, see `vastgp.auto.space`.
    of_table : list of str, optional
        Names of the columns before these two were one, in the order of the table.
    """

    where: str
    names: list[str]
    named: bool
    num_rows: int | None
    read: Callable[[Sequence[str], int, Mapping[str, str]], Iterator[list[Values]]]
    refused: dict[str, str] = field(default_factory=dict)
    table: Table | None = None
    space: Any = None
    of_table: list[str] | None = None

    def blocks(
        self,
        columns: Sequence[str],
        rows: int | None = None,
        zones: Mapping[str, str] | None = None,
        *,
        resume: bool = True,
    ) -> Iterator[tuple[int, list[Values]]]:
        """Yield the number of the first row of each block, and the block.

        Where a file has text far down in a column of numbers, that is text from there on, or with ``resume=False`` an
        error, after which it is text from the first row on.
        """
        refused = [name for name in columns if name in self.refused]
        if refused:
            raise ValueError(
                f"Column {refused[0]!r} of {self.where} holds {self.refused[refused[0]]}, of which no input can be "
                "made. Convert it to numbers, text, dates or categories, or leave it out: drop the column, or give its "
                "name to TableEncoder.fit as exclude."
            )
        limit = block_rows(len(columns))
        done, reading = 0, True
        while reading:
            first, reading = 0, False
            try:
                for block in self.read(columns, rows or limit, zones or {}):
                    if len(block[0]) and first >= done:
                        yield first, block
                        done = first + len(block[0])
                    first += len(block[0])
            except LateTextError:
                if not resume:
                    raise
                reading = True  # the same blocks come again, the column as text


def open_source(X: Any) -> Source:
    """Open a table, a file or an array; a `Source` is given back as it is."""
    if isinstance(X, Source):
        return X
    X = open_frame(X)
    if isinstance(X, str | os.PathLike):
        X = _open_path(Path(X).expanduser())
    if isinstance(X, Table):
        return _from_table(X)
    names = None
    if isinstance(X, Rows):
        X, names = X.X, X.feature_names
    return _from_array(_matrix(X), names)


def _open_path(path: Path) -> Any:
    files.check_exists(path, "X")
    if files.is_table_file(path):
        return files.open_table_file(path, empty_as_text=True)
    suffix = files.suffix_of(path)
    if suffix == ".npy" or (suffix == ".npz" and "X" in files.npz_names(path)):
        return files.open_matrix(path)
    raise files.unknown_format_error(path, "X")


# ---------------------------------------------------------------- arrays


def _matrix(X: Any) -> np.ndarray:
    validate.reject_sparse(X, "X")
    validate.reject_row(X)
    if isinstance(X, Mapping):
        raise ValueError(
            f"X is a {type(X).__name__}, which has no rows. Expected a table or an array: pandas.DataFrame(X) makes a "
            "table of columns by name, and pandas.DataFrame([X]) one of a single row."
        )
    if isinstance(X, np.ma.MaskedArray):
        real = X.dtype.kind in "fiub"
        gap = np.nan if real else None
        X = np.ma.filled(np.ma.asarray(X.astype(np.float64 if real else object)), gap)
    if not isinstance(X, np.ndarray):
        try:
            array = np.asarray(X)
            # of rows of several types NumPy makes text, in which a gap is the word "None"
            X = array if array.dtype.kind in "fiubmM" else np.asarray(X, dtype=object)
        except ValueError as error:
            raise ValueError(
                f"X cannot be made into an array ({error}). Expected rows of equal length."
            ) from error
    if X.dtype.kind == "O" and X.ndim == 2:
        return X
    if X.dtype.kind in "UmM" and X.ndim == 2:
        return X
    # anything else is a matrix of numbers, or refused as everywhere
    return validate.as_matrix(X)


def _from_array(X: np.ndarray, names: Sequence[str] | None) -> Source:
    if X.shape[1] == 0:
        validate.as_matrix(X.astype(np.float64))
    columns = list(names) if names is not None else names_of_array(X.shape[1])
    place = {name: j for j, name in enumerate(columns)}
    forms, refused = {}, {}
    if X.dtype.kind == "O":
        for name, j in place.items():
            forms[name], reason = _object_form(X[:, j])
            if reason:
                refused[name] = reason

    def read(wanted: Sequence[str], rows: int, zones: Mapping[str, str]) -> Iterator[list[Values]]:
        del zones
        for start in range(0, X.shape[0], rows):
            block = X[start : start + rows]
            for name in wanted:
                _check_dates(block[:, place[name]], name, where)
            yield [_from_vector(block[:, place[name]], forms.get(name, "text")) for name in wanted]

    where = "the array X" if names is None else "the rows X"
    return Source(where, columns, names is not None, X.shape[0], read, refused)


def _from_vector(vector: np.ndarray, form: str) -> Values:
    kind = vector.dtype.kind
    if kind == "O":
        return objects_as(vector, form)
    if kind == "U":
        return text_of(vector)
    if kind == "M":
        return Values("dates", vector.astype("datetime64[us]"))
    if kind == "m":
        return Values("durations", seconds_of(vector))
    return Values("booleans" if kind == "b" else "numbers", vector.astype(np.float64))


# Microseconds since 1970 in 64 bits reach some 292,000 years to either side.
_MOST_YEARS = 290_000


def _check_dates(vector: np.ndarray, name: str, where: str) -> None:
    """Refuse dates that microseconds since 1970 cannot count, which would come out as other ones."""
    if vector.dtype.kind == "O":  # Python's own end with the year 9999
        vector = np.array(
            [v.astype("M8[Y]") for v in vector if isinstance(v, np.datetime64)], "M8[Y]"
        )
    if vector.dtype.kind != "M":
        return
    # whole years, which no unit overflows: casting such dates to microseconds gives others, or an error of NumPy's
    years = vector.astype("M8[Y]").astype(np.int64) + 1970
    odd = np.flatnonzero((np.abs(years) > _MOST_YEARS) & ~np.isnat(vector))
    if len(odd):
        raise ValueError(
            f"Column {name!r} of {where} holds dates out of range, such as {vector[odd[0]]}: years from "
            f"{-_MOST_YEARS} to {_MOST_YEARS} can be read. Correct them, or leave them empty, which is read as missing."
        )


def _object_form(array: np.ndarray) -> tuple[str, str | None]:
    """Return the form of a column of Python objects, and what it holds where that is none."""
    form = form_of_objects(array)
    if isinstance(form, str):
        return form, None
    return "refused", f"objects such as {validate.describe(form[1])}"


# ---------------------------------------------------------------- tables


def _from_table(table: Table) -> Source:
    import narwhals as nw

    refused, forms = {}, {}
    first = next(table.frames(table.names, 1), None) if table.in_memory else None
    if first is not None and plain_dtypes(first) is not None:
        plain = partial(_read_plain, table)
        return Source(table.where, table.names, table.named, table.num_rows, plain, table=table)
    columns = [None] * len(table.names) if first is None else list(first.iter_columns())
    for name, column in zip(table.names, columns, strict=True):
        form, reason = _form_of_column(table, name, column)
        if reason is not None:
            refused[name] = reason
        elif form is not None:
            forms[name] = form

    def read(wanted: Sequence[str], rows: int, zones: Mapping[str, str]) -> Iterator[list[Values]]:
        for frame in table.frames(wanted, rows):
            # taken out once: of one row that is most of what its encoding costs
            columns = dict(zip(wanted, frame.iter_columns(), strict=True))
            for name, column in columns.items():
                if column.dtype == nw.Datetime or forms.get(name) == "dates":
                    _check_dates(np.asarray(column.to_numpy()), name, table.where)
            yield [
                _from_series(column, forms.get(name), zones.get(name))
                for name, column in columns.items()
            ]

    return Source(table.where, table.names, table.named, table.num_rows, read, refused, table)


def _read_plain(
    table: Table, wanted: Sequence[str], rows: int, zones: Mapping[str, str]
) -> Iterator[list[Values]]:
    """Read a data frame of pandas that holds numbers alone: all columns at once."""
    del zones
    for frame in table.frames(wanted, rows):
        columns = frame.to_native().to_numpy(np.float64).T
        yield [Values("numbers", column) for column in columns]


def _form_of_column(table: Table, name: str, first: Any) -> tuple[str | None, str | None]:
    """Return the form of a column without a type that tells, and what it holds where nothing can be made of it.

    Parameters
    ----------
    table, name
        The column.
    first
        Its first row; None of a file, which has types and no Python objects, and of a table without rows.
    """
    import narwhals as nw

    holds = table.not_numeric.get(name)
    if holds in ("text", "categories", "dates or times", "durations"):
        holds = None
    if first is None:
        return None, holds
    objects = str(getattr(first.to_native(), "dtype", "")) == "object" or first.dtype == nw.Object
    objects |= in_unread_zone(first)
    if not objects and first.dtype != nw.Unknown:
        return None, holds
    column = next(table.frames([name], _WHOLE))[:, 0]
    if objects:  # its first rows may be text and others not, so all are looked at
        return _object_form(column.to_numpy())
    if column.is_null().all():
        return "nothing", None
    return (None, holds) if holds is not None else ("sparse", None)


def _from_series(column: Any, form: str | None, zone: str | None) -> Values:
    """Read a block of a column by its type, or of Python objects in the form of all of them."""
    import narwhals as nw

    dtype = column.dtype
    if form == "sparse":
        return _from_vector(np.asarray(column.to_numpy()), "numbers")
    if form is not None:
        return objects_as(column.to_numpy(), form, zone)
    if dtype in (nw.Categorical, nw.Enum):
        return _categories(column)
    if dtype == nw.String:
        encoded = _arrow(column).dictionary_encode()
        return text_values(_codes(encoded), encoded.dictionary.to_pylist())
    if dtype == nw.Date:
        return Values("dates", column.cast(nw.Datetime("us")).to_numpy().astype("datetime64[us]"))
    if dtype == nw.Datetime:
        return _dates(column, zone)
    if dtype == nw.Duration:
        return Values("durations", seconds_of(column.to_numpy()))
    if dtype == nw.Time:
        return Values("times", _times(column))
    numbers = as_numbers(column).astype(np.float64)
    return Values("booleans" if dtype == nw.Boolean else "numbers", numbers)


def _dates(column: Any, zone: str | None) -> Values:
    own, ahead = column.dtype.time_zone, np.timedelta64(0, "us")
    if own is not None:
        there = None if zone is None or zone == own else zone_of(zone)
        if isinstance(there, datetime.timezone):  # not all tables know a zone without a name
            column, own = column.dt.convert_time_zone("UTC"), zone
            ahead = np.timedelta64(there.utcoffset(None), "us")
        elif there is not None:
            column, own = column.dt.convert_time_zone(zone), zone
        column = column.dt.replace_time_zone(None)
    return Values("dates", column.to_numpy().astype("datetime64[us]") + ahead, zone=own)


def _times(column: Any) -> np.ndarray:
    import pyarrow as pa

    array = _arrow(column).cast(pa.time64("ns")).cast(pa.int64())
    return array.to_numpy(zero_copy_only=False).astype(np.float64) / 1e9


def _categories(column: Any) -> Values:
    native = column.to_native()
    if hasattr(native, "cat") and hasattr(native.cat, "categories"):  # pandas, with any categories
        levels, codes = native.cat.categories.tolist(), native.cat.codes.to_numpy()
        ordered = bool(native.cat.ordered)
    else:
        array = _arrow(column)
        levels, codes, ordered = array.dictionary.to_pylist(), _codes(array), array.type.ordered
    order = tuple(dict.fromkeys(map(level_text, levels))) if ordered else None
    return text_values(codes, levels, order=order, declared=True)


def _arrow(column: Any) -> Any:
    """Return a column as one Arrow array; pandas keeps text in chunks."""
    import pyarrow as pa

    array = column.to_arrow()
    return (
        array.unify_dictionaries().combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    )


def _codes(array: Any) -> np.ndarray:
    """Return the codes of an Arrow dictionary array, -1 for missing values."""
    import pyarrow as pa

    codes = array.indices.cast(pa.int64()).fill_null(-1)
    return codes.to_numpy(zero_copy_only=False)
