"""Odd and even digits of MNIST, the classification study of Evans and Nair (2020): one JSON line for each run.

VASTGP_DATA=/path/to/npz python benchmarks/mnist.py --num-basis 1000000 --seconds 3600
VASTGP_DATA=/path/to/npz python benchmarks/mnist.py --solver block --num-basis 100000
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from run import machine_rates
from table import RESULTS, put
from vastgp import QSGPClassifier
from vastgp._precision import precision
from vastgp.metrics import classification_report

OUT = RESULTS / "mnist.jsonl"


def digits() -> tuple[np.ndarray, ...]:
    """Return images in 0..1 and whether their digit is odd, of training and test."""
    with np.load(Path(os.environ["VASTGP_DATA"]) / "mnist.npz") as stored:
        X, X_test = (stored[name].astype(np.float32) / 255.0 for name in ("X", "X_test"))
        y, y_test = (stored[name] % 2 == 1 for name in ("y", "y_test"))
    return X, y, X_test, y_test


def main() -> None:
    """Fit and score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--solver", default="stochastic", choices=("stochastic", "block"))
    parser.add_argument("--num-basis", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--max-iter", type=int)
    parser.add_argument("--rows", type=int, help="use the first rows alone")
    parser.add_argument("--set", type=json.loads, default={}, help="constructor arguments as JSON")
    parser.add_argument("--verbose", action="store_true")
    asked = parser.parse_args()
    X, y, X_test, y_test = digits()
    X, y = X[: asked.rows], y[: asked.rows]
    options: dict[str, Any] = {"kernel": "rbf", "isotropic": True, "solver": asked.solver}
    if asked.solver == "stochastic":
        # batches of the paper, and its empirical Bayes
        options |= {"row_batch": 100, "basis_batch": 20_000, "hyperparameters": "learn"}
    options |= asked.set
    model = QSGPClassifier(
        num_basis=asked.num_basis, max_seconds=asked.seconds, max_iter=asked.max_iter, verbose=asked.verbose, **options
    )  # fmt: skip
    rates = machine_rates()
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    seconds = time.perf_counter() - began
    report = {}
    # one pass over the basis for both
    mean, std = model.latent(X_test)
    with precision("float64"):
        both = {
            "mean": np.asarray(model.likelihood_.predictive_mean(mean, std**2)),
            "median": np.asarray(model.likelihood_.median(mean)),
        }
    for method, probabilities in both.items():
        found = classification_report(y_test, probabilities, classes=model.classes_)
        report[method] = {key: float(found[key]) for key in ("accuracy", "nlpd", "brier", "ece")}
    result = {
        "solver": asked.solver,
        "num_basis": asked.num_basis,
        "rows": len(y),
        "options": repr(sorted(options.items())),
        "seconds": round(seconds, 1),
        "steps": model.n_iter_,
        "seconds_per_step": round(seconds / max(model.n_iter_, 1), 4),
        "reason": model.stop_reason_,
        "kernel": repr(model.kernel_),
        "test": report,
        "history": {
            name: [round(value, 4) for value in values[:: max(1, len(values) // 20)]]
            for name, values in {"seconds": model.history_.seconds, **model.history_.values}.items()
        },
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        **rates,
    }
    put(OUT, result, ("solver", "num_basis", "rows", "options"))
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
