"""Counts of rows that were looked at for unequal times, at the front door."""

import inspect
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest

import vastgp
from vastgp import GPRegressor, TSVGPRegressor
from vastgp.auto import candidates
from vastgp.auto.trees.grove import _targets_and_weights
from vastgp.auto.warps import Own
from vastgp.estimators.registry import estimator_class
from vastgp.likelihoods import Poisson, StudentT

# compared number by number: no budget, and too few rows for a race
WHOLE = {"method": "tsvgp", "likelihood": "poisson", "max_seconds": None, "calibrate": None}


def claims(n=18, seed=0):
    """Claims of drivers: a rate by age and city, times the years that each was insured."""
    rng = np.random.default_rng(seed)
    age = rng.uniform(20.0, 80.0, n)
    city = rng.choice(["Oslo", "Rome"], n)
    years = 10.0 ** rng.uniform(-1.0, 1.0, n)
    rate = np.exp(0.3 + np.cos((age - 20.0) / 12.0) + 0.7 * (city == "Rome"))
    found = pd.DataFrame({"age": age, "city": city, "years": years})
    return found.assign(claims=rng.poisson(years * rate).astype(float)), rate


@pytest.fixture(scope="module")
def few():
    return GPRegressor(**WHOLE).fit(claims()[0], "claims", exposure="years")


@pytest.fixture(scope="module")
def raced():
    return GPRegressor(max_seconds=16.0).fit(claims(260)[0], "claims", exposure="years")


# ---------------------------------------------------------------- equal to a method's own


def test_few_rows_are_as_by_a_method_with_the_same_exposures():
    table, new = claims()[0].drop(columns="city"), claims(9, 1)[0]
    mine = GPRegressor(**WHOLE).fit(table, "claims", exposure="years")
    encode = mine.encoder_.transform
    own = TSVGPRegressor(likelihood="poisson", max_seconds=None, random_state=0)
    own.fit(encode(table), table.claims, exposure=table.years)
    np.testing.assert_allclose(mine.predict(new), own.predict(encode(new)), rtol=1e-7)
    np.testing.assert_allclose(
        mine.log_predictive_density(new, "claims"),
        own.log_predictive_density(encode(new), new.claims, exposure=new.years),
        rtol=1e-7,
    )
    plain = GPRegressor(**WHOLE).fit(table[["age", "claims"]], "claims")
    assert np.abs(np.log(mine.predict(new) / plain.predict(new))).max() > 0.1


def test_an_exposure_is_no_input_and_may_be_given_in_any_form(few, tmp_path):
    table, new = claims()[0], claims(7, 2)[0]
    assert few.feature_names_in_.tolist() == ["age", "city"] and few.exposure_name_ == "years"
    table.to_parquet(tmp_path / "t.parquet")
    inputs = table[["age", "city"]]
    others = [
        GPRegressor(**WHOLE).fit(pl.from_pandas(table), "claims", exposure="years"),
        GPRegressor(**WHOLE).fit(tmp_path / "t.parquet", "claims", exposure="years"),
        GPRegressor(**WHOLE).fit(inputs, table.claims, exposure=table.years),
        GPRegressor(**WHOLE).fit(inputs, table.claims, exposure=table.years.tolist()),
    ]
    for other in others:
        np.testing.assert_array_equal(other.predict(new), few.predict(new))
    assert others[-1].exposure_name_ is None and others[-1].exposure_ is not None


def test_the_unit_of_the_exposure_does_not_matter(few):
    table, new = claims()[0], claims(7, 3)[0]
    months = table.assign(years=12.0 * table.years)
    other = GPRegressor(**WHOLE).fit(months, "claims", exposure="years")
    np.testing.assert_allclose(other.predict(new, exposure=12.0), few.predict(new), rtol=1e-6)


def test_two_counts_at_a_place_are_one_of_both_exposures():
    """Sums of Poisson counts are Poisson; the mean rate of all is that of the sums whatever is learned."""
    table, _ = claims(17)
    apart = pd.concat([table, table], ignore_index=True)
    doubled = table.assign(years=2.0 * table.years, claims=2.0 * table.claims)
    one = GPRegressor(**WHOLE).fit(doubled, "claims", exposure="years").exposure_
    two = GPRegressor(**WHOLE | {"max_seconds": 1.0}).fit(apart, "claims", exposure="years")
    assert two.exposure_.counted == one.counted
    assert two.exposure_.total == pytest.approx(one.total)
    new, rate = claims(60, 4)
    found = GPRegressor(**WHOLE).fit(doubled, "claims", exposure="years").predict(new)
    plain = GPRegressor(**WHOLE).fit(table, "claims", exposure="years").predict(new)
    # doubled counts of doubled exposures are of the same rate
    assert abs(np.mean(np.log(found / plain))) < 0.15
    assert abs(np.mean(np.log(found / rate))) < 0.5


# ---------------------------------------------------------------- predictions


def test_predictions_are_of_the_exposure_that_is_asked_for(few):
    new, _ = claims(12, 5)
    of_one, years = few.predict(new), new.years.to_numpy()
    for asked in ("years", years, list(years)):
        np.testing.assert_allclose(few.predict(new, exposure=asked), years * of_one, rtol=1e-12)
    np.testing.assert_allclose(few.predict(new, exposure=2.5), 2.5 * of_one, rtol=1e-12)
    np.testing.assert_array_equal(few.predict(new, exposure=1.0), of_one)
    # intervals are those of the counts that the exposure makes
    mean, std = few.predict(new, return_std=True, exposure="years")
    np.testing.assert_allclose(mean, years * of_one, rtol=1e-12)
    assert np.all(std**2 > mean)
    quantiles = few.predict_quantiles(new, [0.1, 0.9], exposure="years")
    assert np.all(quantiles == np.round(quantiles))
    np.testing.assert_array_equal(few.predict_interval(new, 0.8, exposure=years), quantiles)
    sums = few.distribution(new, exposure=years)
    total = np.exp([sums.log_density(np.full(12, float(k))) for k in range(3000)]).sum(axis=0)
    np.testing.assert_allclose(total[years < 1.0], 1.0, rtol=1e-3)


def test_counts_are_compared_by_their_own_exposures(few):
    new, _ = claims(12, 6)
    own = few.log_predictive_density(new, "claims")
    np.testing.assert_array_equal(own, few.log_predictive_density(new, exposure=new.years))
    assert own.mean() > few.log_predictive_density(new, exposure=1.0).mean() + 0.2
    assert few.score(new) == few.score(new, exposure="years") > few.score(new, exposure=1.0)
    bare = new[["age", "city"]]
    with pytest.raises(
        ValueError, match=r"exposure is missing: .* X has no column 'years'.* or 1.0"
    ):
        few.score(bare, new.claims)
    with pytest.raises(ValueError, match="exposure is missing"):
        few.log_predictive_density(bare, new.claims)


# ---------------------------------------------------------------- the race


def test_a_race_finds_the_rate(raced):
    new, rate = claims(200, 7)
    assert np.sqrt(np.mean(np.log(raced.predict(new) / rate) ** 2)) < 0.3
    low, high = raced.predict_interval(new, 0.9, exposure="years").T
    assert np.mean((low <= new.claims) & (new.claims <= high)) > 0.9 - 4 * (0.09 / 200) ** 0.5
    assert {"years", "claims"}.isdisjoint(one[0] for one in raced.importance_)
    held = raced.held_out_
    np.testing.assert_array_equal(claims(260)[0].claims.to_numpy()[held["row"]], held["y"])
    # they are judged at their own exposures: means of counts, not rates
    table, rate = claims(260)
    expected = (table.years * rate).to_numpy()[held["row"]]
    assert np.sqrt(np.mean(np.log(held["mean"] / expected) ** 2)) < 0.4 < np.std(np.log(expected))


def test_what_raced_is_told(raced, tmp_path):
    assert "tsvgp, poisson" in {entry.method for entry in raced.leaderboard_}
    assert "exposures 'years'" in str(raced.leaderboard_)
    raced.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Counts have exposures" in page and "count of one unit of exposure" in page
    raced.report(tmp_path / "new.html", claims(40, 8)[0])
    with pytest.raises(ValueError, match="exposure is missing"):
        raced.report(tmp_path / "new.html", claims(40, 8)[0].drop(columns="years"))


def test_a_file_keeps_it(raced, few, tmp_path):
    new, _ = claims(15, 9)
    for number, model in enumerate((raced, few)):
        model.save(tmp_path / f"{number}.vastgp")
        loaded = vastgp.load(tmp_path / f"{number}.vastgp")
        for again in (loaded, pickle.loads(pickle.dumps(model))):
            assert again.exposure_ == model.exposure_ and again.exposure_name_ == "years"
            assert str(again.leaderboard_) == str(model.leaderboard_)
            np.testing.assert_array_equal(
                again.log_predictive_density(new), model.log_predictive_density(new)
            )


@pytest.mark.parametrize("given", ["auto", "poisson", Poisson()])
def test_candidates_take_exposures(given):
    found = candidates.of_exposure(500, 4, method="auto", likelihood=given)
    assert len({one.name for one in found}) == len(found) > 2
    assert any(one.on_trees for one in found)
    for one in found:
        assert "exposure" in inspect.signature(estimator_class(one.estimator).fit).parameters
        assert one.make(seed=0, seconds=1.0)._chosen_likelihood().counts
    assert not any(
        one.on_trees for one in candidates.of_exposure(100, 4, method="auto", likelihood=given)
    )


def test_trees_of_many_counts_say_something_of_as_many_as_there_is_time_for():
    def on_trees(seconds):
        made = candidates.of_exposure(10**6, 40, method="auto", likelihood="auto", seconds=seconds)
        return [one.most_rows for one in made if one.on_trees]

    assert set(on_trees(None)) == {None}
    assert all(10_000 < rows < 10**6 for rows in on_trees(60.0))
    assert on_trees(1.0) == []


def test_trees_are_grown_for_rates():
    table, _ = claims(50, 10)
    y = np.column_stack([table.claims, np.log(table.years)])
    rate, weight = _targets_and_weights(y, Own())
    assert np.average(rate, weights=weight) == pytest.approx(table.claims.sum() / table.years.sum())
    np.testing.assert_allclose(rate * table.years, table.claims)


def test_trees_of_a_named_method_read_the_rates():
    table, _ = claims(170, 11)
    made = GPRegressor(method="tsvgp on trees", likelihood="poisson", max_seconds=5, calibrate=None)
    fitted = made.fit(table, "claims", exposure="years")
    new, rate = claims(100, 12)
    of_trees = fitted.model_.trees.predict(fitted.encoder_.transform(new))[:, 0]
    assert np.corrcoef(of_trees, rate)[0, 1] > 0.6
    np.testing.assert_allclose(
        fitted.predict(new, exposure=3.0), 3.0 * fitted.predict(new), rtol=1e-12
    )


# ---------------------------------------------------------------- several targets


def test_several_targets_have_one_exposure_or_each_its_own():
    table, new = claims()[0], claims(6, 13)[0]
    rng = np.random.default_rng(1)
    table["visits"] = rng.poisson(3.0 * table.years).astype(float)
    table["days"] = 365.0 * table.years
    names = ["claims", "visits"]
    shared = GPRegressor(**WHOLE).fit(table.drop(columns="days"), names, exposure="years")
    own = GPRegressor(**WHOLE).fit(table, names, exposure=["years", "days"])
    one = GPRegressor(**WHOLE).fit(
        table[["age", "city"]], table.visits, exposure=table.years.to_numpy()
    )
    assert shared.exposure_name_ == {"claims": "years", "visits": "years"}
    assert own.exposure_name_ == {"claims": "years", "visits": "days"}
    assert list(own.feature_names_in_) == ["age", "city"]
    np.testing.assert_array_equal(shared.predict(new)[:, 1], one.predict(new))
    np.testing.assert_allclose(
        own.predict(new, exposure=np.column_stack([new.years, 365.0 * new.years])),
        shared.predict(new, exposure="years"),
        rtol=1e-6,
    )
    with pytest.raises(ValueError, match="exposure has 3 columns for 2 targets"):
        GPRegressor(**WHOLE).fit(table, names, exposure=np.ones((18, 3)))
    with pytest.raises(ValueError, match="Of the target 'claims': The target y has exposures"):
        GPRegressor(**WHOLE).fit(table.assign(claims=0.5), names, exposure="years")


# ---------------------------------------------------------------- what is refused


def _changed(**columns):
    return claims()[0].assign(**columns)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (_changed(years=-1.0), "exposure='years' must hold .* above zero.* first -1.0 at row 0"),
        (
            _changed(years=[1.0, 0.0] * 9),
            "exposure='years' .* 9 other values.* row 1.* leave it out",
        ),
        (_changed(years=[1.0] * 17 + [None]), "exposure='years' .* nan at row 17.* unknown"),
        (_changed(years=np.inf), "exposure='years' .* finite"),
        (_changed(years="long"), "exposure='years' .* holds text.* convert"),
        (_changed(claims=0.5), "'claims' has exposures, and holds 18 values that are no counts"),
        (_changed(claims=[-1.0] + [2.0] * 17), "1 value that is no count, the first -1 in row 0"),
        (claims()[0].rename(columns={"years": "days"}), "exposure='years' is no column.*'days'"),
    ],
)
def test_bad_exposures_and_counts_are_named(table, message):
    with pytest.raises(ValueError, match=message):
        GPRegressor(**WHOLE).fit(table, "claims", exposure="years")


def test_a_row_without_a_count_needs_no_exposure(few):
    table = claims()[0]
    more = pd.concat([table, table[:1].assign(claims=np.nan, years=np.nan)], ignore_index=True)
    fitted = GPRegressor(**WHOLE).fit(more, "claims", exposure="years")
    assert fitted.n_rows_dropped_ == 1
    np.testing.assert_array_equal(fitted.predict(table), few.predict(table))


def test_what_does_not_go_together_is_refused_by_name(few):
    table, _ = claims()
    fit = lambda **given: GPRegressor(**WHOLE | given).fit(table, "claims", exposure="years")  # noqa: E731
    for argument in ("noise_std", "sample_weight"):
        with pytest.raises(ValueError, match=f"{argument} and exposure were given together"):
            GPRegressor(**WHOLE).fit(table, "claims", exposure="years", **{argument: "age"})
    with pytest.raises(ValueError, match=r"method='exact' takes no exposure.*'tsvgp'"):
        fit(method="exact", likelihood="auto")
    for given in ("gaussian", StudentT(1.0, 4.0)):
        with pytest.raises(
            ValueError, match="exposure multiplies the rate of counts, and likelihood="
        ):
            fit(likelihood=given)
    plain = GPRegressor(method="exact", max_seconds=None).fit(table, "claims")
    with pytest.raises(ValueError, match="exposure was given, but the model was fitted without"):
        plain.predict(table, exposure=2.0)
    with pytest.raises(ValueError, match=r"exposure must hold .* above zero"):
        few.predict(table, exposure=0.0)
    with pytest.raises(ValueError, match=r"exposure has shape \(3,\)"):
        few.predict(table, exposure=np.ones(3))
