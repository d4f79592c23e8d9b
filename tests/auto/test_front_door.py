"""`GPRegressor` and `GPClassifier` on tables as people have them."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import vastgp
from auto.tables import sales
from compiled_programs import count_programs
from vastgp import GPClassifier, GPRegressor
from vastgp.auto import encoder, source
from vastgp.auto.warps import Log
from vastgp.data import tables

QUICK = {"method": "exact", "max_seconds": 5}
# what is compared bit by bit must not depend on the time that there was
WHOLE = {"method": "exact", "max_seconds": None}


@pytest.fixture(scope="module")
def table():
    return sales()


@pytest.fixture(scope="module")
def fitted(table):
    """A whole race on a table with text, a date and gaps."""
    return GPRegressor(max_seconds=25).fit(table, "price")


def test_a_table_with_text_dates_and_gaps_is_learned(fitted):
    new = sales(seed=7)
    mean, std = fitted.predict(new, return_std=True)
    of_mean = np.sqrt(np.mean((np.log(mean) - np.log(new.price)) ** 2))
    # noise of 0.1 on a log price of deviation 1; a city or age that is missing costs more
    assert of_mean < 0.35 < np.std(np.log(new.price)) / 2
    inside = fitted.predict_interval(new, 0.9)
    held = np.mean((inside[:, 0] <= new.price) & (new.price <= inside[:, 1]))
    assert held > 0.9 - 4 * (0.09 / len(new)) ** 0.5
    assert np.all(std > 0) and fitted.score(new) > 0.4


def test_a_skewed_target_is_modelled_on_its_logarithms(fitted):
    assert fitted.warp_ == Log()
    by_target = {
        entry.target: entry.nlpd for entry in fitted.leaderboard_ if entry.method == "exact"
    }
    assert by_target["log"] < by_target["own"]
    assert np.all(fitted.predict_quantiles(sales(seed=3), [1e-6])[:, 0] > 0.0)


def test_the_leaderboard_tells_what_ran(fitted):
    best, *others = fitted.leaderboard_
    assert best.kept and not any(entry.kept for entry in others)
    assert {entry.method for entry in fitted.leaderboard_} >= {"exact", "linear"}
    scored = [entry for entry in fitted.leaderboard_ if np.isfinite(entry.nlpd)]
    assert best.nlpd <= min(entry.nlpd + entry.nlpd_error for entry in scored)
    assert best.nlpd_standardised == pytest.approx(best.nlpd - np.log(np.std(sales().price)))


def test_held_out_scores_are_those_of_models_that_did_not_see_the_rows(fitted, table):
    held = fitted.held_out_
    np.testing.assert_array_equal(np.sort(held["row"]), np.arange(len(table)))
    np.testing.assert_array_equal(table.price.to_numpy()[held["row"]], held["y"])
    # the final model has seen them, and knows more of them
    assert fitted.log_predictive_density(table, "price").mean() > held["log_density"].mean()


def test_columns_are_found_by_name_and_others_are_ignored(fitted):
    new = sales(20, seed=4)
    shuffled = new[["age", "price", "sold", "size", "city"]].assign(other="x")
    np.testing.assert_array_equal(fitted.predict(shuffled), fitted.predict(new))
    np.testing.assert_array_equal(fitted.predict(pl.from_pandas(new)), fitted.predict(new))
    with pytest.raises(ValueError, match="size"):
        fitted.predict(new.drop(columns="size"))


def test_a_file_keeps_everything(fitted, tmp_path):
    new = sales(30, seed=5)
    fitted.save(tmp_path / "prices.vastgp")
    loaded = vastgp.load(tmp_path / "prices.vastgp")
    for of in (fitted, loaded, pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(of.predict(new), fitted.predict(new))
        np.testing.assert_array_equal(
            of.predict_interval(new, 0.8), fitted.predict_interval(new, 0.8)
        )
        np.testing.assert_array_equal(of.outside(new), fitted.outside(new))
        assert of.leaderboard_.to_dicts()[0] == fitted.leaderboard_.to_dicts()[0]
        assert of.encoder_.summary() == fitted.encoder_.summary()
        assert of.calibration_ == fitted.calibration_ and of.warp_ == fitted.warp_
    assert loaded.get_params() == fitted.get_params()
    assert loaded.calibration_record_ == fitted.calibration_record_


def test_rows_unlike_those_of_training_are_told(fitted):
    new = sales(40, seed=6)
    strange = new.assign(size=new["size"] * 100.0)
    mean, outside = fitted.predict(strange, return_range=True)
    assert outside.all() and mean.shape == (40,)
    assert fitted.outside(new).mean() < 0.3
    assert any("size" in message for message in fitted.drift(sales(400, seed=8).assign(size=50.0)))


def test_files_and_arrays_give_the_same_as_the_table(table, tmp_path):
    table = table[:19]
    table.to_parquet(tmp_path / "t.parquet")
    new = sales(10, seed=9)
    of_table = GPRegressor(**WHOLE).fit(table, "price").predict(new)
    of_file = GPRegressor(**WHOLE).fit(tmp_path / "t.parquet", "price")
    np.testing.assert_array_equal(of_file.predict(new), of_table)
    apart = GPRegressor(**WHOLE).fit(table.drop(columns="price"), table.price)
    np.testing.assert_array_equal(apart.predict(new), of_table)


def test_a_target_that_is_still_among_the_columns_is_no_input(table):
    model = GPRegressor(**QUICK).fit(table, table.price)
    assert "price" not in model.feature_names_in_


def test_rows_without_a_target_are_left_out_and_counted(table):
    table = table[:19]
    some = table.copy()
    some.loc[[3, 10, 11], "price"] = np.nan
    model = GPRegressor(**WHOLE).fit(some, "price")
    assert model.n_rows_dropped_ == 3
    without = GPRegressor(**WHOLE).fit(table.drop(index=[3, 10, 11]), "price")
    np.testing.assert_array_equal(model.predict(table), without.predict(table))


def test_work_instead_of_seconds_is_the_same_on_any_machine(table):
    first, second = (
        GPRegressor(max_work=600, likelihood="gaussian").fit(table[:90], "price") for _ in range(2)
    )
    np.testing.assert_array_equal(first.predict(table), second.predict(table))
    boards = [
        [entry | {"seconds": 0} for entry in each.leaderboard_.to_dicts()]
        for each in (first, second)
    ]
    assert str(boards[0]) == str(boards[1])
    # half of the work is the race's
    assert sum(entry.rows for entry in first.leaderboard_) * 5 <= 600


def test_counts_have_distributions_of_counts():
    generator = np.random.default_rng(0)
    X = generator.uniform(-2, 2, size=(150, 1))
    y = generator.poisson(np.exp(X[:, 0]))
    model = GPRegressor(max_work=1500).fit(X, y)
    assert model.leaderboard_[0].method.startswith(("tsvgp, poisson", "tsvgp, negative"))
    ends = model.predict_interval(X)
    np.testing.assert_array_equal(ends, np.round(ends))
    assert ends.min() >= 0.0


def test_known_errors_weigh_rows():
    generator = np.random.default_rng(1)
    x, error = generator.uniform(-3, 3, 200), generator.choice([0.05, 3.0], 200)
    y = np.sin(x) + generator.normal(size=200) * np.hypot(0.1, error)
    table = pd.DataFrame({"x": x, "error": error, "y": y})
    grid = pd.DataFrame({"x": np.linspace(-2.5, 2.5, 50)})
    knows = GPRegressor(**QUICK).fit(table, "y", noise_std="error")
    ignores = GPRegressor(**QUICK).fit(table[["x", "y"]], "y")
    assert knows.n_features_in_ == 1
    off = [
        np.sqrt(np.mean((each.predict(grid) - np.sin(grid.x)) ** 2)) for each in (knows, ignores)
    ]
    assert off[0] < 0.1 and off[1] > 2 * off[0]
    assert 0.05 < knows.likelihood_.noise_std < 0.2
    with pytest.raises(TypeError, match="takes no noise_std yet"):
        GPRegressor(method="grief", max_seconds=5).fit(table, "y", noise_std="error")


def test_few_rows_are_fitted_without_a_race():
    X = np.linspace(0, 1, 12)[:, None]
    model = GPRegressor(max_seconds=5).fit(X, X[:, 0] ** 2)
    assert len(model.leaderboard_) == 0 and model.calibration_record_ is None
    assert model.predict(X, return_std=True)[1].shape == (12,)


def test_another_encoder_may_take_the_place_of_ours(table, tmp_path):
    whole = table.dropna()
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["city"]),
        (StandardScaler(), ["size", "age"]),
    )
    model = GPRegressor(**QUICK, encoder=encoder).fit(whole, "price")
    assert model.score(whole) > 0.8
    with pytest.raises(ValueError, match="cannot be stored in a file that executes nothing"):
        model.save(tmp_path / "model.vastgp")
    assert pickle.loads(pickle.dumps(model)).predict(whole).shape == (len(whole),)


def test_in_searches_and_cross_validation(table):
    model = GPRegressor(method="exact", max_work=600)
    scores = cross_val_score(model, table.drop(columns="price"), table.price, cv=2)
    assert scores.min() > 0.3
    search = GridSearchCV(model, {"calibrate": [None, "scale"]}, cv=2).fit(
        table.drop(columns="price"), table.price
    )
    assert search.best_estimator_.predict(table[:3]).shape == (3,)


def test_a_fit_that_fails_leaves_the_model_as_it_was(table):
    model = GPRegressor(**QUICK).fit(table, "price")
    before = model.predict(table)
    with pytest.raises(ValueError, match="cost"):
        model.fit(table, "cost")
    np.testing.assert_array_equal(model.predict(table), before)
    assert "model_" not in vars(clone(model))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"price": "cheap"},
            "holds text, for example 'cheap': classes and no numbers. Use GPClassifier",
        ),
        ({"price": np.inf}, "contains infinity"),
        ({"price": np.nan}, "0 sample"),
        ({"price": True}, "holds booleans"),
    ],
)
def test_targets_that_are_no_numbers(table, change, message):
    with pytest.raises(ValueError, match=message):
        GPRegressor(**QUICK).fit(table.assign(**change), "price")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"method": "forest"}, "method must be 'auto' or one of"),
        ({"max_seconds": 0}, "max_seconds must be a positive number"),
        ({"max_work": 1.5}, "max_work must be a positive integer"),
        ({"calibrate": "platt"}, "calibrate: expected"),
    ],
)
def test_arguments_that_cannot_be(table, params, message):
    with pytest.raises(ValueError, match=message):
        GPRegressor(**(QUICK | params)).fit(table, "price")


def test_several_columns_of_classes_are_refused():
    with pytest.raises(ValueError, match="y should be a 1d array"):
        GPClassifier(**QUICK).fit(np.zeros((30, 2)), np.zeros((30, 2)))


@pytest.mark.parametrize("level", [0, 1.0, "wide"])
def test_levels_of_intervals(fitted, table, level):
    with pytest.raises(ValueError, match="level must be a number above 0 and below 1"):
        fitted.predict_interval(table, level)


def test_conformal_intervals_hold_what_they_promise(table):
    model = GPRegressor(**QUICK, calibrate="conformal").fit(table, "price")
    ends = model.predict_interval(table, 0.8)
    assert np.all(ends[:, 0] < ends[:, 1])
    # of a hundred rows held out none can tell an interval of one in a thousand
    assert np.all(np.isinf(model.predict_interval(table, 0.9999)))


@pytest.mark.parametrize("method", ["exact", "nearest", "qsgp"])
def test_a_row_of_a_loaded_model_is_read_once_and_compiles_nothing(
    method, table, tmp_path, monkeypatch
):
    GPRegressor(**QUICK | {"method": method}).fit(table, "price").save(tmp_path / "m.vastgp")
    model, new = vastgp.load(tmp_path / "m.vastgp"), table.drop(columns="price")
    model.predict(new[:1], return_std=True)
    calls = {"opened": 0, "columns": 0, "encoded": 0}

    def counted(name, function):
        def call(*args):
            calls[name] += 1
            return function(*args)

        return call

    monkeypatch.setattr(tables, "_table_in_memory", counted("opened", tables._table_in_memory))
    monkeypatch.setattr(source, "_from_series", counted("columns", source._from_series))
    monkeypatch.setattr(encoder, "encode", counted("encoded", encoder.encode))
    with count_programs() as programs:
        model.predict(new[3:4], return_std=True)
        model.predict_interval(new[7:8])
        assert programs() == 0
    kept = sum(column.kept for column in model.encoding_)
    assert calls == {"opened": 2, "columns": 2 * kept, "encoded": 2}


@pytest.mark.parametrize("argument", ["noise_std", "sample_weight"])
def test_conformal_intervals_of_rows_with_noise_of_their_own_are_refused(table, argument):
    own = np.linspace(0.5, 2.0, len(table))
    with pytest.raises(
        ValueError, match=f"calibrate='conformal' and {argument} were given together"
    ):
        GPRegressor(**QUICK, calibrate="conformal").fit(table, "price", **{argument: own})


# ---------------------------------------------------------------- classes


@pytest.fixture(scope="module")
def classes():
    table = sales(240, seed=2)
    return table.assign(dear=np.where(table.price > table.price.median(), "dear", "cheap")).drop(
        columns="price"
    )


def test_classes_of_a_table(classes, tmp_path):
    train, test = classes[:180], classes[180:]
    model = GPClassifier(max_seconds=20).fit(train, "dear")
    assert list(model.classes_) == ["cheap", "dear"]
    assert model.score(test, "dear") > 0.8
    proba = model.predict_proba(test)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.predict(test), model.classes_[proba.argmax(axis=1)])
    np.testing.assert_array_equal(model.decision_function(test) > 0, proba[:, 1] > proba[:, 0])
    of_labels = np.log(proba[np.arange(len(test)), (test.dear == "dear").astype(int)])
    np.testing.assert_allclose(model.log_predictive_density(test, "dear"), of_labels)
    model.save(tmp_path / "model.vastgp")
    loaded = vastgp.load(tmp_path / "model.vastgp")
    np.testing.assert_array_equal(loaded.predict_proba(test), proba)
    np.testing.assert_array_equal(loaded.predict(test), model.predict(test))


def test_three_classes_with_missing_labels(classes):
    table = classes.assign(
        kind=np.array(["a", "b", "c"], dtype=object)[np.arange(len(classes)) % 3]
    )
    table = table.assign(size=np.arange(len(table)) % 3 + 0.1 * table["age"].fillna(0.0))
    table.loc[:4, "kind"] = None
    model = GPClassifier(method="direct", max_seconds=5).fit(table, "kind")
    assert model.n_rows_dropped_ == 5 and list(model.classes_) == ["a", "b", "c"]
    assert model.score(table[5:], "kind") > 0.9


def test_one_class_is_none(classes):
    with pytest.raises(ValueError, match="holds one class only"):
        GPClassifier(max_seconds=5).fit(classes.assign(dear="yes"), "dear")
    model = GPClassifier(method="direct", max_seconds=5).fit(classes, "dear")
    with pytest.raises(ValueError, match="was not among the classes of the fit"):
        model.score(classes.assign(dear="odd"), "dear")
