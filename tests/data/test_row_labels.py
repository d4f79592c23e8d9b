"""Rows are matched by position: where the labels of pandas say that this cannot be meant, it is told."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest

import vastgp
from vastgp.data import as_rows
from vastgp.data.row_labels import warn_of_other_order
from vastgp.options import Fixed

pytestmark = pytest.mark.little_work
TOLD = "The index of {} has the labels of X in another order.*row 0 .* is labelled 0"


def shuffled(n=40):
    generator = np.random.default_rng(0)
    X = pd.DataFrame({"a": generator.uniform(-2, 2, n), "b": generator.normal(size=n)})
    y = pd.Series(np.sin(X["a"]) + 0.1 * generator.normal(size=n), name="y")
    return X, y, y.iloc[::-1]


def exact():
    search = Fixed(noise_std=0.1)
    return vastgp.ExactGPRegressor(vastgp.RBF([1.0, 1.0]), hyperparameters=search)


def front_door():
    return vastgp.GPRegressor("exact", max_work=40)


@pytest.mark.parametrize("make", [exact, front_door])
def test_a_target_whose_labels_are_in_another_order_is_told(make):
    X, y, other = shuffled()
    with pytest.warns(UserWarning, match=TOLD.format("y")):
        model = make().fit(X, other)
    with pytest.warns(UserWarning, match=TOLD.format("y")):
        model.score(X, other)
    ones = pd.Series(np.linspace(1.0, 2.0, len(X)), index=other.index)
    with pytest.warns(UserWarning, match=TOLD.format("sample_weight")):
        make().fit(X, y, sample_weight=ones)
    with pytest.warns(UserWarning, match=TOLD.format("noise_std")):
        make().fit(X, y, noise_std=0.1 * ones)


@pytest.mark.filterwarnings("error:The index of")
@pytest.mark.parametrize("make", [exact, front_door])
def test_what_the_advice_gives_is_the_same_fit_without_a_word(make):
    X, y, other = shuffled()
    expected = make().fit(X, y).predict(X)
    np.testing.assert_array_equal(make().fit(X, other.loc[X.index]).predict(X), expected)
    np.testing.assert_array_equal(make().fit(X, other.to_numpy()[::-1]).predict(X), expected)
    np.testing.assert_array_equal(make().fit(X, y.set_axis(X.index + 7)).predict(X), expected)


def test_several_targets_exposures_and_classes_are_told():
    X, _, other = shuffled()
    model = front_door()
    with pytest.warns(UserWarning, match=TOLD.format("y")):
        model.fit(X, pd.DataFrame({"one": other, "two": -other}))
    counts = pd.Series(np.random.default_rng(1).poisson(3.0, len(X)))
    exposure = pd.Series(np.linspace(1.0, 3.0, len(X)), index=other.index)
    of_counts = vastgp.TSVGPRegressor(likelihood="poisson", max_seconds=1)
    with pytest.warns(UserWarning, match=TOLD.format("exposure")):
        of_counts.fit(X, counts, exposure=exposure)
    with pytest.warns(UserWarning, match=TOLD.format("y")):
        vastgp.TSVGPClassifier(max_seconds=1).fit(X, other > 0.0)


def test_labels_that_tell_nothing_are_passed_over():
    X, y, other = shuffled(6)
    twice = [0, 0, 1, 2, 3, 4]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows, given in (
            (X, y), (X, None), (X, "a"), (X, [1, 2]), (X, other.iloc[:5]), (X.to_numpy(), other),
            (X, other.set_axis(list("abcdef"))), (pl.from_pandas(X), other), (X, other.to_numpy()),
            (X.set_axis(twice), y.set_axis(twice[::-1])), (X, y.set_axis(X.index.astype("float64"))),
        ):  # fmt: skip
            warn_of_other_order(rows, given, "y")
        as_rows(X, y)
    days = pd.date_range("2020-01-01", periods=6)
    with pytest.warns(UserWarning, match="labelled 2020-01-01"):
        warn_of_other_order(X.set_axis(days), y.set_axis(days[::-1]), "y")
    pairs = pd.MultiIndex.from_product([["a", "b"], [1, 2, 3]])
    with pytest.warns(UserWarning, match=r"is labelled \('a', 1\)"):
        warn_of_other_order(X.set_axis(pairs), y.set_axis(pairs[::-1]), "y")


def of_categories(labels, categories="abcdef"):
    return pd.CategoricalIndex(list(labels), categories=list(categories))


@pytest.mark.filterwarnings("error")
def test_labels_in_other_types_are_compared_as_labels():
    days = pd.date_range("2020-01-01", periods=6, tz="UTC")
    pairs = pd.MultiIndex.from_product([["a", "b"], [1, 2, 3]])
    swapped = [0, 2, 1, 3, 4, 5]
    gap, late = pd.Index([pd.NA, 0, 1, 2, 3, 4], dtype="Int64"), pd.DatetimeIndex([None, *days[:5]])
    for ours, theirs, row, label in (
        (of_categories("abcdef"), of_categories("fedcba", "abcdefg"), 0, "a"),
        (of_categories("abcdef"), pd.Index(list("fedcba")), 0, "a"),
        (days, days.tz_convert("Europe/Oslo")[::-1], 0, "2020-01-01 00:00:00"),
        (days.tz_localize(None), pd.Index(list(days[::-1].date)), 0, "2020-01-01"),
        (pairs, pairs[::-1].to_flat_index(), 0, r"\('a', 1\)"),
        (pd.Index([np.nan, 0, 1, 2, 3, 4]), pd.Index([np.nan, 1, 0, 2, 3, 4]), 1, "0.0"),
        (gap, gap[swapped], 1, "0"),
        (late, late[swapped], 1, "2020-01-01 00:00:00"),
    ):
        X, y = pd.DataFrame({"a": np.arange(6)}, index=ours), pd.Series(np.arange(6), index=theirs)
        with pytest.warns(UserWarning, match=f"row {row} of X .* is labelled {label}"):
            warn_of_other_order(X, y, "y")


@pytest.mark.filterwarnings("error")
def test_labels_in_the_same_order_or_that_cannot_be_compared_end_no_fit():
    days = pd.date_range("2020-01-01", periods=6, tz="UTC")
    pairs = pd.MultiIndex.from_product([["a", "b"], [1, 2, 3]])
    lists = pd.Index([[i] for i in range(6)], dtype=object)
    for ours, theirs in (
        (of_categories("abcdef"), of_categories("abcdef", "gfedcba")),
        (days, days.tz_convert("Europe/Oslo")),
        (pd.RangeIndex(6), pairs),
        (pairs, pd.RangeIndex(6)),
        (pairs, pd.MultiIndex.from_tuples([(*pair, 0) for pair in pairs[::-1]])),
        (pd.interval_range(0, 6), pd.RangeIndex(6)),
        (lists, lists[::-1]),
    ):
        X, y = pd.DataFrame({"a": np.arange(6)}, index=ours), pd.Series(np.arange(6), index=theirs)
        warn_of_other_order(X, y, "y")
        warn_of_other_order(X, X["a"].set_axis(theirs).to_frame(), "sample_weight")
