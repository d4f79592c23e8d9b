"""When steps on minibatches have converged, as far as their noise can tell."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from vastgp.fitting.history import History
from vastgp.fitting.loop import ShouldStop, Stop

# Iterations between two records.
CHUNK = 10
# Records at least, whose mean is compared with that of as many before; a third of all of them later on.
_LEAST_WINDOW, _LEAST_NOISY = 10, 20
# On minibatches either mean is over at least so many epochs, or rows where epochs are longer.
_EPOCHS, _ENOUGH_ROWS = 5, 100_000
# Noise ends a fit once it is so small that it hides no more than this many times `tol` for each row.
_HIDDEN = 100.0


def no_gain(
    tol: float, rows: int, row_batch: int, max_iter: int, *, resumable: bool = True
) -> ShouldStop:
    """Return the rule that ends a fit when the bound no longer grows.

    The mean of the last third of the records is compared with that of the third before, either over 100 iterations at
    least; on minibatches over 200 of them and five epochs (or 100,000 rows, where epochs are longer). The fit has
    converged when what it gained is beyond doubt (two standard errors) less than ``tol`` nats per row in 100
    iterations; on minibatches also when it is less than its standard error and that is below ``100 tol`` nats per row.

    Parameters
    ----------
    tol : float
    rows : int
        Rows of the data.
    row_batch : int
        Rows of an iteration; their number itself where all are used.
    max_iter : int
        Iterations at most.
    resumable : bool, default True
        Whether the checkpoint stays, as something comes after.
    """
    noisy = row_batch < rows
    least = _LEAST_WINDOW
    if noisy:
        seen = min(_EPOCHS * rows, _ENOUGH_ROWS)
        least = max(_LEAST_NOISY, math.ceil(seen / row_batch / CHUNK))

    def rule(_: Mapping[str, float], history: History) -> Stop | None:
        values = np.asarray(history.objective)
        window = max(least, len(values) // 3)
        if len(values) >= 2 * window:
            last, before = values[-window:], values[-2 * window : -window]
            error = 0.0
            if noisy:
                error = float(((np.var(last, ddof=1) + np.var(before, ddof=1)) / window) ** 0.5)
            gain = float(np.mean(last) - np.mean(before))
            if gain + 2.0 * error < tol * rows * window * CHUNK / 100.0:
                return Stop(
                    f"converged: the bound gained {gain:.3g} nats in {window * CHUNK} iterations, less than tol = "
                    f"{tol:g} for each row and 100 of them",
                    resumable=resumable,
                )
            if noisy and gain < error < _HIDDEN * tol * rows:
                return Stop(
                    f"converged: the bound gained {gain:.3g} nats in {window * CHUNK} iterations, with a standard "
                    f"error of {error:.3g}",
                    resumable=resumable,
                )
        if history.steps[-1] >= max_iter:
            return Stop(
                f"stopped after max_iter = {max_iter} steps",
                converged=False,
                resumable=resumable,
            )
        return None

    return rule
