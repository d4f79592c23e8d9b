"""t-SVGP and SVGP with 512 inducing points on a split: one JSON line with bound and test NLPD against seconds.

VASTGP_DATA=/path/to/npz python benchmarks/sparse.py --dataset kin40k --kernel "rbf + constant" --seconds 145
VASTGP_DATA=/path/to/npz /path/to/gpytorch/bin/python benchmarks/peers/svgp_gpytorch.py --dataset kin40k --out FILE
python benchmarks/sparse.py --plot    # results/sparse.png from the lines of both

Seconds are those of `fit` as a user waits for it, from data to model, compilation and starting values included. States
are kept on the way and scored on the test rows afterwards, which takes no part of the time.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import jax
import numpy as np

import vastgp
from run import load, machine_rates, peak_mb
from table import RESULTS, put, rows
from vastgp._precision import precision
from vastgp.methods.svgp import training as svgp
from vastgp.methods.svgp.bound import coordinates, posterior_of
from vastgp.methods.svgp.posterior import SVGPPosterior
from vastgp.metrics import nlpd, rmse
from vastgp.options import Natural

OUT, PEER = RESULTS / "sparse.jsonl", RESULTS / "sparse_gpytorch.jsonl"
EVERY = 10  # chunks of ten iterations
_FROM = 40.0  # seconds from which on values decide what the plot shows


def errors(y: np.ndarray, mean: np.ndarray, std: np.ndarray, scale: float) -> dict[str, float]:
    """Return RMSE, NLPD and coverage of the 95 % interval, in standardised units."""
    return {
        "rmse": float(rmse(y, mean)) / scale,
        "nlpd": float(nlpd(y, mean, std) - np.log(scale)),
        "coverage": float(np.mean(np.abs(mean - y) < 1.96 * std)),
    }


class Recorder:
    """Keeps copies of the state on the way."""

    def __init__(self, began: float) -> None:
        self.began, self.kept = began, []
        self.summary = svgp.Trainer._summary

    def __call__(self, trainer: Any, state: Any, records: Any, done: int) -> Any:
        found = self.summary(trainer, state, records, done)
        if done // len(records.objective) % EVERY == 0:
            seconds = time.perf_counter() - self.began
            copies = jax.tree.map(np.asarray, trainer.result(state))
            self.kept.append((seconds, found["objective"], copies))
        return found


def scored(model: Any, kept: list[Any], X: np.ndarray, y: np.ndarray) -> list[dict[str, float]]:
    """Return the errors of states on test rows, standardised."""
    trace = []
    X, y = model.standardizer_.transform_X(X), model.standardizer_.transform_y(y)
    for seconds, objective, (params, sums) in kept:
        with precision("float64"):
            wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (params, sums))
            kernel, likelihood = wide[0].positive()
            here, q = coordinates(kernel, wide[0].Z, 1e-6), posterior_of(wide[1])
            parts = map(np.asarray, (here.inverse, q.mean, q.root))
            mean, variance = SVGPPosterior(kernel, wide[0].Z, *parts).mean_and_latent_variance(X)
            density = np.asarray(likelihood.log_density(y, mean, variance))
        error = float(np.mean((mean - y) ** 2) ** 0.5)
        trace.append(
            {"seconds": seconds, "elbo": objective, "rmse": error, "nlpd": -float(density.mean())}
        )
    return trace


def plot() -> None:
    """Draw bound and NLPD against seconds."""
    import matplotlib.pyplot as plt

    ours, peers = rows(OUT), rows(PEER)
    names = list(dict.fromkeys(line["dataset"] for line in ours))
    figure, axes = plt.subplots(
        2, len(names), figsize=(3.2 * len(names), 5.5), squeeze=False, constrained_layout=True
    )
    seen: dict[Any, list[float]] = defaultdict(list)
    for ax, name in zip(axes.T, names, strict=True):
        for line in [*ours, *peers]:
            if line["dataset"] != name or line["split"] != 0:
                continue
            seconds = [point["seconds"] for point in line["trace"]]
            for one, key, over in zip(ax, ("elbo", "nlpd"), (line["n"], 1), strict=True):
                values = [point[key] / over for point in line["trace"]]
                one.plot(seconds, values, label=line["method"])
                seen[one] += [v for s, v in zip(seconds, values, strict=True) if s > _FROM]
        for one in ax:
            room = 0.05 * (max(seen[one]) - min(seen[one]))
            one.set_ylim(min(seen[one]) - room, max(seen[one]) + room)
        ax[0].set(title=name, ylabel="bound per row")
        ax[1].set(xlabel="seconds", ylabel="NLPD of test rows")
    axes[1][0].legend(fontsize=8)
    figure.savefig(RESULTS / "sparse.png", dpi=110)


def main() -> None:
    """Fit and score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset")
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--kernel", default="rbf")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--estimator", default="TSVGPRegressor")
    parser.add_argument("--set", type=json.loads, default={}, help="constructor arguments as JSON")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--plot", action="store_true")
    asked = parser.parse_args()
    if asked.plot:
        plot()
        return
    X, y, X_test, y_test = load(asked.dataset, asked.split)
    steps = Natural(row_batch=1024, jitter=1e-6, max_steps=100_000)
    params = {"dtype": "float32", "solver": steps} | asked.set
    model = getattr(vastgp, asked.estimator)(
        asked.kernel, 512, max_seconds=asked.seconds, random_state=asked.split, **params
    )
    rates = machine_rates()
    recorder = Recorder(time.perf_counter())
    svgp.Trainer._summary = lambda self, *given: recorder(self, *given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    mean, std = model.predict(X_test, return_std=True)
    final = errors(y_test, mean, std, model.standardizer_.y_scale)
    trace = scored(model, recorder.kept, X_test, y_test)
    last = {"seconds": model.fit_seconds_, "elbo": model.diagnosis_["bound"]}
    trace.append(last | {key: final[key] for key in ("rmse", "nlpd")})
    result = {
        "dataset": asked.dataset, "split": asked.split, "method": f"vastgp {asked.estimator}", "kernel": asked.kernel,
        "n": len(y), "seconds": round(model.fit_seconds_, 1), "steps": model.n_iter_, "reason": model.stop_reason_,
        "params": {name: str(value) for name, value in params.items()}, "bound": model.diagnosis_["bound"],
        "damped": model.diagnosis_["damped_steps"], "learned": repr(model.kernel_), "final": final, "trace": trace,
        "peak_mb": round(peak_mb()), **rates,
    }  # fmt: skip
    put(asked.out, result, ("dataset", "split", "method", "kernel"))
    print(asked.dataset, result["seconds"], result["steps"], result["reason"], final)


if __name__ == "__main__":
    main()
