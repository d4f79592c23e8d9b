"""Default fits of every estimator to a small table, the second in its process: seconds, and how good. A line each.

python benchmarks/small_tables.py --rows 2000
python benchmarks/small_tables.py --page          writes results/small_tables.md

The table is Friedman's function of five inputs, with three that do not matter, a noise of one (a fifth of the target's
deviation), or, for classes, its sign about the median. Each estimator has a process of its own and fits two such
tables; the second fit is what counts, as programs are compiled then.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from typing import Any

import numpy as np

import vastgp
from run import machine_rates, peak_mb
from table import RESULTS, put, rows, write_table
from vastgp import metrics

OUT = RESULTS / "small_tables.jsonl"
_NEW, _INPUTS = 2000, 8
REGRESSORS = (
    "ExactGPRegressor",
    "IterativeGPRegressor",
    "QSGPRegressor",
    "SWSGPRegressor",
    "TSVGPRegressor",
    "SVGPRegressor",
    "GriefRegressor",
    "ReweightedBasisRegressor",
    "RandomFeatureGPRegressor",
    "RelevanceVectorRegressor",
    "DirectRegressor",
    "DirectNetworkRegressor",
)
CLASSIFIERS = (
    "QSGPClassifier",
    "SWSGPClassifier",
    "TSVGPClassifier",
    "SVGPClassifier",
    "DirectClassifier",
    "ReweightedBasisClassifier",
)


def friedman(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of Friedman's function (1991), with noise of deviation one."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, _INPUTS))
    mean = 10.0 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20.0 * (X[:, 2] - 0.5) ** 2
    return X, mean + 10.0 * X[:, 3] + 5.0 * X[:, 4] + rng.normal(size=n)


def scores(model: Any, X: np.ndarray, y: np.ndarray, scale: float) -> dict[str, float]:
    """Return what a model's predictions of new rows are worth, in deviations of the target."""
    if hasattr(model, "classes_"):
        found = model.predict_proba(X)
        return {"log_loss": metrics.nlpd_of_probabilities(y, found, model.classes_)}
    mean, std = model.predict(X, return_std=True)
    density = model.log_predictive_density(X, y)
    return {
        "rmse": metrics.rmse(y, mean) / scale,
        "nlpd": -float(np.mean(density)) - float(np.log(scale)),
        "coverage_95": metrics.coverage(y, mean, std),
    }


def run(name: str, n: int) -> dict[str, Any]:
    """Return the figures of the second fit of an estimator."""
    result: dict[str, Any] = {}
    for seed in range(2):
        (X, y), (new, target) = friedman(n, seed), friedman(_NEW, 100 + seed)
        scale = float(np.std(y))
        if name.endswith("Classifier"):
            y, target = (values > np.median(y) for values in (y, target))
        began, cpu = time.perf_counter(), time.process_time()
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            model = getattr(vastgp, name)(random_state=0).fit(X, y)
        result = {
            "seconds": time.perf_counter() - began,
            "cpu_seconds": time.process_time() - cpu,
            "converged": bool(model.converged_),
            "answer": str(getattr(model, "answer_", "own")),
        } | scores(model, new, target, scale)
    return result


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--methods", nargs="*", default=[*REGRESSORS, *CLASSIFIERS])
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--page", action="store_true", help="write the table of what has been run")
    args = parser.parse_args()
    if args.page:
        return page()
    if not args.child:
        for name in args.methods:
            command = [sys.executable, __file__, "--child", "--rows", str(args.rows)]
            subprocess.run([*command, "--methods", name], check=True)
        return None
    (name,) = args.methods
    given = {"method": name, "rows": args.rows, "inputs": _INPUTS}
    result = given | run(name, args.rows) | {"peak_mb": peak_mb()} | machine_rates()
    put(OUT, result, ("method", "rows"))
    print(json.dumps(result))
    return None


def page() -> None:
    """Write the table of what has been run."""
    lines = [
        f"| {of['method']} | {of['rows']:,} | {of['seconds']:.1f} | {of['cpu_seconds']:.1f} "
        f"| {of.get('rmse', float('nan')):.3f} | {of.get('nlpd', of.get('log_loss')):.3f} "
        f"| {100 * of.get('coverage_95', float('nan')):.1f} | {'yes' if of['converged'] else 'no'} |"
        for of in rows(OUT)
    ]
    write_table(
        RESULTS / "small_tables.md",
        "Default fits of small tables",
        "Made by `python benchmarks/small_tables.py`, see its first lines; RMSE and NLPD in deviations of the target.",
        "| estimator | rows | seconds | of all cores | RMSE | NLPD or log loss | coverage of 95 % | converged |",
        [line.replace("nan", "") for line in lines],
    )


if __name__ == "__main__":
    main()
