"""The passes over the rows by which `TableEncoder` learns what each column is."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vastgp._warn import warn
from vastgp.auto.categories import CodeEncoding, categories_of, targets_are_alike, with_means
from vastgp.auto.columns import Column, Facts, new_facts
from vastgp.auto.guesses import with_gaps
from vastgp.auto.messages import refusal
from vastgp.auto.named_numbers import NamedNumberEncoding, share_of_names
from vastgp.auto.numeric import NumberEncoding
from vastgp.auto.source import Source, names_of_array
from vastgp.auto.values import UnfitError, Values, level_text, numbers_of
from vastgp.data import column_names, validate
from vastgp.data.tables import LateTextError, text_of_name


def read_facts(source: Source, names: list[str], ordered: Any) -> tuple[dict[str, Facts], int]:
    """Read all rows once, and return what they say of each column, and how many they are."""
    orders = _orders(ordered, names)
    if not names:
        raise ValueError(
            f"Found array with 0 feature(s) (shape=({source.num_rows or 0}, 0)) while a minimum of 1 is required: "
            f"{source.where} has no columns beside the target and those excluded. Give the table's inputs as well: a "
            "target alone predicts nothing."
        )
    while True:
        try:
            facts, end = _read_through(source, names, orders)
            break
        except LateTextError:  # it is text now, all of it
            continue
    validate.check_num_rows((end, len(names)), 1)
    return facts, end


def _read_through(
    source: Source, names: list[str], orders: dict[str, tuple[str, ...]]
) -> tuple[dict[str, Facts], int]:
    facts: dict[str, Facts] = {}
    end = 0
    for first, block in source.blocks(names, resume=False):
        for name, values in zip(names, block, strict=True):
            if name not in facts:
                facts[name] = new_facts(values, orders.get(name))
            try:
                facts[name].update(first, values)
            except UnfitError as error:
                raise refusal(error, name, source, first, name in orders) from None
        end = first + len(block[0])
    return facts, end


def _orders(ordered: Any, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the levels in order that the caller gave, as text."""
    given = {} if ordered is None else ordered
    if not isinstance(given, Mapping):
        raise ValueError(
            "ordered must give the levels of a column in their order by its name, such as "
            f"{{'size': ['S', 'M', 'L']}}; received {validate.describe(given)}."
        )
    unknown = [name for name in given if name not in names]
    if unknown:
        raise ValueError(
            f"ordered names the columns {validate.listed(unknown)}, which are no inputs of the table. Its columns "
            f"are: {validate.listed(names, 30)}."
        )
    orders = {}
    for name, levels in given.items():
        if isinstance(levels, str) or not isinstance(levels, Iterable):
            raise ValueError(f"ordered[{name!r}] must be a list of levels, received {levels!r}.")
        orders[name] = tuple(map(level_text, levels))
        if len(set(orders[name])) < len(orders[name]):
            raise ValueError(
                f"ordered[{name!r}] has a level twice: {list(levels)}. Give each once."
            )
    return orders


def excluded_names(source: Source, exclude: Any) -> set[str]:
    names = [exclude] if isinstance(exclude, str) else list(map(text_of_name, exclude))
    unknown = [name for name in names if name not in source.names]
    if unknown:
        raise ValueError(
            f"exclude names the columns {validate.listed(unknown)}, which {source.where} has not. Its columns are: "
            f"{validate.listed(source.names, 30)}."
        )
    return set(names)


def numbered(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns with the numbers of their outputs."""
    found, start = [], 0
    for column in columns:
        if column.encoding is not None:
            size = sum(map(len, column.encoding.groups(column.name)))
            column = dataclasses.replace(column, outputs=tuple(range(start, start + size)))
            start += size
        found.append(column)
    return tuple(found)


class Doubt(NamedTuple):
    """Numbers that may name things, the target (of classes the one) that they say most of, and its share that is."""

    numbers: np.ndarray
    target: np.ndarray
    share: float


class Told(NamedTuple):
    """What the target says of columns.

    Attributes
    ----------
    columns : list of Column
        What is done with each.
    means : dict
        Targets' means of the training rows, where these are an input, by place among the columns that are kept.
    doubted : dict
        Of columns whose numbers may name things, by that place, what is known of that.
    """

    columns: list[Column]
    means: dict[int, np.ndarray]
    doubted: dict[int, Doubt]


def with_target_means(source: Source, columns: list[Column], target: np.ndarray | None) -> Told:
    """Return the columns as the target says, with its means.

    Parameters
    ----------
    source
        The rows, which are read once more.
    columns
        What is done with each column.
    target : ndarray of shape (n,) or (n, C), optional
        The target, of classes which of them each row is; None for no means.

    Notes
    -----
    A text of which most rows have a value of their own is left out unless those of one value have targets that are
    alike, by an analysis of variance: senators of one state (48 in 75 rows; RMSE of the state's opinion 1.11 without it
    and 0.28 with it), but not the pages of a register. And numbers over orders of magnitude are their logarithms where
    these say more of the target.
    """
    if target is None or not np.isfinite(target).any():
        untold = (column.named(False).without_doubt(False) for column in columns)
        return Told(list(map(_without_levels, untold)), {}, {})
    read = {column.name: column for column in columns if _asks_the_target(column)}
    told = Told([], {}, {})
    parts: dict[str, list[np.ndarray]] = {name: [] for name in read}
    for _, block in source.blocks(list(read)) if read else ():
        for column, values in zip(read.values(), block, strict=True):
            parts[column.name].append(_numbers_or_places(column, values))
    kept = 0
    for column in columns:
        if column.name in read:
            data = np.concatenate(parts.pop(column.name))
            column, rows, doubt = _told(column, data, target)
            if rows is not None:
                told.means[kept] = rows
            if doubt is not None:
                told.doubted[kept] = doubt
        told.columns.append(column)
        kept += column.kept
    return told


def _without_levels(column: Column) -> Column:
    """Return it without its levels, of which there may be very many, where nobody reads them."""
    if not isinstance(column.encoding, CodeEncoding):
        return column
    return dataclasses.replace(column, encoding=dataclasses.replace(column.encoding, levels=()))


def _asks_the_target(column: Column) -> bool:
    encoding = column.encoding
    if isinstance(encoding, CodeEncoding):
        return bool(encoding.levels)
    if isinstance(encoding, NamedNumberEncoding):
        return encoding.in_doubt or isinstance(encoding.names, CodeEncoding)
    return isinstance(encoding, NumberEncoding) and encoding.in_doubt


def _numbers_or_places(column: Column, values: Values) -> np.ndarray:
    """Return the numbers of a block, or of each row the place of its level."""
    encoding = column.encoding
    if isinstance(encoding, CodeEncoding):
        codes, levels = categories_of(values)
        return encoding.places(levels)[codes].astype(np.int32)
    assert isinstance(encoding, (NumberEncoding, NamedNumberEncoding))
    return numbers_of(with_gaps(values, encoding.form) if column.lenient else values, encoding.form)


def _told(
    column: Column, data: np.ndarray, target: np.ndarray
) -> tuple[Column, np.ndarray | None, Doubt | None]:
    """Return what is done with a column, as the target says, the target's means of the rows, where it has some.

    And what is known of whether its numbers name things, where that is in doubt.
    """
    encoding = column.encoding
    if isinstance(encoding, NumberEncoding):
        return column.without_doubt(_is_told(encoding, data, target)), None, None
    if isinstance(encoding, NamedNumberEncoding):
        return _told_of_names(column, encoding, data, target)
    assert isinstance(encoding, CodeEncoding)
    if column.reason:
        column = column.without_doubt(targets_are_alike(data, target))
    if not column.kept:
        return column, None, None
    of_text, rows = with_means(encoding, data, target)
    return dataclasses.replace(column, encoding=of_text), rows, None


def _is_told(encoding: NumberEncoding, data: np.ndarray, target: np.ndarray) -> bool:
    return target.ndim == 1 and encoding.is_told(data, target)


def _told_of_names(
    column: Column, encoding: NamedNumberEncoding, data: np.ndarray, target: np.ndarray
) -> tuple[Column, np.ndarray | None, Doubt | None]:
    """Return the same of numbers that may be names, or are."""
    number, doubt = encoding.number, None
    number = number.decided(number.in_doubt and _is_told(number, data, target))
    if encoding.in_doubt:
        doubts = (Doubt(data, each, share_of_names(data, each)) for each in np.atleast_2d(target.T))
        doubt = max(doubts, key=lambda each: each.share)
        if not doubt.share:
            return dataclasses.replace(column, encoding=number), None, None
    made, rows = dataclasses.replace(encoding, number=number).of_all(data), None
    if isinstance(made.names, CodeEncoding):
        names, rows = with_means(made.names, made.places(data), target)
        made = dataclasses.replace(made, names=names)
    return dataclasses.replace(column, encoding=made), rows, doubt


def names_in(source: Source, columns: Sequence[Column], named: bool) -> list[str]:
    """Return the names that a source has for the columns of the fit that are inputs.

    Parameters
    ----------
    source
        New rows.
    columns
        All columns of the fit.
    named
        Whether the fit had names.
    """
    if named and source.named:
        names = [column.name for column in columns if column.kept]
        there = set(source.names)
        missing = [name for name in names if name not in there]
        if missing:
            known = {column.name for column in columns}
            extra = [name for name in source.names if name not in known]
            raise column_names.missing_features_error(missing, extra, source.where, "TableEncoder")
        return names
    if found_by_name(source, [column.name for column in columns], named):
        return [column.name for column in columns if column.kept]
    validate.check_num_features(len(source.names), len(columns), "TableEncoder")
    if named:
        warn(
            "X does not have valid feature names, but TableEncoder was fitted with feature names. Its columns are "
            "taken in the order of the fit."
        )
    pairs = zip(source.names, columns, strict=True)
    return [name for name, column in pairs if column.kept]


def found_by_name(source: Source, names: Sequence[str], named: bool) -> bool:
    """Return whether columns of the fit are found by their names, and otherwise by position.

    Parameters
    ----------
    source : Source
        New rows.
    names : sequence of str
        Of all columns of the fit.
    named : bool
        Whether the fit had names.
    """
    if named and source.named:
        return True
    # numbers, or rows of a header, tell the columns of a data frame apart as well; those of an array are called by us
    called = not named and not source.named and source.names != names_of_array(len(source.names))
    return called and set(names) <= set(source.names)


def by_position(source: Source, names: Sequence[str]) -> Source:
    """Return a source whose columns have the names that those of the fit have in the same places.

    Parameters
    ----------
    source : Source
        Without names, or with such as a fit to an array has not seen.
    names : sequence of str
        Of the table of the fit, in order.
    """
    validate.check_num_features(len(source.names), len(names), "TableEncoder")
    theirs = dict(zip(names, source.names, strict=True))

    def read(wanted: Sequence[str], rows: int, zones: Mapping[str, str]) -> Iterator[list[Values]]:
        own = {theirs[name]: zone for name, zone in zones.items()}
        return source.read([theirs[name] for name in wanted], rows, own)

    refused = {name: source.refused[own] for name, own in theirs.items() if own in source.refused}
    return dataclasses.replace(source, names=list(names), read=read, refused=refused)
