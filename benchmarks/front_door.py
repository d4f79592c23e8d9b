"""The front door on raw tables and on shared sets: one fit in a process of its own, one JSON line.

    VASTGP_RAW=/tmp/raw python benchmarks/front_door.py --table raw --budget 60 300 --missing
    VASTGP_DATA=... python benchmarks/front_door.py --table shared --budget 60 300 --missing
    python benchmarks/front_door.py --write    # results/front_door.md and results/front_door.png from the lines

The words are those of `anytime.py`. Beside each fit stands what Bayesian linear regression (logistic regression for
classes) says of the same rows, one column a level of a category. Peers write lines beside these:
`peers/front_door_peers.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import vastgp
from anytime import _told_by
from anytime_program import Fit, Scored, command_line, run
from anytime_tables import Drawn, class_scores
from forecast_scores import LEVELS, forecast_scores, rounded_to
from front_door_report import OUT, write_all
from methods import make
from vastgp.auto.heaps import interval_log_score


def suited(table: Drawn) -> list[str]:
    """Return the front door for a table's kind of target."""
    return ["GPClassifier" if table.classes else "GPRegressor"]


def prepare(estimator: str, budget: float, params: dict[str, Any]) -> Fit:
    """Return what fits a front door."""
    model = make(estimator, {"max_seconds": budget, "random_state": 0} | params)

    def fit(table: Drawn) -> Scored:
        model.fit(table.X, table.y)
        return lambda: _scores(model, table), {
            "stop": model.stop_reason_, "converged": model.converged_, **_told_by(model), **_told(model),
            "versions": {"vastgp": vastgp.__version__, "jax": jax.__version__, "numpy": np.__version__},
        }  # fmt: skip

    return fit


def _told(model: Any) -> dict[str, Any]:
    """Return what became of the columns, whose intervals they are, and what was tried."""
    heap = getattr(model, "heap_", None)  # of a regressor
    return {
        "seed": model.random_state,
        "calibration": type(model.calibration_).__name__,
        # of the fit to all rows, which may have ended with another kind of answer than that of the race
        "last_answer": model.model_.answer_,
        "leaderboard": model.leaderboard_.to_dicts(),
        "heaps": list(heap.values) if heap is not None else None,
        "encoding": {each.name: f"{each.kind}: {each.done}" for each in model.encoding_},
    }


def _scores(model: Any, table: Drawn) -> dict[str, Any]:
    """Return scores of what a fitted model says of the test rows."""
    if table.classes:
        return class_scores(table, model.predict_proba(table.X_test), model.classes_)
    found, y, heap = model.distribution(table.X_test), table.y_test, model.heap_
    scores = forecast_scores(
        y, found.mean, found.quantiles(LEVELS), table.unit, density=found.log_density(y),
        dense=None if heap is None else ~heap.holds(y),
    )  # fmt: skip
    # what continuous models, laws of counts and those of two parts can be compared by, see `vastgp.auto.heaps`
    width = rounded_to(np.concatenate([table.y, y]))
    if model.likelihood_.counts or getattr(found, "whole", False):
        width, of_rounded = 1.0, found.log_density(y)
    else:
        of_rounded = interval_log_score(found, y, width)
    scores["own"] |= {"nlpd_rounded": -float(np.mean(of_rounded)), "rounded_to": width}
    return scores


def program(
    description: str | None, out: Path, tables: str, budget: float, write: Callable[[Path], None]
) -> None:
    """Read the command line, and make fits or what is written of them.

    Parameters
    ----------
    description : str
    out : Path
        Of the lines.
    tables : str
        Kind of tables that are fitted where none is named.
    budget : float
        Seconds where none are given.
    write : callable
        Writes the page of a path's lines.
    """
    parser = command_line(description)
    parser.set_defaults(out=out, table=[tables], budget=[budget])
    parser.add_argument("--write", action="store_true", help="write table and plot; fit nothing")
    asked = parser.parse_args()
    if asked.write:
        write(asked.out)
    else:
        run(asked, suited, prepare)


if __name__ == "__main__":
    program(__doc__, OUT, "raw", 60.0, write_all)
