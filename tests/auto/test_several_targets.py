"""Several target columns: each as a model of its own would have it."""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import vastgp
from vastgp import GPRegressor
from vastgp.auto.several import files_of_targets

# compared bit by bit: no budget, and too few rows for a race
WHOLE = {"method": "exact", "max_seconds": None, "calibrate": None}


def shops(n=15, seed=0):
    rng = np.random.default_rng(seed)
    size = rng.uniform(20, 100, n)
    city = rng.choice(["Oslo", "Rome"], n)
    warm = city == "Rome"
    rent = 3 * size + 50 * warm + rng.normal(size=n)
    staff = 0.1 * size + rng.normal(scale=0.1, size=n)
    return pd.DataFrame({"size": size, "city": city, "rent": rent, "staff": staff})


@pytest.fixture(scope="module")
def table():
    found = shops()
    found.loc[3, "staff"] = np.nan
    return found


@pytest.fixture(scope="module")
def both(table):
    return GPRegressor(**WHOLE).fit(table, ["rent", "staff"])


@pytest.fixture(scope="module")
def each(table):
    inputs = table.drop(columns=["rent", "staff"])
    return [GPRegressor(**WHOLE).fit(inputs, table[name]) for name in ("rent", "staff")]


def test_each_target_is_as_by_a_model_of_its_own(both, each):
    new = shops(6, seed=1)
    mean, std = both.predict(new, return_std=True)
    for k, one in enumerate(each):
        own = one.predict(new, return_std=True)
        np.testing.assert_array_equal(mean[:, k], own[0])
        np.testing.assert_array_equal(std[:, k], own[1])
        np.testing.assert_array_equal(both.predict(new)[:, k], one.predict(new))
        interval = both.predict_interval(new, 0.8)[:, k]
        np.testing.assert_array_equal(interval, one.predict_interval(new, 0.8))
        quantiles = both.predict_quantiles(new, [0.1, 0.5, 0.6])[:, k]
        np.testing.assert_array_equal(quantiles, one.predict_quantiles(new, [0.1, 0.5, 0.6]))


def test_samples_of_targets_are_those_of_each_and_independent(both, each):
    new = shops(6, seed=1)
    drawn = both.sample_y(new, 2000, random_state=1)
    assert drawn.shape == (6, 2, 2000)
    np.testing.assert_array_equal(drawn, both.sample_y(new, 2000, random_state=1))
    for k, one in enumerate(each):
        own = one.sample_y(new, 2000, random_state=7)
        error = np.hypot(drawn[:, k].std(1), own.std(1)) / 2000**0.5
        assert np.all(np.abs(drawn[:, k].mean(1) - own.mean(1)) < 4.5 * error)
        np.testing.assert_allclose(drawn[:, k].std(1), own.std(1), rtol=0.12)
    for rent, staff in drawn:
        assert abs(np.corrcoef(rent, staff)[0, 1]) < 4.5 / 2000**0.5


def test_targets_are_no_inputs_of_each_other(both):
    assert list(both.feature_names_in_) == ["size", "city"]
    new = shops(5, seed=2)
    np.testing.assert_array_equal(both.predict(new.assign(rent=0.0)), both.predict(new))
    np.testing.assert_array_equal(both.predict(new[["city", "size"]]), both.predict(new))


def test_a_row_without_one_target_teaches_the_others(both):
    assert both.n_rows_dropped_ == {"rent": 0, "staff": 1}


def test_densities_multiply_and_scores_are_averaged(both, each):
    new = shops(8, seed=3)
    single = [
        one.log_predictive_density(new, new[one_name])
        for one, one_name in zip(each, ("rent", "staff"), strict=True)
    ]
    np.testing.assert_array_equal(both.log_predictive_density(new), single[0] + single[1])
    matrix = new[["rent", "staff"]].to_numpy()
    np.testing.assert_array_equal(both.log_predictive_density(new, matrix), single[0] + single[1])
    scores = [one.score(new, new[name]) for one, name in zip(each, ("rent", "staff"), strict=True)]
    assert both.score(new) == np.mean(scores)
    # by names a frame's columns may stand in any order
    assert both.score(new, new[["staff", "rent"]]) == both.score(new)


def test_what_a_fit_knows_is_known_of_each_target(both):
    assert set(both.leaderboard_) == set(both.kernel_) == set(both.encoding_) == {"rent", "staff"}
    assert both.stop_reason_["rent"] == both.outputs_["rent"].stop_reason_
    with pytest.raises(AttributeError, match="no attribute 'nothing_'"):
        _ = GPRegressor().nothing_


@pytest.mark.parametrize("kind", ["array", "list", "frame", "polars", "file", "arrays file"])
def test_targets_may_be_given_in_any_form(both, table, kind, tmp_path):
    inputs = table[["size", "city"]]
    pair = table[["rent", "staff"]]
    if kind == "file":
        table.to_parquet(tmp_path / "shops.parquet")
        fitted = GPRegressor(**WHOLE).fit(str(tmp_path / "shops.parquet"), ["rent", "staff"])
    elif kind == "polars":
        fitted = GPRegressor(**WHOLE).fit(pl.from_pandas(table), ["rent", "staff"])
    elif kind == "arrays file":
        np.savez(tmp_path / "shops.npz", X=inputs[["size"]].to_numpy(), y=pair.to_numpy())
        fitted = GPRegressor(**WHOLE).fit(str(tmp_path / "shops.npz"))
        assert set(fitted.outputs_) == {0, 1} and fitted.predict([[50.0]]).shape == (1, 2)
        return
    else:
        given = {"array": pair.to_numpy(), "list": pair.to_numpy().tolist(), "frame": pair}[kind]
        fitted = GPRegressor(**WHOLE).fit(inputs, given)
    np.testing.assert_array_equal(fitted.predict(shops(4, seed=5)), both.predict(shops(4, seed=5)))


def test_a_file_gives_all_targets_back(both, tmp_path):
    both.save(tmp_path / "both.vastgp")
    again = vastgp.load(tmp_path / "both.vastgp")
    new = shops(4, seed=6)
    np.testing.assert_array_equal(again.predict(new), both.predict(new))
    assert again.target_name_ == ["rent", "staff"] and again.get_params() == both.get_params()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(both)).predict(new), both.predict(new))


def test_each_target_has_a_report(both, tmp_path):
    new = shops(12, seed=7)
    found = both.report(tmp_path / "shops.html", new)
    assert [path.name for path in found] == ["shops-rent.html", "shops-staff.html"]
    assert all("</html>" in path.read_text() for path in found)


def test_known_errors_may_differ_by_target(table):
    rng = np.random.default_rng(0)
    table = table.dropna().assign(error=rng.uniform(0.5, 3.0, len(table) - 1))
    both = GPRegressor(**WHOLE).fit(table, ["rent", "staff"], noise_std=["error", "error"])
    assert list(both.feature_names_in_) == ["size", "city"]
    one = GPRegressor(**WHOLE).fit(table[["size", "city"]], table.rent, noise_std=table.error)
    np.testing.assert_array_equal(both.predict(table)[:, 0], one.predict(table))
    with pytest.raises(ValueError, match="noise_std has 3 columns for 2 targets"):
        GPRegressor(**WHOLE).fit(table, ["rent", "staff"], noise_std=np.ones((len(table), 3)))


def test_a_refit_to_one_target_forgets_the_others(table):
    model = GPRegressor(**WHOLE).fit(table, ["rent", "staff"])
    model.fit(table[["size", "rent"]], "rent")
    assert model.predict(table).ndim == 1 and not hasattr(model, "outputs_")


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (["rent", "nothing"], "nothing"),
        (["rent", "city"], "'city'.*text"),
        (["rent", "rent"], "rent"),
    ],
)
def test_bad_targets_are_named(table, targets, message):
    with pytest.raises(ValueError, match=message):
        GPRegressor(**WHOLE).fit(table, targets)


def test_targets_to_score_are_found_by_name(both, table):
    whole = table.drop(index=3)
    y = whole[["rent", "staff"]]
    assert both.score(whole, y[["staff", "rent"]]) == both.score(whole, y)
    with pytest.raises(
        ValueError, match=r"'rent', 'wages', but .* fitted to the targets 'rent', 'staff'"
    ):
        both.score(whole, y.rename(columns={"staff": "wages"}))


def test_a_wrong_number_of_targets_is_told(both):
    with pytest.raises(ValueError, match=r"1 column, but .* 2 targets"):
        both.score(shops(5), shops(5).rent.to_numpy())


def test_each_target_has_a_file_of_its_own():
    names = ["CO/2", "CO 2", "co_2", "x" * 300, "x" * 301, 7]
    found = files_of_targets(Path("page.html"), names)
    assert list(found) == names and len({str(one).casefold() for one in found.values()}) == 6
    assert found["CO/2"] == Path("page-CO_2.html") and found[7] == Path("page-7.html")
    assert all(len(one.name) < 100 and one.suffix == ".html" for one in found.values())


def test_what_is_no_name_of_a_page_is_refused_of_several_targets_too():
    X = np.random.default_rng(0).normal(size=(30, 1))
    model = GPRegressor(method="exact", max_work=200).fit(X, np.column_stack([X, 2.0 * X]))
    with pytest.raises(ValueError, match=r"path must be the name of a file to write.*received 3"):
        model.report(3)
