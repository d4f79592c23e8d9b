"""Accuracy at a budget on tables nobody has tuned to: one fit in a process of its own, one JSON line.

    python anytime.py --table friedman-5k --estimator QSGPRegressor --budget 15
    python anytime.py --table 17 ...     a table drawn at random, by its seed
    python anytime.py --budget 5         all named tables, all estimators that suit them

Beside the fit stands what Bayesian linear regression (logistic regression for classes) says of the same rows.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from methods import make
from run import peak_mb
from table import RESULTS, put, rows, write_table
from vastgp.estimators.registry import ESTIMATORS
from vastgp.metrics import coverage, nlpd, rmse

# those of the suite
sys.path.append(str(Path(__file__).parents[1] / "tests"))
from hard_tables import NAMED, Table, random_table

# What the exact process and the network of discrete weights take.
_EXACT_ROWS, _NETWORK_INPUTS = 5000, 28


def table_of(name: str) -> tuple[Table, int]:
    """Return a table and its seed."""
    if name in NAMED:
        return NAMED[name], 0
    return random_table(int(name)), int(name)


def scores(
    y: np.ndarray, density: np.ndarray, mean: np.ndarray, std: np.ndarray, unit: float
) -> dict[str, float]:
    """Return RMSE and NLPD in units of the training target's standard deviation, and coverage of 95 %."""
    return {
        "rmse": rmse(y, mean) / unit,
        "nlpd": float(-np.mean(density) - np.log(unit)),
        "coverage": coverage(y, mean, std),
    }


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
    density = -nlpd(target, mean, std, average=False)
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


def suited(name: str) -> list[str]:
    """Return the estimators that take a table's kind of target."""
    table = table_of(name)[0]
    ending = "Classifier" if table.target == "classes" else "Regressor"
    found = [estimator for estimator in ESTIMATORS if estimator.endswith(ending)]
    # these refuse by name what they are not made for
    for estimator, suits in (
        ("ExactGPRegressor", table.rows <= _EXACT_ROWS),
        ("DirectNetworkRegressor", table.useful + table.useless <= _NETWORK_INPUTS),
    ):
        if not suits and estimator in found:
            found.remove(estimator)
    return found


def faults(found: dict[str, Any]) -> str:
    """Return what is wrong with a result; nothing where all is well."""
    if "error" in found:
        return found["error"]
    wrong = []
    if found["nlpd"] > found["linear"]["nlpd"] + 0.02:
        wrong.append("worse than linear")
    if found.get("coverage", 1.0) < 0.9:
        wrong.append("coverage")
    if found["seconds"] > 1.1 * found["budget"] + 2.0:
        wrong.append("late")
    return ", ".join(wrong)


def write_all(path: Path) -> None:
    """Write the table of all results."""
    made = (
        "Made by `python benchmarks/anytime.py --budget SECONDS` and `--write`. Each fit has its own process, with "
        "nothing compiled before; NLPD in standardised units. Worse than linear: by more than 0.02; "
        "coverage: under 90 %; late: after 110 % of the budget and two seconds."
    )
    header = (
        "| table | rows x inputs | estimator | budget, s | seconds | NLPD | of a line | coverage "
        "| answer | faults |"
    )
    lines = []
    for row in rows(path):
        size = f"{row['n']:,} x {row['d']}"
        first = f"| {row['table']} | {size} | {row['estimator']} | {row['budget']:g}"
        if "error" in row:
            lines.append(f"{first} | | | | | | {faults(row)} |")
            continue
        held = format(row["coverage"], ".3f") if "coverage" in row else ""
        lines.append(
            f"{first} | {row['seconds']:.1f} | {row['nlpd']:.3f} | {row['linear']['nlpd']:.3f} | {held} "
            f"| {row['answer']} | {faults(row)} |"
        )
    write_table(path.with_suffix(".md"), "Hard tables at a budget", made, header, lines)


def main() -> None:
    """Read the command line; with several fits asked for, make each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", nargs="+", default=sorted(NAMED))
    parser.add_argument("--estimator", nargs="+")
    parser.add_argument("--budget", type=float, default=15.0)
    parser.add_argument("--set", default="{}", help="arguments, as JSON: see `methods.make`")
    parser.add_argument("--out", type=Path, default=RESULTS / "anytime.jsonl")
    parser.add_argument("--write", action="store_true", help="write the table, and fit nothing")
    asked = parser.parse_args()
    if asked.write:
        write_all(asked.out)
        return
    fits = [(table, each) for table in asked.table for each in asked.estimator or suited(table)]
    if len(fits) > 1:
        common = ["--budget", str(asked.budget), "--set", asked.set, "--out", str(asked.out)]
        for table, each in fits:
            command = [sys.executable, __file__, "--table", table, "--estimator", each, *common]
            subprocess.run(command, check=False)
        return
    found = measure(*fits[0], asked.budget, json.loads(asked.set))
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
        "error",
    )
    short = {key: found[key] for key in keys if key in found}
    print(json.dumps(short | {"faults": faults(found)}, default=float), flush=True)


if __name__ == "__main__":
    main()
