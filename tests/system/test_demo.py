"""`vastgp demo` from the packaged rows to a table and a calibration plot, with a smaller budget."""

from __future__ import annotations

import json
import re

import matplotlib.image
import numpy as np
import pyarrow.parquet as pq
import pytest

from vastgp.datasets import load_protein

FILES = {
    "about.md",
    "train.parquet",
    "test.parquet",
    "protein.vastgp",
    "predictions.parquet",
    "calibration.png",
}


def test_the_demo_trains_scores_and_plots(run, tmp_path):
    """Every step of it, with few rows and little time: too little for a race, so that one model runs."""
    out = tmp_path / "demo"
    text = run("demo", "--out", out, "--rows", 800, "--max-seconds", 11).out
    assert {path.name for path in out.iterdir()} == FILES
    for command in ("fit", "predict", "evaluate"):
        assert f"$ vastgp {command} " in text
    data = load_protein()
    train, test = pq.read_table(out / "train.parquet"), pq.read_table(out / "test.parquet")
    np.testing.assert_array_equal(train["log_rmsd"], data.y_train[:800])
    np.testing.assert_array_equal(test["euclidean_distance"], data.X_test[:, 6])
    # The table is that of the predictions on disk, and of a model that learned something.
    predictions = pq.read_table(out / "predictions.parquet")
    rmse = np.sqrt(np.mean((predictions["mean"].to_numpy() - data.y_test) ** 2))
    assert f"{rmse:.4g}" in text
    assert rmse < 0.85 * data.y_train.std()
    report = json.loads(run("evaluate", out / "protein.vastgp", out / "test.parquet", "--json").out)
    assert report["target"]["rmse"] == pytest.approx(rmse, rel=1e-6)
    low, high = predictions["lower_95"].to_numpy(), predictions["upper_95"].to_numpy()
    outside = int(np.sum(predictions["outside"].to_numpy(zero_copy_only=False)))
    assert f"{outside:,} of 4,573 rows lie outside what the model was trained on" in " ".join(
        text.split()
    )
    held = 100.0 * np.mean((low <= data.y_test) & (data.y_test <= high))
    assert re.search(rf"coverage of 95 % interval +{held:.1f} %", text)
    assert np.ptp(matplotlib.image.imread(out / "calibration.png")) > 0.5
    assert "CC BY 4.0" in (out / "about.md").read_text()


def test_the_demo_leaves_other_files_alone(run, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    result = run("demo", "--out", tmp_path, code=2)
    assert "holds other files (thesis.tex); give a new or empty folder" in result.err
    assert "is a file; give a folder" in run("demo", "--out", tmp_path / "thesis.tex", code=2).err
    assert "does not exist. Make it first" in run("demo", "--out", tmp_path / "a" / "b", code=2).err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
