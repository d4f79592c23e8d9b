"""Targets as people have them: numbers or labels of any type, some of them missing."""

from __future__ import annotations

from typing import Any

import numpy as np

from vastgp.data import validate
from vastgp.data.labels import column_of, encode


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
    if found.dtype.kind in "bUS":
        kind = "booleans" if found.dtype.kind == "b" else "text"
        raise ValueError(
            f"{called} holds {kind}, for example {found[0].item()!r}: classes and no numbers. Use "
            "GPClassifier, or convert them with astype(float)."
        )
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
    missing = _missing(found)
    codes = np.full(len(found), np.nan)
    if missing.all():
        return codes, np.zeros(0), name
    classes, numbers = encode(found[~missing])
    codes[~missing] = numbers
    if len(classes) < 2:
        raise ValueError(
            f"y holds one class only ({classes[0]!r} in all {len(numbers)} rows): GPClassifier needs rows of at least "
            "two classes. Add rows of another class, or check how the rows were selected."
        )
    return codes, classes, name


def _missing(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype.kind != "O":
        return np.zeros(len(values), dtype=bool)
    # a missing value is None, or equals nothing, itself included; pandas.NA does not even say so
    return np.array([value is None or (value == value) is not True for value in values], dtype=bool)


def _numbers_of(values: np.ndarray, called: str) -> np.ndarray:
    """Return numbers among missing values as floats; other objects are refused by the words for them."""
    missing = _missing(values)
    found = np.full(len(values), np.nan)
    present = values[~missing]
    if len(present) and all(isinstance(value, (bool, np.bool_)) for value in present):
        return np.asarray(present, dtype=bool)
    text = next((value for value in present if isinstance(value, str)), None)
    if text is not None:
        return np.asarray([text])
    found[~missing] = validate.numeric_array(present, called) if len(present) else 0.0
    return found
