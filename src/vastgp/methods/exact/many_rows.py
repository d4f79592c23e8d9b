"""The posterior of very many rows: of as many as the budget holds, in one matrix or in panels."""

from __future__ import annotations

from typing import Any

import numpy as np

from vastgp.fitting.progress import Progress
from vastgp.fitting.run import Run
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian
from vastgp.linalg.device_cholesky import belongs_on_device
from vastgp.linalg.panel_folder import SPILLED_ROWS
from vastgp.linalg.panels import PANEL_ROWS
from vastgp.methods.exact.options import Spill
from vastgp.methods.exact.pace import Pace, rows_within
from vastgp.solvers.exact_factor import Factored
from vastgp.solvers.exact_posterior import DENSE_ROWS, ExactPosterior

# The rows are put in random order where the posterior of all of them may not fit into what is left of the budget.
_SURELY_FITS = 0.4
_ORDER = 42  # a use of the seed
# With less time the posterior of very many rows is that of as many as have one matrix.
_FOR_PANELS = 6.0


def rows_at_once(n: int, run: Run, dtype: str, max_rows: Any) -> int | None:
    """Return how many of very many rows have one matrix in float64 where time is short; None: panels are better.

    Their programs take seconds to compile, and a low noise would have them made a second time. On an accelerator
    all rows may take less than that.
    """
    left = run.seconds_left()
    if left is not None and belongs_on_device(n, 8) and rows_within(left, 8) >= n:
        return None
    if left is None or left >= _FOR_PANELS or dtype == "float32" or isinstance(max_rows, Spill):
        return None
    return min(rows_within(left, 8), DENSE_ROWS, n)


def in_random_order(n: int, run: Run) -> np.ndarray:
    """Return the numbers of n rows in an order of the run's seed."""
    return np.random.default_rng([run.seed, _ORDER]).permutation(n)


def condition_many(
    params: tuple[Kernel, Gaussian],
    X: np.ndarray,
    y: np.ndarray,
    run: Run,
    dtype: str,
    max_rows: Any,
    seconds: float,
) -> tuple[ExactPosterior, Factored, np.ndarray]:
    """Return the posterior of as many rows as the budget holds, and their numbers in the factor's order.

    Parameters
    ----------
    params : tuple of Kernel and Gaussian
    X, y : ndarray
        Standardised rows.
    run : Run
    dtype : {"auto", "float64", "float32"}
        Of the factor.
    max_rows : int, Spill or None
        With a `Spill` the factor is on a disk.
    seconds : float
        About what the posterior of all rows takes.
    """
    (kernel, likelihood), n = params, len(y)
    spill = max_rows.made() if isinstance(max_rows, Spill) else None
    panel_rows = PANEL_ROWS if spill is None else SPILLED_ROWS
    left, order = run.seconds_left(), np.arange(n)
    if left is not None and seconds > _SURELY_FITS * left:
        order = in_random_order(n, run)
    with run.timed("factor"), Progress("factor", run.verbose) as shown:
        pace = Pace(run, panel_rows, n, lambda done: shown.update((done / n) ** 3))
        posterior, found = ExactPosterior.condition_many(
            kernel, float(likelihood.noise_variance), X[order], y[order], dtype,
            seed=run.seed, panel_rows=panel_rows, clock=pace, spill=spill,
        )  # fmt: skip
    return posterior, found, order[: found.factor.size]
