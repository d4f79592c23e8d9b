"""Forecasts of the last fifth of a series by the front door: one fit in a process of its own, one JSON line.

    VASTGP_RAW=/tmp/raw python benchmarks/series.py --budget 20 --missing
    python benchmarks/series.py --write    # results/series.md and results/series.png from the lines

The words are those of `anytime.py`, the fits and their lines those of `front_door.py`. Peers write lines beside these:
`peers/series_peers.py`.
"""

from __future__ import annotations

from functools import partial

from front_door import program
from front_door_report import write_all
from table import RESULTS

OUT = RESULTS / "series.jsonl"
_MADE = (
    "Made by `python benchmarks/series.py --write` from `series.jsonl`, whose lines `benchmarks/series.py` and, in an "
    "environment of its own, `benchmarks/peers/series_peers.py` make. Each fit has its own process, with nothing "
    "compiled before. The first four fifths of a series are given, the last fifth is forecast. Scores are in "
    "deviations of the training target: pinball is the mean loss of the quantiles 0.025, 0.075, ..., 0.975, CRPS is "
    "closed for normal forecasts. Linear is Bayesian linear regression on day, day of the year and weekday. Peers are "
    "told the season and have no budget, the front door finds the season in the dates. Worse than linear: NLPD by more "
    "than 0.02; coverage: under 90 %; late: after 110 % of the budget and two seconds."
)

if __name__ == "__main__":
    program(
        __doc__, OUT, "series", 20.0, partial(write_all, title="Forecasts of series", made=_MADE)
    )
