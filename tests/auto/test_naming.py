"""Numbers that name things: when they do, what they become, and what is known of a thing never seen."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata

from vastgp import GPClassifier, GPRegressor
from vastgp.auto import TableEncoder, naming
from vastgp.auto.categories import code_vectors
from vastgp.auto.each_other import given_each_other
from vastgp.auto.inputs import Inputs
from vastgp.auto.many_rows import asking_in_time
from vastgp.auto.named_numbers import NamedNumberEncoding, share_of_names
from vastgp.kernels import Matern32


def _schools(
    count: int = 60, rows: int = 15, effect: float = 1.0, seed: int = 0
) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Rows of things with numbers, whose targets are a line, an effect of each thing, and noise of deviation 0.5."""
    rng = np.random.default_rng(seed)
    effects = effect * rng.normal(size=count)
    number = np.repeat(np.arange(count), rows)
    x = rng.normal(size=count * rows)
    y = x + effects[number] + 0.5 * rng.normal(size=count * rows)
    order = rng.permutation(len(y))
    table = pd.DataFrame({"school": 100 + number, "hours": x}).iloc[order].reset_index(drop=True)
    return table, y[order], effects


# ---------------------------------------------------------------- what is told


def test_the_share_of_names_is_that_of_their_effects():
    shares = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        number = np.repeat(np.arange(50), 10)
        effects = rng.normal(size=50)
        shares.append(share_of_names(number.astype(float), effects[number] + rng.normal(size=500)))
    # half of the variance of normal targets; of their ranks 6/pi asin(1/4) = 0.483
    expected = 6.0 / np.pi * np.arcsin(0.25)
    assert abs(np.mean(shares) - expected) < 3.0 * np.std(shares) / np.sqrt(40)


def test_what_is_smooth_in_a_number_names_nothing():
    rng = np.random.default_rng(0)
    number = rng.integers(0, 60, 3000).astype(float)
    for function in (np.sin(number / 8.0), number**2, 1.0 / (1.0 + number), np.zeros(3000)):
        assert (
            share_of_names(number, function + 0.3 * np.std(function) * rng.normal(size=3000)) == 0.0
        )


def test_chance_names_nothing():
    rng = np.random.default_rng(1)
    found = [
        share_of_names(rng.integers(0, 30, 400).astype(float), rng.normal(size=400)) > 0.0
        for _ in range(400)
    ]
    # one in a hundred by the law it is compared with, which is near: 4, and 12 with a probability of 0.001
    assert np.sum(found) <= 12


def test_the_share_does_not_depend_on_units_nor_on_the_order_of_rows():
    table, y, _ = _schools()
    number = table["school"].to_numpy(float)
    share = share_of_names(number, y)
    assert share > 0.1
    order = np.random.default_rng(2).permutation(len(y))
    assert share_of_names(number[order], np.exp(y[order])) == pytest.approx(share, rel=1e-12)
    assert share_of_names(5.0 * number - 7.0, y) == pytest.approx(share, rel=1e-12)
    missing = np.append(y, np.nan), np.append(number, 3.0)
    assert share_of_names(missing[1], missing[0]) == pytest.approx(share, rel=1e-12)


def test_targets_that_are_all_alike_say_nothing():
    number = np.repeat(np.arange(10.0), 5)
    assert share_of_names(number, np.ones(50)) == 0.0
    assert share_of_names(np.arange(50.0), np.arange(50.0)) == 0.0
    assert share_of_names(np.repeat([1.0, 2.0, 3.0], 10), np.arange(30.0)) == 0.0


def test_rows_given_each_other_are_those_of_fits_without_each():
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(12, 3)), rng.normal(size=12)
    mean, std = given_each_other(
        X, y, learned_on=12, seed=0, max_seconds=None, kernel="matern32", inputs=[0, 1, 1]
    )
    from vastgp.fitting.start import start_from_exact_gp

    Z, t = (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()
    start = start_from_exact_gp("matern32", Z, t, max_rows=12, inputs=[0, 1, 1])
    assert isinstance(start.kernel, Matern32)
    K = np.asarray(start.kernel(Z, Z))
    noise = start.noise_variance * np.eye(12)
    for i in range(12):
        others = np.arange(12) != i
        A = np.linalg.solve((K + noise)[np.ix_(others, others)], K[others, i])
        expected = A @ t[others]
        variance = K[i, i] + start.noise_variance - K[i, others] @ A
        assert mean[i] == pytest.approx(y.mean() + y.std() * expected, rel=1e-5, abs=1e-5)
        assert std[i] == pytest.approx(y.std() * np.sqrt(variance), rel=1e-5)


# ---------------------------------------------------------------- what becomes of them


def test_numbers_of_things_are_numbers_and_names():
    table, y, _ = _schools()
    encoder = TableEncoder()
    rows = encoder.fit_transform(table, y)
    column = encoder.columns_[0]
    assert isinstance(column.encoding, NamedNumberEncoding)
    assert column.kind == "number"
    assert encoder.tied_ == ((0,), tuple(range(1, 17)), (17,), (18,))
    np.testing.assert_array_equal(rows[:, 0], table["school"])
    codes = code_vectors(list(map(str, table["school"])))
    np.testing.assert_array_equal(rows[:, 1:17], codes)
    np.testing.assert_array_equal(rows[:, 18], table["hours"])
    # the mean of the target beside it is that of other rows
    assert abs(np.corrcoef(rows[:, 17], y - table["hours"])[0, 1]) > 0.8
    new = encoder.transform(table)
    assert np.all(np.ptp(new[table["school"] == 100, 17]) == 0.0)
    assert np.any(new[:, 17] != rows[:, 17])
    assert "also the names of things: 60 levels" in column.done


def test_few_things_are_levels_and_one_never_seen_is_none_of_them():
    table, y, _ = _schools(count=8, rows=30, seed=1)
    table.loc[:5, "school"] = np.nan
    encoder = TableEncoder().fit(table, y)
    names = encoder.get_feature_names_out().tolist()
    assert names[:10] == ["school", *(f"school={100 + k}" for k in range(8)), "school=(unseen)"]
    assert names[10] == "school is missing"
    found = encoder.transform(pd.DataFrame({"school": [103.0, 111.0, np.nan], "hours": 0.0}))
    np.testing.assert_array_equal(found[:, 1:10], np.eye(9)[[3, 8, 8]])
    np.testing.assert_array_equal(found[:, 10], [0.0, 0.0, 1.0])
    np.testing.assert_array_equal(found[:2, 0], [103.0, 111.0])


def test_numbers_that_a_process_does_as_well_without_stay_numbers(monkeypatch):
    table, y, _ = _schools()

    def worse(X, y, tied, without):
        return np.full(len(y), -1.0 if len(without) else -1.1)

    monkeypatch.setattr(naming, "_densities", worse)
    encoder = TableEncoder().fit(table, y)
    assert encoder.tied_ == ((0,), (1,))
    rows = encoder.fit_transform(table, y)
    np.testing.assert_array_equal(rows, table.to_numpy())


def test_numbers_name_things_of_several_classes():
    table, y, _ = _schools()
    classes = np.digitize(y, np.quantile(y, [0.3, 0.7]))
    encoder = TableEncoder()
    rows = encoder.fit_transform(table, None, classes=np.eye(3)[classes])
    assert isinstance(encoder.columns_[0].encoding, NamedNumberEncoding)
    assert encoder.tied_ == ((0,), tuple(range(1, 17)), (17, 18, 19), (20,))
    # shares of other rows, which go with the classes and add up to one
    np.testing.assert_allclose(rows[:, 17:20].sum(axis=1), 1.0, atol=0.2)
    for number in range(3):
        # four standard errors of a correlation of none, of 900 rows
        assert np.corrcoef(rows[:, 17 + number], classes == number)[0, 1] > 4 / np.sqrt(900)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(naming, "_densities", lambda X, y, tied, without: -X[:, :1][:, 0] * len(y))
        smooth = TableEncoder()
        drawn = np.random.default_rng(0).integers(0, 3, len(y))
        smooth.fit_transform(table, None, classes=np.eye(3)[drawn])
    assert smooth.tied_ == ((0,), (1,))


def test_a_classifier_of_several_classes_knows_things_by_their_names():
    rng = np.random.default_rng(5)
    count, n = 60, 900
    thing = rng.integers(0, count, n)
    x = rng.normal(size=n)
    own = rng.integers(0, 3, count)
    labels = np.where(rng.random(n) < 0.85, own[thing], rng.integers(0, 3, n))
    table = pd.DataFrame({"thing": [f"t{k}" for k in thing], "x": x})
    model = GPClassifier(max_seconds=8, random_state=0).fit(table[:600], labels[:600])
    proba = model.predict_proba(table[600:])
    loss = -np.mean(np.log(proba[np.arange(300), labels[600:]]))
    # 0.9 of its own class and 0.05 of each other: 0.394; without knowing the thing 1.1
    assert loss < 0.55


def test_without_a_target_numbers_are_numbers():
    table, y, _ = _schools()
    for encoder in (TableEncoder().fit(table), TableEncoder(target_mean=False).fit(table, y)):
        assert encoder.tied_ == ((0,), (1,))


def test_some_rows_are_encoded_as_all_of_them():
    table, y, _ = _schools()
    whole = TableEncoder().fit(table, y)
    few = np.flatnonzero(table["school"] < 106)  # too few to tell
    part = TableEncoder()
    rows = part.fit_transform(table.iloc[few], y[few], like=whole)
    assert part.tied_ == whole.tied_
    np.testing.assert_array_equal(rows[:, :17], whole.transform(table.iloc[few])[:, :17])
    smooth = TableEncoder().fit(table, table["school"] / 10.0 + 0.1 * y)
    plain = TableEncoder()
    plain.fit_transform(table, y, like=smooth)
    assert plain.tied_ == ((0,), (1,))


def test_names_are_kept_with_the_encoder():
    table, y, _ = _schools()
    encoder = TableEncoder().fit(table, y)
    again = TableEncoder.from_state(json.loads(json.dumps(encoder.to_state())))
    assert again.columns_ == encoder.columns_
    np.testing.assert_array_equal(again.transform(table), encoder.transform(table))


@pytest.mark.filterwarnings("error")
def test_the_largest_numbers_name_things_too():
    table, y, _ = _schools()
    other = np.where(np.arange(len(y)) % 2, 1.6e308, 1e308)
    table = table.assign(school=(table["school"] - 130.0) * 2.0**1018, other=other)
    encoder = TableEncoder(squash=False).fit(table, y)
    assert isinstance(encoder.columns_[0].encoding, NamedNumberEncoding)
    assert np.all(np.isfinite(encoder.transform(table)))


def test_whether_they_do_is_the_same_however_slow_the_machine_is():
    table, y, _ = _schools()
    calls = []

    def given(*args, **options):
        calls.append(options)
        return given_each_other(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(naming, "given_each_other", given)
        TableEncoder().fit(table, y)
    assert len(calls) == 2
    assert all(options["max_iter"] <= 40 and "max_seconds" not in options for options in calls)


def test_it_is_not_asked_where_there_is_no_time_for_so_many_rows():
    table, y, _ = _schools(count=300, rows=20)
    encoder = TableEncoder()
    assert encoder.fit_transform(table, y, names=False).shape == (6000, 2)
    assert encoder.fit_transform(table, y).shape == (6000, 19)
    for seconds, shape in ((1.0, (6000, 2)), (2.0, (6000, 19)), (None, (6000, 19))):
        inputs = Inputs.of(table, None, None, np.arange(6000), y, 6000)
        rows, _ = asking_in_time(inputs, seconds).whole(y)
        assert rows.X.shape == shape


def test_rows_that_tell_are_several_of_each_thing():
    number = np.repeat(np.arange(1000.0), 20)
    there = np.ones(20_000, bool)
    rows = naming._rows_by_things(number, there)
    assert len(rows) == naming._ROWS
    assert np.all(np.diff(rows) > 0)
    _, count = np.unique(number[rows], return_counts=True)
    assert set(count.tolist()) == {naming._OF_ONE}
    few = naming._rows_by_things(number % 7, there)
    assert len(np.unique(number[few] % 7)) == 7


# ---------------------------------------------------------------- what it is for


def test_a_regressor_knows_schools_by_their_numbers():
    table, y, effects = _schools()
    fitted, rest = slice(0, 675), slice(675, None)
    model = GPRegressor(max_seconds=8, random_state=0).fit(table.iloc[fitted], y[fitted])
    assert isinstance(model.encoding_[0].encoding, NamedNumberEncoding)
    error = model.predict(table.iloc[rest]) - y[rest]
    # noise of 0.5, and the effect of a thing by some eleven rows
    best = 0.5 * np.sqrt(1.0 + 1.0 / 11.0)
    assert np.sqrt(np.mean(error**2)) < 1.15 * best
    # of one never seen all are possible
    new = pd.DataFrame({"school": [500], "hours": [0.0]})
    seen = pd.DataFrame({"school": [100], "hours": [0.0]})
    deviation = model.predict(new, return_std=True)[1][0]
    assert deviation > 1.5 * model.predict(seen, return_std=True)[1][0]
    assert deviation > 0.7 * np.hypot(np.std(effects), 0.5)


def test_ranks_of_ties_are_shared():
    """Things are compared by mean ranks, so that repeated targets tell neither for names nor against them."""
    number = np.repeat(np.arange(12.0), 6)
    y = (np.arange(72) % 2).astype(float)
    assert rankdata(y)[0] == 18.5
    assert share_of_names(number, y) == 0.0
