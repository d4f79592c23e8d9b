"""Maps from stations: a field on the globe with a trend in height, its error at withheld stations.

    python benchmarks/stations.py --stations 20000 200000 --seconds 120
    python benchmarks/stations.py --write    # results/stations.md from the lines

The field is a draw from random Fourier features of a Matern-3/2 kernel of the chord (2000 km, deviation 3), and of
another (300 km, deviation 1), with -6.5 a kilometre of height and noise of deviation 0.5, which is what a perfect model
is off by. Stations crowd as people do: half of them are within some hundred kilometres of 200 places.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

NOISE, LAPSE = 0.5, -6.5
RESULTS = Path(__file__).parent / "results"


def made(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return n stations with heights, values and the truth without noise."""
    from vastgp.data.coordinates import chord_points

    generator = np.random.default_rng(seed)
    lat = np.rad2deg(np.arcsin(generator.uniform(-1.0, 1.0, n)))
    lon = generator.uniform(-180.0, 180.0, n)
    crowded, towns = generator.random(n) < 0.5, generator.integers(0, 200, n)
    of_town = np.stack([generator.uniform(-60, 70, 200), generator.uniform(-180, 180, 200)])
    near = of_town[:, towns] + generator.normal(0.0, 2.0, (2, n))
    lat = np.where(crowded, np.clip(near[0], -89, 89), lat)
    lon = np.where(crowded, (near[1] + 180.0) % 360.0 - 180.0, lon)
    height = np.maximum(generator.gamma(1.0, 0.5, n), 0.0)
    points = chord_points(lat, lon)
    field = sum(
        _draw(points, scale, std, generator) for scale, std in ((2000.0, 3.0), (300.0, 1.0))
    )
    truth = 15.0 + field + LAPSE * height
    value = truth + NOISE * generator.normal(size=n)
    return {"lat": lat, "lon": lon, "height": height, "truth": truth, "value": value}


def _draw(
    points: np.ndarray, scale: float, std: float, generator: Any, waves: int = 2000
) -> np.ndarray:
    """Return a draw from random features of a Matern-3/2 kernel: frequencies of Student's t with three degrees."""
    normals = generator.normal(size=(waves, 3))
    stretch = np.sqrt(3.0 / generator.chisquare(3, waves))
    frequency, phase = normals * stretch[:, None] / scale, generator.uniform(0, 2 * np.pi, waves)
    found = np.empty(len(points))
    for start in range(0, len(points), 20_000):
        here = slice(start, start + 20_000)
        found[here] = np.cos(points[here] @ frequency.T + phase).sum(axis=1)
    return std * np.sqrt(2.0 / waves) * found


def run(n: int, seconds: float, test: int = 5000) -> dict[str, Any]:
    """Fit and score; return what a line says."""
    import pyarrow as pa

    import vastgp
    from vastgp.metrics import coverage, nlpd, rmse

    data = made(n + test)
    table = pa.table({name: values[:n] for name, values in data.items() if name != "truth"})
    new = pa.table({name: data[name][n:] for name in ("lat", "lon", "height")})
    began, before = time.perf_counter(), time.process_time()
    model = vastgp.StationGP(max_seconds=seconds).fit(table, "value", covariates=["height"])
    fitted, used = time.perf_counter() - began, time.process_time() - before
    began = time.perf_counter()
    found = model.predict(new)
    predicted = time.perf_counter() - began
    mean, std = (np.asarray(found[name]) for name in ("mean", "std"))
    y, truth = data["value"][n:], data["truth"][n:]
    slope, error = model.trend_["height"]
    return {
        "stations": n, "max_seconds": seconds, "method": model.method_,
        "rmse": float(rmse(y, mean)), "rmse_of_truth": float(rmse(truth, mean)), "noise": NOISE,
        "nlpd": float(nlpd(y, mean, std)), "nlpd_of_truth": float(nlpd(y, truth, NOISE)),
        "coverage": float(coverage(y, mean, std)),
        "slope": slope, "slope_error": error, "true_slope": LAPSE,
        "lengthscale_km": next(iter(model.lengthscales_km_.values())), "noise_std": model.noise_std_,
        "std_factor": model.std_factor_, "seconds": fitted, "processor_seconds": used,
        "predict_seconds": predicted,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "leaderboard": model.leaderboard_.to_dicts(),
        "cores": os.cpu_count(), "machine": platform.machine(),
    }  # fmt: skip


def table(lines: list[dict[str, Any]]) -> str:
    """Return the lines as a page."""
    rows = [
        "# Maps from stations",
        "",
        "`python benchmarks/stations.py --stations 200000 --seconds 120` (20,000: 60; 800,000: 600), then `--write`.",
        "Seconds are of processor time, those of the budget too, as other work shared the machine. A field",
        "on the globe with structure of 2000 and 300 km, -6.5 for each kilometre of height, noise of 0.5 (RMSE and",
        "NLPD *of the truth* are those of the field itself); 5000 stations withheld. Half of all stations crowd",
        "around 200 places.",
        "",
        "| stations | method | RMSE | of the truth | RMSE to the field | NLPD | of the truth | in 95 % | slope | "
        "fit, s | predict, s | GB |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in lines:
        slope = f"{one['slope']:.3f} +- {one['slope_error']:.3f}"
        rows.append(
            f"| {one['stations']:,} | {one['method']} | {one['rmse']:.3f} | {one['noise']:.3f} | "
            f"{one['rmse_of_truth']:.3f} | {one['nlpd']:.3f} | {one['nlpd_of_truth']:.3f} | "
            f"{100 * one['coverage']:.1f} % | {slope} | {one['processor_seconds']:.0f} | "
            f"{one['predict_seconds']:.1f} | {one['peak_gb']:.1f} |"
        )
    cores = lines[-1]["cores"]
    rows += [
        "",
        f"On {cores} cores: one run each. SWSGPRegressor predicts from the nearest readings.",
    ]
    return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stations", type=int, nargs="+", default=[20_000, 200_000])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--out", type=Path, default=RESULTS / "stations.jsonl")
    parser.add_argument("--write", action="store_true", help="results/stations.md from the lines")
    given = parser.parse_args()
    if given.write:
        lines = [json.loads(line) for line in given.out.read_text().splitlines()]
        (RESULTS / "stations.md").write_text(table(lines))
        return
    for n in given.stations:
        line = run(n, given.seconds)
        with given.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line, indent=1))


if __name__ == "__main__":
    main()
