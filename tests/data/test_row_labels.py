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
