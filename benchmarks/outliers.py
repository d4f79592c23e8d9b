"""Likelihoods beside each other where some training targets are wrong: one JSON line for each.

VASTGP_DATA=/path/to/npz python benchmarks/outliers.py
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from run import load, machine_rates
from table import RESULTS, put
from vastgp import QSGPRegressor
from vastgp.metrics import regression_report
from vastgp.options import Block

OUT = RESULTS / "outliers.jsonl"
# Share of the training targets that are wrong, and by how much: normal, in standard deviations of the target.
SHARE, SIZE = 0.05, 5.0


def corrupted(y: np.ndarray, seed: int) -> np.ndarray:
    """Return targets of which some are wrong."""
    rng = np.random.default_rng(seed)
    wrong = rng.choice(len(y), round(SHARE * len(y)), replace=False)
    y = y.astype(np.float64)
    y[wrong] += SIZE * y.std() * rng.standard_normal(len(wrong))
    return y


def run(
    dataset: str, split: int, likelihood: str, num_basis: int, seconds: float
) -> dict[str, Any]:
    """Fit to corrupted targets and score on clean ones."""
    X, y, X_test, y_test = load(dataset, split)
    model = QSGPRegressor(
        "matern32",
        num_basis,
        likelihood=likelihood,
        solver=Block(num_samples=16),
        max_seconds=seconds,
    )
    rates = machine_rates()
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, corrupted(y, split))
    taken = time.perf_counter() - began
    mean, std = model.predict(X_test, return_std=True)
    # in the units of the clean targets
    report = regression_report(
        y_test, mean, std, y_train_mean=float(np.mean(y)), y_train_scale=float(np.std(y))
    )
    density = model.log_predictive_density(X_test, y_test)
    return {
        "dataset": dataset, "split": split, "likelihood": likelihood, "num_basis": num_basis, "n": len(y),
        "seconds": round(taken, 1), "stop": model.stop_reason_, "fitted": repr(model.likelihood_),
        "mae": float(np.mean(np.abs(y_test - mean)) / np.std(y)),
        "nlpd_of_the_likelihood": float(np.log(1.0 / np.std(y)) - np.mean(density)),
        "report": report, **rates,
    }  # fmt: skip


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="kin40k")
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--num-basis", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=400.0)
    parser.add_argument("--likelihoods", nargs="*", default=["gaussian", "laplace", "student-t"])
    asked = parser.parse_args()
    for split in range(asked.splits):
        for likelihood in asked.likelihoods:
            result = run(asked.dataset, split, likelihood, asked.num_basis, asked.seconds)
            put(OUT, result, ("dataset", "split", "likelihood", "num_basis"))
            shown = ("split", "likelihood", "mae", "nlpd_of_the_likelihood", "seconds", "stop")
            print(json.dumps({name: result[name] for name in shown}), flush=True)


if __name__ == "__main__":
    main()
