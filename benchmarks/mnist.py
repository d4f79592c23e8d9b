"""MNIST, odd and even digits (the classification study of Evans and Nair 2020) or all ten: one JSON line for each run.

VASTGP_DATA=/path/to/npz python benchmarks/mnist.py --num-basis 1000000 --seconds 3600
VASTGP_DATA=/path/to/npz python benchmarks/mnist.py --solver block --num-basis 20000 --set '{"solver.rank": 2000}'
VASTGP_DATA=/path/to/npz python benchmarks/mnist.py --solver block --num-basis 20000 --ten --pca 100
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import warnings
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from methods import make
from run import machine_rates
from shared_sets import pictures
from table import RESULTS, put
from vastgp._precision import precision
from vastgp.metrics import classification_report

OUT = RESULTS / "mnist.jsonl"


def digits(ten: bool = False) -> tuple[np.ndarray, ...]:
    """Return images in 0..1 and their digits, or whether these are odd, of training and test."""
    X, y, X_test, y_test = pictures()
    if not ten:
        y, y_test = y % 2 == 1, y_test % 2 == 1
    return X.astype(np.float32), y, X_test.astype(np.float32), y_test


def regression(
    model: Any, X: np.ndarray, y: np.ndarray, X_test: np.ndarray, count: int
) -> np.ndarray:
    """Return the probabilities of softmax regression on some of the model's features: its mode, without the average."""
    basis = model.posterior_.basis
    pairs = np.arange(count // 2)

    def features(rows: np.ndarray) -> np.ndarray:
        inputs = model.standardizer_.transform_X(rows, np.dtype(np.float32))
        phi = [np.asarray(basis.features(part, pairs)) for part in np.array_split(inputs, 16)]
        # scaled so that the prior variance of the function is that of the whole basis
        return np.concatenate(phi).reshape(len(rows), -1) * (2 * basis.num_pairs / count) ** 0.5

    # C = 1 is the standard normal prior of the weights
    fitted = LogisticRegression(C=1.0, max_iter=200).fit(features(X), y)
    return np.asarray(fitted.predict_proba(features(X_test)))


def main() -> None:
    """Fit and score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--solver", default="stochastic", choices=("stochastic", "block"))
    parser.add_argument("--num-basis", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--rows", type=int, help="use the first rows alone")
    parser.add_argument("--pca", type=int, help="principal components in the place of pixels")
    parser.add_argument("--ten", action="store_true", help="the ten digits")
    parser.add_argument(
        "--regression", type=int, help="also fit softmax regression on so many of the features"
    )
    parser.add_argument(
        "--set", type=json.loads, default={}, help="arguments as JSON: see `methods.make`"
    )
    parser.add_argument("--verbose", action="store_true")
    asked = parser.parse_args()
    X, y, X_test, y_test = digits(asked.ten)
    X, y = X[: asked.rows], y[: asked.rows]
    options: dict[str, Any] = {
        "kernel": "rbf", "hyperparameters": "subset", "hyperparameters.isotropic": True, "solver": asked.solver,
    }  # fmt: skip
    if asked.solver == "stochastic":
        # batches of the paper, and its empirical Bayes
        options |= {
            "solver.row_batch": 100, "solver.basis_batch": 20_000, "hyperparameters": "learn",
        }  # fmt: skip
    options |= asked.set
    limits = {"num_basis": asked.num_basis, "max_seconds": asked.seconds, "verbose": asked.verbose}
    model = make("QSGPClassifier", limits | options)
    rates = machine_rates()
    began = time.perf_counter()
    kept = 1.0
    if asked.pca:
        # an isotropic kernel sees distances alone, and these but for what the components left out
        components = PCA(asked.pca, random_state=0).fit(X)
        kept = float(components.explained_variance_ratio_.sum())
        X, X_test = (components.transform(part).astype(np.float32) for part in (X, X_test))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    seconds = time.perf_counter() - began
    report: dict[str, Any] = {}
    # one pass over the basis for both
    mean, std = model.latent(X_test)
    with precision("float64"):
        both = {
            "mean": np.asarray(model.likelihood_.predictive_mean(mean.T, std.T**2)).T,
            "median": np.asarray(model.likelihood_.median(mean.T)).T,
        }
    if asked.regression:
        began = time.perf_counter()
        both["regression"] = regression(model, X, y, X_test, asked.regression)
        report["regression_seconds"] = round(time.perf_counter() - began, 1)
    for method, probabilities in both.items():
        found = classification_report(y_test, probabilities, classes=model.classes_)
        report[method] = {key: float(found[key]) for key in ("accuracy", "nlpd", "brier", "ece")}
    result = {
        "classes": len(model.classes_),
        "solver": asked.solver,
        "num_basis": asked.num_basis,
        "rows": len(y),
        "components": asked.pca,
        "variance_kept": round(kept, 4),
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
    put(OUT, result, ("classes", "solver", "num_basis", "rows", "components", "options"))
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
