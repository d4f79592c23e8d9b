"""Time per step and peak memory of the stochastic solver do not grow with rows or basis functions.

One process takes chunks of 50 steps of three problems in turn, so that what else the machine does falls on all alike:
m = 10^5 and n = 40,000; m = 10^7 and n = 40,000; m = 10^5 and n = 2,000,000 (8 inputs, synthetic rows in memory).
Memory is that of a process of its own that fits m = 10^7 and predicts mean and variance.

    python benchmarks/stochastic_constant_time.py
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from run import RESULTS, peak_mb
from vastgp._precision import precision
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.data import Rows, Standardizer, as_rows
from vastgp.data.minibatch import chunk_of_minibatches
from vastgp.fitting.minibatch_runner import MinibatchRunner
from vastgp.kernels import RBF
from vastgp.likelihoods import Gaussian
from vastgp.methods.qsgp.stochastic.fit import fit_stochastic
from vastgp.methods.qsgp.stochastic.options import Stochastic
from vastgp.methods.qsgp.stochastic.posterior import ChevronPosterior
from vastgp.methods.qsgp.stochastic.setup import make_plan, make_problem, start_state
from vastgp.methods.qsgp.stochastic.step import step

INPUTS, NOISE, CHUNK = 8, 0.01, 50
SIZES = {"base": (40_000, 100_000), "m x 100": (40_000, 10_000_000), "n x 50": (2_000_000, 100_000)}


def make_rows(n: int) -> tuple[Rows, Standardizer]:
    """Return rows of a smooth function with noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, INPUTS), dtype=np.float32)
    y = np.sin(X[:, 0] + X[:, 1] * X[:, 2]) + NOISE**0.5 * rng.standard_normal(n, dtype=np.float32)
    rows = as_rows(X, y)
    return rows, Standardizer().fit(rows)


def make_basis(m: int) -> RandomFourierBasis:
    """Return features of an RBF kernel."""
    return RandomFourierBasis(RBF(np.full(INPUTS, 2.0), 1.0), jnp.asarray(seed_key(0)), m)


class Runner:
    """Takes chunks of steps of one problem and notes how long they take."""

    def __init__(self, n: int, m: int, options: Stochastic) -> None:
        self.rows, self.standardizer = make_rows(n)
        basis = make_basis(m)
        self.plan = make_plan(options, n, basis, Gaussian(NOISE))
        self.problem = make_problem(
            self.plan, options, self.rows, self.standardizer, basis, Gaussian(NOISE), 0, "float32"
        )
        draw = partial(
            chunk_of_minibatches, self.rows, self.standardizer, 0,
            batch=self.plan.row_batch, dtype="float32",
        )  # fmt: skip
        self.run = MinibatchRunner(step, self.plan, self.problem, chunk=CHUNK, draw=draw)
        self.state = start_state(self.plan, self.problem, NOISE, "float32")
        self.done = 0
        self.seconds: list[float] = []

    def chunk(self, note: bool) -> None:
        """Take one chunk of steps, minibatches read included."""
        began = time.perf_counter()
        self.state, _ = self.run(self.state, self.done, CHUNK)
        self.done += CHUNK
        if note:
            self.seconds.append((time.perf_counter() - began) / CHUNK)


def measure_time(rounds: int, options: Stochastic) -> dict[str, Any]:
    """Return milliseconds a step of each problem and the ratios of their medians to the first."""
    with precision("float32"):
        runners = {name: Runner(n, m, options) for name, (n, m) in SIZES.items()}
        for k in range(rounds + 1):
            for runner in runners.values():
                runner.chunk(note=k > 0)
    milliseconds = {name: 1e3 * np.array(runner.seconds) for name, runner in runners.items()}
    base = milliseconds["base"]
    return {
        name: {
            "n": SIZES[name][0],
            "m": SIZES[name][1],
            "ms_per_step": float(np.median(times)),
            "quartiles": np.quantile(times, [0.25, 0.75]).tolist(),
            "ratio": float(np.median(times / base)),
        }
        for name, times in milliseconds.items()
    }


def resident_mb() -> float:
    """Return the memory of this process now, MB."""
    with open("/proc/self/statm") as numbers:
        return int(numbers.read().split()[1]) * resource.getpagesize() / 2**20


def measure_memory(m: int, steps: int) -> dict[str, float]:
    """Return the memory of a fit and a prediction with ``m`` basis functions, above interpreter and data."""
    rows, standardizer = make_rows(40_000)
    jax.block_until_ready(jnp.zeros(1) + 1)
    before = resident_mb()
    options = Stochastic(max_steps=steps)
    fit = fit_stochastic(rows, standardizer, make_basis(m), Gaussian(NOISE), options)
    after_fit = peak_mb()
    posterior = ChevronPosterior(fit.basis, fit.mean, fit.columns, fit.diagonal)
    posterior.mean_and_latent_variance(standardizer.transform_X(rows.X[:1000]))
    return {
        "m": m,
        "before_mb": before,
        "fit_mb": after_fit - before,
        "fit_and_predict_mb": peak_mb() - before,
    }


def main() -> None:
    """Write one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--memory", type=int, help="only the memory of a fit with so many basis functions"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "stochastic_constant_time.jsonl")
    asked = parser.parse_args()
    if asked.memory:
        print(json.dumps(measure_memory(asked.memory, 100)))
        return
    times = measure_time(asked.rounds, Stochastic())
    memory = [
        json.loads(subprocess.run(
            [sys.executable, __file__, "--memory", str(m)], check=True, capture_output=True, text=True
        ).stdout)
        for m in (100_000, 10_000_000)
    ]  # fmt: skip
    line = json.dumps(
        {
            "options": vars(Stochastic()),
            "rounds": asked.rounds,
            "time": times,
            "memory": memory,
        }
    )
    asked.out.write_text(line + "\n")
    print(line)


if __name__ == "__main__":
    main()
