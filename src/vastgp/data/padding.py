"""Rows made up to numbers that compiled code is shared for."""

from __future__ import annotations

import numpy as np

# Up to here the number of rows is rounded up to a power of two, so that the many small fits of a cross-validation
# share compiled code. Beyond, compiling is cheap beside the work.
_MOST_PADDED = 512
_LEAST_ROWS = 32


def padded_size(n: int) -> int:
    """Return the number of rows that ``n`` of them are made up to."""
    return n if n > _MOST_PADDED else max(_LEAST_ROWS, 1 << (n - 1).bit_length())


def pad_rows(X: np.ndarray) -> np.ndarray:
    """Return ``X`` with rows of zeros up to the size that compiled code is shared for."""
    missing = padded_size(len(X)) - len(X)
    return np.pad(X, ((0, missing), (0, 0))) if missing else X


def repeat_last(rows: np.ndarray, size: int) -> np.ndarray:
    """Return ``rows`` with copies of the last one up to ``size``: of the data's own scale, whatever is made of them."""
    return np.pad(rows, [(0, size - len(rows))] + [(0, 0)] * (rows.ndim - 1), mode="edge")
