"""Trees as an input: the same numbers as scikit-learn's, and by trees that have not seen the row."""

import json

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

import vastgp
from auto.tables import sales
from promises import no_strange_warnings
from vastgp import GPClassifier, GPRegressor
from vastgp.auto import candidates
from vastgp.auto.class_candidates import classifiers
from vastgp.auto.trees import Trees, grow, process_of
from vastgp.auto.trees import grown as growing
from vastgp.auto.trees import nodes as nodes_module
from vastgp.auto.trees.nodes import trees_of
from vastgp.data.archive import read_archive
from vastgp.kernels.metric import falling_part

GROWTH = {"max_iter": 30, "max_leaf_nodes": 16, "early_stopping": False, "random_state": 0}


def table(n=400, d=4, seed=0):
    """Inputs of which one is whole numbers, and steps along two axes."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, d))
    X[:, 1] = np.round(2.0 * X[:, 1])
    f = 2.0 * (X[:, 0] > 0.3) - 1.5 * (X[:, 1] >= 1.0) * (X[:, 2] > -0.5)
    return X, f, f + 0.2 * generator.normal(size=n)


def beyond(model, X):
    """Return rows: of training, far beyond them, and exactly at the thresholds of trees."""
    at = X[:200].copy()
    for row, one in zip(at, model._predictors[0][0].nodes, strict=False):
        if not one["is_leaf"]:
            row[one["feature_idx"]] = one["num_threshold"]
    return np.concatenate([X, 1e6 * X[:50], at])


@pytest.mark.parametrize("iterations", [1, 7, 30])
def test_trees_of_numbers_are_those_of_scikit_learn(iterations):
    X, _, y = table()
    model = HistGradientBoostingRegressor(**GROWTH).fit(X, y)
    rows = beyond(model, X)
    found = trees_of(model, iterations).predict(rows)
    expected = list(model.staged_predict(rows))[iterations - 1]
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("classes", [2, 3])
def test_trees_of_classes_are_those_of_scikit_learn(classes):
    X, f, _ = table()
    y = (f > 0.0).astype(int) + (f > 1.0) * (classes > 2)
    model = HistGradientBoostingClassifier(**GROWTH).fit(X, y)
    rows = beyond(model, X)
    found = trees_of(model, 30).predict(rows)
    expected = model.decision_function(rows).reshape(len(rows), -1)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_a_target_without_steps_has_trees_of_one_leaf():
    X, _, y = table()
    model = HistGradientBoostingRegressor(**GROWTH).fit(X, 0.0 * y + 3.0)
    np.testing.assert_allclose(trees_of(model, 30).predict(X), 3.0, rtol=1e-12)


def test_the_mean_of_trees_is_the_mean_of_their_predictions():
    X, _, y = table()
    parts = [
        trees_of(HistGradientBoostingRegressor(**GROWTH).fit(X[k::2], y[k::2]), 30)
        for k in range(2)
    ]
    expected = np.mean([part.predict(X) for part in parts], axis=0)
    joined = Trees.mean_of(parts)
    np.testing.assert_allclose(joined.predict(X), expected, rtol=1e-12, atol=1e-13)
    again = Trees.from_arrays(joined.to_arrays())
    np.testing.assert_array_equal(again.predict(X), joined.predict(X))
    assert joined.shares.sum() == pytest.approx(1.0) and np.argmin(joined.shares) == 3


def test_another_way_of_keeping_trees_is_told(monkeypatch):
    X, _, y = table()
    model = HistGradientBoostingRegressor(**GROWTH).fit(X, y)
    monkeypatch.setattr(nodes_module, "_FIELDS", ("value", "threshold_of_next_year"))
    with pytest.raises(ValueError, match=r"otherwise than expected .*'threshold_of_next_year'"):
        trees_of(model, 30)


def test_no_row_is_told_of_by_trees_that_have_seen_it():
    X = np.random.default_rng(0).normal(size=(600, 3))
    noise = np.random.default_rng(1).normal(size=600)
    grown = grow(X, noise, seed=0)
    # pure noise: what trees say of their own rows follows it, of others not; 4 standard errors of a correlation
    seen = np.corrcoef(grown.trees.predict(X)[:, 0], noise)[0, 1]
    assert abs(np.corrcoef(grown.of_training[:, 0], noise)[0, 1]) < 4.0 / 600**0.5 < seen


def test_rows_that_repeat_each_other_are_in_one_part():
    generator = np.random.default_rng(0)
    X = np.repeat(generator.normal(size=(200, 3)), 3, axis=0)
    noise = np.repeat(generator.normal(size=200), 3)
    of_training = grow(X, noise, seed=0).of_training[:, 0]
    np.testing.assert_array_equal(of_training[::3], of_training[1::3])
    # three times the same: 200 rows tell
    assert abs(np.corrcoef(of_training, noise)[0, 1]) < 4.0 / 200**0.5


def test_rows_beyond_those_that_trees_are_grown_on_are_new_to_them(monkeypatch):
    monkeypatch.setattr("vastgp.auto.trees.grown._MOST_NUMBERS", 4 * 300)
    X, f, y = table(600)
    grown = grow(X, y, seed=0)
    as_new = np.all(grown.of_training == grown.trees.predict(X), axis=1)
    assert as_new.sum() == 300
    assert np.mean((grown.of_training[:, 0] - f) ** 2) < 0.2 * f.var()


def test_trees_are_grown_on_while_they_gain(monkeypatch):
    """At the 200th tree the loss of 30,000 rows of kin40k was 0.30 and fell: 0.16 with as many again."""
    generator = np.random.default_rng(0)
    X = generator.uniform(size=(3000, 3))
    waves = np.sin(9.0 * X[:, 0] + 6.0 * X[:, 1]) * np.cos(7.0 * X[:, 2])
    y = waves + 0.01 * generator.normal(size=3000)

    def loss(**given):
        return np.mean((grow(X, y, seed=0, **given).of_training[:, 0] - waves) ** 2)

    one = growing.seconds_to_grow(3000, 3, 1)
    assert loss(seconds=None) == loss(seconds=2.6 * one) < 0.8 * loss(seconds=2.4 * one)
    assert loss(seconds=2.4 * one) == loss(seconds=1.01 * one)
    # where they gain nothing more there are no others, and the second stage is never begun
    begun = []
    stage = growing._grown_on
    monkeypatch.setattr(growing, "_grown_on", lambda *given: begun.append(1) or stage(*given))
    grow(X, generator.normal(size=3000), seed=0)
    assert len(begun) == 1


def test_with_less_time_trees_are_grown_on_fewer_rows(monkeypatch):
    monkeypatch.setattr(growing, "FEWEST_ROWS", 200)
    X, _, y = table(600)
    given = [growing._some(600, None, growing.most_rows(4, 1, s), 0) for s in (0.0, 0.61, 1e3)]
    # 0.6 s for the trees as such, 4 columns of 8e-6 s a number: three hundred rows in the rest
    assert [len(rows) for rows in given] == [200, 312, 600]
    found = grow(X, y, seed=0, seconds=0.61)
    as_new = np.all(found.of_training == found.trees.predict(X), axis=1)
    assert as_new.sum() == 600 - 312
    # a few of each class's trees are fewer: a stage of several columns is half as long
    assert growing.seconds_to_grow(600, 4, 5) == pytest.approx(
        2.5 * growing.seconds_to_grow(600, 4, 1)
    )


def test_weights_say_which_rows_count():
    X, f, y = table(600)
    wrong = np.arange(600) % 2 == 0
    weight = np.where(wrong, 1e-6, 1.0)
    found = grow(X, np.where(wrong, 10.0, y), weight=weight, seed=0).of_training[:, 0]
    assert np.mean((found - f) ** 2) < 0.3 * f.var()


def test_classes_of_a_few_rows_are_seen_by_all_trees():
    """Of ten unequal classes and 300 rows one had three: all trees were refused for it."""
    X, f, _ = table()
    y = (f > 0.0).astype(float)
    y[:3], y[3] = 2.0, 3.0
    with no_strange_warnings():
        parts = list(growing._parts(y, None, 4, 0))
        found = grow(X, y, classes=4, seed=0)
    out = np.concatenate([others for _, others in parts])
    np.testing.assert_array_equal(np.sort(out), np.delete(np.arange(400), 3))
    for training, others in parts:
        assert not set(training) & set(others) and 3 in training
        assert set(y[training]) == {0.0, 1.0, 2.0, 3.0}
    odds = found.of_training
    assert odds.shape == (400, 4) and np.isfinite(odds).all()
    # the single row is told of as a new one, and rare classes take nothing from the others
    np.testing.assert_array_equal(odds[3], found.trees.predict(X[3:4])[0])
    assert np.mean(np.argmax(odds[4:], axis=1) == y[4:]) > 0.95


def test_classes_of_which_none_has_a_row_for_each_part_are_refused():
    X, _, _ = table(8)
    with pytest.raises(ValueError, match="5 rows of some class"):
        grow(X, np.arange(8.0) // 4, classes=2, seed=0)


# ---------------------------------------------------------------- in the front door


ON_TREES = {"method": "exact on trees", "max_work": 1000, "max_seconds": None}


@pytest.fixture(scope="module")
def fitted():
    """On a table with text, a date and gaps; the target on a scale of its own."""
    return GPRegressor(**ON_TREES).fit(sales(260), "price")


def test_a_table_is_learned_and_a_file_keeps_the_trees(fitted, tmp_path):
    new = sales(60, seed=7)
    assert fitted.leaderboard_[0].method == "exact on trees" and fitted.warp_.name == "log"
    assert fitted.score(new) > 0.4
    fitted.save(tmp_path / "m.vastgp")
    loaded = vastgp.load(tmp_path / "m.vastgp")
    for ask in ("predict", "predict_interval", "outside", "predict_quantiles"):
        np.testing.assert_array_equal(getattr(loaded, ask)(new), getattr(fitted, ask)(new))
    np.testing.assert_array_equal(loaded.sample_y(new[:5]), fitted.sample_y(new[:5]))
    header, arrays = read_archive(tmp_path / "m.vastgp")
    assert header["model"]["on_trees"] and "model/trees/threshold" in arrays
    json.dumps(header)


def test_the_same_seed_is_the_same_model(fitted):
    again = GPRegressor(**ON_TREES).fit(sales(260), "price")
    new = sales(30, seed=8)
    np.testing.assert_array_equal(again.predict(new), fitted.predict(new))


def test_inputs_are_those_of_the_table(fitted, tmp_path):
    names = {name for name, _, _ in fitted.importance_}
    assert names == {"city", "sold", "size", "age"}
    assert fitted.kernel_ is not None and fitted.model_.n_features_in_ == len(
        fitted.encoder_.get_feature_names_out()
    )
    assert "boosted trees" in fitted.report(tmp_path / "page.html").read_text()
    new = sales(40, seed=6)
    assert fitted.outside(new.assign(size=new["size"] * 100.0)).all()
    assert fitted.outside(new).mean() < 0.3


def test_distances_count_what_only_the_trees_read():
    X, _, y = table(300, 3)
    model = GPRegressor(**ON_TREES).fit(X, y)
    process = process_of(model.model_)
    lengthscales = falling_part(process.kernel_).lengthscales
    l_t = lengthscales[-1]
    t = model.model_.trees
    x_scale = process.standardizer_.x_scale
    expected = (
        np.asarray(lengthscales[:3]) ** -2.0
        + t.shares * (x_scale[-1] / l_t) ** 2 / x_scale[:3] ** 2
    )
    np.testing.assert_allclose(model.model_.metric_lengthscales() ** -2.0, expected, rtol=1e-6)


def test_classes_with_steps_are_told_by_trees():
    X, _, _ = table(1000, 12)
    flipped = np.random.default_rng(5).uniform(size=1000) < 0.1
    y = np.array(["low", "high"])[((X[:, 0] > 0.3) ^ (X[:, 1] >= 1.0) ^ flipped).astype(int)]
    plain, trees = (
        GPClassifier(method=method, max_seconds=4).fit(X[:500], y[:500])
        for method in ("tsvgp", "tsvgp on trees")
    )
    behind = trees.log_predictive_density(X[500:], y[500:]) - plain.log_predictive_density(
        X[500:], y[500:]
    )
    assert behind.mean() > 2.0 * behind.std() / len(behind) ** 0.5
    np.testing.assert_allclose(trees.predict_proba(X[500:]).sum(axis=1), 1.0)


def test_weights_and_known_errors_go_to_the_trees():
    X, f, y = table(300)
    error = np.where(np.arange(300) % 3 == 0, 5.0, 0.1)
    y = f + error * np.random.default_rng(3).normal(size=300)
    model = GPRegressor(**ON_TREES).fit(X, y, noise_std=error)
    assert np.mean((model.predict(X) - f) ** 2) < 0.1 * f.var()


def test_trees_run_where_there_are_rows_for_them():
    def names(n, d=5):
        found = candidates.regressors(n, d, tied=False, counts=False, likelihood="auto")
        return [one.name for one in found]

    assert names(500)[:4] == ["exact", "linear", "exact, heteroskedastic", "exact on trees"]
    assert names(5000)[3:5] == ["nearest on trees", "exact on trees"]
    assert "tsvgp, heteroskedastic on trees" in names(5000)
    assert not any("trees" in name for name in [*names(100), *names(500, 1)])

    # of very many rows they are grown on a part, and say something of as many as there is time for
    def within(seconds, rows=180_000):
        many = {"tied": False, "counts": False, "likelihood": "auto", "seconds": seconds}
        found = candidates.regressors(rows, 11, **many)
        return {one.name: one.most_rows for one in found if one.on_trees}

    assert not within(5.0)
    assert within(60.0)["nearest on trees"] is None is within(1000.0, 1_000_000)["nearest on trees"]
    grown, told = growing.most_rows(11, 1, 12.0), int(6.0 / growing.seconds_to_tell(1, 1))
    assert within(60.0, 1_000_000)["nearest on trees"] == grown + told < 300_000
    assert within(60.0, 1_000_000)["exact on trees"] < grown
    assert within(None, 1_000_000)["nearest on trees"] is None
    many = {
        one.name: one.most_rows for one in classifiers(1_000_000, 11, 11, classes=5, seconds=60.0)
    }
    assert many["tsvgp on trees"] < 100_000 and many["tsvgp"] is None
    assert classifiers(500, 5, 5)[1].name == "tsvgp on trees"
    named = candidates.named("qsgp on trees", False, "auto")
    assert named.on_trees and named.estimator == "QSGPRegressor"
    assert not candidates.named("exact", False, "auto").on_trees
