"""GP-GRIEF of both kinds on the splits of tables 4.1 and 5.1 of the thesis: one JSON line for each fit.

VASTGP_DATA=... python benchmarks/reweighted.py --data challenger yacht --splits 10 --methods ii i
VASTGP_DATA=... python benchmarks/reweighted.py --table

Method "ii" has the thesis's number of functions, min(1000, 10^floor(log10 n)); "i" has 1000, the orthogonal prior and
NUTS; "i-diagonal" the thesis's own setting: a variance for each weight and 10,000 steps of MALA, one chain. RMSE is in
the target's units, NLPD in standardised ones.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from typing import Any

import numpy as np

from run import load, peak_mb
from table import RESULTS, put
from vastgp import GriefRegressor
from vastgp.options import MALA, Subset, TypeII

OUT = RESULTS / "reweighted.jsonl"
# RMSE and its deviation over ten splits, GP-GRIEF-II and -I: table 5.1 of the thesis.
THESIS = {
    "challenger": (0.554, 0.277, 0.519, 0.261),
    "fertility": (0.172, 0.055, 0.166, 0.051),
    "slump": (3.972, 1.891, 3.470, 1.712),
    "servo": (0.280, 0.085, 0.268, 0.075),
    "cancer": (27.843, 3.910, 30.568, 3.340),
    "hardware": (0.408, 0.046, 0.402, 0.045),
    "yacht": (0.170, 0.083, 0.120, 0.070),
    "housing": (3.212, 0.864, 2.887, 0.489),
    "energy": (0.490, 0.057, 0.461, 0.064),
    "concrete": (5.232, 0.723, 5.156, 0.766),
    "wine": (0.483, 0.052, 0.477, 0.047),
    "elevators": (0.091, 0.002, 0.097, 0.001),
    "kin40k": (0.206, 0.004, 0.206, 0.004),
    "kegg": (0.118, 0.003, 0.134, 0.005),
    "houseelectric": (0.064, 0.002, 0.058, 0.006),
}


def make(method: str, n: int, evidence_rows: int, max_seconds: float | None) -> GriefRegressor:
    """Return the estimator of a method for ``n`` training rows."""
    search = Subset(rows=evidence_rows)
    shared = {"verbose": True, "max_seconds": max_seconds, "hyperparameters": search}
    if method == "ii":
        count = min(1000, 10 ** int(math.log10(n)))
        return GriefRegressor("rbf", count, inference=TypeII(max_iter=50), **shared)
    if method == "i":
        return GriefRegressor("rbf", inference="type-i", prior="orthogonal", **shared)
    return GriefRegressor("rbf", inference=MALA(num_chains=1), prior="diagonal", **shared)


def run(data: str, split: int, method: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Fit one split and return its scores."""
    X, y, X_test, y_test = load(data, split)
    model = make(method, len(y), arguments.evidence_rows, arguments.max_seconds)
    try:
        model.fit(X, y)
    except ValueError as error:  # fewer points on the grid than functions wanted
        if "points of the grid" not in str(error):
            raise
        model.set_params(num_eigenfunctions=None).fit(X, y)
    began = time.perf_counter()
    mean, std = model.predict(X_test, return_std=True)
    seconds = time.perf_counter() - began
    scale = model.standardizer_.y_scale
    error = y_test - mean
    return {
        "data": data, "split": split, "method": method, "n": len(y), "d": X.shape[1],
        "functions": model.num_eigenfunctions_, "rmse": float(np.mean(error**2) ** 0.5),
        "rmse_standardised": float(np.mean(error**2) ** 0.5 / scale),
        "nlpd": float(-np.mean(model.log_predictive_density(X_test, y_test)) - math.log(scale)),
        "coverage": float(np.mean(np.abs(error) <= 1.959964 * std)),
        "fit_seconds": round(model.fit_seconds_, 2), "predict_seconds": round(seconds, 2),
        "iterations": model.n_iter_, "converged": model.converged_, "peak_mb": round(peak_mb()),
        "r_hat": getattr(model, "r_hat_", None), "ess": getattr(model, "ess_", None),
    }  # fmt: skip


def table() -> str:
    """Return mean and deviation over the splits, beside the thesis."""
    every = [json.loads(line) for line in OUT.read_text().splitlines()]
    lines = [
        "| data | n | method | splits | RMSE | thesis | NLPD | coverage | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    names = list(dict.fromkeys(entry["data"] for entry in every))
    for data in sorted(names, key=lambda name: next(e["n"] for e in every if e["data"] == name)):
        for method in ("ii", "i", "i-diagonal"):
            mine = [e for e in every if (e["data"], e["method"]) == (data, method)]
            if not mine:
                continue
            rmse, nlpd, coverage, seconds = (
                np.array([e[key] for e in mine])
                for key in ("rmse", "nlpd", "coverage", "fit_seconds")
            )
            theirs = THESIS.get(data)
            own = () if theirs is None else theirs[:2] if method == "ii" else theirs[2:]
            beside = " ± ".join(f"{value:.3f}" for value in own)
            lines.append(
                f"| {data} | {mine[0]['n']} | type {method} | {len(mine)} | {rmse.mean():.3f} ± {rmse.std():.3f} | "
                f"{beside} | {nlpd.mean():.3f} | {coverage.mean():.3f} | {np.median(seconds):.1f} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="*", default=[])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--methods", nargs="*", default=["ii", "i"])
    parser.add_argument("--evidence-rows", type=int, default=5000)
    parser.add_argument("--max-seconds", type=float)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for data in arguments.data:
        for split in range(arguments.splits):
            for method in arguments.methods:
                entry = run(data, split, method, arguments)
                put(OUT, entry, ("data", "split", "method"))
                print(json.dumps(entry), flush=True)
    if arguments.table:
        print(table())


if __name__ == "__main__":
    main()
