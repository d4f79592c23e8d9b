"""Small classification sets beside scikit-learn's Gaussian process: one JSON line for each data set, split and method.

VASTGP_DATA=/path/to/npz python benchmarks/classification.py
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import numpy as np
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from shared_sets import load, random_split
from table import RESULTS, put, rows
from vastgp import QSGPClassifier, ReweightedBasisClassifier
from vastgp.metrics import classification_report

OUT = RESULTS / "classification.jsonl"
DATA_SETS = ("banana", "ionosphere", "sonar", "iris", "wine")
# Three classes, from scikit-learn.
PACKAGED = {"iris": load_iris, "wine": load_wine}
SPLITS = 5
# scikit-learn's evidence takes O(n^3) and gradients O(n^3) a hyperparameter: its kernel is learned on so many rows.
LEARNED_ROWS = 1000


def split_of(name: str, split: int) -> tuple[np.ndarray, ...]:
    """Return standardised training and test rows of one of the random splits."""
    if name in PACKAGED:
        X, y, X_test, y_test = random_split(*PACKAGED[name](return_X_y=True), split)
    else:
        X, y, X_test, y_test = load(name, split)
    X, X_test = X.astype(np.float64), X_test.astype(np.float64)
    mean, scale = X.mean(axis=0), X.std(axis=0)
    scale[scale == 0] = 1.0
    return (X - mean) / scale, y, (X_test - mean) / scale, y_test


def scikit_learn(X: np.ndarray, y: np.ndarray, ard: bool) -> Any:
    """Fit scikit-learn's classifier (Laplace's approximation, logistic link)."""
    d = X.shape[1]
    scales = np.full(d, d**0.5) if ard else d**0.5
    kernel = ConstantKernel(1.0, (1e-4, 1e4)) * RBF(scales, (1e-3, 1e3))
    few = np.random.default_rng(0).permutation(len(y))[:LEARNED_ROWS]
    model = GaussianProcessClassifier(kernel, random_state=0).fit(X[few], y[few])
    if len(few) == len(y):
        return model
    return GaussianProcessClassifier(model.kernel_, optimizer=None).fit(X, y)


METHODS: dict[str, Any] = {
    "vastgp": lambda X, y: QSGPClassifier().fit(X, y),
    "vastgp-rbf": lambda X, y: QSGPClassifier("rbf").fit(X, y),
    "chains": lambda X, y: ReweightedBasisClassifier().fit(X, y),
    "scikit-learn": lambda X, y: scikit_learn(X, y, ard=False),
    "scikit-learn-ard": lambda X, y: scikit_learn(X, y, ard=True),
}


def run(name: str, split: int, method: str) -> dict[str, Any]:
    """Fit and score one method."""
    X, y, X_test, y_test = split_of(name, split)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)
        model = METHODS[method](X, y)
    seconds = time.perf_counter() - began
    report = classification_report(y_test, model.predict_proba(X_test), classes=model.classes_)
    return {
        "dataset": name,
        "split": split,
        "method": method,
        "rows": len(y),
        "seconds": round(seconds, 2),
        "kernel": repr(model.kernel_)[:200],
        **{key: float(report[key]) for key in ("accuracy", "nlpd", "brier", "ece")},
    }


def show(results: list[dict[str, Any]]) -> None:
    """Print means over the splits."""
    print(
        "| data | method | splits | NLPD | accuracy | Brier | seconds |\n|---|---|---|---|---|---|---|"
    )
    for name in DATA_SETS:
        for method in METHODS:
            of = [r for r in results if r["dataset"] == name and r["method"] == method]
            if of:
                mean = {
                    key: float(np.mean([r[key] for r in of]))
                    for key in ("nlpd", "accuracy", "brier", "seconds")
                }
                print(
                    f"| {name} | {method} | {len(of)} | {mean['nlpd']:.3f} | {mean['accuracy']:.3f} | "
                    f"{mean['brier']:.3f} | {mean['seconds']:.1f} |"
                )


def main() -> None:
    """Run what was asked for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="*", default=list(DATA_SETS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--splits", type=int, default=SPLITS)
    asked = parser.parse_args()
    for name in asked.datasets:
        for split in range(asked.splits):
            for method in asked.methods:
                result = run(name, split, method)
                put(OUT, result, ("dataset", "split", "method"))
                shown = ("dataset", "split", "method", "nlpd", "accuracy", "seconds")
                print(json.dumps({name: result[name] for name in shown}), flush=True)
    show(rows(OUT))


if __name__ == "__main__":
    main()
