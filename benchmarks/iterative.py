"""Exact processes by conjugate gradients beside Cholesky: one JSON line for each data set and method.

    VASTGP_DATA=/path/to/npz python benchmarks/iterative.py --dataset elevators --method rr-cg --rows 6000
    VASTGP_DATA=/path/to/npz python benchmarks/iterative.py --dataset kin40k --method large --set '{"max_seconds": 400}'

With ``--rows`` a split of 64/16/20 per cent is made by a seed, and so many of the training rows are used; without, it
is the stored split of 90/10 per cent.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from run import load, machine_rates, peak_mb
from table import RESULTS, put
from vastgp import ExactGPRegressor, IterativeGPRegressor, RandomFeatureGPRegressor
from vastgp.metrics import regression_report
from vastgp.options import CG, Learn, RouletteCG, Subset

OUT = RESULTS / "iterative.jsonl"
_SMALL = {"num_samples": 128, "kernel": "rbf"}
_LARGE = {"hyperparameters": Subset(3000), "num_samples": 16}
METHODS: dict[str, tuple[Any, dict[str, Any]]] = {
    "cholesky": (ExactGPRegressor, {
        "kernel": "rbf", "max_iter": 15, "hyperparameters": Learn(rows=12_000, noise_floor=1e-3)
    }),
    "rr-cg": (IterativeGPRegressor, _SMALL | {"solver": RouletteCG(100), "rank": 100}),
    "cg-100": (IterativeGPRegressor, _SMALL | {"solver": CG(100), "rank": 100}),
    "cg-20": (IterativeGPRegressor, _SMALL | {"solver": CG(20), "rank": 0}),
    "rr-cg-20": (IterativeGPRegressor, _SMALL | {"solver": RouletteCG(20), "rank": 0}),
    "subset": (IterativeGPRegressor, _SMALL | {"hyperparameters": "subset"}),
    "features": (RandomFeatureGPRegressor, {"kernel": "rbf", "num_basis": 1000}),
    "large": (IterativeGPRegressor, _LARGE | {"kernel": "matern32"}),
    "large-52": (IterativeGPRegressor, _LARGE | {"kernel": "matern52"}),
}  # fmt: skip


def thirds(dataset: str, seed: int, rows: int) -> tuple[np.ndarray, ...]:
    """Return training and test rows of a random split of 64/16/20 per cent; the 16 are left out."""
    with np.load(Path(os.environ["VASTGP_DATA"]) / f"{dataset}.npz") as held:
        X, y = held["X"], held["y"]
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[: int(0.64 * len(y))][:rows], order[int(0.8 * len(y)) :]
    return X[train], y[train], X[test], y[test]


def main() -> None:
    """Fit, predict, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--method", required=True, choices=sorted(METHODS))
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--set", default="{}", help="constructor arguments to change, as JSON")
    given = parser.parse_args()
    parts = (
        thirds(given.dataset, given.split, given.rows)
        if given.rows
        else load(given.dataset, given.split)
    )
    X, y, X_test, y_test = parts
    kind, params = METHODS[given.method]
    params = params | {"random_state": given.split} | json.loads(given.set)
    rates = machine_rates()
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = kind(**params).fit(X, y)
    seconds = time.perf_counter() - began
    began = time.perf_counter()
    mean, std = model.predict(X_test, return_std=True)
    predicting = time.perf_counter() - began
    report = regression_report(
        y_test, mean, std, y_train_mean=float(np.mean(y)), y_train_scale=float(np.std(y))
    )
    line = {
        "dataset": given.dataset, "method": given.method, "split": given.split, "n": len(y), "d": X.shape[1],
        "params": {name: value if isinstance(value, (int, float)) else str(value) for name, value in params.items()},
        "seconds": round(seconds, 1), "predict_seconds": round(predicting, 1),
        "peak_mb": round(peak_mb()), "iterations": model.n_iter_, "converged": model.converged_,
        "stop": model.stop_reason_, "diagnosis": getattr(model, "diagnosis_", {}), "kernel": repr(model.kernel_),
        "noise_std_standardised": float(model.likelihood_.noise_std) / float(np.std(y)),
        "report": report, "warnings": [str(warning.message) for warning in caught], **rates,
        "objective": [float(value) for value in model.history_.values.get("objective", [])],
    }  # fmt: skip
    put(OUT, line, ("dataset", "method", "split", "n"))
    short = (
        "dataset",
        "method",
        "n",
        "seconds",
        "iterations",
        "converged",
        "stop",
        "diagnosis",
        "kernel",
    )
    print(json.dumps({name: line[name] for name in short} | report, default=float), flush=True)


if __name__ == "__main__":
    main()
