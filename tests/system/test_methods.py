"""Methods whose models say more than a mean and a deviation: chosen functions, classes, counts."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import vastgp


def test_relevance_vectors(run, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(-10, 10, 150)
    frame = pd.DataFrame({"x": x, "y": np.sinc(x / np.pi) + 0.1 * rng.normal(size=150)})
    rows, model, out = (tmp_path / name for name in ("rows.csv", "model.vastgp", "out.csv"))
    frame.to_csv(rows, index=False)
    method = ("--method", "relevance-vector", "--kernel", "rbf")
    run("fit", rows, "--target", "y", *method, "--out", model)
    run("predict", model, rows, "--out", out)
    predicted = pd.read_csv(out)
    assert np.mean((predicted["mean"] - np.sinc(x / np.pi)) ** 2) ** 0.5 < 0.06
    assert "RelevanceVectorRegressor, 150 basis functions" in run("info", model).out
    assert json.loads(run("info", model, "--json").out)["method"] == "RelevanceVectorRegressor"


QUICK = ("--kernel", "rbf", "--set", "num_inducing=12", "--test-fraction", "0.4")


@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
def test_classes(run, tmp_path, suffix):
    """Labels of text from a table, and numbers from arrays: to probabilities, scores and a diagram."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-3, 3, (250, 2))
    up = rng.uniform(size=250) < 1 / (1 + np.exp(-3.0 * np.sin(1.5 * X[:, 0])))
    rows, model = tmp_path / f"rows{suffix}", tmp_path / "model.vastgp"
    if suffix == ".npz":
        labels, target = np.where(up, 7, 2), ()
        np.savez(rows, X=X, y=labels)
    else:
        labels, target = np.where(up, "up", "down"), ("--target", "way")
        pd.DataFrame({"a": X[:, 0], "way": labels, "note": "x", "b": X[:, 1]}).to_parquet(rows)
        target = (*target, "--exclude", "note")
    text = run("fit", rows, *target, "--method", "tsvgp-classifier", *QUICK, "--out", model).out
    assert "accuracy" in text and "100 of 2 classes" in text
    fitted = vastgp.load(model)
    assert fitted.classes_.tolist() == sorted(set(labels.tolist()))
    out = tmp_path / f"out{suffix}"
    run("predict", model, rows, "--out", out, "--batch-rows", 100)
    found = pd.read_parquet(out) if suffix == ".parquet" else np.load(out)
    names = [f"probability_{label}" for label in fitted.classes_]
    probability = np.column_stack([found[name] for name in names])
    given = pd.DataFrame(X, columns=["a", "b"]) if suffix == ".parquet" else X
    np.testing.assert_allclose(probability, fitted.predict_proba(given), rtol=1e-6)
    assert np.array_equal(found["predicted"], fitted.predict(given))
    plot = tmp_path / "reliability.png"
    scored = run("evaluate", model, rows, *target[:2], "--plot", plot, "--json")
    report = json.loads(scored.out)
    assert report["accuracy"] == pytest.approx(np.mean(fitted.predict(given) == labels))
    nlpd = -fitted.log_predictive_density(given, labels).mean()
    assert report["nlpd"] == pytest.approx(nlpd, rel=1e-6)
    assert plot.stat().st_size > 10_000
    assert "TSVGPClassifier" in run("info", model).out


def test_counts(run, tmp_path):
    """Intervals of counts are counts, scores are of their own law, and there are no standardised units."""
    rng = np.random.default_rng(2)
    x = rng.uniform(0, 6, 300)
    y = rng.poisson(np.exp(0.3 + np.sin(x)))
    rows, model, out = (tmp_path / name for name in ("rows.csv", "model.vastgp", "out.csv"))
    pd.DataFrame({"x": x, "y": y}).to_csv(rows, index=False)
    method = ("--method", "tsvgp", "--set", "likelihood=poisson")
    run("fit", rows, "--target", "y", *method, *QUICK[:4], "--out", model)
    run("predict", model, rows, "--out", out)
    low, high = pd.read_csv(out)[["lower_95", "upper_95"]].to_numpy().T
    assert np.all(low >= 0) and np.all(low == np.floor(low)) and np.all(high == np.floor(high))
    report = json.loads(run("evaluate", model, rows, "--json").out)
    fitted = vastgp.load(model)
    assert report["coverage"] == np.mean((low <= y) & (y <= high)) and report["coverage"] > 0.94
    nlpd = -fitted.log_predictive_density(x[:, None], y).mean()
    assert report["target"]["nlpd"] == pytest.approx(nlpd, rel=1e-6)
    assert report["standardised"] is None and report["msll"] is None
    # the law is all but known: the rate is found to some percent
    best = -stats.poisson.logpmf(y, np.exp(0.3 + np.sin(x))).mean()
    assert nlpd == pytest.approx(best, abs=0.05)
    text = run("evaluate", model, rows, "--plot", tmp_path / "counts.png").out
    assert "standardised" not in text and "MSLL" not in text
