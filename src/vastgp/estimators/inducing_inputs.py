"""Inducing inputs as they are given: what they must be."""

from __future__ import annotations

from typing import Any

import numpy as np


def check_inputs(given: Any, width: int) -> np.ndarray:
    """Return inducing inputs as an array of float64; raise ValueError for what cannot be."""
    try:
        Z = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"inducing_inputs must be an array of numbers, received {type(given).__name__}."
        ) from None
    if Z.ndim != 2 or len(Z) == 0 or Z.shape[1] != width:
        raise ValueError(
            f"inducing_inputs must have shape (m, {width}), a row for each and as many columns as X; received shape "
            f"{Z.shape}. Give them in the units of X."
        )
    if not np.all(np.isfinite(Z)):
        row = int(np.flatnonzero(~np.isfinite(Z).all(axis=1))[0])
        raise ValueError(
            f"inducing_inputs hold NaN or infinity, first at row {row}. Remove such rows."
        )
    return Z
