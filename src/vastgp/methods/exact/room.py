"""Rows that neither memory nor disk holds are refused before any work."""

from __future__ import annotations

from vastgp.methods.exact.learning import learnable_rows
from vastgp.methods.exact.options import Spill
from vastgp.solvers.large_factor import affordable_rows
from vastgp.solvers.spilled_factor import refuse_without_room


def check_room(n: int, max_rows: int | Spill | None, dtype: str, *, dense: bool) -> None:
    """Raise ``ValueError`` where the factor of n rows does not fit; it says how many do, and what else to do.

    Parameters
    ----------
    n : int
    max_rows, dtype
        Of the estimator.
    dense : bool
        Whether the factor is made as one matrix, in memory.
    """
    itemsize = 8 if dtype == "float64" else 4
    if isinstance(max_rows, Spill):
        if not dense:
            refuse_without_room(max_rows.made(), n, itemsize)
        return
    most = affordable_rows(itemsize) if max_rows is None else max_rows
    if n <= most:
        return
    if max_rows is None:
        raise ValueError(
            f"X has {n} rows, and the memory that is available holds the exact posterior of {most}: half of the matrix "
            "between all rows has to fit into half of it. Give fewer rows, free memory"
            f"{', set dtype to float32 (half of the memory)' if dtype == 'float64' else ''}, keep it on a disk "
            "(max_rows=Spill(folder)), or use QSGPRegressor or IterativeGPRegressor, which are made for many rows."
        )
    raise ValueError(
        f"X has {n} rows, more than max_rows={most}: time grows with their cube ({4 * n**2 / 1e9:.1f} GB for half of "
        "one matrix). Use QSGPRegressor, which is made for many rows, give fewer rows, or raise max_rows."
    )


def check_learnable(rows: int) -> None:
    """Raise ``ValueError`` where the evidence of so many rows takes more memory than there is."""
    most = learnable_rows()
    if most is not None and rows > most:
        raise ValueError(
            f"the evidence of {rows} rows and its gradient take more memory than half of what is available, which is "
            f"enough for {most} rows. Set hyperparameters=Learn(rows={most}), or free memory."
        )
