"""Gridded data sets with values withheld: GridGP, its solvers, kriging slice by slice, a peer; one JSON line each.

VASTGP_DATA=/path/to/npz python benchmarks/grid_fields.py --dataset sst_ostia --method fill

A fifth of the observed values is withheld at random (air_temperature: 30 %); scores are those of the withheld ones, in
units of the standard deviation of the training values and in their own. ``--write`` and ``--read`` hand the values to a
program of another environment (peers/latent_kronecker_botorch.py) and score what it predicted.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from run import machine_rates, peak_mb
from table import RESULTS, put
from vastgp import RBF, GridGP, Matern32, Periodic
from vastgp.metrics import regression_report
from vastgp.options import Evidence, FillGaps, Fixed, PenalizeGaps, VarianceSamples

OUT = RESULTS / "grid_fields.jsonl"


def stored(name: str) -> Any:
    """Open one of the data files."""
    return np.load(Path(os.environ["VASTGP_DATA"]) / f"{name}.npz")


def sst_ostia() -> xr.DataArray:
    """Monthly sea surface temperature, K; gaps are land."""
    with stored("sst_ostia") as z:
        return xr.DataArray(
            z["sst"].astype(float),
            dims=("time", "lat", "lon"),
            coords={
                "time": z["time_days"].astype(float),
                "lat": z["latitude"],
                "lon": z["longitude"],
            },
        )


def piv_soapfilm() -> xr.DataArray:
    """Five frames of a velocity field; gaps are rejected vectors."""
    with stored("piv_soapfilm") as z:
        return xr.DataArray(
            np.stack([z["u"], z["v"]]).astype(float),
            dims=("output", "frame", "y", "x"),
            coords={"output": ["u", "v"], "y": z["y"], "x": z["x"]},
        )


def air_temperature() -> xr.DataArray:
    """Yearly air temperature over North America, K; no gaps."""
    with stored("air_temperature") as z:
        years = z["time"] / (24.0 * 360.0)
        return xr.DataArray(
            z["air_temperature"].astype(float),
            dims=("year", "lat", "lon"),
            coords={"year": years - years[0], "lat": z["latitude"], "lon": z["longitude"]},
        )


FIELDS: dict[str, tuple[Callable[[], xr.DataArray], float]] = {
    "sst_ostia": (sst_ostia, 0.2),
    "piv_soapfilm": (piv_soapfilm, 0.2),
    "air_temperature": (air_temperature, 0.3),
}
KERNELS: dict[str, dict[str, Any]] = {
    # an annual cycle that changes slowly, beside what has none
    "sst_ostia": {
        "time": Periodic(365.25, 1.0) * RBF(3000.0) + Matern32(60.0, 0.1),
        "lat": "matern32",
        "lon": "matern32",
    },
    # what stays from year to year, beside what changes at once
    "air_temperature": {
        "year": RBF(200.0) + Matern32(2.0, 0.05),
        "lat": "matern32",
        "lon": "matern32",
    },
}
METHODS: dict[str, dict[str, Any]] = {
    "fill": {"solver": "fill-gaps"},
    "ignore": {"solver": "ignore-gaps"},
    "penalise, 100": {"solver": PenalizeGaps(penalty=1e2)},
    "penalise": {"solver": "penalize-gaps"},
    "fill, probes": {"solver": "fill-gaps", "criterion": Evidence("probes")},
    "fill, nystrom": {"solver": "fill-gaps", "criterion": Evidence("nystrom")},
    "fill, gcv": {"solver": "fill-gaps", "criterion": "gcv"},
    # what is left of land and sea: the cells of sea as one group, in single precision; hyperparameters of a part of it
    "sea": {"solver": FillGaps(max_products=300), "dtype": "float32"},
    "fill, default kernels": {"solver": "fill-gaps", "kernels": None},
    "slices": {},
    "botorch": {},
}


def slices(field: xr.DataArray) -> tuple[xr.Dataset, dict[str, Any]]:
    """Krige every slice of time by itself with scikit-learn, at most 1500 values each ("GP-Local" of the thesis).

    Hyperparameters are learned on up to 800 values of the first slice.
    """
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    down, across = field.dims[-2:]
    grid = np.stack([g.ravel() for g in np.meshgrid(field[down], field[across], indexing="ij")], 1)
    flat = field.values.reshape(-1, len(grid))
    mean, std = np.full(flat.shape, np.nan), np.full(flat.shape, np.nan)
    kernel: Any = None
    rng = np.random.default_rng(0)
    for i, values in enumerate(flat):
        seen = np.flatnonzero(np.isfinite(values))
        if len(seen) > 1500:
            seen = np.sort(rng.choice(seen, 1500, replace=False))
        shift, scale = values[seen].mean(), values[seen].std()
        target = (values[seen] - shift) / scale
        if kernel is None:
            spread = np.ptp(grid, axis=0) / 5
            start = ConstantKernel() * Matern(spread, (1e-3, 1e4), nu=2.5) + WhiteKernel(0.1)
            few = rng.choice(len(seen), min(800, len(seen)), replace=False)
            learned = GaussianProcessRegressor(start).fit(grid[seen][few], target[few])
            kernel = learned.kernel_
        model = GaussianProcessRegressor(kernel, optimizer=None).fit(grid[seen], target)
        for start_row in range(0, len(grid), 4000):
            here = slice(start_row, start_row + 4000)
            centre, spread_here = model.predict(grid[here], return_std=True)
            mean[i, here] = centre * scale + shift
            std[i, here] = spread_here * scale
    shape = field.shape
    found = xr.Dataset(
        {"mean": (field.dims, mean.reshape(shape)), "std": (field.dims, std.reshape(shape))}
    )
    return found, {"kernel": str(kernel)}


def written(field: xr.DataArray, path: str) -> None:
    """Write values and coordinates for a program of another environment."""
    axes = [field[dim].values for dim in field.dims if field[dim].dtype.kind in "fiu"]
    named = {f"axis{i}": axis for i, axis in enumerate(axes)}
    np.savez(path, values=field.values, num_axes=len(axes), **named)


def read(field: xr.DataArray, path: str) -> tuple[xr.Dataset, dict[str, Any]]:
    """Return what such a program predicted."""
    with np.load(path) as stored:
        fields = {name: (field.dims, stored[name]) for name in ("mean", "std")}
        more = {"seconds": round(float(stored["seconds"]), 2), "more": str(stored["more"])}
    return xr.Dataset(fields), more


def of_the_sea(training: xr.DataArray, args: argparse.Namespace) -> GridGP:
    """Learn hyperparameters on a part of the sea, and condition on all of it."""
    grouped = {
        "time": KERNELS["sst_ostia"]["time"],
        ("lat", "lon"): Matern32([5.0, 5.0]),
    }
    part = training.isel(lon=slice(40, 120))
    learned = GridGP(grouped, max_seconds=args.seconds, tol=args.tol).fit(part)
    kernel = learned.kernel_
    of_parts = np.prod([float(part.total_variance()) for part in kernel.parts])
    given = dict(zip(grouped, kernel.parts, strict=True))
    given["time"] = given["time"].in_units(1.0, float(kernel.variance / of_parts) ** 0.5)
    fixed = {"hyperparameters": Fixed(learned.noise_std_), "criterion": Evidence(num_probes=0)}
    return GridGP(given, **fixed, **METHODS["sea"]).fit(training)


def with_model(
    training: xr.DataArray, args: argparse.Namespace
) -> tuple[xr.Dataset, dict[str, Any]]:
    """Fit GridGP and predict."""
    began = time.perf_counter()
    options = {"kernels": KERNELS.get(args.dataset)} | METHODS[args.method]
    if args.method == "sea":
        model = of_the_sea(training, args)
    else:
        model = GridGP(max_seconds=args.seconds, tol=args.tol, **options).fit(training)
    fit_seconds = time.perf_counter() - began
    predicted = model.predict(variance=VarianceSamples(32 if args.method == "sea" else 64))
    return predicted, {
        "fit_seconds": round(fit_seconds, 2),
        "tol": args.tol,
        "kernel": str(model.kernel_),
        "noise_std": np.ravel(model.noise_std_).tolist(),
        "log_evidence": model.log_evidence_,
        "log_evidence_unbiased": model.log_evidence_unbiased_,
        "log_evidence_se": model.log_evidence_se_,
        "iterations": model.n_iter_,
        "cg_iterations": model.posterior_.solver.iterations,
        "converged": model.converged_,
        "stop_reason": model.stop_reason_,
    }


def main() -> None:
    """Run one method on one data set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", choices=FIELDS, required=True)
    parser.add_argument("--method", choices=METHODS, default="fill")
    parser.add_argument("--seconds", type=float, default=200.0, help="budget of learning")
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--write", help="write the training values, and do nothing else")
    parser.add_argument("--read", help="score what another program predicted")
    args = parser.parse_args()
    make, share = FIELDS[args.dataset]
    whole = make()
    hidden = np.isfinite(whole.values) & (
        np.random.default_rng(0).uniform(size=whole.shape) < share
    )
    training = whole.where(~hidden)
    if args.write:
        written(training, args.write)
        return
    rates = machine_rates()
    began = time.perf_counter()
    if args.read:
        predicted, more = read(training, args.read)
    elif args.method == "slices":
        predicted, more = slices(training)
    else:
        predicted, more = with_model(training, args)
    seconds = time.perf_counter() - began
    report = regression_report(
        whole.values[hidden],
        predicted["mean"].values[hidden],
        predicted["std"].values[hidden],
        y_train_mean=float(np.nanmean(training.values)),
        y_train_scale=float(np.nanstd(training.values)),
    )
    line = {
        "dataset": args.dataset,
        "method": args.method,
        "points": whole.size,
        "observed": int(np.isfinite(training.values).sum()),
        "withheld": int(hidden.sum()),
        "seconds": round(seconds, 2),
        "report": report,
        **more,
        "peak_mb": round(peak_mb()),
        "machine": rates,
    }
    put(OUT, line, ("dataset", "method"))
    print(json.dumps(line, default=float))


if __name__ == "__main__":
    main()
