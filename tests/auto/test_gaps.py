"""Gaps: unknown values that differ from row to row, and what a model makes of them."""

import numpy as np
import pandas as pd

from auto.tables import sales
from vastgp import GPRegressor
from vastgp.auto import TableEncoder, gaps
from vastgp.auto.folds import folds_of, with_every_gap


def test_each_row_of_training_has_a_direction_of_its_own():
    missing = np.random.default_rng(0).uniform(size=4000) < 0.5
    own = gaps.of_training(gaps.of_new_rows(missing), 0)
    assert not own[~missing].any() and not own[:, -1].any()
    np.testing.assert_allclose(np.linalg.norm(own[missing], axis=1), 1.0)
    # inner products of random directions: mean 0, variance 1 / DIRECTIONS, within four standard errors
    products = np.sum(own[missing][1:] * own[missing][:-1], axis=1)
    count = len(products)
    assert abs(products.mean()) < 4 * (1 / gaps.DIRECTIONS / count) ** 0.5
    np.testing.assert_allclose(products.var(), 1 / gaps.DIRECTIONS, rtol=4 * (2 / count) ** 0.5)


def test_a_new_row_is_as_far_from_all_rows_of_training_with_a_gap():
    missing = np.arange(50) % 2 == 0
    own = gaps.of_training(gaps.of_new_rows(missing), 3)
    new = gaps.of_new_rows(np.array([True]))[0]
    distances = np.sum((own - new) ** 2, axis=1)
    np.testing.assert_allclose(distances[missing], 2.0)
    np.testing.assert_allclose(distances[~missing], 1.0)
    np.testing.assert_array_equal(gaps.as_new(own), gaps.of_new_rows(missing))


def test_rows_of_training_become_new_ones_again():
    table = sales(80).drop(columns="price")
    encoder = TableEncoder()
    found = encoder.fit_transform(table)
    new = encoder.transform(table)
    assert not np.array_equal(found, new)
    np.testing.assert_array_equal(encoder.as_new(found), new)
    np.testing.assert_array_equal(encoder.fit_transform(table), found)
    complete = table.dropna()
    np.testing.assert_array_equal(encoder.transform(complete), found[complete.index])
    # all columns of a group are one input
    names = encoder.get_feature_names_out()
    groups = [{names[j].partition(" unknown")[0] for j in group} for group in encoder.tied_]
    assert all(len(owners) == 1 for owners in groups if len(owners) and "age" in owners)


def test_intervals_hold_where_a_value_is_missing():
    model = GPRegressor(method="exact", max_seconds=10).fit(sales(300), "price")
    new = sales(1500, seed=9)
    low, high = model.predict_interval(new, 0.9).T
    held = (low <= new.price) & (new.price <= high)
    gap = new.age.isna() | new.city.isna()
    # by an indicator alone they held a half
    assert held[gap].mean() > 0.85
    assert held[~gap].mean() > 0.8
    width = high - low
    assert np.median(width[gap]) > 1.5 * np.median(width[~gap])
    assert model.outside(new)[gap].mean() < 0.1


def test_a_gap_that_tells_the_target_is_known_to():
    generator = np.random.default_rng(1)
    x, gap = generator.normal(size=300), generator.uniform(size=300) < 0.3
    y = np.where(gap, 2.0, 0.0) + 0.1 * generator.normal(size=300)
    table = pd.DataFrame(
        {"x": np.where(gap, np.nan, x), "other": generator.normal(size=300), "y": y}
    )
    model = GPRegressor(method="exact", max_seconds=10).fit(table, "y")
    mean, std = model.predict(table, return_std=True)
    assert np.sqrt(np.mean((mean - np.where(gap, 2.0, 0.0)) ** 2)) < 0.1
    assert np.median(std[gap]) < 0.3


def test_a_gap_that_one_row_has_stays_in_training():
    missing = np.zeros((60, 3), dtype=bool)
    missing[7, 0] = missing[8, 1] = missing[9, 1] = True
    missing[::3, 2] = True
    before = folds_of(60, 0, None)
    folds = with_every_gap(before, missing)
    for fold, old in zip(folds, before, strict=True):
        assert missing[fold.training].any(axis=0).all()
        moved = set(old.held_out) - set(fold.held_out)
        assert moved <= {7, 8, 9} and set(fold.training) == set(old.training) | moved
    held = np.concatenate([fold.held_out for fold in folds])
    assert 7 not in held and len(held) >= 57
    for fold, old in zip(with_every_gap(before, missing[:, :0]), before, strict=True):
        np.testing.assert_array_equal(fold.held_out, old.held_out)
    assert with_every_gap(folds_of(60, 0, 5.0), np.eye(60, dtype=bool)) == []


def test_models_of_complete_rows_are_not_judged_by_the_one_with_a_gap():
    """All follow an exact law, and one value is missing: it cost each model 10^5 nats a row, and all the choice."""
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(100, 5)), columns=list("abcde"))
    y = table.sum(axis=1)
    table.loc[0, "a"] = np.nan
    model = GPRegressor(method="exact", max_seconds=10).fit(table, y)
    assert model.leaderboard_[0].nlpd < -5.0
    _, std = model.predict(table.iloc[:2], return_std=True)
    assert std[0] > 0.01 > 1e-4 > std[1]
