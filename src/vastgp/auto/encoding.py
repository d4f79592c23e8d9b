"""What a fitted `TableEncoder` makes of rows: the pass over them, and the columns of the matrix by input.

The passes by which it learns what each column is are in `vastgp.auto.reading`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from vastgp.auto import gaps
from vastgp.auto.categories import CodeEncoding, names_of_means
from vastgp.auto.columns import Column
from vastgp.auto.dates import DateEncoding
from vastgp.auto.messages import refusal, warn_of_gaps
from vastgp.auto.named_numbers import NamedNumberEncoding
from vastgp.auto.reading import by_position, found_by_name, names_in
from vastgp.auto.source import Source, open_source
from vastgp.auto.space import place_in, space_of, with_places
from vastgp.auto.values import UnfitError
from vastgp.data import validate


def opened_with_place(
    X: Any, asked: Any, columns: Sequence[Column], fitted: tuple[Sequence[str], bool] | None
) -> Source:
    """Return an opened table with its place as one column, where there is one.

    Parameters
    ----------
    X : table, path, array or Source
    asked : object
        The ``space`` of the encoder.
    columns : sequence of Column
        Of the fit; none before.
    fitted : tuple of (sequence of str, bool), optional
        Names of the columns of the table of the fit, and whether they are its own.
    """
    source, space = open_source(X), space_of(columns)
    if space is None and asked is not None and source.space is None:
        space = place_in(source, asked)
    elif space is not None and source.space is None and fitted is not None:
        source = source if found_by_name(source, *fitted) else by_position(source, fitted[0])
    return with_places(source, space)


def kept(columns: Sequence[Column]) -> list[Column]:
    """Return the columns of a table that are inputs."""
    return [column for column in columns if column.kept]


def groups_of(column: Column) -> list[list[str]]:
    """Return the names of a column's outputs, by input."""
    assert column.encoding is not None
    return column.encoding.groups(column.name)


def names_of_outputs(columns: Sequence[Column]) -> np.ndarray:
    """Return the names of the columns of the matrix, (d,)."""
    names = [name for column in kept(columns) for group in groups_of(column) for name in group]
    return np.array(names, dtype=object)


def tied_outputs(columns: Sequence[Column]) -> tuple[tuple[int, ...], ...]:
    """Return the columns of the matrix by input."""
    tied: list[tuple[int, ...]] = []
    for column in kept(columns):
        start = column.outputs[0]
        for group in groups_of(column):
            tied.append(tuple(range(start, start + len(group))))
            start += len(group)
    return tuple(tied)


def outputs_of_means(column: Column) -> tuple[int, ...]:
    """Return the columns of the matrix that are the target's means by level of a column of the table that has them."""
    names = [name for group in groups_of(column) for name in group]
    encoding = column.encoding
    codes = encoding.names if isinstance(encoding, NamedNumberEncoding) else encoding
    assert isinstance(codes, CodeEncoding)
    first = names.index(names_of_means(column.name, codes.num_means)[0])
    return column.outputs[first : first + codes.num_means]


def outputs_of_names(column: Column) -> tuple[int, ...]:
    """Return the columns of the matrix that are the names of things, of numbers that are such names."""
    encoding = column.encoding
    assert isinstance(encoding, NamedNumberEncoding)
    return column.outputs[1 : 1 + sum(map(len, encoding.names.groups(column.name)))]


def outputs_of_gaps(columns: Sequence[Column]) -> list[slice]:
    """Return the columns of the matrix that tell apart the rows with a gap, by column of the table."""
    return [
        slice(column.outputs[-1] + 1 - gaps.COLUMNS, column.outputs[-1] + 1)
        for column in kept(columns)
        if groups_of(column)[-1] == gaps.group(column.name)
    ]


def encode(
    source: Source, columns: Sequence[Column], named: bool, names: Sequence[str] | None = None
) -> np.ndarray:
    """Return the matrix of all rows, (n, d); arguments as for `encode_blocks`."""
    if source.num_rows is None:
        blocks = encode_blocks(source, columns, named, None, names)
        found = np.concatenate([np.zeros((0, _width(columns))), *blocks])
    else:  # filled in place: no second copy at the end
        found = np.empty((source.num_rows, _width(columns)))
        start = 0
        for block in encode_blocks(source, columns, named, None, names):
            found[start : start + len(block)] = block
            start += len(block)
    validate.check_num_rows(found.shape, 1)
    return found


def encode_blocks(
    source: Source,
    columns: Sequence[Column],
    named: bool,
    rows: int | None,
    names: Sequence[str] | None = None,
) -> Iterator[np.ndarray]:
    """Yield the matrix block by block.

    Parameters
    ----------
    source
        The rows.
    columns
        Of the fit.
    named
        Whether these have names, by which those of the rows are found.
    rows
        The most rows in a block; None: as the source has them.
    names
        What the source calls the columns that are inputs, where that is known: in the table of the fit.
    """
    inputs = kept(columns)
    names = names_in(source, columns, named) if names is None else names
    zones = {
        name: column.encoding.zone
        for name, column in zip(names, inputs, strict=True)
        if isinstance(column.encoding, DateEncoding) and column.encoding.zone is not None
    }
    unforeseen = dict.fromkeys(names, 0)
    for first, block in source.blocks(names, rows, zones):
        out = np.empty((len(block[0]), _width(columns)))
        for name, column, values in zip(names, inputs, block, strict=True):
            try:
                encoded, missing = column.encode(values)
            except UnfitError as error:
                raise refusal(error, name, source, first, False, column.kind) from None
            out[:, column.outputs[0] : column.outputs[-1] + 1] = encoded
            unforeseen[name] += missing
        yield out
    warn_of_gaps({name: count for name, count in unforeseen.items() if count}, source)


def _width(columns: Sequence[Column]) -> int:
    return sum(len(column.outputs) for column in columns)
