"""Time and memory of a step of SWSGP by the number of inducing inputs: diagonal covariance, fixed inputs.

    python -m benchmarks.swsgp_steps --out benchmarks/results/swsgp_steps.jsonl

Each size runs in its own process, in turn. The neighbours of all rows are known when the clock starts; the time of
finding them is reported by itself. Beside wall-clock time stands the processor's: that of a busy machine tells more.
Memory is the peak of the process (VmHWM): as it is, and above what the process has after its imports and with the data
loaded.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def peak_mb(name: str = "VmHWM") -> float:
    """Return the process's peak (VmHWM) or present (VmRSS) memory in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024.0
    return float("nan")


def measure(
    size: int, neighbors: int, batch: int, dtype: str, prior: str, learn: bool
) -> dict[str, Any]:
    """Return what steps with ``size`` inducing inputs take."""
    import jax
    import jax.numpy as jnp

    from vastgp._precision import precision
    from vastgp.data import Standardizer, as_rows
    from vastgp.kernels import Matern52
    from vastgp.kernels.metric import metric_lengthscales
    from vastgp.likelihoods import Gaussian
    from vastgp.methods.swsgp.options import SwsgpOptions
    from vastgp.methods.swsgp.state import start_state
    from vastgp.methods.swsgp.training import Chunks

    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (4000, 8))
    y = np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + 0.2 * rng.normal(size=4000)
    rows = as_rows(X, y, require_y=True)
    scaling = Standardizer().fit(rows)
    Z = scaling.transform_X(rng.uniform(-2, 2, (size, 8)))
    kernel, likelihood = Matern52(np.full(8, 1.5)), Gaussian(0.1)
    options = SwsgpOptions(
        neighbors, prior=prior, row_batch=batch, learn=learn, search="approximate", stale_share=1.0
    )
    with precision(dtype):
        jnp.zeros(3).block_until_ready()
    before = peak_mb("VmRSS")
    with precision("float64"):
        metric = metric_lengthscales(kernel, 8)
        state = start_state(kernel, likelihood, Z, options, metric, "float64")
    with precision(dtype):
        state = jax.tree.map(
            lambda leaf: jnp.asarray(np.asarray(leaf), dtype if leaf.dtype.kind == "f" else None),
            state,
        )
        chunks = Chunks(rows, scaling, (kernel, likelihood), options, 0, dtype, size)
        began = time.perf_counter()
        chunks.make_index(state)
        every = np.arange(rows.n)
        chunks.table.lookup(every, scaling.transform_X(X), chunks.index)
        searched = time.perf_counter() - began
        for chunk in range(2):
            state, _ = chunks(state, 50 * chunk, 50)
        seconds, busy = [], []
        for chunk in range(2, 10):
            began, cpu = time.perf_counter(), time.process_time()
            state, told = chunks(state, 50 * chunk, 50)
            seconds.append((time.perf_counter() - began) / 50)
            busy.append((time.process_time() - cpu) / 50)
    return {
        "M": size, "H": neighbors, "row_batch": batch, "dtype": dtype, "prior": prior, "learn": learn,
        "step_ms": 1e3 * float(np.median(seconds)), "step_ms_best": 1e3 * min(seconds),
        "steps_per_second": 1.0 / float(np.median(seconds)), "cpu_ms": 1e3 * float(np.median(busy)),
        "search_seconds": searched,
        "peak_mb": peak_mb(), "peak_above_start_mb": peak_mb() - before,
        "recall": chunks.recall, "objective": told["objective"],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "float64"])
    parser.add_argument("--priors", nargs="+", default=["neighborhoods"])
    parser.add_argument("--learn", action="store_true", help="hyperparameters too")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        size, dtype, prior = arguments.one
        print(json.dumps(measure(int(size), 100, 16, dtype, prior, arguments.learn)))
        return
    for prior in arguments.priors:
        for dtype in arguments.dtypes:
            times = {}
            for size in arguments.sizes:
                command = [
                    sys.executable,
                    "-m",
                    "benchmarks.swsgp_steps",
                    "--one",
                    str(size),
                    dtype,
                    prior,
                ]
                command += ["--learn"] if arguments.learn else []
                done = subprocess.run(
                    command, check=True, capture_output=True, text=True, env=os.environ
                )
                line = json.loads(done.stdout.splitlines()[-1])
                times[size] = line["cpu_ms"]
                line["cpu_ratio"] = line["cpu_ms"] / times[arguments.sizes[0]]
                print(json.dumps(line), flush=True)
                if arguments.out:
                    with arguments.out.open("a") as file:
                        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
