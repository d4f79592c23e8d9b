"""Sums over the rows of a fit, with progress."""

from __future__ import annotations

from typing import Any

from vastgp.data import Rows
from vastgp.fitting.progress import Progress
from vastgp.fitting.sufficient_statistics import SufficientStatistics, gather_statistics


def gather_with_progress(model: Any, rows: Rows, basis: Any) -> SufficientStatistics:
    """Return the sufficient statistics of standardised rows in one pass.

    Parameters
    ----------
    model : estimator
        With ``standardizer_`` and the arguments ``dtype`` and ``verbose``.
    rows : Rows
    basis : basis
    """
    done = 0
    with Progress("statistics", bool(model.verbose)) as progress:

        def note(count: int) -> None:
            nonlocal done
            done += count
            progress.update(done / rows.n)

        return gather_statistics(rows, model.standardizer_, basis, dtype=model.dtype, on_block=note)
