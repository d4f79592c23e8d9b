"""Noisy sinc with n = m = 500 (QSGP paper, appendix I.3) beside scikit-learn's Gaussian process: one JSON line.

python benchmarks/relevance.py
"""

from __future__ import annotations

import json
import time
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from table import RESULTS, put
from vastgp import RelevanceVectorRegressor
from vastgp.options import Pruning

OUT = RESULTS / "relevance.jsonl"
ROWS, NOISE, SEEDS = 500, 0.1, range(5)
GRID = np.linspace(-10.0, 10.0, 1000)[:, None]


def sinc(X: np.ndarray) -> np.ndarray:
    """Return sin(x) / x."""
    return np.sinc(X[:, 0] / np.pi)


def scores(mean: np.ndarray, std: np.ndarray) -> dict[str, float]:
    """Return the error to the true function and the coverage of its 95 % interval."""
    gap = mean - sinc(GRID)
    inside = np.mean(np.abs(gap) <= 1.96 * std)
    return {"rmse": float(np.mean(gap**2) ** 0.5), "latent_coverage": float(inside)}


def run(seed: int) -> list[dict[str, Any]]:
    """Fit all methods to one sample."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-10.0, 10.0, (ROWS, 1))
    y = sinc(X) + NOISE * rng.normal(size=ROWS)
    results = []
    for name, columns in (("all columns", None), ("ten dense columns", 10), ("mean-field", 0)):
        began = time.perf_counter()
        model = RelevanceVectorRegressor("rbf", solver=Pruning(dense_columns=columns)).fit(X, y)
        seconds = time.perf_counter() - began
        results.append(
            {
                "method": f"RelevanceVectorRegressor, {name}",
                "seed": seed,
                "seconds": round(seconds, 2),
                "vectors": len(model.relevance_),
                "iterations": model.n_iter_,
                "converged": model.converged_,
                "noise_std": float(model.likelihood_.noise_std),
                **scores(*model.predict(GRID, return_std="latent")),
            }
        )
    began = time.perf_counter()
    kernel = ConstantKernel(1.0) * RBF(2.0) + WhiteKernel(0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        peer = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0).fit(X, y)
    seconds = time.perf_counter() - began
    mean, std = peer.predict(GRID, return_std=True)
    noise = float(np.exp(peer.kernel_.theta[-1])) * float(np.std(y)) ** 2
    latent = np.sqrt(np.maximum(std**2 - noise, 0.0))
    results.append(
        {
            "method": "scikit-learn GaussianProcessRegressor",
            "seed": seed,
            "seconds": round(seconds, 2),
            "vectors": ROWS,
            "noise_std": noise**0.5,
            **scores(mean, latent),
        }
    )
    return results


def main() -> None:
    """Run all seeds."""
    for seed in SEEDS:
        for result in run(seed):
            put(OUT, result, ("method", "seed"))
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
