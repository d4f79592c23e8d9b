"""Cells of a grid whose errors are known: noise that differs from cell to cell.

Cell i is observed with noise variance ``sigma^2 + e_i^2``. Of that ``s = sigma^2 + min_j e_j^2`` is the same
everywhere, a multiple of the identity as without known errors, and ``R_i = e_i^2 - min_j e_j^2`` is what the cell has
more. A gap is a cell with infinitely much more: all that is true of gaps holds for these cells in a milder form. ``R``
is data, so that derivatives by ``s`` are those by ``sigma^2``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class KnownErrors:
    """Known error variances of the observed cells of a grid.

    Attributes
    ----------
    least : float
        The smallest of them, ``min_j e_j^2``.
    excess : ndarray of shape (M,), optional
        ``R``, what every cell has beyond that; zero in the gaps. None where all have the same.
    """

    least: float = 0.0
    excess: np.ndarray | None = None

    @classmethod
    def of(cls, variances: np.ndarray | None, observed: np.ndarray) -> KnownErrors:
        """Return them from error variances on the grid, flat, anything in the gaps; None where none is known."""
        if variances is None:
            return cls()
        least = float(np.min(variances[observed]))
        excess = np.where(observed, variances - least, 0.0)
        return cls(least, excess if np.any(excess) else None)

    def above(self, noise: float, dtype: str) -> np.ndarray | None:
        """Return the excess, zero where it is rounding beside a noise variance; None where it is so everywhere."""
        if self.excess is None:
            return None
        excess = np.where(self.excess > np.finfo(dtype).eps * noise, self.excess, 0.0)
        return excess if np.any(excess) else None
