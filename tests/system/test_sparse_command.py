"""Inducing points on the command line."""

import json

import numpy as np
import pandas as pd


def test_fit_predict_and_info(run, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, 150)
    frame = pd.DataFrame({"x": x, "y": np.sin(2.0 * x) + 0.1 * rng.normal(size=150)})
    rows, model, out = (tmp_path / name for name in ("rows.csv", "model.vastgp", "out.csv"))
    frame.to_csv(rows, index=False)
    given = ["--kernel", "rbf", "--set", "num_inducing=15", "--set", "max_iter=50"]
    run("fit", rows, "--target", "y", "--method", "tsvgp", *given, "--out", model)
    run("predict", model, rows, "--out", out)
    predicted = pd.read_csv(out)
    assert np.mean((predicted["mean"] - np.sin(2.0 * x)) ** 2) ** 0.5 < 0.05
    assert json.loads(run("info", model, "--json").out)["method"] == "TSVGPRegressor"
