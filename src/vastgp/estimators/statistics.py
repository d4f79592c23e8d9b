"""Sums over the rows of a fit, with progress."""

from __future__ import annotations

from typing import Any

from vastgp.data import Rows
from vastgp.fitting.sufficient_statistics import SufficientStatistics, gather_statistics


def gather_with_progress(model: Any, rows: Rows, basis: Any) -> SufficientStatistics:
    """Return the sufficient statistics of standardised rows in one pass."""
    scaling = model.standardizer_
    return gather_statistics(rows, scaling, basis, dtype=model.dtype, verbose=bool(model.verbose))
