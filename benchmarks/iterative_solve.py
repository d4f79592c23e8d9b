"""One solution of (K + sigma^2 I) x = y on 200,000 rows to a residual of 1e-2: seconds and peak memory, one JSON line.

VASTGP_DATA=/path/to/npz python benchmarks/iterative_solve.py --dataset houseelectric_200k

Kernel and noise are of highest exact evidence on 1000 rows.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from run import machine_rates, peak_mb
from table import RESULTS, put
from vastgp._memory import return_freed_memory
from vastgp._precision import precision
from vastgp.fitting.start import start_from_exact_gp
from vastgp.methods.iterative.kernel_system import (
    choose_rank,
    dtypes_of,
    kernel_operator,
    kernel_preconditioner,
    rounding_of_entries,
)
from vastgp.solvers.cg import cg_start, run_cg
from vastgp.solvers.distinct_rows import merge_repeated

OUT = RESULTS / "iterative_solve.jsonl"


def main() -> None:
    """Solve and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="houseelectric_200k")
    parser.add_argument("--kernel", default="rbf")
    parser.add_argument("--tol", type=float, default=1e-2)
    parser.add_argument("--max-iter", type=int, default=60)
    parser.add_argument("--rows", type=int)
    given = parser.parse_args()
    rates = machine_rates()
    with np.load(Path(os.environ["VASTGP_DATA"]) / f"{given.dataset}.npz") as held:
        X, y = held["X"][: given.rows], held["y"][: given.rows]
    X = ((X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12)).astype(np.float32)
    y = ((y - y.mean()) / y.std()).astype(np.float32)
    began = time.perf_counter()
    chosen = np.sort(np.random.default_rng(0).choice(len(y), 1000, replace=False))
    start = start_from_exact_gp(given.kernel, X[chosen], y[chosen], noise_floor=1e-3)
    of_start = time.perf_counter() - began
    return_freed_memory()
    observed = merge_repeated(X, y)
    n = len(observed.y)
    made = start.kernel, start.noise_variance, observed
    with precision("float32"):
        began = time.perf_counter()
        rank = choose_rank(n, 1, 4)
        rounding = rounding_of_entries(*made, 0)
        vectors, entries = dtypes_of(*made, 0)
        P = kernel_preconditioner(*made, rank, 0, vectors=vectors)
        of_preconditioner = time.perf_counter() - began
        operator = kernel_operator(*made, entries)
    with precision(vectors):
        right = (jnp.asarray(observed.y, vectors) * operator.scale)[None]
        began = time.perf_counter()
        start_of = cg_start(jnp.zeros_like(right), right, P)
        size = jnp.linalg.norm(right)
        state, steps = run_cg(operator, P, start_of, given.tol * size, jnp.asarray(given.max_iter))
        residual = float(jnp.linalg.norm(right - operator.product(state.solution)) / size)
        seconds = time.perf_counter() - began
    line = {
        "dataset": given.dataset,
        "rows": len(y),
        "distinct_rows": n,
        "kernel": repr(start.kernel),
        "noise_variance": start.noise_variance,
        "rank": int(rank),
        "vectors": vectors,
        "entries": entries,
        "rounding_of_entries": rounding,
        "tol": given.tol,
        "residual": residual,
        "iterations": int(steps),
        "converged": residual <= given.tol,
        "seconds_start": round(of_start, 1),
        "seconds_preconditioner": round(of_preconditioner, 1),
        "seconds": round(seconds, 1),
        "peak_mb": round(peak_mb()),
        "machine": rates,
    }
    put(OUT, line, ("dataset", "rows", "tol"))
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
