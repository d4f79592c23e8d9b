"""Counts whose rates have a factor of their own beside a smooth function: with and without a likelihood that knows.

python benchmarks/counts.py

400 rows of one input, rates ``level exp(1.2 sin x + 0.3 eps)``; 2000 new rows. One JSON line for each level, seed and
method. The NLPD of who knows the law beside them; coverage is that of the mean and 1.96 standard deviations.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import numpy as np
from scipy.stats import norm, poisson
from sklearn.exceptions import ConvergenceWarning

from table import RESULTS, put, rows
from vastgp import QSGPRegressor, ReweightedBasisRegressor

OUT = RESULTS / "counts.jsonl"
LEVELS, SPREAD = (3.0, 30.0, 300.0), 0.3
NAME = "poisson-log-normal"
METHODS: dict[str, Any] = {
    "QSGP, Poisson": lambda: QSGPRegressor("rbf", 400, likelihood="poisson"),
    "QSGP": lambda: QSGPRegressor("rbf", 400, likelihood=NAME),
    "chains": lambda: ReweightedBasisRegressor(
        "rbf", 40, basis="interpolation", prior="orthogonal", likelihood=NAME, inference="mala"
    ),
}  # fmt: skip


def counts(n: int, seed: int, level: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return inputs, counts, and the logarithm of the smooth rate."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 10.0, (n, 1))
    log_rate = np.log(level) + 1.2 * np.sin(X[:, 0])
    return X, rng.poisson(np.exp(log_rate + SPREAD * rng.normal(size=n))).astype(float), log_rate


def best(y: np.ndarray, log_rate: np.ndarray) -> float:
    """Return the NLPD of who knows the law."""
    eps = np.linspace(-8.0, 8.0, 801)
    each = poisson.pmf(y[:, None], np.exp(log_rate[:, None] + SPREAD * eps))
    return float(-np.log(each @ norm.pdf(eps) * (eps[1] - eps[0])).mean())


def run(level: float, seed: int, method: str) -> dict[str, Any]:
    """Fit and score one method."""
    X, y, _ = counts(400, 2 * seed, level)
    new, seen, log_rate = counts(2000, 2 * seed + 1, level)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = METHODS[method]().fit(X, y)
    seconds = time.perf_counter() - began
    mean, std = model.predict(new, return_std=True)
    expected = np.exp(log_rate + 0.5 * SPREAD**2)
    return {
        "level": level, "seed": seed, "method": method, "seconds": round(seconds, 2),
        "nlpd": float(-model.log_predictive_density(new, seen).mean()), "best": best(seen, log_rate),
        "coverage": float(np.mean(np.abs(seen - mean) < 1.96 * std)),
        "error_of_rate": float(np.sqrt(np.mean((mean / expected - 1.0) ** 2))),
        "variance": float(getattr(model.likelihood_, "variance", 0.0)),
    }  # fmt: skip


def show(results: list[dict[str, Any]]) -> None:
    """Print means over the seeds."""
    names = ("nlpd", "best", "coverage", "error_of_rate", "variance", "seconds")
    print(f"| level | method | {' | '.join(names)} |\n|---|---|{'---|' * len(names)}")
    for level in LEVELS:
        for method in METHODS:
            of = [r for r in results if r["level"] == level and r["method"] == method]
            if of:
                means = [f"{np.mean([r[name] for r in of]):.3f}" for name in names]
                print(f"| {level:.0f} | {method} | {' | '.join(means)} |")


def main() -> None:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    for level in LEVELS:
        for seed in range(asked.seeds):
            for method in METHODS:
                result = run(level, seed, method)
                put(OUT, result, ("level", "seed", "method"))
                print(json.dumps(result), flush=True)
    show(rows(OUT))


if __name__ == "__main__":
    main()
