"""Tables in text files: comma, semicolon or tab between values, points or commas in numbers."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from vastgp.data.arrow_errors import arrow_errors
from vastgp.data.tables import LateTextError, Table, from_batches
from vastgp.data.validate import listed

_LATE = re.compile(r"In CSV column #(?P<column>\d+):.*invalid value '(?P<value>.*)'", re.DOTALL)


def open_csv(path: Path, empty_as_text: bool) -> Table:
    """The table in a CSV file.

    Parameters
    ----------
    path
        The file.
    empty_as_text
        Whether a column that begins with many empty rows is read as text, of which numbers can be made.
    """
    import pyarrow as pa
    import pyarrow.csv as csv

    where = repr(str(path))
    parse = csv.ParseOptions(delimiter=_delimiter(path, where))
    schema, decimal = _schema_and_decimal(path, where, parse)
    with arrow_errors(where):
        names = schema.names
    if names and all(_is_number(name) for name in names):
        raise ValueError(
            f"{where} has no line of column names: its first line is {listed(names, 5)}. Put a line with one "
            "name per column at the top."
        )
    # Types are guessed from the first block of the file. A column of whole numbers there may have fractions or gaps
    # further down, and one without any values may have some: both are read as floating point numbers.
    empty = pa.string() if empty_as_text else pa.float64()
    types = {
        field.name: empty if pa.types.is_null(field.type) else pa.float64()
        for field in schema
        if pa.types.is_integer(field.type)
        or pa.types.is_null(field.type)
        or pa.types.is_floating(field.type)
    }
    whole = frozenset(field.name for field in schema if pa.types.is_integer(field.type))
    schema = pa.schema(
        [pa.field(field.name, types.get(field.name, field.type)) for field in schema]
    )

    def batches(columns: Sequence[str], rows: int) -> Iterator[Any]:
        convert = csv.ConvertOptions(
            column_types=types, include_columns=list(columns), decimal_point=decimal
        )
        with (
            arrow_errors(where),
            csv.open_csv(os.fspath(path), parse_options=parse, convert_options=convert) as reader,
        ):
            while (batch := _next(reader, where, names, types)) is not None:
                batch = _with_gaps(batch)
                for start in range(0, batch.num_rows, rows):
                    yield batch.slice(start, rows)

    table = dataclasses.replace(from_batches(schema, batches, where, num_rows=None), whole=whole)
    for field in schema:
        if pa.types.is_binary(field.type):
            table.not_numeric[field.name] = (
                "text that is no UTF-8 (save the file with that encoding: iconv -f latin1 -t utf8)"
            )
    return table


def _next(reader: Any, where: str, names: Sequence[str], types: dict[str, Any]) -> Any:
    """Return the next batch, None at the end; text where a column had numbers is told by the column's name."""
    import pyarrow as pa

    try:
        return next(reader, None)
    except pa.ArrowInvalid as error:
        late = _LATE.search(str(error))
        if late is None:
            raise
        name = names[int(late["column"])]
        types[name] = pa.string()
        raise LateTextError(
            f"Column {name!r} of {where} holds numbers at first, and {late['value']!r} further down. Correct it, or "
            "leave it empty, which is read as missing; or write the column as text throughout, with quotes."
        ) from error


def _with_gaps(batch: Any) -> Any:
    """Return a batch whose empty texts are missing, as they are in every other column and kind of table.

    Arrow could read them so, but with them texts such as NA, which may well be a code.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = [
        pc.if_else(pc.equal(column, ""), None, column)
        if pa.types.is_string(column.type)
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _schema_and_decimal(path: Path, where: str, parse: Any) -> tuple[Any, str]:
    """Return the types of the columns, and what stands before the decimals of their numbers.

    Where a comma is between values it is not within them. Otherwise the sign by which more columns are numbers.
    """
    import pyarrow as pa
    import pyarrow.csv as csv

    found = {}
    for sign in ".,":
        convert = csv.ConvertOptions(decimal_point=sign)
        with (
            arrow_errors(where),
            csv.open_csv(os.fspath(path), parse_options=parse, convert_options=convert) as reader,
        ):
            found[sign] = reader.schema
        if parse.delimiter == "," or not any(pa.types.is_string(f.type) for f in found["."]):
            break
    numbers = {
        sign: sum(pa.types.is_floating(field.type) for field in schema)
        for sign, schema in found.items()
    }
    best = max(found, key=lambda sign: numbers[sign])
    return found[best], best


def _delimiter(path: Path, where: str) -> str:
    """Comma, semicolon or tab: whichever the line of names has most of."""
    import pyarrow as pa

    with arrow_errors(where), pa.input_stream(os.fspath(path), compression="detect") as stream:
        begin = stream.read(1 << 16)
    if begin.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError(
            f"{where} is UTF-16 text. Save it as UTF-8: iconv -f utf-16 -t utf-8 does so."
        )
    header = begin.split(b"\n", 1)[0]
    if b"\0" in begin:
        raise ValueError(
            f"{where} holds null bytes: it is no text, whatever its name says. Expected a line of column names, then "
            "the rows, with commas, semicolons or tabs between values."
        )
    if not header.strip():
        raise ValueError(
            f"{where} is empty, or its first line is. Expected a line of column names, then the rows."
        )
    return max(",;\t", key=lambda character: header.count(character.encode()))


def _is_number(text: str) -> bool:
    with contextlib.suppress(ValueError):
        float(text)
        return True
    return False
