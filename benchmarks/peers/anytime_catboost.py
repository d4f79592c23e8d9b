"""CatBoost at the budgets of ../anytime.py, on the same rows: `RMSEWithUncertainty`, or a classifier.

    /tmp/anytime/bin/python benchmarks/peers/anytime_catboost.py --table shared --budget 5 15 60 300

Settings follow CatBoost's tutorial on uncertainty (posterior sampling, ten virtual ensembles): the variance is that of
the data and of what is not known of the mean, added. Trees are grown until rows kept out are no longer predicted
better, or a callback sees that the budget is over.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import catboost
import numpy as np
from sklearn.utils import _safe_indexing

sys.path.append(str(Path(__file__).parents[1]))
from anytime_program import Scored, command_line, run
from anytime_tables import Drawn, class_scores, gaussian_scores, kept_out, standardised

NAME = "CatBoost"
_MOST_TREES, _PATIENCE, _ENSEMBLES = 20_000, 100, 10


class Clock:
    """A callback that ends the training at the deadline."""

    def __init__(self, deadline: float) -> None:
        self.deadline, self.over = deadline, False

    def after_iteration(self, info: SimpleNamespace) -> bool:
        """Return whether to go on."""
        self.over = time.perf_counter() > self.deadline
        return not self.over


def trees(
    budget: float, table: Drawn, learning_rate: float = 0.1, categories: Sequence[str] = ()
) -> Scored:
    """Grow trees; ``categories`` are the columns of text."""
    clock = Clock(time.perf_counter() + 0.95 * budget)
    y = table.y if table.classes else standardised(table)
    out, rest = kept_out(table)
    common: dict[str, Any] = {
        "iterations": _MOST_TREES, "random_seed": 0, "verbose": False,
        "allow_writing_files": False, "cat_features": list(categories),
    }  # fmt: skip
    if table.classes:
        model = catboost.CatBoostClassifier(**common)
    else:
        model = catboost.CatBoostRegressor(
            loss_function="RMSEWithUncertainty",
            posterior_sampling=True,
            # unlike the classifier, it chooses none by itself
            learning_rate=learning_rate,
            **common,
        )
    rows, watched = (_safe_indexing(table.X, part) for part in (rest, out))
    model.fit(
        rows, y[rest], eval_set=(watched, y[out]), early_stopping_rounds=_PATIENCE,
        callbacks=[clock],
    )  # fmt: skip
    about = {
        "trees": model.tree_count_,
        "kept_out": len(out),
        "stop": "the budget was over" if clock.over else "early",
        "versions": {"catboost": catboost.__version__, "numpy": np.__version__},
    }
    return partial(_scores, model, table), about


def _scores(model: Any, table: Drawn) -> dict[str, float]:
    """Return scores of the test rows."""
    if table.classes:
        return class_scores(table, model.predict_proba(table.X_test), model.classes_)
    # each ensemble has a part of the later half of the trees
    count = min(_ENSEMBLES, model.tree_count_ // 2)
    if count < 2:
        mean, data = model.predict(table.X_test, prediction_type="RMSEWithUncertainty").T
        return gaussian_scores(table, mean, np.sqrt(data))
    mean, knowledge, data = model.virtual_ensembles_predict(
        table.X_test, prediction_type="TotalUncertainty", virtual_ensembles_count=count
    ).T
    return gaussian_scores(table, mean, np.sqrt(knowledge + data))


if __name__ == "__main__":
    run(
        command_line(__doc__).parse_args(),
        lambda table: [NAME],
        lambda estimator, budget, params: partial(trees, budget, **params),
    )
