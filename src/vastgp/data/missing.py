"""What stands for a missing value in a column of any type."""

from __future__ import annotations

import decimal
from typing import Any

import numpy as np


def is_missing(value: Any) -> bool:
    """Return whether a Python object stands for a missing value: None, NaN, NaT, pandas.NA."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    scalar = isinstance(value, float | np.generic | decimal.Decimal)
    return bool(scalar and value != value)


def missing_in(values: np.ndarray) -> np.ndarray:
    """Return which values of a column are missing, (n,) booleans."""
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype.kind != "O":
        return np.zeros(len(values), dtype=bool)
    return np.array([is_missing(value) for value in values], dtype=bool)
