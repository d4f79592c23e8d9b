"""Discrete weights: Table 7.1 of the thesis, exported models, two million rows from disk, classes; one JSON line each.

VASTGP_DATA=/path/to/npz python benchmarks/direct.py table --datasets housing concrete --splits 10
VASTGP_DATA=/path/to/npz python benchmarks/direct.py export      # kin40k and protein, compiled with gcc
VASTGP_DATA=/path/to/npz python benchmarks/direct.py houseelectric
VASTGP_DATA=/path/to/npz python benchmarks/direct.py classes     # beside classification.jsonl
python benchmarks/direct.py constant-time
python benchmarks/direct.py show
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

import vastgp
from classification import split_of
from run import load, machine_rates
from table import RESULTS, mean, put, rows
from vastgp import DirectClassifier, DirectRegressor
from vastgp._precision import precision
from vastgp.methods.direct import regressor as direct_module
from vastgp.methods.direct.elbo import value_and_slope
from vastgp.methods.direct.model import (
    DiscreteLogits,
    DiscreteModel,
    DiscretePrior,
    QuadraticLikelihood,
    evenly_spaced,
    relaxed_normal,
)
from vastgp.metrics import classification_report, regression_report
from vastgp.options import MeanField, Mixture, Support

OUT = RESULTS / "direct.jsonl"
NAMES = ("part", "dataset", "split", "method")
# Table 7.1, the columns of discrete weights: RMSE and its deviation in the target's units, sparsity, seconds.
THESIS = {
    "challenger": (0.523, 0.248, 0.17, 1), "fertility": (0.159, 0.041, 0.17, 2), "servo": (0.271, 0.080, 0.35, 10),
    "cancer": (22.954, 3.090, 0.19, 4), "hardware": (0.401, 0.048, 0.51, 11), "yacht": (0.234, 0.070, 0.96, 1),
    "housing": (2.752, 0.405, 0.40, 10), "energy": (3.272, 0.332, 0.99, 1), "concrete": (5.316, 0.716, 0.82, 10),
    "airfoil": (2.175, 0.349, 0.48, 11), "wine": (0.472, 0.044, 0.54, 11), "pol": (13.65, 0.348, 0.16, 10),
    "elevators": (0.124, 0.003, 0.99, 1), "protein": (0.619, 0.007, 0.76, 11), "kegg": (0.222, 0.009, 0.96, 1),
    "houseelectric": (0.575, 0.032, 0.996, 1),
}  # fmt: skip
THESIS_MIXTURE = {
    "challenger": 0.525, "fertility": 0.160, "servo": 0.274, "cancer": 22.937, "hardware": 0.401, "yacht": 0.225,
    "housing": 2.699, "energy": 2.911, "concrete": 5.477, "airfoil": 2.156, "wine": 0.469, "pol": 13.369,
    "elevators": 0.124, "protein": 0.618, "kegg": 0.205, "houseelectric": 0.557,
}  # fmt: skip
METHODS: dict[str, dict[str, Any]] = {
    "mean-field": {"support": Support(learn=False)},
    "learned spacings": {"support": Support(learn=True)},
    "mixture": {"support": Support(learn=False), "family": Mixture(max_iter=100)},
    "mixture, unbiased": {
        "support": Support(learn=False),
        "family": Mixture(objective="unbiased", draws=8, max_iter=100, max_steps=100),
    },
}


class Timed:
    """Seconds of the stages of a fit, by wrapping what the estimator calls."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, name: str, function: Any) -> Any:
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            result = function(*args, **kwargs)
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began
            return result

        return timed


def fitted(X: Any, y: Any, **params: Any) -> tuple[DirectRegressor, dict[str, float]]:
    """Fit a regressor and return it with the seconds of its stages."""
    timed = Timed()
    model = DirectRegressor(**({"kernel": "rbf", "num_basis": 2000} | params))
    stages = {
        "find_first": "start", "gather": "statistics", "noise_of_highest_evidence": "noise"
    }  # fmt: skip
    originals = {name: getattr(direct_module, name) for name in stages}
    for name, stage in stages.items():
        setattr(direct_module, name, timed(stage, originals[name]))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y)
    finally:
        for name, function in originals.items():
            setattr(direct_module, name, function)
    timed.seconds["weights"] = model.fit_seconds_ - sum(timed.seconds.values())
    return model, {name: round(value, 2) for name, value in timed.seconds.items()}


def scores(model: Any, X: np.ndarray, y: np.ndarray, y_train: np.ndarray) -> dict[str, Any]:
    """Return RMSE, NLPD and coverage, and what the weights look like."""
    predicted, std = model.predict(X, return_std=True)
    report = regression_report(
        y,
        predicted,
        std,
        y_train_mean=float(np.mean(y_train)),
        y_train_scale=float(np.std(y_train)),
    )
    return {
        "rmse": report["target"]["rmse"], "nlpd": report["target"]["nlpd"],
        "rmse_standardised": report["standardised"]["rmse"], "nlpd_standardised": report["standardised"]["nlpd"],
        "coverage": report["coverage"], "sparsity": model.sparsity(),
    }  # fmt: skip


def about(model: Any) -> dict[str, Any]:
    """Return how a fit ended, and versions."""
    return {
        "iterations": model.n_iter_, "converged": model.converged_, "stop": model.stop_reason_, "elbo": model.elbo_,
        "versions": {"vastgp": vastgp.__version__, "jax": jax.__version__, "numpy": np.__version__},
    }  # fmt: skip


def run_table(asked: argparse.Namespace) -> None:
    """Run splits of Table 7.1."""
    for dataset in asked.datasets:
        for split in range(asked.splits):
            X, y, X_test, y_test = load(dataset, split)
            for method in asked.methods:
                began = time.perf_counter()
                model, seconds = fitted(X, y, random_state=split, **METHODS[method])
                total = time.perf_counter() - began
                result = {
                    "part": "table", "dataset": dataset, "split": split, "method": method, "n": len(y),
                    "seconds": round(total, 1), "stages": seconds, **scores(model, X_test, y_test, y), **about(model),
                }  # fmt: skip
                put(OUT, result, NAMES)
                print(
                    json.dumps({k: result[k] for k in (*NAMES[1:], "rmse", "nlpd", "stages")}),
                    flush=True,
                )


# ---------------------------------------------------------------- exported models

DRIVER = r"""
#define _POSIX_C_SOURCE 200112L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "model.h"

int main(void) {
    const size_t row = sizeof(int16_t) * model_INPUTS;
    size_t count = 0, room = 1 << 16;
    int16_t *x = malloc(room * row);
    while (fread(x + count * model_INPUTS, row, 1, stdin) == 1) ++count;
    int32_t *mean = malloc(count * sizeof *mean);
    int64_t *variance = malloc(count * sizeof *variance);
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (size_t i = 0; i < count; ++i) model_predict(x + i * model_INPUTS, mean + i, variance + i);
    clock_gettime(CLOCK_MONOTONIC, &b);
    fprintf(stderr, "%.9f", (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec));
    for (size_t i = 0; i < count; ++i) printf("%ld %lld\n", (long)mean[i], (long long)variance[i]);
    return 0;
}
"""


def run_export(asked: argparse.Namespace) -> None:
    """Compare a compiled model with its Python twin and with the floating point model, in one run."""
    for dataset in asked.datasets:
        X, y, X_test, y_test = load(dataset, 0)
        for method in asked.methods:
            model, seconds = fitted(X, y, **METHODS[method])
            with tempfile.TemporaryDirectory() as folder:
                where = Path(folder)
                twin = model.export(where / "model.h", num_samples=asked.samples)
                (where / "main.c").write_text(DRIVER)
                subprocess.run(
                    ["gcc", "-std=c99", "-O3", "main.c", "-o", "main"], cwd=where, check=True
                )
                codes = twin.quantise(X_test)
                ran = subprocess.run(
                    [str(where / "main")], input=codes.tobytes(), capture_output=True, check=True
                )
            printed = np.array(
                [[int(word) for word in line.split()] for line in ran.stdout.splitlines()]
            )
            of_twin = np.column_stack(twin.predict_integers(codes))
            model.predict(X_test)
            began = time.perf_counter()
            predicted, _ = model.predict(X_test, return_std=True)
            float_seconds = time.perf_counter() - began
            value = twin.output_mean + twin.output_step * printed[:, 0]
            std = twin.output_step * np.sqrt(printed[:, 1])
            error = lambda p: float(np.mean((p - y_test) ** 2) ** 0.5)  # noqa: B023, E731
            result = {
                "part": "export", "dataset": dataset, "split": 0, "method": method, "n": len(y),
                "identical": bool(np.array_equal(printed, of_twin)), "rows_compared": len(printed),
                "samples": twin.num_samples, "bytes": twin.num_bytes, "rmse_integer": error(value),
                "rmse_float": error(predicted), "ratio": error(value) / error(predicted),
                "coverage_integer": float(np.mean(np.abs(value - y_test) < 1.96 * std)),
                "c_predictions_per_s": len(printed) / float(ran.stderr),
                "float_predictions_per_s": len(printed) / float_seconds,
                "float_bytes": int(4 * (2000 + 1000 * X.shape[1])), "stages": seconds,
                **scores(model, X_test, y_test, y),
            }  # fmt: skip
            put(OUT, result, NAMES)
            print(json.dumps(result), flush=True)


# ---------------------------------------------------------------- time


def run_constant_time(asked: argparse.Namespace) -> None:
    """Time the bound and its gradient for statistics of few and of many rows: they have the same shape."""
    rng = np.random.default_rng(0)
    size, values = asked.size, np.tile(evenly_spaced(15), (asked.size, 1))
    with precision("float64"):
        half = rng.normal(size=(size, size)) / size**0.5
        models = {
            n: DiscreteModel(
                QuadraticLikelihood(float(n), float(n), rng.normal(size=size), n * half.T @ half),
                values, DiscretePrior(np.asarray(relaxed_normal(values))[None], np.zeros(1)), np.ones(1), np.zeros(1),
            )
            for n in (1000, 2_000_000)
        }  # fmt: skip
        models = {n: jax.tree.map(jax.numpy.asarray, model) for n, model in models.items()}
        logits = DiscreteLogits(
            jax.numpy.zeros((1, size, 15)), jax.numpy.zeros(1), jax.numpy.zeros(1)
        )
        seconds: dict[int, list[float]] = {n: [] for n in models}
        for _ in range(asked.repeats + 1):  # the first compiles
            for n, model in models.items():
                began = time.perf_counter()
                jax.block_until_ready(value_and_slope(logits, model))
                seconds[n].append(time.perf_counter() - began)
    few, many = (float(np.median(of[1:])) for of in seconds.values())
    result = {
        "part": "constant-time", "dataset": "random", "split": 0, "method": "mean-field", "basis": size,
        "ms_1000_rows": 1e3 * few, "ms_2000000_rows": 1e3 * many, "ratio": many / few, **machine_rates(),
    }  # fmt: skip
    put(OUT, result, NAMES)
    print(json.dumps(result))


def run_houseelectric(asked: argparse.Namespace) -> None:
    """Fit two million rows from a file that is mapped into memory, in one pass for the sums."""
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        X, y, X_test, y_test = load("houseelectric", 0)
        np.save(Path(folder) / "X.npy", X)
        np.save(Path(folder) / "y.npy", y)
        del X
        for method in asked.methods:
            began = time.perf_counter()
            model, seconds = fitted(
                Path(folder) / "X.npy", Path(folder) / "y.npy", **METHODS[method]
            )
            result = {
                "part": "houseelectric", "dataset": "houseelectric", "split": 0, "method": method, "n": len(y),
                "seconds": round(time.perf_counter() - began, 1), "stages": seconds,
                **scores(model, X_test, y_test, y), **about(model), **machine_rates(),
            }  # fmt: skip
            put(OUT, result, NAMES)
            print(json.dumps(result), flush=True)


def run_classes(asked: argparse.Namespace) -> None:
    """Score both bounds on the splits of classification.jsonl."""
    for dataset in asked.datasets:
        for split in range(asked.splits):
            X, y, X_test, y_test = split_of(dataset, split)
            for bound in ("quadratic", "exponential"):
                basis = 1000 if bound == "quadratic" else 200
                began = time.perf_counter()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    model = DirectClassifier(
                        "rbf", basis, family=MeanField(logistic_bound=bound)
                    ).fit(X, y)
                seconds = time.perf_counter() - began
                report = classification_report(
                    y_test, model.predict_proba(X_test), classes=model.classes_
                )
                result = {
                    "part": "classes", "dataset": dataset, "split": split, "method": f"direct, {bound}", "basis": basis,
                    "seconds": round(seconds, 2), **about(model), "sparsity": model.sparsity(),
                    **{key: float(report[key]) for key in ("accuracy", "nlpd", "brier", "ece")},
                }  # fmt: skip
                put(OUT, result, NAMES)
                print(
                    json.dumps({k: result[k] for k in (*NAMES, "nlpd", "accuracy", "seconds")}),
                    flush=True,
                )


def show(asked: argparse.Namespace) -> None:
    """Print what has been measured beside the thesis."""
    found = [row for row in rows(OUT) if row["part"] in ("table", "houseelectric")]
    print(
        "| data | method | splits | RMSE | thesis | NLPD | coverage | sparsity | thesis | weights, s | thesis, s |"
    )
    print("|" + "---|" * 11)
    for dataset in THESIS:
        for method in METHODS:
            of = [row for row in found if row["dataset"] == dataset and row["method"] == method]
            if not of:
                continue
            rmse = [row["rmse"] for row in of]
            after = [row["stages"]["weights"] + row["stages"].get("noise", 0.0) for row in of]
            right, deviation, zeros, seconds = THESIS[dataset]
            printed = (
                f"{THESIS_MIXTURE[dataset]}" if "mixture" in method else f"{right} ± {deviation}"
            )
            print(
                f"| {dataset} | {method} | {len(of)} | {mean(rmse):.3f} ± {np.std(rmse):.3f} | {printed} | "
                f"{mean([row['nlpd'] for row in of]):.3f} | {mean([row['coverage'] for row in of]):.3f} | "
                f"{mean([row['sparsity'] for row in of]):.2f} | {zeros} | {mean(after):.1f} | {seconds} |"
            )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_subparsers(required=True)
    table = parts.add_parser("table")
    table.add_argument(
        "--datasets", nargs="*", default=[name for name in THESIS if name != "houseelectric"]
    )
    table.add_argument("--splits", type=int, default=10)
    table.add_argument("--methods", nargs="*", default=["mean-field"], choices=METHODS)
    table.set_defaults(run=run_table)
    export = parts.add_parser("export")
    export.add_argument("--datasets", nargs="*", default=["kin40k", "protein"])
    export.add_argument("--methods", nargs="*", default=["learned spacings"], choices=METHODS)
    export.add_argument("--samples", type=int, default=16)
    export.set_defaults(run=run_export)
    large = parts.add_parser("houseelectric")
    large.add_argument("--methods", nargs="*", default=["mean-field"], choices=METHODS)
    large.add_argument("--folder", help="where the rows are written first")
    large.set_defaults(run=run_houseelectric)
    classes = parts.add_parser("classes")
    classes.add_argument("--datasets", nargs="*", default=["banana", "ionosphere", "sonar"])
    classes.add_argument("--splits", type=int, default=5)
    classes.set_defaults(run=run_classes)
    constant = parts.add_parser("constant-time")
    constant.add_argument("--size", type=int, default=2000)
    constant.add_argument("--repeats", type=int, default=30)
    constant.set_defaults(run=run_constant_time)
    parts.add_parser("show").set_defaults(run=show)
    asked = parser.parse_args()
    asked.run(asked)


if __name__ == "__main__":
    main()
