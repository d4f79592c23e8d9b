"""The relevance vector machine on the command line."""

import json

import numpy as np
import pandas as pd


def test_fit_predict_and_info(run, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(-10, 10, 150)
    frame = pd.DataFrame({"x": x, "y": np.sinc(x / np.pi) + 0.1 * rng.normal(size=150)})
    rows, model, out = (tmp_path / name for name in ("rows.csv", "model.vastgp", "out.csv"))
    frame.to_csv(rows, index=False)
    run("fit", rows, "--target", "y", "--method", "rvm", "--kernel", "rbf", "--out", model)
    run("predict", model, rows, "--out", out)
    predicted = pd.read_csv(out)
    assert np.mean((predicted["mean"] - np.sinc(x / np.pi)) ** 2) ** 0.5 < 0.06
    assert "of 150 candidate functions" in run("info", model).out
    assert json.loads(run("info", model, "--json").out)["method"] == "RelevanceVectorRegressor"
