"""The default method from files to files: a table with text, a date and gaps, its numbers and its classes."""

from __future__ import annotations

import json
import re
import shlex
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from scipy.stats import norm

import vastgp
import vastgp.data
from vastgp.cli import _tables
from vastgp.cli._selection import names_in

QUICK = ("--max-seconds", 5)
PRICE = ("--target", "price")
INPUTS = ["day", "city", "rooms", "area", "note"]


def sales(seed, n, *, ends=700):
    """Rows of flats sold: a date, a city that may be missing, gaps in the area, a note that says nothing."""
    rng = np.random.default_rng(seed)
    day = np.datetime64("2020-01-01") + rng.integers(0, ends, n).astype("timedelta64[D]")
    city = rng.choice(["Oslo", "Bergen", "Rome"], n)
    rooms, area = rng.integers(1, 6, n), rng.uniform(20.0, 150.0, n)
    price = 2.0 * area + 40.0 * (city == "Oslo") + 5.0 * rooms + 5.0 * rng.standard_normal(n)
    dear = price + 20.0 * rng.standard_normal(n) > 200.0
    return pa.table(
        {
            "day": pa.array(day),
            "city": pa.array(city, mask=np.arange(n) % 20 == 5),
            "rooms": rooms,
            "area": pa.array(area, mask=np.arange(n) % 25 == 3),
            "note": [f"flat {seed} {i}" for i in range(n)],
            "price": pa.array(price, mask=np.arange(n) == 7),
            "dear": np.where(dear, "yes", "no"),
            "flag": dear,
            "two": dear.astype(int),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sales")
    train, test = sales(0, 80), sales(1, 60)
    pa.parquet.write_table(train, folder / "train.parquet")
    pa.csv.write_csv(train, folder / "train.csv")
    pa.parquet.write_table(test, folder / "test.parquet")
    pa.csv.write_csv(test.select([*INPUTS, "price", "two"]), folder / "test.csv")
    pa.parquet.write_table(test.select(INPUTS), folder / "new.parquet")
    pa.parquet.write_table(test.drop_columns(["area"]), folder / "no_area.parquet")
    gone = test.drop_columns(["price"]).append_column("price", pa.nulls(60, pa.float64()))
    pa.parquet.write_table(gone, folder / "no_price.parquet")
    later = sales(2, 60).drop_columns(["day"])
    days = np.datetime64("2029-01-01") + np.arange(60).astype("timedelta64[D]")
    pa.parquet.write_table(later.append_column("day", pa.array(days)), folder / "later.parquet")
    rng = np.random.default_rng(3)
    X = rng.uniform(size=(40, 2))
    np.savez(folder / "arrays.npz", X=X, y=X[:, 0])
    np.savez(folder / "no_target.npz", X=X)
    return folder


@pytest.fixture(scope="module")
def fitted(run, folder):
    """What the program printed of a fit to the price, and the model."""
    out = folder / "price.vastgp"
    text = run(
        "fit", folder / "train.parquet", *PRICE, "--exclude", "dear,flag,two", *QUICK, "--out", out
    ).out
    return text, out


@pytest.fixture(scope="module")
def classifier(run, folder):
    """The same of the class, from CSV, where days are text, and 0 and 1 floating point numbers."""
    out = folder / "two.vastgp"
    text = run(
        "fit", folder / "train.csv", "-t", "two", "--exclude", "dear,flag", *QUICK, "--out", out
    ).out
    return text, out


def test_a_fit_tells_what_was_tried_done_and_found(fitted):
    text, path = fitted
    model = vastgp.load(path)
    assert isinstance(model, vastgp.GPRegressor)
    assert "The target 'price' is predicted as a number: GPRegressor, up to 5 s." in text
    assert f"* {model.leaderboard_[0].method}" in text and "RMSE" in text
    for column in INPUTS:
        assert f"\n  {column}" in text
    assert "left out: text such as" in text and "3 levels (Bergen, Oslo, Rome)" in text
    assert "gaps become the median" in text and "(4 missing)" in text
    assert "1 row without a target" in text
    assert "95 % intervals held" in text and "trained on  79 rows, 4 of 5 columns" in text
    assert "Next: vastgp predict" in text
    assert list(model.feature_names_in_) == INPUTS


def test_predictions_are_those_of_the_library_whatever_the_batches(run, folder, fitted, tmp_path):
    model = vastgp.load(fitted[1])
    expected = model.distribution(folder / "new.parquet")
    low, high = model.predict_interval(folder / "new.parquet").T
    for batch_rows in (1000, 7):
        out = tmp_path / f"{batch_rows}.parquet"
        run("predict", fitted[1], folder / "new.parquet", "--out", out, "--batch-rows", batch_rows)
        found = pa.parquet.read_table(out)
        assert found.column_names == ["mean", "std", "lower_95", "upper_95"]
        for name, values in zip(
            found.column_names, (expected.mean, expected.std, low, high), strict=True
        ):
            np.testing.assert_allclose(found[name], values, rtol=1e-9)


def test_rows_outside_the_training_rows_are_counted_and_marked(run, folder, fitted, tmp_path):
    out, model = tmp_path / "out.csv", vastgp.load(fitted[1])
    text = run("predict", fitted[1], folder / "new.parquet", "--out", out).out
    outside = model.outside(folder / "new.parquet")
    count = int(outside.sum())
    assert "outside what the model was trained on" in text and "outside" not in out.read_text()
    assert count < 12 and (f"{count} of 60 rows lie" in text or (count <= 1))
    text = run(
        "predict", fitted[1], folder / "later.parquet", "--out", out, "--range", "--force"
    ).out
    assert "60 of 60 rows lie outside what the model was trained on" in text
    assert np.all(pa.csv.read_csv(out)["outside"].to_numpy(zero_copy_only=False))
    # a date nine years on is drift, and said so
    text = run("evaluate", fitted[1], folder / "later.parquet").out
    assert "Day in years has drifted" in text and "60 of 60" in text.replace("59 of 59", "60 of 60")


def test_evaluate_scores_rows_that_have_a_target(run, folder, fitted, tmp_path):
    plot = tmp_path / "calibration.png"
    report = json.loads(
        run("evaluate", fitted[1], folder / "test.parquet", "--json", "--batch-rows", 9).out
    )
    y = sales(1, 60)["price"].to_numpy()
    seen = np.isfinite(y)
    law = vastgp.load(fitted[1]).distribution(folder / "test.parquet")
    assert report["rows"] == 59 and report["rows_without_target"] == 1
    assert report["target"]["rmse"] == pytest.approx(np.sqrt(np.mean((law.mean - y)[seen] ** 2)))
    assert report["target"]["nlpd"] == pytest.approx(-np.mean(law.log_density(y)[seen]))
    low, high = law.quantiles((0.025, 0.975))
    assert report["coverage"] == np.mean(((low <= y) & (y <= high))[seen])
    whole = seen & sales(1, 60)["area"].is_valid().to_numpy(zero_copy_only=False)
    assert np.std((law.mean - y)[whole]) < 12.0  # of which 5 are noise
    assert isinstance(report["outside_rows"], int) and report["drift"] == []
    text = run("evaluate", fitted[1], folder / "test.csv", "--plot", plot).out
    assert "1 without a target" in text and plot.stat().st_size > 10_000


def test_info_shows_the_encoding_the_race_and_the_kernel(run, fitted):
    text = run("info", fitted[1]).out
    for words in (
        "What was done with each column",
        "Calibration",
        "written by vastgp",
        "kernel",
        "day season",
    ):
        assert words in text
    assert max(map(len, (line for line in text.splitlines() if ".vastgp" not in line))) <= 80
    found = json.loads(run("info", fitted[1], "--json").out)
    model = vastgp.load(fitted[1])
    assert [column["name"] for column in found["encoding"]] == INPUTS
    assert found["leaderboard"][0]["kept"] is True and found["rows_dropped"] == 1
    assert found["winner"]["kernel"] == repr(model.kernel_)
    assert found["calibration_record"]["rows"] == model.calibration_record_.rows
    assert sum(one["size"] for one in found["inputs"]) == len(found["winner"]["features"])
    assert found["parameters"] == {"max_seconds": "5.0"}


def test_two_whole_numbers_are_classes_to_their_probabilities(run, folder, classifier, tmp_path):
    text, path = classifier
    assert "The target 'two' holds two whole numbers only, 0 and 1, taken as classes" in text
    assert "GPClassifier" in text and "wrong" in text
    model = vastgp.load(path)
    assert model.classes_.tolist() == [0, 1] and model.classes_.dtype.kind == "i"
    out = tmp_path / "out.parquet"
    run("predict", path, folder / "test.csv", "--out", out, "--range")
    found = pa.parquet.read_table(out)
    assert found.column_names == ["predicted", "probability_0", "probability_1", "outside"]
    proba = model.predict_proba(folder / "test.csv")
    np.testing.assert_allclose(found["probability_1"], proba[:, 1], rtol=1e-9)
    # whole numbers of another type in the test file
    report = json.loads(run("evaluate", path, folder / "test.parquet", "--json").out)
    truth = sales(1, 60)["two"].to_numpy()
    assert report["accuracy"] == np.mean(model.predict(folder / "test.parquet") == truth) > 0.75
    text = run("info", path).out
    assert "two, 2 classes: 0, 1" in text and "wrong class" in text


@pytest.mark.parametrize(
    ("arguments", "estimator", "words"),
    [
        (("-t", "dear"), "GPClassifier", "'dear' holds text of 2 classes"),
        (("-t", "flag"), "GPClassifier", "'flag' holds booleans of 2 classes"),
        (("-t", "rooms", "--classes"), "GPClassifier", "'rooms' holds whole numbers of 5 classes"),
        (("-t", "two", "--numbers"), "GPRegressor", "'two' is predicted as a number"),
        (("-t", "rooms"), "GPRegressor", "'rooms' is predicted as a number"),
    ],
)
def test_what_a_target_is_taken_for(
    run, folder, tmp_path, monkeypatch, arguments, estimator, words
):
    """Without the fit, which is the same for all."""

    class Stop(Exception):
        pass

    def stop(self, X, y=None):
        raise Stop(type(self).__name__)

    for kind in (vastgp.GPRegressor, vastgp.GPClassifier):
        monkeypatch.setattr(kind, "fit", stop)
    result = run("fit", folder / "train.parquet", *arguments, "--out", tmp_path / "m", code=1)
    assert f"Unexpected Stop: {estimator}" in result.err
    assert words in result.out.replace("\n", " ")


def test_a_model_is_named_after_its_data_and_rows_are_kept_out(run, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(folder / "train.csv", tmp_path / "flats.csv")
    text = run(
        "fit",
        "flats.csv",
        *PRICE,
        "--features",
        "area,city",
        "--max-seconds",
        20,  # in less, on a busy machine, the race's model stays, with fewer rows
        "--test-fraction",
        0.25,
        "--seed",
        2,
    ).out
    assert "On the rows kept out of the fit" in text and "flats.vastgp, saved" in text
    assert list(vastgp.load("flats.vastgp").feature_names_in_) == ["area", "city"]
    # of 80 rows 20 are kept out, and one of the 80 has no price
    assert re.search(r"trained on +(59|60) rows", text)  # columns are as wide as their widest word
    again = run("fit", "flats.csv", *PRICE, *QUICK, code=2).err
    assert "--out 'flats.vastgp' exists; choose another name, or replace it with --force" in again


def test_arrays(run, folder, tmp_path):
    out = tmp_path / "m.vastgp"
    run("fit", folder / "arrays.npz", "--out", out, *QUICK, "--set", "calibrate=none")
    assert vastgp.load(out).calibrate is None
    report = json.loads(run("evaluate", out, folder / "arrays.npz", "--json").out)
    assert report["target"]["rmse"] < 0.02 and report["rows"] == 40
    run("predict", out, folder / "arrays.npz", "--out", tmp_path / "out.npz")
    assert np.load(tmp_path / "out.npz")["mean"].shape == (40,)


REFUSED = {
    "a date to predict": (
        ("-t", "day"),
        r"The target 'day' holds dates or times, for example 20.*days since the first",
    ),
    "as many classes as rows": (
        ("-t", "note"),
        r"'note' holds text, such as 'flat 0 0', with 80 different values in 80 rows: too many to be classes",
    ),
    "text as numbers": (
        ("-t", "dear", "--numbers"),
        r"--numbers: the target 'dear' holds text, for example '(yes|no)'",
    ),
    "fractions as classes": (
        (*PRICE, "--classes"),
        r"--classes: the target 'price' holds fractions, for example",
    ),
    "an option of a method": (
        (*PRICE, "--num-basis", 100),
        r"--num-basis 100 does not apply to the default method, .* name a method that has it: --method qsgp",
    ),
    "a kernel": (
        (*PRICE, "--kernel", "rbf"),
        r"--kernel rbf does not apply to the default .*: --method exact",
    ),
    "a checkpoint": (
        (*PRICE, "--checkpoint", "c"),
        r"--checkpoint c does not apply to the default method",
    ),
    "classes of a named method": (
        (*PRICE, "--method", "exact", "--classes"),
        r"--classes is for --method auto; --method exact is for numbers\. Leave one of them out",
    ),
    "an encoder": (
        (*PRICE, "--set", "encoder=x"),
        r"--set encoder: an encoder is an object of Python",
    ),
    "no such argument": (
        (*PRICE, "--set", "calibrat=none"),
        r"argument of GPRegressor\. Did you mean 'calibrate'\?",
    ),
    "nothing left": (
        (*PRICE, "--features", "area", "--exclude", "area"),
        r"No column of '.*train\.parquet' is left to predict 'price' from; name some with --features",
    ),
    "text for a named method": (
        (*PRICE, "--method", "qsgp"),
        r"not numbers: 'day' \(dates or times\), 'city' \(text\), .*The default method takes them as they are",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_fit_refuses(run, folder, tmp_path, case):
    arguments, message = REFUSED[case]
    result = run(
        "fit", folder / "train.parquet", *arguments, "--out", tmp_path / "m.vastgp", code=2
    )
    result_text = " ".join(result.err.split())
    assert len([line for line in result.err.splitlines() if line.startswith("Error: ")]) == 1
    assert re.search(message, result_text), result_text
    assert result.out == "" and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("method", [(), ("--method", "exact")])
@pytest.mark.parametrize("name", ["trian.parquet", "other.csv", "none.npz", "folder"])
def test_data_that_are_not_there_are_said_not_to_be(run, folder, tmp_path, method, name):
    given = (*method, "--out", tmp_path / "m.vastgp")
    result = run("fit", folder / name, "-t", "price", *given, code=2)
    assert re.search(f"The data '.*{name}' does not exist", " ".join(result.err.split()))
    assert ("Did you mean 'train.parquet'?" in result.err) == (name == "trian.parquet")


def test_what_is_to_be_left_out_can_be_pasted(run, tmp_path):
    names = ["p, q", "it's x", 'say "so"', "a b"]
    table = pd.DataFrame({name: ["u", "v", "w"] for name in names}).assign(y=[1.0, 2.0, 3.0], z=2.0)
    table.to_csv(tmp_path / "t.csv", index=False)
    refused = run("fit", tmp_path / "t.csv", "-t", "y", "--method", "exact", code=2)
    option = shlex.split(refused.err[refused.err.rindex("--exclude") :].rstrip()[:-1])
    assert option[0] == "--exclude" and names_in(*option) == names


def test_what_the_other_commands_refuse(run, folder, fitted, files, model, tmp_path):
    out = tmp_path / "out.csv"
    text = run("predict", fitted[1], folder / "no_area.parquet", "--out", out, code=2).err
    assert "no_area.parquet' has no column 'area', which the model was fitted with" in text
    text = run("evaluate", fitted[1], folder / "new.parquet", code=2).err
    assert "new.parquet' has no column 'price', the target" in text
    text = run("evaluate", fitted[1], folder / "no_price.parquet", code=2).err
    assert "The target 'price' of" in text and "is missing in all 60 rows" in text
    text = run("fit", folder / "no_price.parquet", *PRICE, "--out", out, code=2).err
    assert "The target 'price' is missing in all rows; name another column" in text
    text = run("fit", folder / "no_target.npz", "--out", out, code=2).err
    assert "no_target.npz' holds no target; write numpy.savez(path, X=X, y=y)" in text
    text = run("predict", model, files / "new.parquet", "--out", out, "--range", code=2).err
    assert "--range is for models of the default method" in text and "ExactGPRegressor" in text
    text = run("report", model, "--out", tmp_path / "r.html", code=2).err
    assert (
        "reports are of models of the default method. Fit one by vastgp fit without --method"
        in text
    )
    text = run("report", fitted[1], "--out", tmp_path / "r.pdf", code=2).err
    assert "the ending names the format, one of .html, .htm; got '.pdf'" in text
    text = run("report", fitted[1], "--out", tmp_path / "r.html", "--target", "price", code=2).err
    assert "--target 'price' names a column of TEST, which is missing" in text
    assert list(tmp_path.iterdir()) == []


def test_report_hands_the_rows_to_the_model(run, folder, fitted, tmp_path, monkeypatch):
    """What it writes is tested where it is made."""
    calls = []

    def report(self, path, X=None, y=None):
        calls.append((X, y))
        path.write_text("<html>")

    monkeypatch.setattr(vastgp.GPRegressor, "report", report, raising=False)
    out, test = tmp_path / "report.html", folder / "test.parquet"
    assert f"Report: {out}" in run("report", fitted[1], test, "--out", out).out
    run("report", fitted[1], "--out", out, "--force")
    assert calls == [(str(test), "price"), (None, None)]
    assert "exists; choose another name" in run("report", fitted[1], "--out", out, code=2).err
    assert (
        "has no column 'cost', the target"
        in run("report", fitted[1], test, "-t", "cost", code=2).err
    )


def test_a_sample_for_drift_is_as_likely_to_hold_any_row(monkeypatch):
    """Of 4000 rows in batches of 100 a sample of 500 has a mean place within four standard errors of the middle."""
    monkeypatch.setattr(_tables, "_DRIFT_ROWS", 500)

    class Model:
        def outside(self, some):
            return some.X[:, 0] < 3

        def drift(self, some):
            return [f"{x}" for x in some.X[:, 0]]

    watch = _tables.Watch(Model())
    for first in range(0, 4000, 100):
        batch = np.arange(first, first + 100.0)[:, None]
        assert len(list(watch.over([vastgp.data.Rows(batch, checked=True)]))) == 1
    assert (watch.rows, watch.outside) == (4000, 3)
    assert watch.in_words() == "3 of 4,000 rows lie outside what the model was trained on"
    kept = np.array(watch.drift(), dtype=float)
    assert len(np.unique(kept)) == 500
    error = 4000 / np.sqrt(12 * 500) * np.sqrt(1 - 500 / 4000)
    assert abs(kept.mean() - 1999.5) < 4 * error


def test_a_target_that_the_scale_rules_out_costs_infinitely_much(run, tmp_path):
    """Prices spread over powers of ten are modelled by their logarithm, in which a price of zero has no place."""
    rng = np.random.default_rng(5)
    x = rng.uniform(0.0, 4.0, 90)
    y = 10.0**x * np.exp(0.1 * norm.rvs(size=90, random_state=rng))
    table, rows, out = pa.table({"x": x, "y": y}), tmp_path / "rows.parquet", tmp_path / "m.vastgp"
    pa.parquet.write_table(table, rows)
    text = run("fit", rows, "-t", "y", "--max-seconds", 15, "--out", out).out
    if vastgp.load(out).warp_.name != "log":
        pytest.skip("another scale was as good")
    assert "modelled on the log scale" in " ".join(text.split())
    pa.parquet.write_table(
        pa.table({"x": [1.0, 2.0, 3.0], "y": [10.0, 0.0, 1000.0]}), tmp_path / "t.parquet"
    )
    report = json.loads(run("evaluate", out, tmp_path / "t.parquet", "--json").out)
    assert report["target"]["nlpd"] == np.inf and report["standardised"] is None
    assert report["coverage"] == pytest.approx(2 / 3)


def test_a_table_file_without_rows(run, folder, fitted, tmp_path):
    pa.parquet.write_table(sales(1, 60).slice(0, 0), tmp_path / "none.parquet")
    text = run(
        "predict", fitted[1], tmp_path / "none.parquet", "--out", tmp_path / "o.csv", code=2
    ).err
    assert "The data hold no rows" in text
