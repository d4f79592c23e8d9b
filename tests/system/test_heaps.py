"""The commands for a target of which many rows have exactly one value."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import vastgp


def paid(seed, n):
    """Sums that are 0 where a risk is low, and around 100 otherwise."""
    rng = np.random.default_rng(seed)
    risk, age = rng.normal(size=n), rng.uniform(20.0, 80.0, n)
    y = np.where(risk + 0.5 * rng.normal(size=n) < 0.0, 0.0, 100.0 + 10.0 * rng.normal(size=n))
    return pa.table({"risk": risk, "age": age, "paid": y})


@pytest.fixture(scope="module")
def fitted(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("heaps")
    for name, seed, n in (("train", 0, 150), ("test", 1, 80)):
        pa.parquet.write_table(paid(seed, n), folder / f"{name}.parquet")
    text = run(
        "fit", folder / "train.parquet", "--target", "paid", "--out", folder / "m.vastgp", "--max-seconds", 6,
        "--set", "method=exact", "--set", "likelihood=two-part",
    ).out  # fmt: skip
    return folder, " ".join(text.split())


def test_fit_info_and_report_say_it_in_words(run, fitted):
    folder, text = fitted
    share = f"{np.mean(paid(0, 150)['paid'].to_numpy() == 0):.0%} of the 150 rows have exactly 0"
    assert share in text
    assert share in " ".join(run("info", folder / "m.vastgp").out.split())
    found = json.loads(run("info", folder / "m.vastgp", "--json").out)
    assert found["heap"]["values"] == [0.0] and found["heap"]["rows"] == 150
    run("report", folder / "m.vastgp", "--out", folder / "page.html")
    assert share in (folder / "page.html").read_text()


def test_predict_and_evaluate_are_of_both_parts(run, fitted):
    folder, _ = fitted
    new, model = folder / "test.parquet", vastgp.load(folder / "m.vastgp")
    run("predict", folder / "m.vastgp", new, "--out", folder / "p.parquet", "--batch-rows", 30)
    told = pa.parquet.read_table(folder / "p.parquet")
    found = model.distribution(new)
    np.testing.assert_allclose(told["mean"], found.mean, rtol=1e-9)
    np.testing.assert_allclose(told["probability_of_0"], found.probabilities[:, 0], rtol=1e-9)
    assert np.mean(np.asarray(told["lower_95"]) == 0.0) > 0.3
    report = json.loads(run("evaluate", folder / "m.vastgp", new, "--json").out)
    score = -np.mean(model.log_predictive_density(new, "paid"))
    np.testing.assert_allclose(report["target"]["nlpd"], score, rtol=1e-9)
    assert report["standardised"] is None
