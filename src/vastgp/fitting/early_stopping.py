"""Rules that end a fit early: no more progress on rows held out, or on the objective."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vastgp.fitting.history import History
from vastgp.fitting.loop import ShouldStop, Stop

# Means are compared once their noise hides no more than this many times the change that counts.
_HIDDEN = 30.0


def no_progress(
    name: str,
    *,
    patience: int,
    min_change: float,
    larger_is_better: bool = False,
    held_out: bool = False,
) -> ShouldStop:
    """Return a rule that stops when a diagnostic no longer improves, as far as its noise can tell.

    The mean of some last records is compared with that of as many before: a single record, however good by chance,
    decides nothing. They are so many that the standard error of the gain is below thirty times ``min_change``.
    Progress has ended when the gain is no larger than its standard error, or beyond doubt (two of them) less than
    ``min_change``.

    Parameters
    ----------
    name : str
        The diagnostic, for instance the mean square of a residual. Records without it, or in which it is not finite,
        are skipped.
    patience : int
        Records before the rule may decide: either mean is over half as many at least.
    min_change : float
        Smaller improvements do not count.
    larger_is_better : bool, default False
        Direction of improvement.
    held_out : bool, default False
        Whether to stop also when it gets worse beyond doubt, as rows held out say when to. Otherwise that is no end.
    """
    sign = 1.0 if larger_is_better else -1.0

    def rule(diagnostics: Mapping[str, float], history: History) -> Stop | None:
        values = np.asarray(history.values.get(name, []), np.float64)
        values, window = sign * values[np.isfinite(values)], max(patience // 2, 2)
        gain = error = np.inf
        while error > _HIDDEN * min_change:
            if 2 * window > len(values):
                return None
            last, before = values[-window:], values[-2 * window : -window]
            gain = float(np.mean(last) - np.mean(before))
            error = float(((np.var(last, ddof=1) + np.var(before, ddof=1)) / window) ** 0.5)
            window *= 2
        if gain + 2.0 * error >= min_change and gain > error:
            return None
        if gain < -max(2.0 * error, min_change) and not held_out:
            return None
        told = f"{name} no longer improves: by {gain:.2g} +- {error:.1g} in {window // 2} records"
        return Stop(f"{told}, to {sign * np.mean(last):.6g}", True)

    return rule


def first_of(*rules: ShouldStop) -> ShouldStop:
    """Return the rule that stops as soon as one of ``rules`` does."""

    def rule(diagnostics: Mapping[str, float], history: History) -> Stop | None:
        decisions = (each(diagnostics, history) for each in rules)
        return next((decision for decision in decisions if decision is not None), None)

    return rule
