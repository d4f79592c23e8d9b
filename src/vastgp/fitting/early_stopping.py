"""Rules that end a fit early: no more progress on rows held out, or on the objective."""

from __future__ import annotations

import math
from collections.abc import Mapping

from vastgp.fitting.history import History
from vastgp.fitting.loop import ShouldStop, Stop


def no_progress(
    name: str, *, patience: int, min_change: float = 0.0, larger_is_better: bool = False
) -> ShouldStop:
    """Return a rule that stops when a diagnostic has not improved for ``patience`` records.

    Parameters
    ----------
    name : str
        The diagnostic, for instance a negative log predictive density on held-out rows. Records without it are skipped.
    patience : int
        Records to wait for an improvement.
    min_change : float, default 0.0
        Smaller improvements do not count.
    larger_is_better : bool, default False
        Direction of improvement.
    """
    sign = -1.0 if larger_is_better else 1.0

    def rule(diagnostics: Mapping[str, float], history: History) -> Stop | None:
        recorded = history.values.get(name, [])
        column = [sign * entry for entry in recorded if not math.isnan(entry)]
        best, since = math.inf, 0
        for entry in column:
            if entry < best - min_change or math.isinf(best):
                best, since = entry, 0
            else:
                since += 1
        if since >= patience:
            return Stop(
                f"{name} has not improved for {since} records (best {sign * best:.6g})", True
            )
        return None

    return rule


def first_of(*rules: ShouldStop) -> ShouldStop:
    """Return the rule that stops as soon as one of ``rules`` does."""

    def rule(diagnostics: Mapping[str, float], history: History) -> Stop | None:
        decisions = (each(diagnostics, history) for each in rules)
        return next((decision for decision in decisions if decision is not None), None)

    return rule
