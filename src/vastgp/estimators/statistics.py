"""Sums over the rows as a phase of a fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from vastgp.data import Rows, Standardizer, processes
from vastgp.fitting.loop import Stop
from vastgp.fitting.run import Run
from vastgp.fitting.sufficient_statistics import (
    SufficientStatistics,
    block_rows_of,
    gather_statistics,
    merged_everywhere,
)


def gather(
    rows: Rows, scaling: Standardizer, basis: Any, dtype: str, run: Run, *, share: float = 1.0
) -> SufficientStatistics:
    """Return the sums over standardised rows in one pass, a phase of a fit; where time ends, those of the rows so far.

    Where several processes share the rows, each sums over its own, a block at the same time as the others.

    Parameters
    ----------
    rows : Rows
    scaling : Standardizer
    basis : basis
    dtype : {"float32", "float64"}
        Of the features.
    run : Run
    share : float, default 1.0
        Of what is left of the budget.
    """
    size, local = block_rows_of(basis.num_basis), rows.local
    blocks = -(-max(int(n) for n in processes.gathered(np.int64(local.n))) // size)

    def block_of(number: int) -> SufficientStatistics:
        start, stop = min(number * size, local.n), (number + 1) * size
        return gather_statistics(local, scaling, basis, dtype=dtype, start=start, stop=stop)

    # there is always an answer: the budget ends nothing before it
    total = block_of(0)
    if blocks == 1:
        return merged_everywhere(total)

    def step_chunk(state: Any, first: int, count: int) -> tuple[Any, dict[str, Any]]:
        moments, rest = state
        more = replace(total, moments=moments, rest=rest) + block_of(first + count)
        return (more.moments, more.rest), {"blocks": first + count + 1}

    (moments, rest), loop = run.steps(
        "sums",
        step_chunk,
        (total.moments, total.rest),
        max_iter=None,
        chunk=1,
        should_stop=lambda seen, _: Stop("all rows were read", True) if seen["blocks"] == blocks else None,
        share=share,
    )  # fmt: skip
    seen = min((loop.num_iter + 1) * size, local.n)
    return merged_everywhere(replace(total, num_rows=seen, moments=moments, rest=rest))
