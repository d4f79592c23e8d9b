"""What `TableEncoder` says: what it did, and what it cannot read, by column and row, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vastgp._warn import warn
from vastgp.auto.columns import Column
from vastgp.auto.source import Source
from vastgp.auto.values import UnfitError


def refusal(
    error: UnfitError, name: str, source: Source, first: int, given: bool, kind: str | None = None
) -> ValueError:
    """What is wrong with a value, by column and row, and what to do."""
    place = f"Column {name!r} of {source.where} holds"
    row = f"in row {first + error.row} (counted from 0)"
    if error.expected == "finite numbers":
        return ValueError(
            f"{place} infinity or a number too large {row}. Remove the row, correct what made the number (a division "
            "by zero, an overflow, a unit), or leave it empty, which is read as missing."
        )
    if kind is None:
        to_do = f"Add it to ordered[{name!r}]" if given else f"Give all levels as ordered[{name!r}]"
        return ValueError(
            f"{place} {error.held} {row}, which its order has not: expected {error.expected}. {to_do}, or leave it "
            "empty, which is read as missing."
        )
    return ValueError(
        f"{place} {error.held} {row}, but was of the kind {kind!r} when TableEncoder was fitted: expected "
        f"{error.expected}. Convert the column, leave what is unknown empty, or fit again with a table like this one."
    )


def check_some_kept(columns: Sequence[Column], source: Source, num_rows: int) -> None:
    """Raise unless some column is an input."""
    if any(column.kept for column in columns):
        return
    reasons = "; ".join(f"{column.name!r} ({column.reason})" for column in columns[:10])
    more = f"; and {len(columns) - 10} more" if len(columns) > 10 else ""
    raise ValueError(
        f"No column of {source.where} (n_samples={num_rows}) can be an input: {reasons}{more}. Give rows that differ, "
        "or other columns."
    )


def check_place_name(space: Any, source: Source) -> None:
    """Refuse a table that has a column which is called as the place is."""
    if space.name in source.names:
        raise ValueError(
            f"{source.where} has a column {space.name!r}, which is what the place of {space.first!r} and "
            f"{space.second!r} (space) is called. Rename that column, or leave it out of the table."
        )


def warn_of_index(X: Any) -> None:
    """Say that dates in the index of a data frame of pandas are no input: a model of them would be expected."""
    kind = type(getattr(X, "index", None))
    if kind.__module__.partition(".")[0] == "pandas" and kind.__name__ in (
        "DatetimeIndex",
        "PeriodIndex",
    ):
        to_dates = "" if kind.__name__ == "DatetimeIndex" else ".to_timestamp()"
        warn(
            f"The index of the pandas {type(X).__name__} X holds dates, but an index is no column: the model does not "
            f"see them. X{to_dates}.reset_index() makes a column of it, X.reset_index(drop=True) leaves it out."
        )


def warn_of_gaps(gaps: Mapping[str, int], source: Source) -> None:
    if gaps:
        counts = ", ".join(f"{name!r} ({count})" for name, count in [*gaps.items()][:10])
        warn(
            f"{source.where} has gaps in columns that had none in the fit: {counts}. They get the median, and the "
            "model does not know that they were missing: fit with rows that have such gaps if they are usual."
        )


def summary_of(columns: Sequence[Column], num_inputs: int) -> str:
    """Return a line for each column after one of all."""
    size = sum(len(column.outputs) for column in columns)
    inputs = f"{num_inputs} input{'s' * (num_inputs != 1)}"
    lines = [f"{len(columns)} columns become {inputs} in {size} columns of numbers"]
    width = max(len(column.name) for column in columns)
    kinds = max(len(column.kind) for column in columns)
    for column in columns:
        gaps = f" ({column.missing} missing)" if column.missing else ""
        lines.append(f"  {column.name:<{width}}  {column.kind:<{kinds}}  {column.done}{gaps}")
    return "\n".join(lines)
