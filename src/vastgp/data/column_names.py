"""Columns that are not there, are there twice, or are not numbers: errors that say which, and what may be meant."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import numpy as np

from vastgp.data.validate import listed

# Names in a list below each other.
_MOST_BULLETS = 5


def check_unique_names(names: Sequence[str], where: str) -> None:
    """Raise when two columns share a name, since a selection by name would be a guess."""
    seen: set[str] = set()
    twice = [name for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
    if twice and not any(name.strip() for name in twice):
        raise ValueError(
            f"{where} has {len(twice) + 1} columns without a name. Give every column a name of its own."
        )
    if twice:
        raise ValueError(
            f"{where} has several columns named {listed(twice)}. Give every column a name of its own."
        )


def missing_target_error(name: str, names: Sequence[str], where: str) -> ValueError:
    """The target column is not in the table: what is, and what looks like it."""
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    by_case = [other for other in names if other.lower() == name.lower() and other not in close]
    close = by_case + close
    guess = f" Did you mean {' or '.join(repr(other) for other in close)}?" if close else ""
    if where.startswith(("'", '"')) and any(_is_number(other) for other in names):
        guess = " Its first line seems to hold values: write a line of column names above it."
    return ValueError(
        f"The target column y={name!r} is not in {where}.{guess} Its columns are: {listed(names, at_most=30)}."
    )


def input_as_target_error(
    name: str, available: Sequence[str], inputs: Sequence[str], estimator: str
) -> ValueError:
    """The target is a column that the model was fitted to as an input: what it may be instead."""
    others = [other for other in available if other not in inputs]
    what = f", one of {listed(others, at_most=30)}" if others else ""
    return ValueError(
        f"y={name!r} is an input of the {estimator}, not its target: name the column that holds the target{what}."
    )


def _is_number(name: str) -> bool:
    try:
        return bool(np.isfinite(float(name)))
    except ValueError:
        return False


def missing_features_error(
    missing: Sequence[str], extra: Sequence[str], where: str, estimator: str
) -> ValueError:
    """Columns that the model was fitted with are not in the table."""
    message = (
        "The feature names should match those that were passed during fit.\n"
        + (f"Feature names unseen at fit time:\n{_bullets(extra)}" if extra else "")
        + f"Feature names seen at fit time, yet now missing:\n{_bullets(missing)}"
    )
    renamed = difflib.get_close_matches(missing[0], extra, n=1)
    guess = f" Is {renamed[0]!r} what was {missing[0]!r}?" if renamed else ""
    return ValueError(
        f"{message}{estimator} takes its columns from {where} by name: add or rename them.{guess}"
    )


def not_numeric_error(reasons: dict[str, str], where: str) -> ValueError:
    """Columns that cannot be features, each with what it holds."""
    columns = ", ".join(f"{name!r} ({reason})" for name, reason in list(reasons.items())[:10])
    more = f" and {len(reasons) - 10} more" if len(reasons) > 10 else ""
    return ValueError(
        f"{where} has columns that are not numbers: {columns}{more}. Expected numbers in every feature. Drop them, or "
        "encode them: categories for example with sklearn.preprocessing.OneHotEncoder, times as a number such as days "
        "since the first row."
    )


def _bullets(names: Sequence[str]) -> str:
    ordered = sorted(names)
    return "".join(f"- {name}\n" for name in ordered[:_MOST_BULLETS]) + (
        "- ...\n" if len(ordered) > _MOST_BULLETS else ""
    )
