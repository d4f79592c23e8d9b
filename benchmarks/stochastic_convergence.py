"""Test error by time of variants of the stochastic solver, one JSON line each.

VASTGP_DATA=/path/to/npz python benchmarks/stochastic_convergence.py --dataset kin40k --variant paper --seconds 300
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from methods import KERNELS
from run import RESULTS, load, machine_rates
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.data import Standardizer, as_rows
from vastgp.metrics import regression_report
from vastgp.objectives.least_squares import evaluate
from vastgp.posteriors.chevron import ChevronPosterior
from vastgp.training.start import start_from_exact_gp
from vastgp.training.stochastic import StochasticOptions, fit_stochastic
from vastgp.training.stochastic_setup import blocked, padded

VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {"optimizer": "adagrad", "control": "rows", "control_rank": 500},
    "paper+interpolation": {
        "optimizer": "adagrad",
        "control": "interpolation",
        "control_rank": 500,
    },
    "preconditioned+rows": {"control": "rows"},
    "default": {},
    "qsgp-100": {"dense_columns": 100},
}


def measure(
    dataset: str,
    split: int,
    variant: str,
    changes: dict[str, Any],
    seconds: float,
    num_basis: int,
    every: float,
) -> dict[str, Any]:
    """Return the trace of one fit and the report of its end."""
    X, y, X_test, y_test = load(dataset, split)
    rows = as_rows(X, y)
    standardizer = Standardizer().fit(rows)
    new, target = standardizer.transform_X(X_test), standardizer.transform_y(y_test)
    X_start, y_start = rows.take(np.random.default_rng(split).choice(rows.n, 1000, replace=False))
    start = start_from_exact_gp(
        KERNELS.get(dataset),
        standardizer.transform_X(X_start),
        standardizer.transform_y(y_start),
        seed=split,
    )
    basis = RandomFourierBasis(start.kernel, jnp.asarray(seed_key(split)), num_basis)
    trace: list[dict[str, float]] = []
    clock = {"began": time.perf_counter(), "outside": 0.0, "next": 0.0}

    def look(state: Any, problem: Any) -> dict[str, float]:
        jax.block_until_ready(state)
        now = time.perf_counter()
        spent = now - clock["began"] - clock["outside"]
        if spent < clock["next"]:
            return {}
        clock["next"] = spent + every
        blocks = blocked(problem.basis)
        both = evaluate(
            blocks,
            jnp.asarray(new, jnp.float32),
            padded(blocks, jnp.stack([state.mean, state.mean_average])),
        )
        last, average = np.sqrt(np.mean((np.asarray(both) - target) ** 2, axis=1))
        trace.append(
            {
                "seconds": round(spent, 1),
                "steps": int(state.iteration),
                "last": float(last),
                "average": float(average),
            }
        )
        print(trace[-1], flush=True)
        clock["outside"] += time.perf_counter() - now
        return {}

    options = StochasticOptions(**(VARIANTS[variant] | changes))
    fit = fit_stochastic(
        rows,
        standardizer,
        basis,
        start.noise_variance,
        options,
        max_iter=None,
        max_seconds=seconds,
        on_chunk=look,
        seed=split,
    )
    posterior = ChevronPosterior(fit.basis, fit.mean, fit.columns, fit.diagonal)
    mean, variance = posterior.mean_and_latent_variance(new)
    report = regression_report(
        target, mean, np.sqrt(variance + fit.noise_variance), y_train_mean=0.0, y_train_scale=1.0
    )
    return {
        "dataset": dataset, "split": split, "variant": variant, "options": vars(options),
        "num_basis": num_basis,
        "seconds": seconds, "steps": fit.loop.num_iter, "kernel": str(start.kernel),
        "noise_variance": start.noise_variance,
        "final_noise_variance": fit.noise_variance, "averaged": fit.averaged, "report": report,
        "trace": trace, **machine_rates(),
    }  # fmt: skip


def main() -> None:
    """Append one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--variant", default="default", choices=sorted(VARIANTS))
    parser.add_argument("--set", default="{}", help="options to change, as JSON")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--num-basis", type=int, default=100_000)
    parser.add_argument("--every", type=float, default=15.0)
    parser.add_argument("--out", type=Path, default=RESULTS / "stochastic_convergence.jsonl")
    asked = parser.parse_args()
    line = measure(
        asked.dataset,
        asked.split,
        asked.variant,
        json.loads(asked.set),
        asked.seconds,
        asked.num_basis,
        asked.every,
    )
    with asked.out.open("a") as lines:
        lines.write(json.dumps(line, default=float) + "\n")
    print(json.dumps(line["report"], default=float))


if __name__ == "__main__":
    main()
