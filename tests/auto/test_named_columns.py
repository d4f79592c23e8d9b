"""Columns by what they are called: inputs, and targets that are called like one of them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

import vastgp
from vastgp.auto import TableEncoder


def _quick() -> Any:
    return vastgp.GPRegressor(max_seconds=2, random_state=0)


def test_a_column_called_as_the_target_is_an_input_where_it_holds_other_values():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=30), "b": rng.normal(size=30)})
    after = frame["a"].shift(-1)
    with pytest.warns(UserWarning, match="called 'a' like a column of the pandas DataFrame X that"):
        model = _quick().fit(frame, after)
    assert model.feature_names_in_.tolist() == ["a", "b"] and model.n_rows_dropped_ == 1
    assert model.predict(frame).shape == (30,)
    gappy = frame.assign(a=frame["a"].mask(frame.index == 3))
    for y in (gappy["a"], gappy[["a"]]):  # the same, gaps included
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="The target is called")
            warnings.filterwarnings("ignore", message="A column-vector y")
            assert _quick().fit(gappy, y).feature_names_in_.tolist() == ["b"]


@pytest.mark.parametrize("columns", [
    [0, 1, 2], [7, 1, 5], pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)]),
], ids=["numbers", "odd", "levels"])  # fmt: skip
def test_columns_called_by_numbers_or_levels_are_matched_by_them(columns, tmp_path):
    rng = np.random.default_rng(1)
    table = pd.DataFrame(rng.normal(size=(30, 3)), columns=columns)
    target = table.columns[1]
    table[target] = 3.0 * table.iloc[:, 0] - table.iloc[:, 2]
    model = _quick().fit(table, target)
    expected = model.predict(table.drop(columns=[target]))
    np.testing.assert_allclose(expected, table[target], atol=0.05)
    np.testing.assert_array_equal(model.predict(table), expected)
    np.testing.assert_array_equal(model.predict(table.iloc[:, [2, 0]]), expected)
    np.testing.assert_array_equal(model.predict(table.iloc[:, [0, 2]].to_numpy()), expected)
    assert model.score(table) > 0.99
    model.save(tmp_path / "m.vastgp")
    again = vastgp.load(tmp_path / "m.vastgp")
    np.testing.assert_array_equal(again.predict(table.iloc[:, [2, 1, 0]]), expected)


def test_an_input_is_no_target_to_score_by(tmp_path):
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"a": rng.normal(size=30), "b": rng.normal(size=30)})
    frame["y"] = frame["a"] + 0.1 * rng.normal(size=30)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    model = _quick().fit(frame, "y")
    for rows in (frame, tmp_path / "rows.csv", str(tmp_path / "rows.csv")):
        with pytest.raises(
            ValueError, match="y='a' is an input of the GPRegressor, not its target"
        ):
            model.score(rows, "a")
    assert model.score(frame, "y") == model.score(frame)


def test_an_encoder_finds_columns_called_by_numbers_and_those_of_an_array():
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(30, 4))
    table = pd.DataFrame(rows)
    expected = TableEncoder().fit_transform(rows[:, 1:], rows[:, 0])
    for X, y, exclude in (
        (table, 0, ()), (table, "0", ()), (table, np.int64(0), ()), (table, rows[:, 0], [0]),
        (table, rows[:, 0], "0"), (rows, rows[:, 0], ["x0"]),
    ):  # fmt: skip
        encoder = TableEncoder()
        np.testing.assert_array_equal(encoder.fit_transform(X, y, exclude=exclude), expected)
        np.testing.assert_array_equal(encoder.transform(rows[:, 1:]), expected)
