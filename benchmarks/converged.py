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
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from grid_fields import air_temperature
from hard_tables import Table
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
        import xarray as xr

        generator = np.random.default_rng(0)
        t, x = np.arange(30.0), np.sort(generator.uniform(0.0, 5.0, 12))
        values = np.sin(t / 4.0)[:, None] * np.cos(x) + 0.2 * generator.normal(size=(30, 12))
        values[generator.uniform(size=values.shape) < gaps] = np.nan
        return xr.DataArray(values, dims=("t", "x"), coords={"t": t, "x": x}), {"t": t + 0.5}

    return draw


def _air() -> Data:
    array = air_temperature().isel(year=slice(0, 20), lat=slice(0, None, 4), lon=slice(0, None, 4))
    gaps = np.random.default_rng(0).uniform(size=array.shape) < 0.3
    return array.where(~gaps), None


REGRESSION: dict[str, Callable[[], Data]] = {
    "waves": _generated(Table(_ROWS, useful=3, level=0.2)),
    "rough": _generated(Table(_ROWS, useful=2, inputs="units", function="rough", level=0.1)),
    "steps, heavy tails": _generated(Table(_ROWS, useful=4, useless=4, inputs="heavy", function="steps", level=0.3)),
    "nearly noise": _generated(Table(_ROWS, useful=3, useless=3, level=4.0)),
    "no noise": _generated(Table(_ROWS, useful=3, level=0.001)),
    "outliers": _generated(Table(_ROWS, useful=2, noise="outliers", level=0.1)),
    "few": _generated(Table(30, useful=2, level=0.2)),
    **{name: _shared(name) for name in ("yacht", "concrete", "wine")},
}  # fmt: skip
CLASSES: dict[str, Callable[[], Data]] = {
    "classes": _generated(Table(_ROWS, useful=3, target="classes", level=0.3)),
    "classes, heavy tails": _generated(
        Table(_ROWS, useful=4, useless=8, inputs="heavy", function="steps", target="classes")
    ),
    **{name: _shared(name) for name in ("banana", "ionosphere", "sonar")},
}
FIELDS: dict[str, Callable[[], Data]] = {
    "wave": _field(0.0), "wave with gaps": _field(0.4), "mostly gaps": _field(0.9), "air_temperature": _air,
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
            shared = tables_of(name)[table].__qualname__.startswith(("_shared", "_air"))
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
