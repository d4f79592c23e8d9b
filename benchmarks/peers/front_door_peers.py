"""CatBoost, NGBoost, scikit-learn's HistGradientBoosting with quantiles, and MAPIE around it, beside ../front_door.py.

    VASTGP_RAW=/tmp/raw /tmp/peers/bin/python benchmarks/peers/front_door_peers.py --table raw --budget 60 --missing

Categories and gaps go to CatBoost and to scikit-learn as these take them; NGBoost is given indicators and medians. Text
dates are numbers for all of them. Quantiles are boosted one by one, each with an equal share of the time left, and
sorted where they cross.
"""

from __future__ import annotations

import contextlib
import sys
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from mapie.regression import ConformalizedQuantileRegressor
from ngboost import NGBRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

sys.path.append(str(Path(__file__).parents[1]))
from anytime_catboost import Clock, trees
from anytime_sklearn import grow

from anytime_program import Scored, command_line, run
from anytime_tables import (
    Drawn,
    as_numbers,
    class_scores,
    gaussian_scores,
    kept_out,
    standardised,
)
from forecast_scores import LEVELS, forecast_scores
from front_door_report import OUT
from raw_tables import dates_as_numbers

# scikit-learn has bins for as many levels of a category; rarer ones count as missing.
_MOST_LEVELS = 254
# NGBoost's own learning rate; its trees are few, so that the clock or the rows kept out end it.
_MOST_STEPS, _PATIENCE = 20_000, 50
# Of the rows, for the radii of conformal intervals: of fewer than 19 none of 95 % is finite.
_CONFORMAL_SHARE = 0.25


def _frames(table: Drawn) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Return training and test inputs with dates as numbers, and the names of the columns of text."""
    X, X_test = (dates_as_numbers(pd.DataFrame(rows)) for rows in (table.X, table.X_test))
    return X, X_test, list(X.select_dtypes(exclude="number"))


def catboost_trees(budget: float, table: Drawn, **params: Any) -> Scored:
    """Fit CatBoost to categories as they are; a gap in text is a level of its own."""
    X, X_test, text = _frames(table)
    X, X_test = (rows.astype(dict.fromkeys(text, str)) for rows in (X, X_test))
    return trees(budget, table._replace(X=X, X_test=X_test), categories=text, **params)


class Over(Exception):
    """The budget is over."""


def natural_gradients(budget: float, table: Drawn) -> Scored:
    """Fit NGBoost's normal distribution until rows kept out are no longer predicted better, or the budget is over."""
    clock = Clock(time.perf_counter() + 0.95 * budget)
    numbers = as_numbers()
    X, y = numbers.fit_transform(table.X), standardised(table)
    out, rest = kept_out(table)
    model = NGBRegressor(n_estimators=_MOST_STEPS, verbose=False, random_state=0)

    def loss(distribution: Any, y: np.ndarray) -> float:
        if not clock.after_iteration(None):
            raise Over
        return distribution.total_score(y)

    # at the deadline the steps taken are kept, and the best of them is known
    with contextlib.suppress(Over):
        model.fit(X[rest], y[rest], X[out], y[out], val_loss_monitor=loss,
                  early_stopping_rounds=_PATIENCE)  # fmt: skip

    def scored() -> dict[str, Any]:
        found = model.pred_dist(
            numbers.transform(table.X_test), max_iter=model.best_val_loss_itr
        ).params
        return gaussian_scores(table, found["loc"], found["scale"])

    return scored, _about(clock.over, "ngboost") | {"steps": len(model.base_models)}


def _with_codes(table: Drawn) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Return inputs with codes of categories, which scikit-learn's boosting takes as such, and their names.

    Not as pandas has them: MAPIE tries each model on a row of zeros.
    """
    X, X_test, text = _frames(table)
    for name in text:
        levels = X[name].value_counts().index[:_MOST_LEVELS]
        for rows in (X, X_test):
            codes = pd.Series(pd.Categorical(rows[name], categories=levels).codes, rows.index)
            rows[name] = codes.where(codes >= 0).astype(float)
    return X, X_test, text


class Quantiles:
    """Boosted quantiles at some levels, and a mean; ``categories`` are the names of their columns."""

    def __init__(
        self,
        rows: tuple[Any, np.ndarray],
        watched: tuple[Any, np.ndarray],
        levels: np.ndarray,
        deadline: float,
        categories: list[str],
    ) -> None:
        self.over, self.models = False, []
        losses = [{"loss": "quantile", "quantile": level} for level in levels]
        for number, loss in enumerate([{"loss": "squared_error"}, *losses]):
            now = time.perf_counter()
            until = now + (deadline - now) / (len(levels) + 1 - number)
            model = grow(
                HistGradientBoostingRegressor, rows, watched, until, **loss,
                categorical_features=categories,
            )  # fmt: skip
            self.over |= model.n_iter_ == model.max_iter
            self.models.append(model)
        self.mean, *self.models = self.models


def boosted_quantiles(budget: float, table: Drawn) -> Scored:
    """Boost twenty quantiles and a mean, or probabilities of classes."""
    deadline = time.perf_counter() + 0.95 * budget
    X, X_test, text = _with_codes(table)
    out, rest = kept_out(table)
    if table.classes:
        parts = [(X.iloc[rows], table.y[rows]) for rows in (rest, out)]
        model = grow(HistGradientBoostingClassifier, *parts, deadline, categorical_features=text)
        about = _about(model.n_iter_ == model.max_iter, "scikit-learn")
        return lambda: class_scores(table, model.predict_proba(X_test), model.classes_), about
    y = standardised(table)
    found = Quantiles((X.iloc[rest], y[rest]), (X.iloc[out], y[out]), LEVELS, deadline, text)

    def scored() -> dict[str, Any]:
        quantiles = np.stack([model.predict(X_test) for model in found.models])
        return _in_own_units(table, found.mean.predict(X_test), quantiles)

    return scored, _about(found.over, "scikit-learn")


def conformal_quantiles(budget: float, table: Drawn) -> Scored:
    """Boost quantiles on a part of the rows; MAPIE corrects each pair by the other rows (Romano et al. 2019)."""
    deadline = time.perf_counter() + 0.95 * budget
    X, X_test, text = _with_codes(table)
    y = standardised(table)
    order = np.random.default_rng(0).permutation(len(y))
    corrected, rest = np.split(order, [round(_CONFORMAL_SHARE * len(y))])
    out, rest = np.split(rest, [max(round(0.1 * len(rest)), 1)])
    found = Quantiles(
        (X.iloc[rest], y[rest]), (X.iloc[out], y[out]), np.append(LEVELS, 0.5), deadline, text
    )
    *models, median = found.models
    half = len(LEVELS) // 2
    pairs = list(zip(models[:half], models[: half - 1 : -1], LEVELS[:half], strict=True))
    conformal = [
        ConformalizedQuantileRegressor(
            [low, high, median], confidence_level=1.0 - 2.0 * level, prefit=True
        ).conformalize(X.iloc[corrected], y[corrected])
        for low, high, level in pairs
    ]

    def scored() -> dict[str, Any]:
        ends = np.stack([each.predict_interval(X_test)[1][:, :, 0] for each in conformal])
        quantiles = np.concatenate([ends[:, :, 0], ends[::-1, :, 1]])
        return _in_own_units(table, found.mean.predict(X_test), quantiles)

    return scored, _about(found.over, "mapie", "scikit-learn")


def _in_own_units(table: Drawn, mean: np.ndarray, quantiles: np.ndarray) -> dict[str, Any]:
    """Return scores of forecasts of standardised targets."""
    mean, quantiles = (table.y.mean() + table.unit * each for each in (mean, quantiles))
    return forecast_scores(table.y_test, mean, quantiles, table.unit)


def _about(over: bool, *packages: str) -> dict[str, Any]:
    """Return why a fit ended, and versions."""
    versions = {name: version(name) for name in (*packages, "numpy")}
    return {"stop": "the budget was over" if over else "early", "versions": versions}


METHODS = {
    "CatBoost": catboost_trees,
    "HistGradientBoosting": boosted_quantiles,
    "MAPIE": conformal_quantiles,
    "NGBoost": natural_gradients,
}
_OF_CLASSES = ("CatBoost", "HistGradientBoosting")


def main() -> None:
    """Read the command line."""
    parser = command_line(__doc__)
    parser.set_defaults(out=OUT, table=["raw"], budget=[60.0])
    run(
        parser.parse_args(),
        lambda table: list(_OF_CLASSES) if table.classes else list(METHODS),
        lambda estimator, budget, params: partial(METHODS[estimator], budget, **params),
    )


if __name__ == "__main__":
    main()
