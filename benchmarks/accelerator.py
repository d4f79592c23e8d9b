"""What an accelerator does: rates of products, evidence of many rows and its slope, exact processes of very many.

    python benchmarks/accelerator.py             one JSON line a measurement, in results/accelerator.jsonl
    python benchmarks/accelerator.py --write     results/accelerator.md from the lines

Accuracy at a budget stands in the same page: `anytime.py --out results/accelerator_fits.jsonl`, and its peer on the
same card, `peers/anytime_gpytorch_exact.py`. Without an accelerator the host is measured, and the lines say so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from table import RESULTS, put, rows, table_lines, write_page
from vastgp import ExactGPRegressor
from vastgp._precision import precision
from vastgp.fitting.device_evidence import DeviceEvidence
from vastgp.kernels import Matern32
from vastgp.kernels.products import bilinear_slope, kernel_product
from vastgp.options import Fixed

OUT, FITS = RESULTS / "accelerator.jsonl", RESULTS / "accelerator_fits.jsonl"
KEYS = ("device", "what", "n", "dtype")
D, COLUMNS, NOISE = 8, 33, 0.1
PRODUCTS, EVIDENCES, EXACT = (40_000,), (5000, 20_000, 40_000), (50_000, 130_000)
DTYPES = ("float32", "float64")


def seconds_of(run: Callable[[], Any], repeats: int = 3) -> tuple[float, float]:
    """Return the seconds of a first call, which compiles, and of one after it, by the median."""
    taken = []
    for _ in range(1 + repeats):
        began = time.perf_counter()
        jax.block_until_ready(run())
        taken.append(time.perf_counter() - began)
    return taken[0], float(np.median(taken[1:]))


def drawn(n: int, d: int = D) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return inputs, a function of the first four of them, and targets with noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (n, d))
    f = np.sin(2.0 * X[:, 0]) * X[:, 1] + np.cos(X[:, 2] * X[:, 3])
    return X, f, f + NOISE * rng.normal(size=n)


def matrix_products() -> Iterator[dict[str, Any]]:
    """Yield the rates of products of matrices in full precision: what all else is to be compared with."""
    n = 8192
    for dtype in DTYPES:
        with precision(dtype):
            A = jax.device_put(np.random.default_rng(0).normal(size=(n, n)).astype(dtype))
            product = jax.jit(lambda A: A @ A)
            first, again = seconds_of(lambda A=A, product=product: product(A))
        yield {
            "what": "matrix product", "n": n, "dtype": dtype, "first": first, "seconds": again,
            "tflops": 2e-12 * n**3 / again,
        }  # fmt: skip


def kernel_products() -> Iterator[dict[str, Any]]:
    """Yield the seconds of a product with a kernel matrix that is never formed, and of its slope."""
    for n in PRODUCTS:
        for dtype in DTYPES:
            with precision(dtype):
                X = jax.device_put(drawn(n)[0].astype(dtype))
                V = jax.device_put(np.random.default_rng(1).normal(size=(COLUMNS, n)).astype(dtype))
                kernel, signs = Matern32(np.full(D, 2.0)), jnp.ones(COLUMNS, dtype)
                calls = {
                    "kernel product": lambda X=X, V=V, k=kernel: kernel_product(k, X, V),
                    "slope of it": lambda X=X, V=V, k=kernel, s=signs: bilinear_slope(k, X, V, V, s),
                }  # fmt: skip
                for what, call in calls.items():
                    first, again = seconds_of(call)
                    yield {"what": what, "n": n, "dtype": dtype, "first": first, "seconds": again}


def evidences() -> Iterator[dict[str, Any]]:
    """Yield the seconds of the exact log evidence and its slope."""
    for n in EVIDENCES:
        X, _, y = drawn(n)
        evidence, kernel = DeviceEvidence(X, y), Matern32(np.full(D, 2.0))
        first, again = seconds_of(
            lambda e=evidence, k=kernel: e.value_and_gradient(k, NOISE**2)[0], 2
        )
        yield {
            "what": "evidence and slope", "n": n, "dtype": "float64", "first": first, "seconds": again,
            "tflops": 1e-12 * n**3 / again,
        }  # fmt: skip


def exact() -> Iterator[dict[str, Any]]:
    """Yield what exact processes of very many rows take with a given kernel, and how well they predict."""
    for n in EXACT:
        X, f, y = drawn(n + 4000, 4)
        kernel = Matern32([1.0, 3.0, 1.5, 1.5], 4.0)
        model = ExactGPRegressor(kernel, hyperparameters=Fixed(noise_std=NOISE))
        began = time.perf_counter()
        model.fit(X[:n], y[:n])
        fitted = time.perf_counter()
        mean, std = model.predict(X[n:], return_std=True)
        predicted = time.perf_counter()
        told = jax.local_devices()[0].memory_stats() or {}
        yield {
            "what": "exact process", "n": n, "dtype": model.diagnosis_["factor"], "seconds": fitted - began,
            "tflops": 1e-12 * n**3 / 3 / model.diagnosis_["factor_seconds"],
            "predicting_4000": predicted - fitted,
            "rmse_of_function": float(np.sqrt(np.mean((mean - f[n:]) ** 2))),
            "coverage": float(np.mean(np.abs(y[n:] - mean) < 1.96 * std)),
            "peak_gb": told.get("peak_bytes_in_use", 0) / 1e9, "diagnosis": model.diagnosis_,
        }  # fmt: skip


def measure() -> None:
    """Measure all, and write a line for each."""
    about = {
        "device": jax.local_devices()[0].device_kind,
        "cores": len(os.sched_getaffinity(0)),
        "versions": {"python": platform.python_version(), "jax": jax.__version__, "numpy": np.__version__},
    }  # fmt: skip
    for part in (matrix_products, kernel_products, evidences, exact):
        for found in part():
            put(OUT, about | found, KEYS)
            print(json.dumps(found, default=float), flush=True)


def write() -> None:
    """Write the page."""
    lines = [
        f"| {r['device']} | {r['what']} | {r['n']:,} | {r['dtype']} | {r.get('first', r['seconds']):.2f} "
        f"| {_number(r['seconds'] if 'first' in r else None, '.3f')} | {_number(r.get('tflops'), '.1f')} "
        f"| {_number(r.get('peak_gb'), '.1f')} "
        f"| {_number(r.get('rmse_of_function'), '.4f')} | {_number(r.get('coverage'), '.3f')} |"
        for r in rows(OUT)
    ]
    header = "| device | what | n | dtype | first call, s | again, s | TFLOP/s | peak, GB | RMSE of f | coverage |"
    fits = [
        f"| {r['table']} | {r['n']:,} | {r['estimator']} | {r['budget']:g} | {r['seconds']:.1f} "
        f"| {_number(r.get('rmse'), '.4f')} | {r['nlpd']:.3f} | {_number(r.get('coverage'), '.3f')} "
        f"| {' '.join([r.get('device', 'cpu'), r.get('flags', '')]).strip()} |"
        for r in sorted(rows(FITS), key=lambda r: (r["table"], r["budget"], r.get("nlpd", 0.0)))
        if "error" not in r
    ]
    of_fits = "| table | n | method | budget, s | fit, s | RMSE | NLPD | coverage 95 % | device |"
    page = [
        "Made by `python benchmarks/accelerator.py --write` from `accelerator.jsonl` and `accelerator_fits.jsonl`; the "
        "programs that made the lines are named at its head. A kernel product has 33 right-hand sides and 8 inputs; "
        "exact processes have 4 inputs, a given kernel and noise, and their factor's rate. RMSE and NLPD of fits are "
        "in units of the training targets' deviation; compilation is part of their budget. "
        "The peer learns for 60 % of its own, and ends when all rows are factorised. Classes have no RMSE. Fits of "
        "15 s had eight cores of sixteen, beside another fit.",
        "", *table_lines(header, lines), "", "## Accuracy at a budget", "", *table_lines(of_fits, fits),
    ]  # fmt: skip
    write_page(RESULTS / "accelerator.md", "Accelerators", page)


def _number(value: float | None, how: str) -> str:
    return "" if not value else format(value, how)


def main() -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    if parser.parse_args().write:
        write()
    else:
        measure()


if __name__ == "__main__":
    main()
