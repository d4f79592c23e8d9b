"""Fits that say "converged", beside the same with a tenth of ``tol`` and ten times the steps: do predictions move?

``python benchmarks/converged.py`` fits every estimator of tests/longer_fits.py to generated tables and to shared ones
(VASTGP_DATA). One JSON line for each estimator and table in results/converged.jsonl, of which results/converged.md is
made. ``--only`` takes names of estimators, ``--table`` those of tables.

What a prediction has moved by is a divergence in nats for each row, and is held against what ``tol`` promises in that
unit: see `longer_fits.Longer`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import sklearn.datasets
import xarray as xr

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from grid_fields import FIELDS as GRIDDED
from grid_fields import air_temperature
from hard_tables import Table, random_table
from longer_fits import LONGER, moved
from shared_sets import load
from table import RESULTS, put, rows, table_lines, write_page

OUT = RESULTS / "converged.jsonl"
# Rows of a table: a fit to convergence and one ten times as long are to take seconds.
_ROWS, _NEW = 200, 200
Data = tuple[Any, ...]


def _generated(table: Table) -> Callable[[], Data]:
    def draw() -> Data:
        X, y, new, _ = table.draw(0)
        return X, y, new[:_NEW]

    return draw


def _shared(name: str) -> Callable[[], Data]:
    def read() -> Data:
        X, y, new, _ = load(name, 0)
        some = np.random.default_rng(0).permutation(len(y))[:_ROWS]
        return X[some], y[some], new[:_NEW]

    return read


def _field(gaps: float) -> Callable[[], Data]:
    """A wave over 30 times and 12 places, with noise; predicted where it was and half a step on."""

    def draw() -> Data:
        generator = np.random.default_rng(0)
        t, x = np.arange(30.0), np.sort(generator.uniform(0.0, 5.0, 12))
        values = np.sin(t / 4.0)[:, None] * np.cos(x) + 0.2 * generator.normal(size=(30, 12))
        values[generator.uniform(size=values.shape) < gaps] = np.nan
        return xr.DataArray(values, dims=("t", "x"), coords={"t": t, "x": x}), {"t": t + 0.5}

    return draw


def _air() -> Data:
    return _cut(
        air_temperature().isel(year=slice(0, 20), lat=slice(0, None, 4), lon=slice(0, None, 4)), 0.3
    )


def _drawn(seed: int, **changes: Any) -> Callable[[], Data]:
    """A table that is drawn at random but for its rows: few enough to be fitted to the end and beyond it."""
    return _generated(replace(random_table(seed), rows=40 + 10 * (seed % 17), **changes))


def _halves(name: str) -> Callable[[], Data]:
    """Whether a shared target is above its median."""

    def read() -> Data:
        X, y, new = _shared(name)()
        return X, (y > np.median(y)).astype(np.int64), new

    return read


def _package(name: str) -> Callable[[], Data]:
    def read() -> Data:
        X, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(y))
        X, y = X[order], y[order]
        few = len(y) - min(_NEW, len(y) // 4)
        return X[: min(_ROWS, few)], y[: min(_ROWS, few)], X[few:]

    return read


def _cut(array: xr.DataArray, gaps: float) -> Data:
    """Withhold a share of what is observed; every cell is predicted."""
    withheld = np.random.default_rng(0).uniform(size=array.shape) < gaps
    return array.where(~withheld), None


def _random_field(seed: int) -> Callable[[], Data]:
    """Waves of one to three dimensions with noise and gaps; predicted half a step on along the first."""

    def draw() -> Data:
        generator = np.random.default_rng([seed, 26])
        sizes = [
            int(generator.integers(4, limit)) for limit in ((150,), (30, 14), (14, 9, 7))[seed % 3]
        ]
        names = "txy"[: len(sizes)]
        coords = {
            name: np.arange(size) + generator.uniform(-0.3, 0.3, size) * generator.integers(2)
            for name, size in zip(names, sizes, strict=True)
        }
        values = sum(
            generator.normal()
            * math.prod(
                np.sin(
                    generator.uniform(0.05, 1.5)
                    * at.reshape([-1 if k == axis else 1 for k in range(len(sizes))])
                    + generator.uniform(0, 6)
                )
                for axis, at in enumerate(coords.values())
            )
            for _ in range(3)
        )
        values = values + 10.0 ** generator.uniform(-3.0, 0.5) * generator.normal(size=sizes)
        array = xr.DataArray(values, dims=tuple(names), coords=coords)
        filled, _ = _cut(array, float(generator.choice([0.0, 0.2, 0.6])))
        return filled, {"t": coords["t"] + 0.5}

    return draw


def _gridded(name: str, gaps: float, **cells: slice) -> Callable[[], Data]:
    return lambda: _cut(GRIDDED[name][0]().isel(cells), gaps)


REGRESSION: dict[str, Callable[[], Data]] = {
    "waves": _generated(Table(_ROWS, useful=3, level=0.2)),
    "rough": _generated(Table(_ROWS, useful=2, inputs="units", function="rough", level=0.1)),
    "steps, heavy tails": _generated(Table(_ROWS, useful=4, useless=4, inputs="heavy", function="steps", level=0.3)),
    "nearly noise": _generated(Table(_ROWS, useful=3, useless=3, level=4.0)),
    "no noise": _generated(Table(_ROWS, useful=3, level=0.001)),
    "outliers": _generated(Table(_ROWS, useful=2, noise="outliers", level=0.1)),
    "few": _generated(Table(30, useful=2, level=0.2)),
    # the one left out has four distinct rows, too few for the inducing inputs that are asked for
    **{f"drawn {seed}": _drawn(seed) for seed in range(14) if seed != 7},
    **{name: _shared(name) for name in (
        "yacht", "concrete", "wine", "airfoil", "energy", "housing", "servo", "slump", "powerplant", "kin8nm",
    )},
}  # fmt: skip
CLASSES: dict[str, Callable[[], Data]] = {
    "classes": _generated(Table(_ROWS, useful=3, target="classes", level=0.3)),
    "classes, heavy tails": _generated(
        Table(_ROWS, useful=4, useless=8, inputs="heavy", function="steps", target="classes")
    ),
    **{f"drawn {seed}": _drawn(seed, target="classes") for seed in range(20, 38)},
    **{name: _shared(name) for name in ("banana", "ionosphere", "sonar")},
    **{f"half of {name}": _halves(name) for name in ("kin40k", "protein", "elevators")},
    **{name: _package(name) for name in ("breast_cancer", "iris", "wine", "digits")},
}  # fmt: skip
FIELDS: dict[str, Callable[[], Data]] = {
    "wave": _field(0.0), "wave with gaps": _field(0.4), "mostly gaps": _field(0.9),
    **{f"drawn {seed}": _random_field(seed) for seed in range(17)},
    "air_temperature": _air,
    "air, two years": _gridded("air_temperature", 0.3, year=slice(5, 7)),
    "air, one place": _gridded("air_temperature", 0.1, lat=slice(3, 4), lon=slice(3, 4)),
    "air, one latitude": _gridded("air_temperature", 0.2, lat=slice(5, 6), year=slice(0, 30)),
    "sst, two years": _gridded("sst_ostia", 0.2, time=slice(0, 24), lat=slice(0, 40, 5), lon=slice(0, 40, 5)),
    "sst, one month": _gridded("sst_ostia", 0.2, time=slice(0, 1), lat=slice(0, 60, 2), lon=slice(0, 60, 2)),
    "sst, later": _gridded("sst_ostia", 0.5, time=slice(-12, None), lat=slice(2, 14, 2), lon=slice(200, 300, 12)),
    "soap film, one frame": _gridded("piv_soapfilm", 0.2, frame=slice(0, 1), y=slice(0, 20), x=slice(0, 20)),
    "soap film": _gridded("piv_soapfilm", 0.2, y=slice(0, None, 6), x=slice(0, None, 6)),
    "soap film, far": _gridded("piv_soapfilm", 0.6, frame=slice(2, 4), y=slice(10, 30, 2), x=slice(10, 30, 2)),
}  # fmt: skip


def tables_of(name: str) -> dict[str, Callable[[], Data]]:
    """Return the tables that an estimator is for."""
    estimator = LONGER[name].estimator
    return FIELDS if estimator == "GridGP" else CLASSES if "Classifier" in estimator else REGRESSION


def measure(name: str, table: str) -> dict[str, Any]:
    """Return one line."""
    *data, new = tables_of(name)[table]()
    case, began = LONGER[name], time.process_time()
    n = int(np.sum(np.isfinite(data[0].values))) if len(data) == 1 else len(data[1])
    short, long = case.fits(*data)
    found, allowed = moved(short, long, new), case.allowed(n)
    ends = [model.history_.values.get("objective") or [np.nan] for model in (short, long)]
    return {
        "name": name, "table": table, "rows": n, "tol": case.tol, "unit": case.unit,
        "converged": bool(short.converged_), "longer": bool(long.converged_),
        "steps": int(short.n_iter_), "more_steps": int(long.n_iter_),
        "moved": found, "allowed": allowed, "share": found / allowed, "gain": float(ends[1][-1] - ends[0][-1]) / n,
        "said": short.stop_reason_, "said_later": long.stop_reason_,
        "processor_seconds": round(time.process_time() - began, 1),
    }  # fmt: skip


def write() -> None:
    """Write the page."""
    found = rows(OUT)
    lines = []
    for name in LONGER:
        of = [row for row in found if row["name"] == name]
        said = [row for row in of if row["converged"]]
        if not of:
            continue
        worst = max(said, key=lambda row: row["share"], default=None)
        over = [f"{row['table']} ({row['share']:.2g})" for row in said if row["share"] > 1]
        lines.append(
            f"| {name} | {of[0]['tol']:g} {of[0]['unit']} | {len(said)} of {len(of)} "
            + (f"| {worst['moved']:.1e} | {worst['share']:.2g} | " if worst else "| | | ")
            + f"{'; '.join(over)} |"
        )
    header = (
        "| estimator | tol | said converged | moved, nats a row, at most | of what tol allows "
        "| more than it allows on (times) |"
    )
    write_page(
        RESULTS / "converged.md",
        "Converged, and ten times longer",
        [
            "Made by `python benchmarks/converged.py`, see its first lines. What is not listed has not been run.",
            "",
            *table_lines(header, lines),
        ],
    )


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=list(LONGER))
    parser.add_argument("--table", nargs="+")
    parser.add_argument("--missing", action="store_true", help="leave out lines that there are")
    parser.add_argument("--write", action="store_true", help="only make the page")
    asked = parser.parse_args()
    there = {(row["name"], row["table"]) for row in rows(OUT)}
    for name in [] if asked.write else asked.only:
        for table in tables_of(name):
            shared = tables_of(name)[table].__qualname__.startswith(
                ("_shared", "_halves", "_air", "_gridded")
            )
            if (shared and "VASTGP_DATA" not in os.environ) or (
                asked.table and table not in asked.table
            ):
                continue
            if asked.missing and (name, table) in there:
                continue
            row = measure(name, table)
            put(OUT, row, ("name", "table"))
            print(json.dumps(row, default=float), flush=True)
        jax.clear_caches()
    write()


if __name__ == "__main__":
    main()
