"""Shared data sets by name, with NumPy alone: peers in environments of their own read the same rows."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]

# Tables of numbers with one numeric target. Not here: challenger (counts), time series, grids, images.
REGRESSION = (
    "airfoil", "bike", "cancer", "concrete", "elevators", "energy", "fertility", "hardware", "houseelectric",
    "houseelectric_200k", "housing", "kegg", "kin40k", "kin8nm", "naval", "pol", "powerplant", "protein", "servo",
    "slump", "wine", "yacht",
)  # fmt: skip
# Tables of numbers with two classes; their files hold no splits.
CLASSES = ("banana", "ionosphere", "sonar")

# Of the rows of a file without splits.
_TEST_SHARE = 0.1


def load(dataset: str, split: int) -> Rows:
    """Return training and test rows of one split."""
    with np.load(Path(os.environ["VASTGP_DATA"]) / f"{dataset}.npz") as stored:
        X, y, n = stored["X"], stored["y"], int(stored["n"])
        if "test_mask_packed" not in stored:
            return random_split(X, y, split)
        packed = stored["test_mask_packed"]
    test = np.unpackbits(packed[split], count=n).astype(bool)
    return X[~test], y[~test], X[test], y[test]


def pictures(rows: int | None = None) -> Rows:
    """Return pictures of digits in 0..1, a pixel an input, and which digits they are: some of training, all of test."""
    with np.load(Path(os.environ["VASTGP_DATA"]) / "mnist.npz") as stored:
        X, y, X_test, y_test = (stored[name] for name in ("X", "y", "X_test", "y_test"))
    return X[:rows] / 255.0, y[:rows].astype(np.int64), X_test / 255.0, y_test.astype(np.int64)


def random_split(X: np.ndarray, y: np.ndarray, split: int) -> Rows:
    """Return training and test rows, a tenth of them for the test."""
    order = np.random.default_rng(split).permutation(len(y))
    test, train = np.split(order, [round(_TEST_SHARE * len(y))])
    return X[train], y[train], X[test], y[test]
