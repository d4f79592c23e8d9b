"""Accuracy at a budget on tables nobody has tuned to: one fit in a process of its own, one JSON line.

    python anytime.py --table friedman-5k --estimator QSGPRegressor --budget 15
    python anytime.py --table 17 ...     a table drawn at random, with its seed

Beside the fit stands what Bayesian linear regression (logistic regression for classes) says of the same rows.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from hard_tables import NAMED, Table, random_table
from methods import make
from run import peak_mb
from table import RESULTS, put


def table_of(name: str) -> tuple[Table, int]:
    """Return a table and its seed."""
    if name in NAMED:
        return NAMED[name], 0
    return random_table(int(name)), int(name)


def scores(
    y: np.ndarray, density: np.ndarray, mean: np.ndarray, std: np.ndarray, unit: float
) -> dict[str, float]:
    """Return RMSE and NLPD in units of the training target's standard deviation, and coverage of 95 %."""
    inside = np.abs(y - mean) <= 1.959964 * std
    return {
        "rmse": float(np.sqrt(np.mean((y - mean) ** 2)) / unit),
        "nlpd": float(-np.mean(density) - np.log(unit)),
        "coverage": float(np.mean(inside)),
    }  # fmt: skip


def linear(
    X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray
) -> dict[str, float]:
    """Return what scikit-learn's Bayesian linear regression, or logistic regression, has."""
    from sklearn.linear_model import BayesianRidge, LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if y.dtype.kind == "i":
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X, y)
        return {
            "nlpd": -float(np.mean(model.predict_log_proba(X_test)[np.arange(len(y_test)), y_test]))
        }
    scale = y.std() or 1.0
    model = make_pipeline(StandardScaler(), BayesianRidge()).fit(X, (y - y.mean()) / scale)
    mean, std = model.predict(X_test, return_std=True)
    target = (y_test - y.mean()) / scale
    density = -0.5 * np.log(2 * np.pi * std**2) - 0.5 * ((target - mean) / std) ** 2
    return scores(target, density, mean, std, 1.0)


def measure(name: str, estimator: str, budget: float, params: dict[str, Any]) -> dict[str, Any]:
    """Return one result."""
    table, seed = table_of(name)
    X, y, X_test, y_test = table.draw(seed)
    simple = linear(X, y, X_test, y_test)
    model = make(estimator, {"max_seconds": budget} | params)
    began, cpu = time.perf_counter(), time.process_time()
    result: dict[str, Any] = {
        "table": name,
        "estimator": estimator,
        "budget": budget,
        "n": len(y),
        "d": X.shape[1],
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(X, y)
        except Exception as error:  # a defect to record, as any other
            return result | {
                "error": f"{type(error).__name__}: {error}"[:200],
                "seconds": time.perf_counter() - began,
            }
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    began = time.perf_counter()
    density = model.log_predictive_density(X_test, y_test)
    if y.dtype.kind == "i":
        found = {"nlpd": -float(np.mean(density)), "accuracy": float(model.score(X_test, y_test))}
    else:
        mean, std = model.predict(X_test, return_std=True)
        found = scores(y_test, density, mean, std, y.std() or 1.0)
    return result | {
        **found, "linear": simple, "seconds": round(seconds, 2), "cpu": round(cpu, 2),
        "predicting": round(time.perf_counter() - began, 2), "stop": model.stop_reason_,
        "converged": model.converged_, "answer": model.answer_, "scores": model.scores_,
        "spent": {name: round(value, 2) for name, value in model.history_.spent.items()},
        "peak_mb": round(peak_mb()), "drawn": dataclasses.asdict(table),
        "warnings": [str(w.message)[:200] for w in caught],
    }  # fmt: skip


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", required=True)
    parser.add_argument("--estimator", required=True)
    parser.add_argument("--budget", type=float, default=15.0)
    parser.add_argument("--set", default="{}", help="arguments, as JSON: see `methods.make`")
    parser.add_argument("--out", type=Path, default=RESULTS / "anytime.jsonl")
    asked = parser.parse_args()
    found = measure(asked.table, asked.estimator, asked.budget, json.loads(asked.set))
    put(asked.out, found, ("table", "estimator", "budget"))
    keys = (
        "table",
        "estimator",
        "budget",
        "seconds",
        "rmse",
        "nlpd",
        "coverage",
        "answer",
        "scores",
        "error",
    )
    short = {key: found[key] for key in keys if key in found}
    print(json.dumps(short | {"linear": found.get("linear", {}).get("nlpd")}, default=float))


if __name__ == "__main__":
    main()
