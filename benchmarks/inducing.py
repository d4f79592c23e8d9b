"""Table 3 of the QSGP paper: training rows as inducing inputs, kernel and noise of a subset. One JSON line a run.

VASTGP_DATA=/path/to/npz python benchmarks/inducing.py --dataset kin40k --split 0
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from methods import make
from run import load, machine_rates, peak_mb
from table import RESULTS, put
from vastgp.metrics import regression_report

OUT = RESULTS / "inducing.jsonl"
# RMSE and NLPD (first split) of the paper's Table 3, and its hours on a GPU.
PAPER = {"kin40k": (0.154, -0.348, 1.40), "protein": (0.598, 1.157, 2.13), "kegg": (0.124, -0.554, 1.70)}  # fmt: skip


def measure(dataset: str, split: int, changes: dict[str, Any]) -> dict[str, Any]:
    """Return one result."""
    X, y, X_test, y_test = load(dataset, split)
    params = {"basis": "inducing", "random_state": split} | changes
    rates = machine_rates()
    model = make("QSGPRegressor", params)
    began, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    began = time.perf_counter()
    mean, std = model.predict(X_test, return_std=True)
    predicting = time.perf_counter() - began
    report = regression_report(
        y_test, mean, std, y_train_mean=float(np.mean(y)), y_train_scale=float(np.std(y))
    )
    history = model.history_
    return {
        "dataset": dataset, "split": split, "params": params, "n": len(y), "m": model.num_basis_,
        "seconds": round(seconds, 1), "cpu_seconds": round(cpu, 1), "predict_seconds": round(predicting, 2),
        "peak_mb": round(peak_mb()), "iterations": model.n_iter_, "converged": model.converged_,
        "stop": model.stop_reason_, "diagnosis": model.diagnosis_, "kernel": str(model.kernel_),
        "noise_std_standardised": float(model.likelihood_.noise_std) / float(np.std(y)),
        "report": report, "paper": PAPER.get(dataset), "warnings": [str(w.message) for w in caught], **rates,
        "history": {"steps": history.steps, "seconds": [round(s, 1) for s in history.seconds],
                    "residual": history["residual"]},
    }  # fmt: skip


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument(
        "--set", default="{}", help="arguments to change, as JSON: see `methods.make`"
    )
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    result = measure(asked.dataset, asked.split, json.loads(asked.set))
    put(asked.out, result, ("dataset", "split", "params"))
    scores = result["report"]["standardised"]
    shown = ("dataset", "split", "seconds", "cpu_seconds", "iterations", "stop", "paper")
    short = {name: result[name] for name in shown} | {
        "rmse": scores["rmse"],
        "nlpd": scores["nlpd"],
        "coverage": result["report"]["coverage"],
    }
    print(json.dumps(short, default=float))


if __name__ == "__main__":
    main()
