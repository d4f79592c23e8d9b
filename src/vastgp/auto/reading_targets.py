"""Targets as people have them: numbers or labels of any type, some of them missing."""

from __future__ import annotations

from typing import Any

import numpy as np

from vastgp._warn import warn
from vastgp.auto.written import (
    form_with_unit,
    parse_comma_number,
    parse_number,
    parser_of,
    unit_of,
)
from vastgp.data import validate
from vastgp.data.labels import check_several_classes, column_of, encode
from vastgp.data.missing import missing_in
from vastgp.data.scaling import check_spread

# With text in more than this share of its rows a target is classes, and otherwise numbers that are spoilt.
_MOST_WORDS = 0.5


def numbers_and_name(X: Any, y: Any) -> tuple[np.ndarray, str | None]:
    """Return a numeric target, NaN where it is missing, and the name of its column.

    Raises
    ------
    ValueError
        For infinite targets, and for text, booleans or dates; the message says what to use instead.
    """
    shape: tuple[int, ...] = getattr(y, "shape", ())
    if len(shape) == 2 and shape[-1] != 1:
        validate.as_target(np.zeros(shape))  # says what to do with several targets
    found, name = column_of(X, y, estimator="GPRegressor")
    called = "y" if name is None else f"The target column {name!r}"
    if found.dtype.kind == "O":
        found = _numbers_of(found, called)
    if found.dtype.kind == "b":
        raise ValueError(_classes_error(called, "booleans", found[0].item()))
    if found.dtype.kind in "US":
        raise _text_error(found, called)
    numbers = np.asarray(validate.numeric_array(found, called), dtype=np.float64)
    infinite = np.flatnonzero(np.isinf(numbers))
    if infinite.size:
        raise ValueError(
            f"{called} contains infinity or a value too large for dtype('float64'), in row {infinite[0]} (counted from "
            "0). Correct it, or make it missing (NaN), which leaves the row out."
        )
    return numbers, name


def classes_of(X: Any, y: Any) -> tuple[np.ndarray, np.ndarray, str | None]:
    """Return the number of each row's class, NaN where it is missing, the classes sorted, and the column's name."""
    found, name = column_of(X, y, estimator="GPClassifier")
    missing = missing_in(found)
    codes = np.full(len(found), np.nan)
    if missing.all():
        return codes, np.zeros(0), name
    classes, numbers = encode(found[~missing], called_target(name))
    codes[~missing] = numbers
    check_several_classes(classes, len(numbers), "GPClassifier")
    return codes, classes, name


def _numbers_of(values: np.ndarray, called: str) -> np.ndarray:
    """Return numbers among missing values as floats; other objects are refused by the words for them."""
    missing = missing_in(values)
    found = np.full(len(values), np.nan)
    present = values[~missing]
    if len(present) and all(isinstance(value, (bool, np.bool_)) for value in present):
        return np.asarray(present, dtype=bool)
    if any(isinstance(value, str) for value in present):
        raise _text_error(values, called)
    found[~missing] = validate.numeric_array(present, called) if len(present) else 0.0
    return found


def _classes_error(called: str, kind: str, example: Any) -> str:
    return (
        f"{called} holds {kind}, for example {example!r}: classes and no numbers. Use GPClassifier, or convert them "
        "with astype(float)."
    )


def _text_error(values: np.ndarray, called: str) -> ValueError:
    text = next(str(value) for value in values if isinstance(value, (str, bytes)))
    return ValueError(spoilt_numbers(values, called) or _classes_error(called, "text", text))


def spoilt_numbers(values: np.ndarray, called: str) -> str | None:
    """Return what keeps a target that holds text from being numbers, and where; None where it is no numbers at all.

    Parameters
    ----------
    values : ndarray of shape (n,)
        As they are, with those that are missing.
    called : str
        What to call it, at the beginning of a sentence.
    """
    texts = [
        (row, str(value)) for row, value in enumerate(values) if isinstance(value, (str, bytes))
    ]
    odd = [(row, text) for row, text in texts if parse_number(text.strip()) is None]
    if odd and all(parse_comma_number(text.strip()) is not None for _, text in texts):
        return (
            f"{called} holds numbers with a comma before their decimals, as text, for example {odd[0][1]!r} in row "
            f"{odd[0][0]} (counted from 0). Write them with a point; pandas.read_csv(path, decimal=',', thousands='.') "
            "reads such a file."
        )
    if odd and (unit := _unit_of_all([text.strip() for _, text in texts])) is not None:
        return (
            f"{called} holds numbers with {unit!r}, as text, for example {odd[0][1]!r} in row {odd[0][0]} (counted "
            "from 0). Write the numbers alone: .str.replace(r'[^-.0-9]', '', regex=True).astype(float) makes them of a "
            "column of pandas."
        )
    if not texts or len(odd) > _MOST_WORDS * len(values):
        return None
    if not odd:
        grouped = next((text for _, text in texts if "," in text), None)
        convert = "astype(float)" if grouped is None else ".str.replace(',', '').astype(float)"
        example = grouped or texts[0][1]
        return f"{called} holds text that is numbers, for example {example!r}. Convert it with {convert}."
    count = f"{len(odd)} rows have" if len(odd) > 1 else "one row has"
    return (
        f"{called} holds numbers, but {count} text, the first {odd[0][1]!r} in row {odd[0][0]} (counted from 0). "
        "Correct it, or leave it empty: rows without a target are left out."
    )


def _unit_of_all(texts: list[str]) -> str | None:
    """Return the unit that all numbers have, as written; None where a text is no such number."""
    form = form_with_unit(texts[0], "numbers")
    parse = parser_of(form) if form is not None else None
    if form is None or parse is None or any(parse(text) is None for text in texts):
        return None
    return "".join(unit_of(form)).strip()


# ---------------------------------------------------------------- what a target is


def called_target(name: str | None) -> str:
    """Return what messages call a target."""
    return "the target y" if name is None else f"the target column {name!r}"


def check_values(y: np.ndarray, extremes: tuple[float, float], name: str | None) -> None:
    """Raise where the deviation of a target cannot be represented, and say where there is nothing to learn.

    The fit to a constant goes on, since its answer (that constant) is right.
    """
    called = called_target(name)
    called = called[0].upper() + called[1:]
    check_spread(y, called)
    if extremes[0] == extremes[1]:
        warn(
            f"{called} is constant: every value is {extremes[0]:.6g}. A model can only repeat "
            "it. Is it the column you meant?"
        )


def check_rows(n: int, dropped: int, target: str | None) -> None:
    """Raise unless there are two rows to learn from, of which so many more have no target."""
    if n >= 2:
        return
    called = called_target(target)
    left = f" after {dropped} without a target were left out" if dropped else ""
    why = "from one row alone, nothing can be learned. Give more rows"
    if not n and dropped:
        why = f"{called} is missing in all {dropped}. Give rows whose target is known, or name another column"
    elif not n:
        why = "there are no rows, as in a file with its column names alone. Give some"
    elif dropped:
        why = f"{called} is there in one row only. Give more rows whose target is known"
    raise ValueError(
        f"Found array with {n} sample(s){left} while a minimum of 2 is required: {why}."
    )
