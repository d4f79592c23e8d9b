"""When noisy steps toward a higher bound have converged, as far as their noise can tell."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from vastgp.fitting.history import History
from vastgp.fitting.loop import ShouldStop, Stop

# On minibatches either mean is over at least so many epochs, or rows where epochs are longer.
_EPOCHS, _ENOUGH_ROWS = 5, 100_000
# Noise ends a fit once it is so small that it hides no more than this many times `tol` for each row.
_HIDDEN = 100.0


def no_gain(
    tol: float,
    rows: int,
    row_batch: int,
    *,
    chunk: int,
    per: int = 100,
    max_steps: int | None = None,
) -> ShouldStop:
    """Return the rule that ends a fit when the bound no longer grows.

    The mean of the last third of the records is compared with that of the third before, either over ``per`` steps at
    least; on minibatches over twice as many and five epochs (or 100,000 rows, where epochs are longer). The fit has
    converged when what it gained is beyond doubt (two standard errors) less than ``tol`` nats per row in ``per`` steps;
    on minibatches also when it is less than its standard error and that is below ``100 tol`` nats per row. A bound that
    falls beyond doubt has not converged.

    Parameters
    ----------
    tol : float
    rows : int
        Rows of the data.
    row_batch : int
        Rows of a step; their number itself where nothing is drawn.
    chunk : int
        Steps of a record.
    per : int, default 100
        Steps in which ``tol`` counts.
    max_steps : int, optional
        Steps at most: how the argument is called that a user may raise.

    Raises
    ------
    FloatingPointError
        By the rule, when the bound is not finite.
    """
    noisy = row_batch < rows
    steps = 2 * per if noisy else per
    if noisy:
        steps = max(steps, math.ceil(min(_EPOCHS * rows, _ENOUGH_ROWS) / row_batch))
    least = math.ceil(steps / chunk)

    def rule(now: Mapping[str, float], history: History) -> Stop | None:
        if not np.isfinite(now["objective"]):
            raise FloatingPointError(
                f"the bound became {now['objective']} after {history.steps[-1]} steps. Lower the learning rate, raise "
                "jitter, or set dtype='float64'."
            )
        values = np.asarray(history.objective)
        window = max(least, len(values) // 3)
        if len(values) >= 2 * window:
            last, before = values[-window:], values[-2 * window : -window]
            gain, error = float(np.mean(last) - np.mean(before)), 0.0
            if noisy:
                error = float(((np.var(last, ddof=1) + np.var(before, ddof=1)) / window) ** 0.5)
            told = f"converged: the bound gained {gain:.3g} nats in {window * chunk} steps, "
            if abs(gain) + 2.0 * error < tol * rows * window * chunk / per:
                told += f"less than tol = {tol:g} for each row and {per} of them"
                return Stop(told, True)
            if noisy and -2.0 * error < gain < error < _HIDDEN * tol * rows:
                return Stop(told + f"with a standard error of {error:.3g}", True)
        if max_steps is not None and history.steps[-1] >= max_steps:
            return Stop(f"stopped after max_steps = {max_steps} steps", converged=False)
        return None

    return rule
