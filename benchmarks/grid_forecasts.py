"""Forecasts by GridGP past the last time: a year of air temperature beside climatology, ten years of CO2; plotted.

VASTGP_DATA=/path/to/npz python benchmarks/grid_forecasts.py air_temperature
VASTGP_DATA=/path/to/npz python benchmarks/grid_forecasts.py co2
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import product
from typing import Any

import numpy as np
import xarray as xr

from grid_fields import air_temperature, stored
from run import machine_rates, peak_mb
from table import RESULTS, put
from vastgp import RBF, GridGP, Matern12, Matern32, Matern52, Periodic, RationalQuadratic
from vastgp.kernels import Kernel
from vastgp.metrics import regression_report

OUT = RESULTS / "grid_forecasts.jsonl"
YEAR = 365.25


def scores(truth: np.ndarray, mean: np.ndarray, std: np.ndarray, train: xr.DataArray) -> Any:
    """Return the report of a forecast, NaN of the truth left out."""
    seen = np.isfinite(truth)
    return regression_report(
        truth[seen],
        np.broadcast_to(mean, truth.shape)[seen],
        np.broadcast_to(std, truth.shape)[seen],
        y_train_mean=float(train.mean()),
        y_train_scale=float(train.std()),
    )


def record(name: str, method: str, report: Any, **more: Any) -> None:
    """Add a line to the results."""
    line = {"dataset": name, "method": method, "report": report} | more
    put(OUT, line, ("dataset", "method"))
    print(json.dumps(line, default=float), flush=True)


def last_year(seconds: float) -> None:
    """Forecast the last year of every cell from the 239 before, beside the mean of all of them and of the last ten."""
    field = air_temperature()
    train, truth = field[:-1], field[-1:]
    rates = machine_rates()
    for years in (len(train), 30, 10):
        past = train[-years:]
        mean, std = past.mean("year").values, past.std("year", ddof=1).values
        method = f"climatology of {years} years"
        record("air_temperature", method, scores(truth.values, mean, std, train))
    record(
        "air_temperature",
        "last year again",
        scores(truth.values, train[-1].values, train.diff("year").std("year").values, train),
    )
    began = time.perf_counter()
    # what stays, a trend over decades, and what passes in years
    kernel = RBF(300.0) + RBF(40.0, 0.02) + Matern32(2.0, 0.02)
    kernels = {"year": kernel, "lat": "matern32", "lon": "matern32"}
    model = GridGP(kernels, max_seconds=seconds, tol=1e-3).fit(train)
    fitted = time.perf_counter() - began
    ahead = model.predict({"year": truth["year"].values})
    record(
        "air_temperature",
        "GridGP",
        scores(truth.values, ahead["mean"].values, ahead["std"].values, train),
        fit_seconds=round(fitted, 1),
        seconds=round(time.perf_counter() - began, 1),
        kernel=str(model.kernel_),
        noise_std=model.noise_std_,
        converged=model.converged_,
        stop_reason=model.stop_reason_,
        peak_mb=round(peak_mb()),
        machine=rates,
    )
    maps(truth, ahead)


def maps(truth: xr.DataArray, ahead: xr.Dataset) -> None:
    """Plot forecast, what came, and the error in standard deviations."""
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
    error = (truth - ahead["mean"]) / ahead["std"]
    for ax, what, title, more in (
        (axes[0], ahead["mean"], "forecast, K", {}),
        (axes[1], truth, "what came, K", {}),
        (
            axes[2],
            error,
            "error, in standard deviations",
            {"cmap": "RdBu_r", "vmin": -3, "vmax": 3},
        ),
    ):
        what.isel(year=0).plot(ax=ax, cbar_kwargs={"label": ""}, **more)
        ax.set_title(title)
    fig.savefig(RESULTS / "grid_forecast_air_temperature.png", dpi=110)


def carbon_dioxide() -> xr.DataArray:
    """Weekly CO2 at Mauna Loa, parts per million; 59 of 2284 weeks are missing."""
    with stored("co2") as z:
        return xr.DataArray(
            z["grid_co2"].astype(float),
            dims="day",
            coords={"day": z["grid_days"].astype(float)},
            name="CO2",
            attrs={"units": "ppm"},
        )


def growth(trend: Kernel) -> Kernel:
    """Return a rise over decades, a year's cycle that changes slowly, and what passes in months."""
    return (
        trend
        + Periodic(YEAR, 1.3, 0.02) * RBF(60.0 * YEAR)
        + RationalQuadratic(1.2 * YEAR, 0.003, 0.8)
    )


# A rise with derivatives of every order is known too well from its past. One with two is not, and what land and sea
# take up in one year more than in another adds up like the steps of a walk.
TRENDS = {
    "RBF": RBF(60.0 * YEAR, 4.0),
    "Matern32": Matern32(60.0 * YEAR, 4.0),
    "Matern52": Matern52(60.0 * YEAR, 4.0),
    "Matern52 + Matern12": Matern52(60.0 * YEAR, 4.0) + Matern12(20.0 * YEAR, 0.01),
}
# How hyperparameters are found, and what the tables call it.
FOUND = {"learn": "", "average": ", averaged over"}
# Years of data before a forecast of the ten that follow.
ORIGINS = (15.0, 20.0, 25.0, 30.0, 33.8)


def by_trend(whole: xr.DataArray) -> Kernel:
    """Forecast ten years from five origins for each trend, by means of four weeks; return the last kernel.

    At the learned hyperparameters, and averaged over others.
    """
    means = whole.coarsen(day=4, boundary="trim").mean()
    for (name, trend), how in product(TRENDS.items(), FOUND):
        method = f"GridGP, {name} trend{FOUND[how]}"
        errors, spreads = [], []
        for years in ORIGINS:
            began, used = time.perf_counter(), time.process_time()
            before = means[means.day <= years * YEAR]
            after = means[(means.day > years * YEAR) & (means.day <= (years + 10.0) * YEAR)]
            model = GridGP({"day": growth(trend)}, tol=1e-3, hyperparameters=how).fit(before)
            ahead = model.predict({"day": after["day"].values})
            record(
                "co2",
                f"{method}, ten years after {years:g}",
                scores(after.values, ahead["mean"].values, ahead["std"].values, before),
                seconds=round(time.perf_counter() - began, 1),
                processor_seconds=round(time.process_time() - used, 1),
                kernel=str(model.kernel_),
                converged=model.converged_,
                log_evidence=model.log_evidence_,
                ahead_std=float(ahead["std"][-1]),
            )
            seen = np.isfinite(after.values)
            errors.append((after - ahead["mean"]).values[seen])
            spreads.append(ahead["std"].values[seen])
        error, spread = np.concatenate(errors), np.concatenate(spreads)
        pooled = {
            "coverage_95": float(np.mean(np.abs(error) < 1.96 * spread)),
            "rmse": float(np.sqrt(np.mean(error**2))),
        }
        record("co2", f"{method}, all origins", pooled)
    return model.kernel_.parts[0]


def ten_years(seconds: float) -> None:
    """Forecast ten years from several origins; then fit all weeks, begun from what was learned, and plot."""
    whole = carbon_dioxide()
    last = whole["day"].values[-1]
    kernel = by_trend(whole)

    def fit(data: xr.DataArray) -> tuple[GridGP, float]:
        began = time.perf_counter()
        model = GridGP({"day": kernel}, max_seconds=seconds, tol=1e-3).fit(data)
        return model, time.perf_counter() - began

    before, after = whole[whole.day <= last - 10 * YEAR], whole[whole.day > last - 10 * YEAR]
    model, _ = fit(before)
    tested = model.predict({"day": after["day"].values})
    report = scores(after.values, tested["mean"].values, tested["std"].values, before)
    rates = machine_rates()
    model, fitted = fit(whole)
    filled = model.predict()
    ahead = model.predict({"day": np.arange(last + 7.0, last + 10 * YEAR, 7.0)})
    record(
        "co2",
        "GridGP, last ten years",
        report,
        fit_seconds=round(fitted, 1),
        gaps=int(np.isnan(whole.values).sum()),
        kernel=str(model.kernel_),
        noise_std=model.noise_std_,
        ahead_mean=float(ahead["mean"][-1]),
        ahead_std=float(ahead["std"][-1]),
        log_evidence=model.log_evidence_,
        log_evidence_unbiased=model.log_evidence_unbiased_,
        converged=model.converged_,
        machine=rates,
    )
    curves(whole, filled, ahead, after, tested)


def curves(
    whole: xr.DataArray,
    filled: xr.Dataset,
    ahead: xr.Dataset,
    after: xr.DataArray,
    tested: xr.Dataset,
) -> None:
    """Plot the data with both forecasts, and the longest gap closely."""
    import matplotlib.pyplot as plt

    def year(array: Any) -> Any:
        return 1958.24 + array["day"].values / YEAR

    def band(ax: Any, predicted: xr.Dataset, colour: str, label: str) -> None:
        mean, std = predicted["mean"].values, predicted["std"].values
        ax.plot(year(predicted), mean, color=colour, lw=1, label=label)
        ax.fill_between(
            year(predicted), mean - 1.96 * std, mean + 1.96 * std, color=colour, alpha=0.25
        )

    fig, axes = plt.subplots(1, 3, figsize=(14, 4), layout="constrained")
    axes[0].plot(year(whole), whole.values, ".", ms=1, color="0.3", label="observed")
    band(axes[0], ahead, "C1", "forecast, 95 %")
    axes[1].plot(year(after), after.values, ".", ms=2, color="0.3", label="observed afterwards")
    band(axes[1], tested, "C0", "forecast from before, 95 %")
    missing = np.flatnonzero(np.isnan(whole.values))
    runs = np.split(missing, np.flatnonzero(np.diff(missing) > 1) + 1)
    gap = max(runs, key=len)
    here = slice(max(gap[0] - 30, 0), gap[-1] + 30)
    axes[2].plot(year(whole[here]), whole.values[here], ".", ms=4, color="0.3", label="observed")
    band(axes[2], filled.isel(day=here), "C2", f"the longest gap, {len(gap)} weeks, filled")
    axes[2].locator_params(axis="x", nbins=5)
    for ax in axes:
        ax.legend(frameon=False)
        ax.set_ylabel("CO2, ppm")
    fig.savefig(RESULTS / "grid_forecast_co2.png", dpi=110)


def main() -> None:
    """Run one of the two."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", choices=("air_temperature", "co2"))
    parser.add_argument("--seconds", type=float, default=200.0, help="budget of learning")
    args = parser.parse_args()
    (last_year if args.dataset == "air_temperature" else ten_years)(args.seconds)


if __name__ == "__main__":
    main()
