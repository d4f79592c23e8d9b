"""The front door on counts: one fit in a process of its own, one JSON line.

    VASTGP_RAW=/tmp/raw python benchmarks/count_tables.py --budget 15 60 --missing
    python benchmarks/count_tables.py --write    # results/count_tables.md and results/count_tables.png from the lines

The words are those of `anytime.py`, the fits and their lines those of `front_door.py`. Peers write lines beside these:
`peers/count_tables_peers.py`.
"""

from __future__ import annotations

from functools import partial

from front_door import program
from front_door_report import write_all
from table import RESULTS

OUT = RESULTS / "count_tables.jsonl"
_MADE = (
    "Made by `python benchmarks/count_tables.py --write` from `count_tables.jsonl`, whose lines "
    "`benchmarks/count_tables.py` and, in an environment of its own, `benchmarks/peers/count_tables_peers.py` make."
    " Each fit has its own process, with nothing compiled before. NLPD is the mean loss of the whole numbers, of "
    "normal forecasts that of the interval of one around each; the others are in deviations of the training target:"
    " pinball is the mean loss of the quantiles 0.025, 0.075, ..., 0.975. Linear is Bayesian linear regression with"
    " a column for each level. Shares are those of the numbers in the training rows, whatever the inputs; NB line "
    "is a negative binomial regression with a prior on its weights, CatBoost has Poisson's loss, and the scatter of"
    " a negative binomial by rows kept out. Worse than linear: NLPD by more than 0.02; coverage: under 90 %; late: "
    "after 110 % of the budget and two seconds."
)

if __name__ == "__main__":
    program(
        __doc__, OUT, "counts", 15.0, partial(write_all, title="Counts", made=_MADE, rounded=True)
    )
