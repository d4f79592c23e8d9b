"""The exact Gaussian process of many rows: one JSON line for each data set and number of rows.

    VASTGP_DATA=/path/to/npz python benchmarks/exact.py --dataset kin40k --rows 10000 20000
    VASTGP_DATA=/path/to/npz python benchmarks/exact.py --dataset kin40k --rows 36000 --set '{"learn": 8000}'
    python benchmarks/exact.py --write    # results/exact.md from the lines

Training rows are the first of a random order of those of the stored split. Seconds are by phase, and the rate of the
factor is beside that of a float32 matrix product measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import numpy as np

from run import machine_rates
from shared_sets import load
from table import RESULTS, matmul_gflops, peak_mb, put, rows, write_table
from vastgp import ExactGPRegressor
from vastgp.metrics import regression_report
from vastgp.options import Learn

OUT = RESULTS / "exact.jsonl"
HEADER = (
    "| data | n | budget, s | rows seen | learned on, most | factor | RMSE | NLPD | coverage 95 % | fit, s "
    "| learning, s | factor, s | rate, GFLOP/s | product, GFLOP/s | variances refined | predict, s "
    "| leave-one-out, s | its NLPD | peak, MB |"
)


def measure(dataset: str, split: int, n: int, changes: dict[str, Any]) -> dict[str, Any]:
    """Return one result."""
    X, y, X_test, y_test = load(dataset, split)
    chosen = np.random.default_rng(split).permutation(len(y))[:n]
    X, y = X[chosen], y[chosen]
    params = {"kernel": "matern32", "random_state": split} | changes
    learn, left_out = params.pop("learn", None), params.pop("leave_one_out", True)
    if learn is not None:
        params["hyperparameters"] = Learn(rows=learn)
    rates = machine_rates() | {"numpy_matmul_gflops": matmul_gflops()}
    model = ExactGPRegressor(**params)
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    seconds = {"fit": time.perf_counter() - began} | dict(model.history_.spent)
    began = time.perf_counter()
    mean, std = model.predict(X_test, return_std=True)
    seconds["predict"] = time.perf_counter() - began
    density = np.zeros(1)
    if left_out:
        began = time.perf_counter()
        density = model.leave_one_out().log_density
        seconds["leave_one_out"] = time.perf_counter() - began
    spread = float(np.std(y))
    return {
        "dataset": dataset, "split": split, "n": len(y), "d": X.shape[1], "learn": learn,
        "params": {name: str(value) for name, value in params.items()},
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
        "peak_mb": round(peak_mb()), "iterations": model.n_iter_, "converged": model.converged_,
        "stop": model.stop_reason_, "diagnosis": model.diagnosis_, "kernel": repr(model.kernel_),
        "noise_std_standardised": float(model.likelihood_.noise_std) / spread,
        "left_out_nlpd": float(-np.mean(density)) - float(np.log(spread)),
        "report": regression_report(y_test, mean, std, y_train_mean=float(np.mean(y)), y_train_scale=spread),
        "warnings": [str(warning.message) for warning in caught], **rates,
    }  # fmt: skip


def write() -> None:
    """Write the table."""
    lines = []
    for row in rows(OUT):
        seconds, report = row["seconds"], row["report"]
        factor, n = row["diagnosis"]["factor_seconds"], row["diagnosis"]["rows"]
        rate = n**3 / 3e9 / factor if factor else float("nan")
        learning = sum(
            value
            for name, value in seconds.items()
            if name.startswith(("exact GP", "first hyperparameters"))
        )
        left_out = ("", "")
        if "leave_one_out" in seconds:
            left_out = (f"{seconds['leave_one_out']:.0f}", f"{row['left_out_nlpd']:.3f}")
        lines.append(
            f"| {row['dataset']} | {row['n']:,} | {row['params'].get('max_seconds', '')} | {n:,} "
            f"| {row['learn'] or 5000:,} | {row['diagnosis']['factor']} "
            f"| {report['standardised']['rmse']:.4f} | {report['standardised']['nlpd']:.3f} | {report['coverage']:.3f} "
            f"| {seconds['fit']:.0f} | {learning:.0f} | {factor:.0f} | {rate:.0f} | {row['numpy_matmul_gflops']:.0f} "
            f"| {'yes' if row['diagnosis']['refined'] else 'no'} | {seconds['predict']:.0f} "
            f"| {left_out[0]} | {left_out[1]} | {row['peak_mb']:,} |"
        )
    made = (
        "Made by `python benchmarks/exact.py --write` from `exact.jsonl`. Matern-3/2, split 0 of 90/10 per cent, of "
        "which so many training rows; standardised units of these. Published for kin40k and 36,000 rows: RMSE 0.065, "
        "NLPD -1.319. Two CPU cores on which up to eight other programs ran, so that seconds and rates are those of a "
        "fraction of them, and differ from line to line. The factor's seconds are of the matrix and its factor; a rate "
        "counts `n^3 / 3` operations; the product is one of 1024 x 1024 in float32 just before the fit."
    )
    title = "Exact Gaussian processes of many rows"
    write_table(RESULTS / "exact.md", title, made, HEADER, lines)


def main() -> None:
    """Fit, predict, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="kin40k")
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--rows", type=int, nargs="+", default=[])
    parser.add_argument("--set", default="{}", help="constructor arguments to change, as JSON")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    for n in asked.rows:
        result = measure(asked.dataset, asked.split, n, json.loads(asked.set))
        put(OUT, result, ("dataset", "split", "n", "learn", "params"))
        short = ("n", "learn", "seconds", "diagnosis", "stop", "kernel", "left_out_nlpd", "peak_mb")
        print(json.dumps({name: result[name] for name in short} | result["report"], default=float))
        print(result["noise_std_standardised"], result["warnings"], flush=True)
    if asked.write:
        write()


if __name__ == "__main__":
    main()
