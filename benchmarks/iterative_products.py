"""One kernel product and one training step beside GPyTorch, dense and with KeOps, and RR-CG beside CG: one JSON line.

python benchmarks/iterative_products.py --peer /path/to/gpytorch/bin/python

n = 20,000, d = 8, 8 right-hand sides, float32, all in one run, one after the other. A step is 20 iterations of
conjugate gradients for the target and 7 probes with a preconditioner of rank 100, and the gradient.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from run import machine_rates
from table import RESULTS, put
from vastgp._precision import as_dtype, precision
from vastgp.kernels import RBF
from vastgp.kernels.products import bilinear_slope, kernel_product
from vastgp.likelihoods import Gaussian
from vastgp.methods.iterative.learning import IterativeEvidence
from vastgp.options import CG, RouletteCG
from vastgp.solvers.distinct_rows import DistinctRows

OUT = RESULTS / "iterative_products.jsonl"
D, COLUMNS, ITERATIONS, RANK, NOISE = 8, 8, 20, 100, 0.05

SOLVERS = {
    "cg": CG(ITERATIONS, COLUMNS - 1),
    "rr-cg": RouletteCG(ITERATIONS, COLUMNS - 1, temperature=0.1),
}


def median(run: Callable[[], Any], repeats: int) -> float:
    """Return the median seconds of a call, after a first one that compiles."""
    jax.block_until_ready(run())
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(run())
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))


def step_seconds(observed: DistinctRows, kernel: RBF, solver: str, count: int) -> float:
    """Return the median seconds of training steps; with random truncations, of such that end after the mean number."""
    estimate = IterativeEvidence(
        observed, SOLVERS[solver], rank=RANK, seed=0, dtype="float32",
    )  # fmt: skip
    params = (kernel, Gaussian(NOISE))
    steps = (n for n in range(10_000) if np.count_nonzero(estimate.weights(n).probes) == ITERATIONS)
    estimate(params, params, next(steps))
    seconds = []
    for _ in range(count):
        step = next(steps)
        began = time.perf_counter()
        made = estimate(params, params, step)
        seconds.append(time.perf_counter() - began)
        assert made.diagnostics["iterations"] == ITERATIONS
    return float(np.median(seconds))


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", help="interpreter of an environment with gpytorch and pykeops")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--step-rows", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=2)
    given = parser.parse_args()
    n = given.rows
    rng = np.random.default_rng(0)
    X, V = rng.normal(size=(n, D)), rng.normal(size=(COLUMNS, n))
    X, V = X.astype(np.float32), V.astype(np.float32)
    y = (np.sin(X[:, 0]) + 0.2 * rng.normal(size=n)).astype(np.float32)
    kernel = RBF(np.full(D, 2.0))
    line: dict[str, Any] = {
        "rows": n,
        "step_rows": given.step_rows,
        "d": D,
        "columns": COLUMNS,
        "iterations": ITERATIONS,
        "rank": RANK,
    }
    line |= machine_rates()
    with precision("float32"):
        narrow = as_dtype(kernel, "float32")
        arrays = jnp.asarray(X), jnp.asarray(V)
        line["product_s"] = median(lambda: kernel_product(narrow, *arrays), 3)
        line["slope_s"] = median(
            lambda: bilinear_slope(narrow, *arrays, arrays[1], jnp.ones(COLUMNS)), 1
        )
        # a distance and a product are 2 d + 2 C operations for each pair of rows, the correlation not counted
        line["product_gflops"] = (2 * D + 2 * COLUMNS) * n**2 / line["product_s"] / 1e9
        line["pairs_per_s"] = n**2 / line["product_s"]
        few = slice(given.step_rows)
        observed = DistinctRows(X[few], y[few], np.ones(len(y[few]), dtype=np.int64), 0.0)
        for solver in ("cg", "rr-cg"):
            line[f"{solver}_step_s"] = step_seconds(observed, kernel, solver, given.steps)
        line["rr_over_cg"] = line["rr-cg_step_s"] / line["cg_step_s"]
    print(json.dumps(line), flush=True)
    if given.peer:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "arrays.npz"
            np.savez(path, X=X, V=V, y=y, lengthscales=np.full(D, 2.0, np.float32))
            for name, more in (("gpytorch", []), ("gpytorch_keops", ["--keops"])):
                command = [
                    given.peer,
                    str(Path(__file__).parent / "peers" / "product_gpytorch.py"),
                    str(path),
                ]
                more = [*more, "--step-rows", str(given.step_rows)]
                ran = subprocess.run([*command, *more], capture_output=True, text=True, timeout=280)
                if ran.returncode:
                    print(ran.stderr[-2000:], file=sys.stderr)
                    continue
                made = json.loads(ran.stdout.strip().splitlines()[-1])
                line[f"{name}_product_s"], line[f"{name}_step_s"] = made["product"], made["step"]
                print(name, made, flush=True)
                put(OUT, line, ("rows", "step_rows"))
    put(OUT, line, ("rows", "step_rows"))
    print(json.dumps(line))


if __name__ == "__main__":
    main()
