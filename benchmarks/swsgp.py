"""SWSGP on the data of its paper and beyond, one JSON line for each fit.

    VASTGP_DATA=... python -m benchmarks.swsgp --plan protocol --out benchmarks/results/swsgp.jsonl

Plans: ``protocol`` is the paper's (Matern-5/2, full covariance, learned inducing inputs, Adam with a rate of 0.001 and
64 rows a step); ``figures`` raises H at fixed M and M at fixed H beside SVGP-M, SVGP-H and SVGP-M-H; ``sparse`` has
many fixed inducing inputs, beside SVGP and t-SVGP of this package with a budget of seconds.

    python -m benchmarks.swsgp --plan figures --out results/swsgp.jsonl --plot results/swsgp_figures.png
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from vastgp.metrics import coverage, nlpd, rmse
from vastgp.options import Learn, LocalSteps, Natural

DATA = Path(os.environ.get("VASTGP_DATA", "data"))


def load(name: str, split: int) -> tuple[np.ndarray, ...]:
    """Return training and test rows of one split."""
    with np.load(DATA / f"{name}.npz") as file:
        X, y, n = file["X"], file["y"], int(file["n"])
        test = np.unpackbits(file["test_mask_packed"], axis=1, count=n).astype(bool)[split]
    return X[~test], y[~test], X[test], y[test]


def score(model: Any, X: np.ndarray, y: np.ndarray, scale: float) -> dict[str, float]:
    """Return scores in the target's own units and in standardised ones."""
    began = time.perf_counter()
    mean, std = model.predict(X, return_std=True)
    seconds = time.perf_counter() - began
    error, density = rmse(y, mean), nlpd(y, mean, std)
    return {
        "rmse": error, "nlpd": density, "coverage": coverage(y, mean, std), "rmse_standardised": error / scale,
        "nlpd_standardised": density - float(np.log(scale)), "predict_us_per_row": 1e6 * seconds / len(y),
    }  # fmt: skip


def run(
    name: str, split: int, estimator: str, params: dict[str, Any], **more: Any
) -> dict[str, Any]:
    """Fit and score one model."""
    import vastgp

    X, y, X_test, y_test = load(name, split)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = getattr(vastgp, estimator)(**params).fit(X, y)
    seconds, history = time.perf_counter() - began, model.history_
    line = {
        "data": name,
        "split": split,
        "method": estimator,
        "params": {k: str(v) for k, v in params.items()},
    }
    line |= more | {"fit_seconds": seconds, "steps": model.n_iter_, "converged": model.converged_}
    if len(history) > 4:
        half = len(history) // 2
        spent = history.seconds[-1] - history.seconds[half]
        line["steps_per_second"] = (history.steps[-1] - history.steps[half]) / max(spent, 1e-9)
    line |= score(model, X_test, y_test, float(np.std(y)))
    line["noise_std"] = float(model.likelihood_.noise_std)
    if hasattr(model, "diagnosis_"):
        line["diagnosis"] = {
            key: value for key, value in model.diagnosis_.items() if not isinstance(value, dict)
        }
    if more.get("also_few"):
        # SVGP-M-H: trained with all M inducing points, predicted from the nearest H
        line["few"] = svgp_of_few(model, int(more["also_few"]), X_test, y_test, float(np.std(y)))
    return line


def svgp_of_few(
    model: Any, count: int, X: np.ndarray, y: np.ndarray, scale: float
) -> dict[str, float]:
    """Return scores of an SVGP whose predictions see the nearest ``count`` of its inducing points."""
    from vastgp.solvers.neighbour_posterior import NeighbourPosterior

    found, scaling = model.posterior_, model.standardizer_
    Z = scaling.transform_X(model.inducing_points_)
    S = found.covariance(Z)
    factor = np.linalg.cholesky(S + 1e-10 * np.mean(np.diagonal(S)) * np.eye(len(Z)))
    few = NeighbourPosterior(
        found.kernel, Z, found.mean(Z)[:, None], factor[:, None, :], count, 1e-8
    )
    mean, variance = few.mean_and_latent_variance(scaling.transform_X(X))
    mean = scaling.inverse_mean(mean)
    std = scaling.inverse_std(
        np.sqrt(variance + float(model.likelihood_.noise_variance) / scaling.y_scale**2)
    )
    error, density = rmse(y, mean), nlpd(y, mean, std)
    return {"rmse": error, "nlpd": density, "rmse_standardised": error / scale,
            "nlpd_standardised": density - float(np.log(scale)), "coverage": coverage(y, mean, std)}  # fmt: skip


def protocol(steps: int, rate: float) -> list[tuple[str, dict[str, Any]]]:
    """Return the paper's runs, SWSGP-64-8."""
    return [("SWSGPRegressor", swsgp(64, 8, steps, rate))]


def swsgp(size: int, neighbors: int, steps: int, rate: float) -> dict[str, Any]:
    """Return the arguments of SWSGP-M-H as in the paper."""
    return {
        "kernel": "matern52", "num_inducing": size, "num_neighbors": neighbors,
        "hyperparameters": Learn(noise_floor=1e-6),
        "solver": LocalSteps("full", "neighborhoods", True, rate=rate, max_steps=steps, tol=1e-9),
    }  # fmt: skip


def svgp(size: int) -> dict[str, Any]:
    """Return the arguments of SVGP-M."""
    return {
        "kernel": "matern52", "num_inducing": size, "hyperparameters": Learn(noise_floor=1e-6),
        "solver": Natural(max_steps=1000),
    }  # fmt: skip


def plans(
    plan: str, steps: int, seconds: float, rate: float
) -> list[tuple[str, int, str, dict[str, Any], dict[str, Any]]]:
    """Return what to run."""
    small = ("powerplant", "kin8nm", "naval")
    if plan == "protocol":
        return [
            (name, 0, *run, {"label": "SWSGP-64-8"})
            for name in small
            for run in protocol(steps, rate)
        ]
    if plan == "figures":
        found: list[Any] = []
        for name in ("powerplant", "kin8nm"):
            for H in (4, 8, 16, 32):
                found.append(
                    (
                        name,
                        0,
                        "SWSGPRegressor",
                        swsgp(64, H, steps, 5e-3),
                        {"label": f"SWSGP-64-{H}"},
                    )
                )
                found.append((name, 0, "SVGPRegressor", svgp(H), {"label": f"SVGP-{H}"}))
                found.append(
                    (name, 0, "SVGPRegressor", svgp(64), {"label": f"SVGP-64-{H}", "also_few": H})
                )
            for M in (8, 16, 32):
                found.append(
                    (name, 0, "SWSGPRegressor", swsgp(M, 4, steps, 5e-3), {"label": f"SWSGP-{M}-4"})
                )
                found.append(
                    (name, 0, "SWSGPRegressor", swsgp(M, 8, steps, 5e-3), {"label": f"SWSGP-{M}-8"})
                )
        return found
    if plan == "sparse":
        found = []
        for name, rows in (("kin40k", 36_000), ("protein", 41_157)):
            for share in (4, 1):
                params = {"kernel": "matern52", "num_inducing": rows // share, "num_neighbors": 64}
                found.append((name, 0, "SWSGPRegressor", params, {"label": f"SWSGP-n/{share}-64"}))
            for other in ("SVGPRegressor", "TSVGPRegressor"):
                params = {"kernel": "matern52", "num_inducing": 512, "max_seconds": seconds}
                found.append((name, 0, other, params, {"label": f"{other[:-9]}-512"}))
        return found
    raise SystemExit(f"unknown plan {plan!r}")


def plot(lines: list[dict[str, Any]], out: Path) -> None:
    """Draw figures 3 to 6 of the paper: RMSE and NLPD against H at M = 64, and against M at fixed H."""
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(line["data"] for line in lines))
    figure, axes = plt.subplots(
        2, 2 * len(names), figsize=(6.4 * len(names), 5.6), constrained_layout=True
    )
    for k, name in enumerate(names):
        found = {line["label"]: line for line in lines if line["data"] == name}
        few = {label: line["few"] for label, line in found.items() if "few" in line}
        sizes = {label: [int(part) for part in label.split("-")[1:]] for label in found}
        whole = next(line for line in found.values() if "few" in line)
        for score, (left, right) in zip(("rmse", "nlpd"), axes[:, 2 * k : 2 * k + 2], strict=True):
            curves = {
                "SWSGP-64-H": [(size[1], found[label][score]) for label, size in sizes.items()
                               if label.startswith("SWSGP-64-")],
                "SVGP-H": [(size[0], found[label][score]) for label, size in sizes.items() if len(size) == 1],
                "SVGP-64-H (nearest H at prediction)": [(sizes[label][1], line[score]) for label, line in few.items()],
            }  # fmt: skip
            for (title, points), marker in zip(curves.items(), "os^", strict=True):
                left.plot(*zip(*sorted(points), strict=True), marker=marker, label=title)
            left.axhline(whole[score], color="0.3", linestyle="--", label="SVGP-64")
            for H, marker, colour in ((4, "D", "C4"), (8, "v", "C5")):
                points = [
                    (size[0], found[label][score])
                    for label, size in sizes.items()
                    if label.startswith("SWSGP") and size[1] == H
                ]
                (line,) = right.plot(
                    *zip(*sorted(points), strict=True), marker=marker, color=colour
                )
                line.set_label(f"SWSGP-M-{H}")
            left.set(xlabel="neighbours H, M = 64", ylabel=score.upper(), title=name)
            right.set(xlabel="inducing inputs M", title=name)
            for ax in (left, right):
                ax.set_xscale("log", base=2)
                ax.xaxis.set_major_formatter("{x:.0f}")
    handles = [line for ax in axes[0, :2] for line in ax.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    figure.savefig(out, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plan", required=True)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--rate", type=float, default=1e-3, help="of Adam (protocol)")
    parser.add_argument("--seconds", type=float, default=60.0, help="budget of the SVGPs")
    parser.add_argument("--data", nargs="*", help="only these sets")
    parser.add_argument("--only", help="only labels that contain this")
    parser.add_argument("--plot", type=Path, help="draw what --out holds of the plan 'figures'")
    arguments = parser.parse_args()
    if arguments.plot:
        written = [json.loads(line) for line in arguments.out.read_text().splitlines()]
        plot([line for line in written if line.get("plan") == "figures"], arguments.plot)
        return
    for name, split, estimator, params, more in plans(
        arguments.plan, arguments.steps, arguments.seconds, arguments.rate
    ):
        if arguments.data and name not in arguments.data:
            continue
        if arguments.only and arguments.only not in more["label"]:
            continue
        line = run(name, split, estimator, params, **more)
        line |= {"plan": arguments.plan, "load": os.getloadavg()[0]}
        print(json.dumps(line), flush=True)
        if arguments.out:
            with arguments.out.open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
