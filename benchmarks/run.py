"""Fit one method to one split of one data set: one JSON line, in the place of an older one of the same."""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import vastgp
from methods import KERNELS, METHODS, make
from shared_sets import load
from table import RESULTS, peak_mb, put
from vastgp.linalg.sincos import sincos_of_moderate
from vastgp.metrics import regression_report


def machine_rates() -> dict[str, float]:
    """Return what the machine does now: GFLOP/s of a float32 product, million sine-cosines a second."""
    matrix = jnp.ones((2048, 2048), jnp.float32)
    angles = jnp.linspace(-10.0, 10.0, 4_000_000, dtype=jnp.float32)

    def rate(function: Any, argument: Any, amount: float) -> float:
        run = jax.jit(function)
        jax.block_until_ready(run(argument))
        seconds = []
        for _ in range(5):
            began = time.perf_counter()
            jax.block_until_ready(run(argument))
            seconds.append(time.perf_counter() - began)
        return amount / float(np.median(seconds))

    return {
        "matmul_gflops": round(rate(lambda a: a @ a, matrix, 2 * 2048**3 / 1e9), 1),
        "sincos_millions_per_s": round(rate(sincos_of_moderate, angles, 4.0), 1),
    }


def measure(dataset: str, split: int, method: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Return one result."""
    X, y, X_test, y_test = load(dataset, split)
    params = {"kernel": KERNELS.get(dataset), "random_state": split} | METHODS[method] | changes
    rates = machine_rates()
    # Compiled once beforehand on a few rows? No: compilation is part of what a user waits for.
    model = make("QSGPRegressor", params)
    before = peak_mb()
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
    return {
        "dataset": dataset, "split": split, "method": method, "params": params, "n": len(y), "d": X.shape[1],
        "seconds": round(seconds, 1), "cpu_seconds": round(cpu, 1), "predict_seconds": round(predicting, 2),
        "peak_mb_before": round(before), "peak_mb": round(peak_mb()),
        "iterations": model.n_iter_, "converged": model.converged_, "stop": model.stop_reason_,
        "diagnosis": model.diagnosis_, "kernel": str(model.kernel_),
        "noise_std_standardised": float(model.likelihood_.noise_std) / float(np.std(y)),
        "report": report, "warnings": [str(w.message) for w in caught], **rates,
        "versions": {
            "vastgp": vastgp.__version__, "jax": jax.__version__, "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "history": {"seconds": [round(s, 1) for s in model.history_.seconds]},
    }  # fmt: skip


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--method", required=True, choices=sorted(METHODS))
    parser.add_argument("--set", default="{}", help="arguments to change, as JSON: see `make`")
    parser.add_argument("--out", type=Path, default=RESULTS / "regression.jsonl")
    asked = parser.parse_args()
    result = measure(asked.dataset, asked.split, asked.method, json.loads(asked.set))
    put(asked.out, result, ("dataset", "split", "method"))
    short = {
        key: result[key]
        for key in ("dataset", "split", "method", "seconds", "iterations", "converged")
    }
    print(json.dumps(short | result["report"], default=float))


if __name__ == "__main__":
    main()
