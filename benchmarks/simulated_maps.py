"""GridGP and StationGP on simulated fields: three kinds of gaps beside DINEOF, forecasts of weekly series, stations.

    python benchmarks/simulated_maps.py gaps --seeds 4
    python benchmarks/simulated_maps.py forecasts --seeds 20
    python benchmarks/simulated_maps.py stations --seeds 6
    python benchmarks/simulated_maps.py --write          # results/simulated_maps.md from the lines

The truth is known, and it is no kernel's of the fits: what 95 % intervals hold is counted over many draws.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import xarray as xr
from scipy.ndimage import gaussian_filter

from grid_forecasts import FOUND, TRENDS, YEAR, growth
from table import RESULTS, mean, put, rows, table_lines, write_page
from vastgp import GridGP, StationGP
from vastgp.data.coordinates import chord_points
from vastgp.metrics import coverage, nlpd, rmse

OUT = RESULTS / "simulated_maps.jsonl"
SHAPE = (96, 12, 14)
WEEKS, AHEAD = 2284, 10.0


def matern(distance: np.ndarray, order: int) -> np.ndarray:
    """Return Matern's correlation of order one, three or five halves."""
    scaled = np.sqrt(order) * distance
    return {1: 1.0, 3: 1.0 + scaled, 5: 1.0 + scaled + scaled**2 / 3.0}[order] * np.exp(-scaled)


def root(distance: np.ndarray, order: int) -> np.ndarray:
    """Return a factor of its matrix."""
    return np.linalg.cholesky(matern(distance, order) + 1e-6 * np.eye(len(distance)))


# ---------------------------------------------------------------- gaps


def cube(seed: int, kind: str) -> xr.DataArray:
    """Draw months of a map: anomalies with a derivative in time or none, alone or on a year's cycle; noise of 0.15."""
    rng = np.random.default_rng(seed)
    coords = {"time": 1.0 * np.arange(SHAPE[0])}
    coords |= {"lat": 30.0 + 2.0 * np.arange(SHAPE[1]), "lon": 2.0 * np.arange(SHAPE[2])}
    order = 1 if kind == "rough" else 3
    forms = zip(coords.values(), (3.0, 8.0, 10.0), (order, 5, 5), strict=True)
    over, *of_map = (root(np.abs(x[:, None] - x) / scale, nu) for x, scale, nu in forms)

    def drawn() -> np.ndarray:
        return of_map[0] @ rng.normal(size=SHAPE[1:]) @ of_map[1].T

    field = np.einsum("ai,ijk->ajk", over, np.stack([drawn() for _ in range(SHAPE[0])]))
    if kind == "season":
        turn = 2.0 * np.pi * coords["time"][:, None, None] / 12.0
        field = 0.6 * field + 2.0 * drawn() + (3.0 + drawn()) * np.cos(turn - 0.8 * drawn())
    values = field + 0.15 * rng.normal(size=SHAPE)
    return xr.DataArray(values, dims=tuple(coords), coords=coords, name="sst")


def withheld(seed: int, kind: str) -> np.ndarray:
    """Return the cells of random gaps, of months without any cell, or of clouds: connected parts of a third."""
    rng = np.random.default_rng(seed + 100)
    if kind == "random":
        return rng.uniform(size=SHAPE) < 0.3
    if kind == "months":
        gone = np.zeros(SHAPE, bool)
        gone[rng.choice(np.arange(5, SHAPE[0] - 5), 6, replace=False)] = True
        return gone
    smooth = gaussian_filter(rng.normal(size=SHAPE), (0.7, 2.0, 2.0))
    return smooth > np.quantile(smooth, 0.7)


def dineof(values: np.ndarray) -> np.ndarray:
    """Fill gaps by EOFs iterated on them, as many as predict 3 % of the observed cells best (Beckers, Rixen 2003)."""
    flat = values.reshape(len(values), -1)
    seen, level = np.isfinite(flat), np.nanmean(flat)
    kept_out = seen & (np.random.default_rng(0).uniform(size=flat.shape) < 0.03)

    def iterated(known: np.ndarray, number: int, start: np.ndarray) -> np.ndarray:
        whole = np.where(known, flat - level, start)
        for _ in range(200):
            u, s, v = np.linalg.svd(whole, full_matrices=False)
            found = (u[:, :number] * s[:number]) @ v[:number]
            moved = np.sqrt(np.mean((found - whole)[~known] ** 2))
            whole = np.where(known, flat - level, found)
            if moved < 1e-3 * np.std(whole):
                break
        return found

    best, found = (np.inf, 1, np.zeros_like(flat)), np.zeros_like(flat)
    for number in range(1, 16):
        found = iterated(seen & ~kept_out, number, found)
        error = float(np.sqrt(np.mean((found - (flat - level))[kept_out] ** 2)))
        best = min(best, (error, number, found), key=lambda one: one[0])
        if number > best[1] + 3:
            break
    return (iterated(seen, best[1], best[2]) + level).reshape(values.shape)


def of_gaps(seed: int) -> Iterator[dict[str, Any]]:
    """Fill each kind of gaps of each kind of field: GridGP at its defaults, DINEOF, and lines between months."""
    for field in ("smooth", "rough", "season"):
        for kind in ("random", "months", "clouds"):
            whole, hidden = cube(seed, field), withheld(seed, kind)
            given, truth = whole.where(~hidden), whole.values[hidden]
            between = given.interpolate_na("time", fill_value="extrapolate").values[hidden]
            began = time.process_time()
            found = GridGP().fit(given).predict()
            used = time.process_time() - began
            yield {
                "case": f"{field}, {kind}", "method": "GridGP", "processor_seconds": used,
                **scores(truth, *(found[name].values[hidden] for name in ("mean", "std"))),
                "dineof": float(rmse(truth, dineof(given.values)[hidden])),
                "between": float(rmse(truth, between)),
            }  # fmt: skip


def scores(truth: np.ndarray, means: np.ndarray, stds: np.ndarray) -> dict[str, float]:
    """Return what is counted of predictions."""
    return {
        "rmse": float(rmse(truth, means)),
        "nlpd": float(nlpd(truth, means, stds)),
        "coverage": float(coverage(truth, means, stds)),
    }


# ---------------------------------------------------------------- forecasts


def weekly(seed: int) -> xr.DataArray:
    """Draw what is like CO2 at Mauna Loa: growth at a rate that wanders, years above and below it, a season."""
    rng, years = np.random.default_rng(seed), 7.0 * np.arange(WEEKS) / YEAR
    step = 7.0 / YEAR
    wander = np.cumsum(0.14 * np.sqrt(step) * rng.normal(size=WEEKS))
    of_years = walk(rng, WEEKS, np.exp(-step / 0.8), 0.5)
    rise = np.cumsum((1.3 + 0.03 * years + wander + of_years) * step)
    turn = 2.0 * np.pi * years
    season = 2.8 * (1.0 + 0.004 * years) * np.sin(turn) + 0.8 * np.cos(2.0 * turn + 0.3)
    values = 315.0 + rise + season + walk(rng, WEEKS, 0.7, 0.28) + 0.2 * rng.normal(size=WEEKS)
    values[rng.choice(WEEKS, 59, replace=False)] = np.nan
    return xr.DataArray(values, dims="day", coords={"day": 7.0 * np.arange(WEEKS)}, name="CO2")


def walk(rng: np.random.Generator, size: int, kept: float, deviation: float) -> np.ndarray:
    """Draw an autoregression of order one."""
    steps = deviation * np.sqrt(1.0 - kept**2) * rng.normal(size=size)
    found = np.zeros(size)
    for i in range(1, size):
        found[i] = kept * found[i - 1] + steps[i]
    return found


def of_forecasts(seed: int) -> Iterator[dict[str, Any]]:
    """Forecast the last ten years from means of four weeks, by each kernel of the rise, learned and averaged over."""
    means = weekly(seed).coarsen(day=4, boundary="trim").mean()
    last = means["day"].values[-1] - AHEAD * YEAR
    before, after = means[means.day <= last], means[means.day > last]
    seen = np.isfinite(after.values)
    for (name, trend), how in product(TRENDS.items(), FOUND):
        began = time.process_time()
        model = GridGP({"day": growth(trend)}, tol=1e-3, hyperparameters=how).fit(before)
        ahead = model.predict({"day": after["day"].values})
        used = time.process_time() - began
        found = (ahead[one].values[seen] for one in ("mean", "std"))
        yield {
            "case": "ten years ahead", "method": f"GridGP, {name} trend{FOUND[how]}",
            "processor_seconds": used, "ahead_std": float(ahead["std"][-1]),
            **scores(after.values[seen], *found), "log_evidence": model.log_evidence_,
        }  # fmt: skip


# ---------------------------------------------------------------- stations


def of_stations(seed: int) -> Iterator[dict[str, Any]]:
    """Map stations with a height, a nugget and a trend: below and above the number from which the nearest count."""
    import pyarrow as pa

    for number in (400, 2800, 3300):
        rng, size = np.random.default_rng(seed), number + 1500
        lat, lon = rng.uniform(35.0, 65.0, size), rng.uniform(-10.0, 35.0, size)
        points = chord_points(lat, lon)
        square = np.sum(points**2, axis=1)
        apart = np.sqrt(np.maximum(square[:, None] + square - 2.0 * points @ points.T, 0.0))
        field = root(apart / 700.0, 3) @ rng.normal(size=size)
        height = np.exp(0.5 * (root(apart / 300.0, 1) @ rng.normal(size=size)))
        y = 10.0 + field - 1.5 * height + 0.3 * rng.normal(size=size)
        table = pa.table({"lat": lat, "lon": lon, "height": height, "y": y})
        began = time.process_time()
        model = StationGP().fit(table.slice(0, number), "y", covariates=["height"])
        found = model.predict(table.slice(number))
        used = time.process_time() - began
        given = (np.asarray(found[name]) for name in ("mean", "std"))
        yield {
            "case": f"{number} stations", "method": model.method_, "processor_seconds": used,
            **scores(y[number:], *given), "slope": model.trend_["height"][0],
        }  # fmt: skip


TRIALS = {"gaps": of_gaps, "forecasts": of_forecasts, "stations": of_stations}
WORDS = {
    "gaps": "Cubes of 96 months and 12 x 14 cells, GridGP at its defaults: anomalies (with a derivative in time, with "
    "none, or on a year's cycle that differs from cell to cell) and a noise of 0.15. A third of the cells at random, "
    "six months without any cell, a third in clouds.",
    "stations": "Stations of a sphere with a Matern-3/2 field of 700 km, a trend of -1.5 in a rough height and a "
    "nugget of 0.3, 1,500 places withheld: StationGP at its defaults.",
    "forecasts": "Weekly series like that of CO2, 2,284 weeks, the last ten years from those before, by means of four "
    "weeks and the kernels of `grid_forecasts.py`. One series has one trend: coverage differs from 0 to 100 % between "
    "series, and its mean is what counts.",
}


def page() -> None:
    """Write results/simulated_maps.md."""
    lines = []
    for trial, words in WORDS.items():
        grouped: dict[Any, list[dict[str, Any]]] = defaultdict(list)
        for row in rows(OUT):
            if row["trial"] == trial:
                grouped[row["case"], row["method"]].append(row)
        if not grouped:
            continue
        beside = trial == "gaps"
        table = []
        for (case, method), found in grouped.items():
            of = {key: mean([one[key] for one in found]) for key in found[0] if key in NUMBERS}
            more = f"{of['dineof']:.3f} | {of['between']:.3f} | " if beside else ""
            table.append(
                f"| {case} | {method} | {len(found)} | {100 * of['coverage']:.1f} % | {of['rmse']:.3f} | {more}"
                f"{of['nlpd']:.2f} | {of['processor_seconds']:.0f} |"
            )
        names = "DINEOF | interpolate_na | " if beside else ""
        header = f"| case | method | draws | in 95 % | RMSE | {names}NLPD | processor s |"
        lines += [f"## {trial.capitalize()}", "", words, "", *table_lines(header, table), ""]
    made = "Made by `python benchmarks/simulated_maps.py`, see there; means over draws."
    write_page(
        RESULTS / "simulated_maps.md", "Maps and forecasts of simulated fields", [made, "", *lines]
    )


NUMBERS = ("coverage", "rmse", "nlpd", "processor_seconds", "dineof", "between")


def main() -> None:
    """Run one of the trials."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trial", choices=TRIALS, nargs="?")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    for seed in range(args.first, args.first + args.seeds if args.trial else args.first):
        for line in TRIALS[args.trial](seed):
            line = {"trial": args.trial, "seed": seed} | line
            put(OUT, line, ("trial", "case", "method", "seed"))
            print(json.dumps(line, default=float), flush=True)
    if args.write or not args.trial:
        page()


if __name__ == "__main__":
    main()
