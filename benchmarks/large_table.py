"""The front door on a table of millions of rows with text, dates, gaps and numbers, beside boosted trees. A line a run.

python benchmarks/large_table.py --rows 5000000 --seconds 60

The table is made on the spot, a Parquet file of 46 bytes a row. Trees are scikit-learn's, of random rows, with the
columns prepared by hand: day of the year, and the mean of the target of each shop for its name.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from run import machine_rates, peak_mb
from table import RESULTS, put
from vastgp import GPRegressor

OUT = RESULTS / "large_table.jsonl"
_BLOCK, _TEST = 500_000, 20_000
_SHOPS, _ROWS_OF_TREES = 400, (50_000, 450_000)


def block(number: int, rows: int) -> Any:
    """Return a part of the table: additive but for the place, noise that varies, a twentieth of the prices missing."""
    import pandas as pd

    rng = np.random.default_rng([7, number])
    shop = rng.integers(0, _SHOPS, rows)
    effect = np.random.default_rng(7).permutation(_SHOPS) / _SHOPS
    found = pd.DataFrame(
        {
            "when": pd.Timestamp("2015-01-01")
            + pd.to_timedelta(rng.integers(0, 3 * 365 * 86_400, rows), unit="s"),
            "store": np.array([f"s{k:03d}" for k in range(_SHOPS)])[shop],
            "lat": rng.uniform(40.0, 50.0, rows),
            "lon": rng.uniform(-5.0, 10.0, rows),
            "price": rng.lognormal(2.0, 0.5, rows),
            "stock": rng.integers(0, 500, rows),
            "promo": rng.random(rows) < 0.2,
            "zip": rng.integers(10_000, 10_900, rows).astype(str),
        }
    )
    season = np.sin(2.0 * np.pi * found["when"].dt.day_of_year / 365.0)
    place = np.sin(found["lat"]) * np.cos(found["lon"] / 2.0)
    noise = rng.normal(size=rows) * (1.0 + 0.5 * found["promo"])
    found["sales"] = (
        10.0 * effect[shop] + 3.0 * season + 2.0 * place + 2.0 * found["promo"]
        - 2.0 * np.log(found["price"]) + noise
    )  # fmt: skip
    found.loc[rng.random(rows) < 0.05, "price"] = np.nan
    return found


def write(path: Path, rows: int) -> None:
    """Write the table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    for number, start in enumerate(range(0, rows, _BLOCK)):
        part = pa.Table.from_pandas(block(number, min(_BLOCK, rows - start)), preserve_index=False)
        writer = writer or pq.ParquetWriter(path, part.schema)
        writer.write_table(part)
    assert writer is not None
    writer.close()


def of_front_door(path: Path, seconds: float) -> dict[str, Any]:
    """Return what a fit to the file says of new rows."""
    new = block(10**6, _TEST)
    y = new.pop("sales").to_numpy()
    began, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = GPRegressor(max_seconds=seconds).fit(path, "sales")
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    began = time.perf_counter()
    distribution = model.distribution(new)
    predicting = time.perf_counter() - began
    low, high = np.asarray(model.predict_interval(new)).T
    scale = float(np.std(y))
    return {
        "method": "GPRegressor", "seconds": round(took, 1), "cpu_seconds": round(cpu, 1),
        "predict_seconds": round(predicting, 2), "left_out": model.n_rows_left_out_,
        "rmse": float(np.sqrt(np.mean((distribution.mean - y) ** 2))) / scale,
        "nlpd": float(-np.mean(distribution.log_density(y))) - float(np.log(scale)),
        "coverage": float(np.mean((low <= y) & (y <= high))), "answer": model.leaderboard_[0].method,
        "ran": [[one.method, one.rows, round(one.seconds, 1)] for one in model.leaderboard_ if one.seconds],
        "warnings": [str(one.message) for one in caught],
    }  # fmt: skip


def of_trees(rows: int) -> dict[str, Any]:
    """Return the same of boosted trees."""
    import pandas as pd
    from sklearn.ensemble import HistGradientBoostingRegressor

    parts = [block(number, min(_BLOCK, rows)) for number in range(-(-rows // _BLOCK))]
    table, new = pd.concat(parts).iloc[:rows], block(10**6, _TEST)
    of_shop = table.groupby("store")["sales"].mean()

    def prepared(frame: Any) -> np.ndarray:
        when = frame["when"]
        columns = [when.dt.day_of_year, when.astype("int64") / 1e15, frame["store"].map(of_shop)]
        columns += [frame[name] for name in ("lat", "lon", "price", "stock", "promo")]
        return np.stack([np.asarray(one, float) for one in columns], axis=1)

    began = time.perf_counter()
    model = HistGradientBoostingRegressor(max_iter=300, random_state=0)
    model.fit(prepared(table), table["sales"])
    took = time.perf_counter() - began
    off = new["sales"].to_numpy() - model.predict(prepared(new))
    rmse = float(np.sqrt(np.mean(off**2)) / np.std(new["sales"]))
    return {"method": f"trees of {rows:,} rows", "seconds": round(took, 1), "rmse": rmse}


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--seconds", type=float, nargs="+", default=[15.0, 60.0])
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    rates = machine_rates()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        write(path, asked.rows)
        for seconds in asked.seconds:
            found = {"rows": asked.rows, "budget": seconds} | of_front_door(path, seconds)
            found |= {"peak_mb": round(peak_mb()), **rates}
            put(asked.out, found, ("rows", "budget", "method"))
            print(json.dumps(found, default=float), flush=True)
    for rows in _ROWS_OF_TREES:
        found = {"rows": asked.rows, "budget": None} | of_trees(rows) | rates
        put(asked.out, found, ("rows", "budget", "method"))
        print(json.dumps(found, default=float), flush=True)


if __name__ == "__main__":
    main()
