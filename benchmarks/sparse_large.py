"""t-SVGP with 512 inducing points, or SWSGP with 100,000, on a Parquet file of two million rows: one JSON line.

VASTGP_DATA=/path/to/npz python benchmarks/sparse_large.py --write /tmp/houseelectric    # the Parquet files, once
VASTGP_DATA=/path/to/npz python benchmarks/sparse_large.py --read /tmp/houseelectric --seconds 200
python benchmarks/sparse_large.py --read /tmp/houseelectric --estimator SWSGPRegressor --seconds 900

Errors are standardised; memory is the peak above that after the imports.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import vastgp
from run import load, machine_rates, peak_mb
from sparse import errors
from table import RESULTS, put
from vastgp.options import Natural

OUT = RESULTS / "sparse_large.jsonl"
PARAMS = {
    "TSVGPRegressor": {
        "kernel": "rbf", "num_inducing": 512, "dtype": "float32",
        "solver": Natural(row_batch=1024, jitter=1e-6, max_steps=100_000),
    },
    "SWSGPRegressor": {"kernel": "matern52", "num_inducing": 100_000, "num_neighbors": 32},
}  # fmt: skip


def write(folder: Path, split: int) -> None:
    """Write training and test rows."""
    folder.mkdir(parents=True, exist_ok=True)
    X, y, X_test, y_test = load("houseelectric", split)
    for name, inputs, target in (("train", X, y), ("test", X_test, y_test)):
        columns = {f"x{j}": inputs[:, j] for j in range(inputs.shape[1])} | {"y": target}
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")


def main() -> None:
    """Fit and score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--read", type=Path)
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--estimator", default="TSVGPRegressor", choices=sorted(PARAMS))
    parser.add_argument("--set", type=json.loads, default={}, help="constructor arguments as JSON")
    asked = parser.parse_args()
    if asked.write:
        write(asked.write, asked.split)
        return
    params = PARAMS[asked.estimator] | asked.set
    model = getattr(vastgp, asked.estimator)(max_seconds=asked.seconds, **params)
    before = peak_mb()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(asked.read / "train.parquet", "y")
    fitted = peak_mb()
    began = time.perf_counter()
    test = asked.read / "test.parquet"
    mean, std = model.predict(test, return_std=True)
    predicting = time.perf_counter() - began
    peak = peak_mb()
    y_test = np.asarray(pq.read_table(test, columns=["y"])["y"])
    found = errors(y_test, mean, std, model.standardizer_.y_scale)
    result = {
        "dataset": "houseelectric", "split": asked.split, "method": f"vastgp {asked.estimator}",
        "n": model.standardizer_.n_rows,
        "seconds": round(model.fit_seconds_, 1), "predict_seconds": round(predicting, 1), "steps": model.n_iter_,
        "reason": model.stop_reason_, "learned": repr(model.kernel_), **found, "test_rows": len(y_test),
        "mb_after_imports": round(before), "mb_fit_above": round(fitted - before), "mb_above": round(peak - before),
        "params": {name: str(value) for name, value in params.items()}, **machine_rates(),
    }  # fmt: skip
    put(OUT, result, ("dataset", "split", "method"))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
