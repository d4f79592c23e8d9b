"""Accuracy at a budget on tables nobody has tuned to: one fit in a process of its own, one JSON line.

    python anytime.py --table friedman-5k --estimator QSGPRegressor --budget 15
    python anytime.py --table 17 ...     a table drawn at random, by its seed
    python anytime.py --budget 5         all named tables, all estimators that suit them
    python anytime.py --table shared --budget 5 15 60 300 --missing    all shared sets; what has a line is left out
    python anytime.py --write            results/anytime.md and results/anytime.png from the lines

Beside the fit stands what Bayesian linear regression (logistic regression for classes) says of the same rows. Peers
write lines beside these: `peers/anytime_*.py`. Shared sets are read from the folder VASTGP_DATA.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anytime_program import Fit, Scored, command_line, run
from anytime_report import write_all
from anytime_tables import Drawn, scores
from methods import make
from vastgp.estimators.registry import ESTIMATORS, FRONT_DOOR

# What the exact process takes without regard to the memory (of more rows it has a random part in its budget), and what
# the network of discrete weights does.
_EXACT_ROWS, _NETWORK_INPUTS = 60_000, 28


def suited(table: Drawn) -> list[str]:
    """Return the estimators that take a table's kind of target; none where it has a single class."""
    if table.classes and len(np.unique(table.y)) < 2:
        return []
    ending = "Classifier" if table.classes else "Regressor"
    found = [each for each in ESTIMATORS | FRONT_DOOR if each.endswith(ending)]
    n, d = table.X.shape
    # these refuse by name what they are not made for
    for estimator, suits in (
        ("ExactGPRegressor", n <= _EXACT_ROWS),
        ("DirectNetworkRegressor", d <= _NETWORK_INPUTS),
    ):
        if not suits and estimator in found:
            found.remove(estimator)
    return found


def prepare(estimator: str, budget: float, params: dict[str, Any]) -> Fit:
    """Return what fits an estimator."""
    model = make(estimator, {"max_seconds": budget} | params)

    def fit(table: Drawn) -> Scored:
        model.fit(table.X, table.y)
        return lambda: _scores(model, table), {
            "stop": model.stop_reason_, "converged": model.converged_, **_told_by(model), **_device(),
            "spent": {name: round(value, 2) for name, value in model.history_.spent.items()},
        }  # fmt: skip

    return fit


def _told_by(model: Any) -> dict[str, Any]:
    """Return whose answer a fit ended with, and what was compared."""
    board = getattr(model, "leaderboard_", None)
    if board is None:
        return {"answer": model.answer_, "scores": model.scores_}
    won = f"{board[0].method}, {board[0].target}" if len(board) else "without a race"
    seen = {f"{each.method}, {each.target}": -each.nlpd_standardised for each in board}
    return {
        "answer": won,
        "scores": {name: value for name, value in seen.items() if np.isfinite(value)},
    }


def _device() -> dict[str, str]:
    """Return the accelerator that a fit ran on, where it is no host's processor."""
    import jax

    return {} if jax.default_backend() == "cpu" else {"device": jax.local_devices()[0].device_kind}


def _scores(model: Any, table: Drawn) -> dict[str, float]:
    """Return scores of what a fitted model says of the test rows."""
    density = model.log_predictive_density(table.X_test, table.y_test)
    if table.classes:
        accuracy = float(model.score(table.X_test, table.y_test))
        return {"nlpd": -float(np.mean(density)), "accuracy": accuracy}
    return scores(table, density, *model.predict(table.X_test, return_std=True))


def main() -> None:
    """Read the command line."""
    parser = command_line(__doc__)
    parser.add_argument("--write", action="store_true", help="write table and plot; fit nothing")
    asked = parser.parse_args()
    if asked.write:
        write_all(asked.out, set(ESTIMATORS | FRONT_DOOR))
    else:
        run(asked, suited, prepare)


if __name__ == "__main__":
    main()
