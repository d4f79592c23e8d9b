"""Tables of more rows than the budget or the memory is for: some at random stand for all."""

import numpy as np
import pandas as pd
import pytest

import vastgp
from vastgp.auto import inputs as inputs_module
from vastgp.auto import many_rows
from vastgp.auto.inputs import held, part_of
from vastgp.auto.report.words import left_out_in_words
from vastgp.auto.source import open_source
from vastgp.auto.values import Values

WORK = {"max_seconds": None, "max_work": 200, "method": "exact", "calibrate": None}


def sales(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "shop": [f"shop {k:02d}" for k in rng.integers(0, 40, n)],
            "size": pd.Categorical.from_codes(rng.integers(0, 3, n), ["S", "M", "L"]),
            "day": pd.Timestamp("2024-01-01", tz="Europe/Oslo")
            + pd.to_timedelta(rng.integers(0, 500, n), unit="D"),
            "price": rng.normal(size=n),
        }
    )
    frame.loc[rng.random(n) < 0.1, "price"] = np.nan
    frame["sold"] = frame["shop"].str[5:].astype(int) / 10 + rng.normal(size=n)
    frame.loc[rng.random(n) < 0.05, "sold"] = np.nan
    return frame


@pytest.fixture
def small(monkeypatch):
    """Make tables of some hundred rows large ones: 200 are taken whatever there is, and memory is for no more."""
    for name, value in {
        "_TAKEN_WHOLE": 200,
        "_TRIAL": 100,
        "_FIRST": 50,
        "_OF_A_CLASS": 12,
    }.items():
        monkeypatch.setattr(many_rows, name, value)
    monkeypatch.setattr(many_rows, "available_bytes", lambda: 1)


# ---------------------------------------------------------------- the fit


@pytest.mark.parametrize("form", ["frame", "parquet", "csv"])
def test_a_fit_to_some_rows_is_that_to_a_table_of_these(small, tmp_path, monkeypatch, form):
    frame = sales(700)
    table = frame
    if form != "frame":
        table = tmp_path / f"sales.{form}"
        write = {"parquet": frame.to_parquet, "csv": frame.to_csv}[form]
        write(table, index=False)
    model = vastgp.GPRegressor(**WORK).fit(table, "sold")
    assert model.n_rows_dropped_ == frame["sold"].isna().sum()
    assert model.n_rows_left_out_ == 700 - model.n_rows_dropped_ - 200
    taken = _rows_taken(monkeypatch, frame)
    few = frame.iloc[taken]
    if form != "frame":
        few = tmp_path / f"few.{form}"
        {"parquet": frame.iloc[taken].to_parquet, "csv": frame.iloc[taken].to_csv}[form](
            few, index=False
        )
    monkeypatch.setattr(many_rows, "_TAKEN_WHOLE", 10_000)
    same = vastgp.GPRegressor(**WORK).fit(few, "sold")
    assert same.n_rows_left_out_ == 0
    new = sales(50, seed=1).drop(columns="sold")
    if form == "csv":  # where moments are text
        new = new.assign(day=new["day"].astype(str))
    expected = same.predict(new, return_std=True)
    np.testing.assert_allclose(model.predict(new, return_std=True), expected, rtol=1e-9)
    # held-out rows are called by their numbers in the table
    np.testing.assert_array_equal(model.held_out_["row"], np.array(taken)[same.held_out_["row"]])


def _rows_taken(monkeypatch, frame):
    """Return the numbers of the rows that a fit of this table takes."""
    seen = []
    of_some = inputs_module.Inputs.of_some

    def noted(self, places):
        found = of_some(self, places)
        seen.append(found.in_table())
        return found

    with monkeypatch.context() as patch:
        patch.setattr(inputs_module.Inputs, "of_some", noted)
        vastgp.GPRegressor(**WORK).fit(frame, "sold")
    return seen[-1]


def test_weights_errors_and_exposures_stay_with_their_rows(small):
    frame = sales(700).dropna(subset="sold").reset_index(drop=True)
    X = frame[["price"]].fillna(0.0).rename(columns={"price": "x"})
    rng = np.random.default_rng(0)
    # rows with wrong targets say so themselves
    wrong = rng.random(len(X)) < 0.5
    y = 2.0 * X["x"].to_numpy() + 0.01 * rng.normal(size=len(X)) + np.where(wrong, 50.0, 0.0)
    for given in (
        {"sample_weight": np.where(wrong, 1e-9, 1.0)},
        {"noise_std": np.where(wrong, 1e6, 0.0)},
        {"sample_weight": np.where(wrong, 0.0, 1.0)},
    ):
        model = vastgp.GPRegressor(**WORK).fit(X, y, **given)
        assert model.n_rows_left_out_ > 0
        np.testing.assert_allclose(
            model.predict(pd.DataFrame({"x": [0.0, 1.0]})), [0.0, 2.0], atol=0.02
        )
    exposure = np.where(wrong, 100.0, 1.0)
    counts = rng.poisson(exposure * 3.0)
    work = WORK | {"method": "tsvgp", "likelihood": "poisson"}
    rate = vastgp.GPRegressor(**work).fit(X, counts, exposure=exposure).predict(X[:5])
    np.testing.assert_allclose(rate, 3.0, rtol=0.1)


def test_a_rare_class_is_not_lost(small):
    frame = sales(900).drop(columns="sold")
    label = np.where(np.arange(900) % 90 == 7, "rare", np.where(frame["size"] == "S", "a", "b"))
    model = vastgp.GPClassifier(**WORK | {"method": "tsvgp"}).fit(frame, label)
    assert model.classes_.tolist() == ["a", "b", "rare"]
    # all ten there are
    assert model.n_rows_left_out_ == pytest.approx(700, abs=10)
    proba = model.predict_proba(frame)[:, 2]
    assert 0.0 < proba.mean() < 0.1


def test_the_budget_and_the_memory_say_how_many(monkeypatch):
    frame = sales(3000).dropna(subset="sold").reset_index(drop=True)
    X, y = frame.drop(columns="sold"), frame["sold"].to_numpy()
    made = inputs_module.Inputs.of(X, None, None, np.arange(len(y)), y, len(y))
    for name, value in {"_TAKEN_WHOLE": 100, "_TRIAL": 200, "_FIRST": 50}.items():
        monkeypatch.setattr(many_rows, name, value)

    def taken(seconds, free, cost=(1e-3, 10)):
        monkeypatch.setattr(many_rows, "available_bytes", lambda: free)
        with monkeypatch.context() as patch:
            patch.setattr(many_rows, "_cost_of_a_row", lambda *_: cost)
            patch.setattr(many_rows, "_MOST_A_SECOND", 1000)
            patch.setattr(many_rows, "_NUMBERS_A_SECOND", 400_000)
            found = many_rows.affordable(made, None, seconds, 0)
        return len(found.present)

    everything = len(y)
    assert taken(None, None) == everything == taken(1e6, None)
    # 0.17 of the budget, a millisecond a row three and a half times; no fewer than are taken anyway
    assert taken(10.0, None) == int(0.17 * 10.0 / 3.5e-3)
    assert taken(2.0, None) == 100
    # 1000 rows a second are read, and numbers are for so many
    assert taken(0.5, None, (1e-9, 10)) == 500
    assert taken(0.5, None, (1e-9, 1000)) == 200
    # half of the memory for four copies of 10 numbers of 8 bytes
    assert taken(None, 640_000) == 1000
    # the same ones for the same seed
    monkeypatch.setattr(many_rows, "available_bytes", lambda: 320_000)
    one, two, other = (
        many_rows.affordable(made, None, None, seed).in_table() for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, two)
    assert np.all(np.diff(one) > 0) and not np.array_equal(one, other)


def test_what_encoding_takes_is_measured():
    frame = sales(25_000).dropna(subset="sold").reset_index(drop=True)
    X, y = frame.drop(columns="sold"), frame["sold"].to_numpy()
    made = inputs_module.Inputs.of(X, None, None, np.arange(len(y)), y, len(y))
    seconds, numbers = many_rows._cost_of_a_row(made, 0)
    assert numbers == len(vastgp.auto.TableEncoder().fit(X, y).get_feature_names_out())
    assert 1e-8 < seconds < 1e-3


def test_a_column_that_no_part_can_be_encoded_of_is_refused_as_ever(small):
    frame = pd.DataFrame({"x": np.ones(1500), "y": np.arange(1500.0)})
    with pytest.raises(ValueError, match=r"No column of .* can be an input"):
        vastgp.GPRegressor(**WORK).fit(frame, "y")


def test_the_report_and_the_file_know(small, tmp_path):
    model = vastgp.GPRegressor(**WORK).fit(sales(700), "sold")
    model.save(tmp_path / "m.vastgp")
    for one in (model, vastgp.load(tmp_path / "m.vastgp")):
        dropped, left_out = left_out_in_words(one)
        assert "rows without a target" in dropped
        assert left_out.startswith("200 rows chosen at random stand for all")
        assert f"{model.n_rows_left_out_:,} there" in left_out


# ---------------------------------------------------------------- rows that are held


@pytest.mark.parametrize("form", ["frame", "parquet", "csv", "array"])
def test_held_rows_are_those_of_the_table(tmp_path, form):
    frame = sales(1000)
    table = frame
    if form == "array":
        table = frame.to_numpy(dtype=object)
    elif form != "frame":
        table = tmp_path / f"t.{form}"
        {"parquet": frame.to_parquet, "csv": frame.to_csv}[form](table, index=False)
    source = open_source(table)
    rows = np.sort(np.random.default_rng(0).choice(1000, 300, replace=False))
    target = source.names[-1]
    kept, part = held(source, rows, target), part_of(source, rows)
    names = [name for name in source.names if name != target]
    for zones in ({}, {"day": "Asia/Tokyo"} if form != "array" else {}):
        for size in (1000, 77):
            a, b = (_joined(one.read(names, size, zones), names) for one in (kept, part))
            assert a == b
        assert max(len(block[0]) for block in kept.read(names, 77, zones)) <= 77
    assert _joined(kept.read(names[::-1][:2], 10, {}), names[::-1][:2]) == {
        name: _joined(part.read(names, 1000, {}), names)[name] for name in names[::-1][:2]
    }


def _joined(blocks, names):
    """Return the values of each column as text, whatever the blocks."""
    found = {name: [] for name in names}
    for block in blocks:
        for name, values in zip(names, block, strict=True):
            if values.form == "text":
                found[name] += ["" if k < 0 else values.levels[k] for k in values.data]
            else:
                found[name] += [str(one) for one in values.data]
    return found


def test_text_that_comes_late_is_text_in_all_that_is_held(tmp_path):
    path = tmp_path / "late.csv"
    codes = [str(k % 7) for k in range(200_000)] + ["seven"] * 10
    pd.DataFrame({"code": codes, "x": 1.0}).to_csv(path, index=False)
    rows = np.arange(0, 200_010, 3)
    kept = held(open_source(path), rows, None)
    found = [values for values, _ in kept.read(["code", "x"], 1 << 20, {})]
    assert {values.form for values in found} == {"text"}
    assert sum(map(len, found)) == len(rows)


def test_levels_are_those_of_the_rows():
    text = Values("text", np.array([2, -1, 0, 2, 1]), ["a", "b", "c"])
    some = text.of_rows(np.array([0, 1, 3]))
    assert list(some.levels) == ["c"] and some.data.tolist() == [0, -1, 0]
    declared = Values("text", np.array([2, -1, 0]), ["a", "b", "c"], declared=True)
    assert list(declared.of_rows(np.array([1])).levels) == ["a", "b", "c"]
    numbers = Values("numbers", np.arange(4.0)).of_rows(slice(1, 3))
    assert numbers.data.tolist() == [1.0, 2.0]
