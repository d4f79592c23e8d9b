"""A negative binomial line, CatBoost with Poisson's loss, and shares without inputs, beside ../count_tables.py.

    VASTGP_RAW=/tmp/raw /tmp/peers/bin/python benchmarks/peers/count_tables_peers.py --budget 15 --missing

None has a use for a budget: the line is found by L-BFGS, trees end by rows kept out.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from catboost import CatBoostRegressor
from scipy import stats
from scipy.optimize import minimize
from scipy.special import digamma

sys.path.append(str(Path(__file__).parents[1]))
from anytime_program import Fit, Scored, command_line, run
from anytime_tables import Drawn, as_numbers, kept_out
from forecast_scores import LEVELS, forecast_scores
from table import RESULTS

_MOST_LOG_RATE, _MOST_LOG_SIZE = 20.0, 8.0
_TREES, _PATIENCE = 1500, 60
_SIZES = np.exp(np.linspace(-4.0, 6.0, 60))


def _log_mass(y: np.ndarray, mean: np.ndarray, size: float) -> np.ndarray:
    """Log probabilities of the negative binomial law with variance ``mean + mean^2 / size``."""
    return stats.nbinom.logpmf(y, size, size / (size + mean))


def _scored(table: Drawn, mean: np.ndarray, size: float) -> dict[str, Any]:
    """Return the scores of negative binomial forecasts of the test rows."""
    quantiles = stats.nbinom.ppf(LEVELS[:, None], size, size / (size + mean))
    scores = forecast_scores(table.y_test, mean, quantiles, table.unit)
    loss = -float(np.mean(_log_mass(table.y_test, mean, size)))
    scores["own"] |= {"nlpd_rounded": loss, "rounded_to": 1.0}
    return scores


def line(table: Drawn) -> Scored:
    """Fit a negative binomial regression, its weights under a standard normal prior but for the constant."""
    numbers = as_numbers()
    X = np.column_stack([np.ones(len(table.y)), numbers.fit_transform(table.X)])
    y = table.y

    def loss(params: np.ndarray) -> tuple[float, np.ndarray]:
        weights, size = params[:-1], np.exp(np.clip(params[-1], -_MOST_LOG_SIZE, _MOST_LOG_SIZE))
        mean = np.exp(np.clip(X @ weights, -_MOST_LOG_RATE, _MOST_LOG_RATE))
        slopes = X.T @ ((mean - y) * size / (size + mean))
        slopes[1:] += weights[1:]
        by_size = digamma(y + size) - digamma(size) + np.log(size / (size + mean)) + 1.0
        by_size -= (y + size) / (size + mean)
        total = -_log_mass(y, mean, size).sum() + 0.5 * np.sum(weights[1:] ** 2)
        return total, np.append(slopes, -size * by_size.sum())

    start = np.zeros(X.shape[1] + 1)
    start[0] = np.log(y.mean())
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 500}).x
    size = float(np.exp(np.clip(found[-1], -_MOST_LOG_SIZE, _MOST_LOG_SIZE)))

    def scored() -> dict[str, Any]:
        Z = np.column_stack([np.ones(len(table.y_test)), numbers.transform(table.X_test)])
        log_rate = np.clip(Z @ found[:-1], -_MOST_LOG_RATE, _MOST_LOG_RATE)
        return _scored(table, np.exp(log_rate), size)

    return scored, _about("numpy")


def trees(table: Drawn) -> Scored:
    """Fit CatBoost by Poisson's loss, and a scatter to the rows that ended it."""
    X, X_test = (pd.DataFrame(rows).copy() for rows in (table.X, table.X_test))
    text = list(X.select_dtypes(exclude="number"))
    X, X_test = (rows.astype(dict.fromkeys(text, str)) for rows in (X, X_test))
    out, rest = kept_out(table)
    model = CatBoostRegressor(
        loss_function="Poisson", iterations=_TREES, verbose=0, random_seed=0, thread_count=2
    )
    watched = X.iloc[out], table.y[out]
    model.fit(
        X.iloc[rest], table.y[rest], cat_features=text, eval_set=watched,
        early_stopping_rounds=_PATIENCE,
    )  # fmt: skip
    mean = model.predict(watched[0])
    size = float(_SIZES[np.argmax([_log_mass(watched[1], mean, s).sum() for s in _SIZES])])
    return lambda: _scored(table, model.predict(X_test), size), _about("catboost")


def shares(table: Drawn) -> Scored:
    """Take the numbers of the training rows as they are; one that none has is half as likely as one that one has."""

    def scored() -> dict[str, Any]:
        values, rows = np.unique(table.y, return_counts=True)
        known = dict(zip(values.tolist(), (rows / len(table.y)).tolist(), strict=True))
        quantiles = np.quantile(table.y, LEVELS, method="inverted_cdf")
        mean = np.full(len(table.y_test), table.y.mean())
        wide = np.repeat(quantiles[:, None], len(mean), axis=1)
        scores = forecast_scores(table.y_test, mean, wide, table.unit)
        chance = [known.get(y, 0.5 / len(table.y)) for y in table.y_test.tolist()]
        scores["own"] |= {"nlpd_rounded": -float(np.mean(np.log(chance))), "rounded_to": 1.0}
        return scores

    return scored, _about("numpy")


MODELS = {"shares": shares, "NB line": line, "CatBoost": trees}


def _about(package: str) -> dict[str, Any]:
    return {"answer": "", "versions": {package: version(package), "scipy": version("scipy")}}


def prepare(estimator: str, budget: float, params: dict[str, Any]) -> Fit:
    """Return what fits a model; it has no use for a budget."""
    del budget, params
    return MODELS[estimator]


def main() -> None:
    """Read the command line."""
    parser = command_line(__doc__)
    parser.set_defaults(out=RESULTS / "count_tables.jsonl", table=["counts"], budget=[15.0])
    run(parser.parse_args(), lambda table: list(MODELS), prepare)


if __name__ == "__main__":
    main()
