"""The report of a fitted model says what the fit found, whichever rows it is about, and nothing in a table acts."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import vastgp
from vastgp.auto.encoder import TableEncoder
from vastgp.auto.inputs import Inputs
from vastgp.auto.leaderboard import NO_TIME_LEFT
from vastgp.auto.report.html import number
from vastgp.auto.report.kept import NO_TIME, importance_of_race
from vastgp.auto.report.of_model import _more_time, report_data
from vastgp.auto.report.places import cell, places_of
from vastgp.auto.source import open_source
from vastgp.auto.values import Values

EVIL = "<script>alert(1)</script>"
SECTIONS = [
    "data",
    "model",
    "leaderboard",
    "calibration",
    "importance",
    "effects",
    "surprises",
    "advice",
    "phases",
]


def sales(n=120, seed=0):
    """A table in which `area` and `city` matter, and `idle` does not."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "area": rng.normal(size=n),
            "city": rng.choice(["Bern", "Oslo", EVIL], n),
            "sold": pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 700, n), "D"),
            "idle": rng.normal(size=n),
            "tail": np.where(rng.random(n) < 0.2, np.nan, rng.lognormal(0.0, 2.0, n)),
            EVIL + "$x$": rng.random(n) < 0.5,
        }
    )
    frame["price"] = (
        np.sin(2 * frame["area"]) + (frame["city"] == "Oslo") + 0.1 * rng.normal(size=n)
    )
    return frame


def scored(name, model):
    return name if model.calibration_.name == "none" else f"{name}, calibrated"


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.source = path.read_text(encoding="utf-8")
        self.texts, self.tags = [], set()
        self.feed(self.source)
        self.shown = "\n".join(self.texts)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def sections(self):
        return re.findall(r'<section id="(\w+)"', self.source)


@pytest.fixture(scope="module")
def table():
    return sales()


@pytest.fixture(scope="module")
def model(table):
    return vastgp.GPRegressor(method="exact", max_seconds=40.0).fit(table, "price")


@pytest.fixture(scope="module")
def page(model, tmp_path_factory):
    place = tmp_path_factory.mktemp("page") / "report.html"
    assert model.report(place) == place
    return Page(place)


def test_the_page_has_what_the_fit_found(model, page):
    assert set(page.sections) >= set(SECTIONS) - {"advice"}
    entry = model.leaderboard_[0]
    for value in (entry.nlpd, entry.error):
        assert number(value) in page.shown
    held, calibration = model.held_out_, model.calibration_
    density = held["log_density"] + calibration.log_density_change(held["scores"])
    assert number(-float(np.mean(density))) in page.texts
    assert number(float(np.sqrt(np.mean((held["y"] - held["mean"]) ** 2)))) in page.texts
    assert "mean and deviation alone" in page.shown
    for column in model.encoding_:
        assert column.done in page.texts
    assert f"{len(held['y'])} rows that the fit held out" in page.shown


def test_nothing_in_a_table_acts(page):
    assert "script" not in page.tags and "<script" not in page.source
    assert EVIL + "$x$" in page.texts


def test_importance_finds_what_matters(model, table):
    found = {name: (loss, error) for name, loss, error in model.importance_}
    assert set(found) == set(table.columns) - {"price"}  # a date of three inputs is one
    assert [name for name, _, _ in model.importance_][:2] == ["area", "city"]
    assert all(found[name][0] > 4.0 * found[name][1] for name in ("area", "city"))
    assert abs(found["idle"][0]) < 0.05 * found["city"][0]


def test_importance_is_of_rows_that_the_judged_model_has_not_seen(model, table):
    """A model that knows the held-out rows by heart would lose far more by shuffling its strongest input."""
    rows = model.held_out_["row"]
    assert len(set(rows.tolist())) == len(rows)
    assert np.array_equal(model.held_out_["y"], table["price"].to_numpy()[rows])
    kept = model.kept_.columns
    assert np.array_equal(kept["area"].data, table["area"].to_numpy()[rows])
    assert [cell(kept["city"], k) for k in range(len(rows))] == table["city"].to_numpy()[
        rows
    ].tolist()
    days = [str(day.date()) for day in table["sold"].iloc[rows]]
    assert [cell(kept["sold"], k) for k in range(len(rows))] == days


@pytest.mark.little_work
def test_a_duration_of_any_length_is_a_cell():
    seconds = Values("durations", np.array([90.0, -3600.0, 1e30, np.nan]))
    shown = ["0:01:30", "-1 day, 23:00:00", "1.16e+25 days", None]
    assert [cell(seconds, row) for row in range(4)] == shown


def test_rows_without_a_target_do_not_shift_the_numbers_of_the_others():
    table = sales(90, seed=3)
    table.loc[[0, 5, 40], "price"] = np.nan
    model = vastgp.GPRegressor(method="exact", max_seconds=6.0).fit(table, "price")
    rows = model.held_out_["row"]
    assert np.array_equal(model.held_out_["y"], table["price"].to_numpy()[rows])
    assert np.array_equal(model.kept_.columns["idle"].data, table["idle"].to_numpy()[rows])
    assert "3 rows without a target were left out of the fit." in report_data(model).notes


def test_a_loaded_model_writes_the_same_page(model, page, tmp_path):
    model.save(tmp_path / "m.vastgp")
    loaded = vastgp.load(tmp_path / "m.vastgp")
    loaded.report(tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == page.source
    assert loaded.importance_ == model.importance_


def test_a_page_about_given_rows(model, tmp_path):
    fresh = sales(80, seed=1)
    fresh.loc[7, "price"] += 50.0
    fresh.loc[3, "price"] = np.nan
    data = report_data(model, fresh)
    there = fresh["price"].notna().to_numpy()
    found = model.predict(fresh)[there]
    truth = fresh["price"].to_numpy()[there]
    assert ("typical error (RMSE)", number(np.sqrt(np.mean((truth - found) ** 2)))) in data.scores
    loss = -np.mean(model.log_predictive_density(fresh[there]))
    assert (scored("NLPD", model), number(loss)) in data.scores
    row, y, _, _, inputs = data.surprises[0]
    assert row == 7 and y == fresh["price"][7] and inputs["city"] == fresh["city"][7]
    assert data.calibration.rows == 79 and "1 rows without a target were left out." in data.notes
    assert {"city", "sold"} <= set(data.calibration.by_input)
    assert data.importance[0][0] == "area" and data.importance != report_data(model).importance
    # the same rows as a table without the target, and as a file
    apart = report_data(model, fresh.drop(columns="price"), fresh["price"].to_numpy())
    assert apart.scores == data.scores and apart.surprises == data.surprises
    fresh.to_parquet(tmp_path / "fresh.parquet")
    model.report(tmp_path / "a.html", tmp_path / "fresh.parquet")
    model.report(tmp_path / "b.html", fresh)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


@pytest.mark.parametrize("calibrate", [None, "scale"])
def test_scores_are_called_calibrated_where_they_are(calibrate):
    table = sales(100, seed=2)
    numbers = vastgp.GPRegressor(method="exact", max_work=20_000, calibrate=calibrate)
    calibrate = calibrate and "temperature"
    label = np.where(table["price"] > 0.3, "high", "low")
    classes = vastgp.GPClassifier(method="tsvgp", max_work=20_000, calibrate=calibrate)
    for model, score, y in (
        (numbers.fit(table, "price"), "NLPD", "price"),
        (classes.fit(table.drop(columns="price"), label), "log loss", label),
    ):
        for data in (report_data(model), report_data(model, table, y)):
            assert data.scores[1][0] == (f"{score}, calibrated" if calibrate else score)
            assert ("none was calibrated" in data.calibrated) == (calibrate is None)
        # simple methods are judged by the rows that the page is about, models by those that the fit held out
        assert data.baselines[0]["note"] == "of the given rows, without inputs"
        assert report_data(model).baselines[0]["note"] == "of the same rows, without inputs"


def test_effects_are_in_units_of_the_table(model, table):
    effects = {name: rest for name, *rest in report_data(model).effects}
    assert len(effects) == 6
    values, mean, low, high = effects["area"]
    assert np.all((low < mean) & (mean < high))
    # the other inputs are averaged over: a constant apart, the curve is the truth
    off = mean - np.sin(2 * np.asarray(values))
    assert np.std(off[2:-2]) < 0.1
    values, mean, _, _ = effects["city"]
    assert values == [EVIL, "Bern", "Oslo"] and mean[2] - mean[1] == pytest.approx(1.0, abs=0.15)
    tail = table["tail"].to_numpy()[model.held_out_["row"]]
    assert set(effects["tail"][0]) <= set(tail[~np.isnan(tail)].tolist())  # not those of asinh
    assert all(re.fullmatch(r"202[12]-\d\d-\d\d", day) for day in effects["sold"][0])


def test_classes(tmp_path):
    table = sales(100, seed=2)
    label = np.where(table.pop("price") > 0.3, EVIL, "low")
    model = vastgp.GPClassifier(method="tsvgp", max_seconds=12.0).fit(table, label)
    page = Page(model.report(tmp_path / "c.html"))
    assert "<script" not in page.source and set(page.sections) >= {
        "leaderboard",
        "calibration",
        "phases",
    }
    entry = model.leaderboard_[0]
    assert number(entry.nlpd) in page.shown and f"{100 * entry.error:.1f} %" in page.texts
    data = report_data(model, table, label)
    proba = model.predict_proba(table)
    code = np.searchsorted(model.classes_, label)
    loss = -np.mean(np.log(proba[np.arange(len(code)), code]))
    assert (scored("log loss", model), number(loss)) in data.scores
    assert data.importance[0][0] == "area"
    assert data.effect_of == "probability of low"
    area = next(effect for effect in data.effects if effect[0] == "area")
    assert np.ptp(area[2]) > 0.3 and np.all((area[2] >= 0.0) & (area[2] <= 1.0))
    for row, y, predicted, std, _ in data.surprises:  # wrong ones alone
        assert y == label[row] != model.predict(table.iloc[[row]])[0] and std is None
        assert y in predicted
    model.save(tmp_path / "c.vastgp")
    vastgp.load(tmp_path / "c.vastgp").report(tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == page.source


def test_another_encoder_has_names_of_encoded_columns(tmp_path):
    table = sales(80)[["area", "idle", "price"]]
    model = vastgp.GPRegressor(method="exact", max_seconds=6.0, encoder=StandardScaler())
    model.fit(table, "price")
    assert {name for name, _, _ in model.importance_} == {"area", "idle"}
    assert model.importance_[0][0] == "area"
    page = Page(model.report(tmp_path / "r.html"))
    assert "StandardScaler" in page.shown and "effects" in page.sections
    # raw values beside the encoded ones, and names for columns that have none
    row, _, _, _, inputs = report_data(model, table).surprises[0]
    assert inputs["idle"] == table["idle"][row]
    plain = vastgp.GPRegressor(method="exact", max_seconds=6.0, encoder=FunctionTransformer())
    plain.fit(table[["area", "idle"]].to_numpy(), table["price"].to_numpy())
    assert {name for name, _, _ in plain.importance_} == {"x0", "x1"}
    plain.report(tmp_path / "p.html")


def test_few_rows_have_a_page_that_says_so(tmp_path):
    table = sales(15)
    model = vastgp.GPRegressor(method="exact", max_seconds=4.0).fit(table, "price")
    page = Page(model.report(tmp_path / "r.html"))
    assert model.importance_ == []
    assert "too few rows to hold some out" in page.shown
    assert not {"importance", "surprises", "leaderboard"} & set(page.sections)
    assert {"data", "model", "phases"} <= set(page.sections)
    few = Page(model.report(tmp_path / "few.html", table[:5]))
    assert "5 rows are too few to judge by" in few.shown and "surprises" in few.sections


def test_importance_keeps_to_the_time(table):
    def never(X, y):
        raise AssertionError("there was no time")

    def slow(X, y):
        time.sleep(0.3)
        return SimpleNamespace(log_density=-((X[:, 0] - y) ** 2))

    X, y = table.drop(columns="price"), table["price"].to_numpy()
    inputs = Inputs.of(X, None, None, np.arange(120), y, 120)
    inputs.fold(0, np.arange(40, 120), np.arange(40), y)
    now = time.perf_counter()
    assert importance_of_race(never, inputs, now + 0.5, 0) == ((), NO_TIME)
    # two calls to learn what one takes, and no more where six inputs would take 1.8 s of 0.5
    assert importance_of_race(slow, inputs, now + 4.0, 0) == ((), NO_TIME)
    assert time.perf_counter() - now < 1.5


def test_a_model_without_time_for_importance_says_so(table, tmp_path):
    model = vastgp.GPRegressor(method="exact", max_seconds=1.2).fit(table, "price")
    page = Page(model.report(tmp_path / "r.html"))
    assert model.importance_ == [] and NO_TIME in page.shown
    # the effects of the inputs that move the prediction most
    assert "importance" not in page.sections
    assert {name for name, *_ in report_data(model).effects[:2]} == {"area", "city"}


def test_what_cannot_be_reported_is_refused_by_name(model, table, tmp_path):
    with pytest.raises(IsADirectoryError, match="folder"):
        model.report(tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        model.report(tmp_path / "none" / "r.html")
    with pytest.raises(ValueError, match="path must be the name of a file"):
        model.report(3)
    with pytest.raises(ValueError, match="y is missing"):
        model.report(tmp_path / "r.html", table.drop(columns="price").to_numpy())
    with pytest.raises(ValueError, match="price"):
        model.report(tmp_path / "r.html", table.drop(columns="price"))
    with pytest.raises(ValueError, match="X is missing"):
        model.report(tmp_path / "r.html", y=table["price"])
    with pytest.raises(ValueError, match="all its values are missing"):
        model.report(tmp_path / "r.html", table.assign(price=np.nan))
    with pytest.raises(ValueError, match="is not fitted"):
        vastgp.GPRegressor().report(tmp_path / "r.html")
    assert not list(tmp_path.iterdir())


def test_places_of_every_kind_are_what_the_encoder_makes_of_them():
    rng = np.random.default_rng(0)
    n = 200
    frame = pd.DataFrame(
        {
            "number": rng.normal(size=n),
            "gap": np.where(rng.random(n) < 0.3, np.nan, rng.integers(0, 4, n)),
            "flag": rng.random(n) < 0.5,
            "size": pd.Categorical(rng.choice(["S", "M", "L"], n), ["S", "M", "L"], ordered=True),
            "shop": rng.choice([f"s{j}" for j in range(40)], n),
            "kind": rng.choice(["a", "b", None], n),
            "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D"),
            "took": pd.to_timedelta(rng.integers(0, 10**6, n), "s"),
            "clock": [f"{hour:02d}:30" for hour in rng.integers(0, 24, n)],
            "typed": [f"{value:,.2f}" for value in rng.uniform(0, 9e4, n)],
        }
    )
    encoder = TableEncoder().fit(frame, rng.normal(size=n))
    source = open_source(frame)
    columns = next(source.blocks(list(frame.columns)))[1]
    found = {
        column.name: places_of(column, values)
        for column, values in zip(encoder.columns_, columns, strict=True)
    }
    assert found["gap"][1] == ["0", "1", "2", "3", "(missing)"]
    assert found["kind"][1] == ["a", "b", "(missing)"]
    assert found["size"][1] == ["S", "M", "L"] and found["flag"][1] == ["False", "True"]
    assert found["took"][0] == "took (days)" and len(found["number"][1]) == 25
    assert len(found["shop"][1]) == len(found["when"][1]) == len(found["clock"][1]) == 10
    # encoded as new rows with these values are
    for name, back in (
        ("number", float), ("shop", str), ("size", str), ("when", pd.Timestamp), ("clock", str), ("typed", str),
    ):  # fmt: skip
        _, labels, encoded = found[name]
        rows = pd.concat([frame.iloc[:1]] * len(labels), ignore_index=True)
        rows[name] = pd.Series([back(label) for label in labels])
        outputs = list(next(one for one in encoder.columns_ if one.name == name).outputs)
        np.testing.assert_allclose(encoder.transform(rows)[:, outputs], encoded, atol=1e-12)


@pytest.mark.parametrize("unit", ["m", "s", "us"])
def test_dates_that_an_effect_is_shown_at_are_told_apart(unit):
    frame = pd.DataFrame({"a": np.datetime64("2024-05-01T06:00", unit) + np.arange(40)})
    encoder = TableEncoder().fit(frame)
    (_, block), *_ = open_source(frame).blocks(["a"])
    _, labels, _ = places_of(encoder.columns_[0], block[0])
    assert len(set(labels)) == 10
    assert set(np.array(labels, "M8[us]")) <= set(frame["a"].to_numpy("M8[us]"))


@pytest.mark.parametrize("written", ["{:.2f}", "{:.2f} %", "$ {:.2f}", "comma"])
def test_an_effect_is_shown_of_numbers_however_they_are_written(written):
    numbers = np.round(np.random.default_rng(0).uniform(0, 10, 60), 2)
    texts = [
        f"{v:.2f}".replace(".", ",") if written == "comma" else written.format(v) for v in numbers
    ]
    found = []
    for column in (numbers, texts):
        frame = pd.DataFrame({"a": column, "b": range(60)})
        encoder = TableEncoder().fit(frame)
        (_, block), *_ = open_source(frame).blocks(["a"])
        found.append(places_of(encoder.columns_[0], block[0]))
    (name, labels, encoded), (_, again, same) = found
    assert (name, labels) == ("a", again)
    np.testing.assert_array_equal(encoded, same)


def test_models_that_had_no_time_are_told_apart():
    """Names of models have commas themselves."""
    board = [SimpleNamespace(method=name, note=NO_TIME_LEFT) for name in ("exact, trend", "exact")]
    model = SimpleNamespace(leaderboard_=board, converged_=True)
    (said,) = _more_time(model)
    assert said.endswith("none to try 'exact, trend', 'exact'.")


def test_nothing_is_said_of_lengthscales_of_a_line(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    given = {"method": "exact", "max_work": 20_000}
    lines = vastgp.GPRegressor(**given).fit(x, x @ [1.0, 2.0] + 0.3 * rng.normal(size=200))
    assert lines.model_.answer_ == "linear"
    text = lines.report(tmp_path / "line.html").read_text()
    assert "lengthscale" not in text and "variance of slopes" in text
    assert "1 column (" not in text and "2 columns (2 number)" in text
