"""Test error by time of both solvers from the same start, one JSON line each; `--plot` draws them on one axis.

VASTGP_DATA=/path/to/npz python benchmarks/convergence.py --dataset kin40k --variant default --seconds 300
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from run import load, machine_rates
from table import RESULTS, put, rows
from vastgp import QSGPRegressor
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.data import Standardizer, as_rows
from vastgp.fitting.run import Run
from vastgp.likelihoods import Gaussian
from vastgp.methods.qsgp.estimator import model_evidence
from vastgp.methods.qsgp.stochastic.fit import fit_stochastic
from vastgp.methods.qsgp.stochastic.options import Stochastic
from vastgp.methods.qsgp.stochastic.posterior import ChevronPosterior
from vastgp.metrics import regression_report
from vastgp.solvers.block import build_system, fit_block
from vastgp.solvers.least_squares import BlockedBasis, evaluate
from vastgp.solvers.weight_space import SampledPosterior

OUT = RESULTS / "convergence.jsonl"
VARIANTS: dict[str, dict[str, Any] | None] = {
    "block": None,
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
LABELS = {name: name for name in VARIANTS} | {
    "default": "stochastic",
    "qsgp-100": "stochastic, 100 dense columns",
    "gpytorch-svgp-512": "GPyTorch SVGP, 512 points",
}
STYLES = {"block": "C1-", "default": "C0-", "qsgp-100": "C2-", "gpytorch-svgp-512": "k:"}


class Trace:
    """Test errors by time; the time of measuring them is not counted."""

    def __init__(self, every: float, began: float) -> None:
        self.points: list[dict[str, float]] = []
        self._every, self._began, self._outside, self._next = every, began, 0.0, 0.0

    def note(self, state: Any, measure: Any) -> dict[str, float]:
        """Add ``measure()`` if it is time for it."""
        jax.block_until_ready(state)
        now = time.perf_counter()
        spent = now - self._began - self._outside
        if spent >= self._next:
            self._next = spent + self._every
            self.points.append({"seconds": round(spent, 1)} | measure())
            print(self.points[-1], flush=True)
            self._outside += time.perf_counter() - now
        return {}


def start_of(dataset: str, split: int, num_basis: int) -> dict[str, Any]:
    """Return data and hyperparameters as `QSGPRegressor` begins with them, and when it began."""
    X, y, X_test, y_test = load(dataset, split)
    began = time.perf_counter()
    model = QSGPRegressor(None, num_basis, random_state=split)
    rows = as_rows(X, y)
    model.standardizer_, model.num_basis_ = Standardizer().fit(rows), num_basis
    chosen = model._chosen()
    evidence = model_evidence(chosen, None, num_basis / rows.n, rows.n, split)
    kernel, likelihood = model._first(rows, Run(seed=split), chosen, evidence)
    return {
        "rows": rows,
        "standardizer": model.standardizer_,
        "basis": RandomFourierBasis(kernel, jnp.asarray(seed_key(split)), num_basis),
        "noise_variance": float(likelihood.noise_variance),
        "new": model.standardizer_.transform_X(X_test),
        "target": model.standardizer_.transform_y(y_test),
        "began": began,
    }


def run_block(start: dict[str, Any], seed: int, seconds: float, trace: Trace) -> tuple[Any, float]:
    """Return the posterior and the noise variance of the block solver."""
    system, chosen = build_system(
        start["basis"], start["noise_variance"], start["rows"], start["standardizer"],
        num_samples=32, seed=seed, dtype="float32", widen=True,
    )  # fmt: skip
    new = jnp.asarray(start["new"], jnp.float32)

    def look(system: Any, state: Any) -> dict[str, float]:
        def measure() -> dict[str, float]:
            weights = system.weights(state.solution)
            mean = evaluate(system.blocks, new, weights.mean[None])[0]
            return {"rmse": rmse(mean, start["target"])}

        return trace.note(state, measure)

    fit = fit_block(
        system, chosen, Run(max_seconds=seconds), tol=0.1, max_products=None, on_product=look
    )
    return SampledPosterior(system.basis, *fit.solution), start["noise_variance"]


def run_stochastic(
    start: dict[str, Any], seed: int, seconds: float, trace: Trace, options: Stochastic
) -> tuple[Any, float]:
    """Return the posterior and the noise variance of the stochastic solver."""
    new = jnp.asarray(start["new"], jnp.float32)

    def look(state: Any, problem: Any, done: int) -> dict[str, float]:
        def measure() -> dict[str, float]:
            blocks = BlockedBasis.cut(problem.basis)
            both = blocks.pad(jnp.concatenate([state.mean, state.mean_average]))
            last, average = evaluate(blocks, new, both)
            return {
                "steps": done,
                "last": rmse(last, start["target"]),
                "rmse": rmse(average, start["target"]),
            }

        return trace.note(state, measure)

    fit = fit_stochastic(
        start["rows"], start["standardizer"], start["basis"], Gaussian(start["noise_variance"]), options,
        Run(seconds, seed=seed), on_chunk=look,
    )  # fmt: skip
    return ChevronPosterior(fit.basis, fit.mean, fit.columns, fit.diagonal), float(
        fit.likelihood.noise_variance
    )


def rmse(values: Any, target: np.ndarray) -> float:
    """Return the root mean square error."""
    return float(np.sqrt(np.mean((np.asarray(values) - target) ** 2)))


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Return the trace of one fit and the report of its end."""
    start = start_of(asked.dataset, asked.split, asked.num_basis)
    trace = Trace(asked.every, start["began"])
    left = asked.seconds - (time.perf_counter() - start["began"])
    options = VARIANTS[asked.variant]
    if options is None:
        posterior, noise_variance = run_block(start, asked.split, left, trace)
    else:
        chosen = Stochastic(**({"max_steps": 10**9} | options | json.loads(asked.set)))
        posterior, noise_variance = run_stochastic(start, asked.split, left, trace, chosen)
    mean, variance = posterior.mean_and_latent_variance(start["new"])
    std = np.sqrt(variance + noise_variance)
    report = regression_report(start["target"], mean, std, y_train_mean=0.0, y_train_scale=1.0)
    return {
        "dataset": asked.dataset, "split": asked.split, "variant": asked.variant,
        "set": json.loads(asked.set), "num_basis": asked.num_basis, "seconds": asked.seconds,
        "kernel": str(start["basis"].kernel), "noise_variance": start["noise_variance"],
        "report": report, "trace": trace.points, **machine_rates(),
    }  # fmt: skip


def plot(path: Path) -> None:
    """Draw test error by time on the first split, a panel per data set."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    panels: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for found in [*rows(path), *rows(path.with_name("svgp.jsonl"))]:
        if found["split"] == 0:
            panels[found["dataset"]].append(found)
    figure, axes = plt.subplots(
        1, len(panels), figsize=(4.2 * len(panels), 3.4), layout="constrained", squeeze=False
    )
    for axis, (dataset, runs) in zip(axes[0], sorted(panels.items()), strict=True):
        for run in sorted(runs, key=lambda run: str(run.get("variant"))):
            name = run.get("variant") or run["method"]
            seconds = [point["seconds"] for point in run["trace"]]
            errors = [point["rmse"] for point in run["trace"]]
            axis.plot(seconds, errors, STYLES.get(name, "-"), lw=1.4, label=LABELS[name])
        axis.set(title=dataset, xlabel="seconds, start included", xscale="log", yscale="log")
        for side in (axis.xaxis, axis.yaxis):
            side.set_major_formatter(ScalarFormatter())
            side.set_minor_formatter(NullFormatter() if side is axis.xaxis else ScalarFormatter())
        axis.legend(frameon=False, fontsize=8)
    axes[0, 0].set_ylabel("test RMSE, standardised")
    figure.savefig(path.with_suffix(".png"), dpi=130)


def main() -> None:
    """Add one JSON line, or draw what is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset")
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--variant", default="default", choices=sorted(VARIANTS))
    parser.add_argument("--set", default="{}", help="options to change, as JSON")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--num-basis", type=int, default=100_000)
    parser.add_argument("--every", type=float, default=15.0)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--plot", action="store_true")
    asked = parser.parse_args()
    if asked.plot:
        plot(asked.out)
        return
    result = measure(asked)
    put(asked.out, result, ("dataset", "split", "variant", "set"))
    print(json.dumps({"report": result["report"]}))


if __name__ == "__main__":
    main()
