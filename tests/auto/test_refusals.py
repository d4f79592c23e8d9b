"""What cannot be used is refused by the name of the column, with what it held and what to do."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest

from vastgp.auto import TableEncoder

_FRAME = pd.DataFrame(
    {
        "x": [1.0, 2.0, 4.0, 8.0],
        "k": ["a", "b", "a", "b"],
        "t": pd.date_range("2020-01-01", periods=4),
        "b": [True, False, True, True],
        "d": pd.to_timedelta([1, 2, 3, 4], unit="h"),
    }
)


@pytest.mark.parametrize(
    ("column", "values", "held", "expected"),
    [
        ("x", ["1", "2", "oops", "3"], "text such as 'oops' in row 2", "numbers"),
        ("x", pd.date_range("2020-01-01", periods=4), "dates such as 2020-01-01", "numbers"),
        ("k", pd.date_range("2020-01-01", periods=4), "dates such as 2020-01-01", "categories"),
        ("k", [np.nan, 2.0, 3.0, 4.0], "numbers such as 2 in row 1", "categories"),
        ("t", [1.0, 2.0, 3.0, 4.0], "numbers such as 1 in row 0", "dates"),
        ("t", ["2020-01-01", "1.2.2020", None, None], "text such as '1.2.2020' in row 1", "dates"),
        ("b", [0, 1, 2, 1], "numbers such as 2 in row 2", "booleans"),
        ("d", [0, 1, 2, 1], "numbers such as 0 in row 0", "durations"),
    ],
)
def test_a_column_of_another_kind_than_in_the_fit(column, values, held, expected):
    encoder = TableEncoder().fit(_FRAME)
    message = (
        f"Column '{column}' of the pandas DataFrame X holds {held}.*when TableEncoder was fitted: "
        f"expected {expected}. Convert the column, leave what is unknown empty, or fit again"
    )
    with pytest.raises(ValueError, match=message):
        encoder.transform(_FRAME.assign(**{column: values}))


def test_the_row_is_counted_through_all_blocks():
    encoder = TableEncoder().fit(_FRAME[["x", "k"]])
    values = ["1"] * 5000
    values[4321] = "bad"
    frame = pd.DataFrame({"x": values, "k": "a"})
    with pytest.raises(ValueError, match="'bad' in row 4321"):
        list(encoder.transform_batches(frame, 100))


def test_what_means_the_same_is_taken():
    encoder = TableEncoder().fit(_FRAME)
    same = _FRAME.assign(
        x=["1", "2.0", "4", " 8"],
        k=_FRAME["k"].astype("category"),
        t=_FRAME["t"].astype(str),
        b=[1, 0, 1, 1],
    )
    np.testing.assert_array_equal(encoder.transform(same), encoder.transform(_FRAME))
    words = _FRAME.assign(b=["True", "false", "TRUE", "1"])
    np.testing.assert_array_equal(encoder.transform(words), encoder.transform(_FRAME))


@pytest.mark.parametrize("gap", [np.nan, None, pd.NA, pd.NaT])
def test_a_column_of_gaps_fits_every_kind(gap):
    frame = _FRAME.assign(u=["09:30", "10:30", "11:30", None], z=["9", None, "7", "8"])
    encoder = TableEncoder().fit(pd.concat([frame, pd.DataFrame([{}], index=[4])]))
    row = pd.DataFrame({name: [gap] for name in frame.columns})
    expected = encoder.transform(pd.DataFrame({name: [None] for name in frame.columns}))
    np.testing.assert_array_equal(encoder.transform(row), expected)
    assert expected[0, encoder.get_feature_names_out() == "k=(missing)"] == 1


@pytest.mark.parametrize(
    ("values", "held"),
    [
        ([[1], [2], [3], [4]], "objects such as list"),
        ([b"a", b"b", b"c", b"d"], "objects such as bytes"),
        ([1 + 2j, 2, 3, 4], "complex numbers"),
        ([datetime.date(2020, 1, 1), "x", "y", "z"], "objects such as str 'x'"),
        ([None, "x", datetime.date(2020, 1, 1), "z"], "objects such as date"),
        (pd.period_range("2020", periods=4, freq="Y"), "objects such as Period"),
    ],
)
def test_columns_that_nothing_can_be_made_of(values, held):
    frame = _FRAME.assign(odd=values)
    message = (
        f"Column 'odd' of the pandas DataFrame X holds {held}.* Convert it to numbers.*exclude"
    )
    with pytest.raises(ValueError, match=message):
        TableEncoder().fit(frame)
    TableEncoder().fit(frame, exclude="odd")


def test_polars_columns_that_nothing_can_be_made_of():
    for values in ([[1], [2]], [b"a", b"b"], [{"a": 1}, {"a": 2}]):
        with pytest.raises(ValueError, match=r"Column 'odd' of the polars DataFrame X holds \w+"):
            TableEncoder().fit(pl.DataFrame({"x": [1.0, 2.0], "odd": values}))


def test_infinite_numbers():
    for values in ([1.0, np.inf, 2.0, 3.0], ["1", "-1e999", "2", "3"]):
        with pytest.raises(ValueError, match=r"Column 'x' .* holds infinity .* row 1 .* Remove"):
            TableEncoder().fit(_FRAME.assign(x=values))
        with pytest.raises(ValueError, match=r"Column 'x' .* holds infinity .* row 1 .* Remove"):
            TableEncoder().fit(_FRAME).transform(_FRAME.assign(x=values))


def test_no_column_left():
    frame = pd.DataFrame({"id": range(30), "c": 1, "e": None})
    message = (
        r"No column of the pandas DataFrame X \(n_samples=30\) can be an input: 'id' \(whole numbers, .*"
        r"'c' \(all values are the same\)"
    )
    with pytest.raises(ValueError, match=message):
        TableEncoder().fit(frame)
    with pytest.raises(ValueError, match=r"0 feature\(s\).*beside the target"):
        TableEncoder().fit(frame, exclude=["id", "c", "e"])


def test_a_refused_fit_leaves_the_one_before():
    encoder = TableEncoder().fit(_FRAME)
    before = encoder.to_state()
    for bad in (_FRAME.assign(x=np.inf), pd.DataFrame({"c": [1, 1]})):
        with pytest.raises(ValueError):
            encoder.fit(bad)
        assert encoder.to_state() == before


def test_orders():
    with pytest.raises(ValueError, match="ordered names the columns 'size', which are no inputs"):
        TableEncoder(ordered={"size": ["S"]}).fit(_FRAME)
    with pytest.raises(
        ValueError, match=r"ordered must give the levels of a column .* received list"
    ):
        TableEncoder(ordered=["k"]).fit(_FRAME)
    with pytest.raises(ValueError, match=r"ordered\['k'\] must be a list of levels, received 'ab'"):
        TableEncoder(ordered={"k": "ab"}).fit(_FRAME)
    with pytest.raises(ValueError, match=r"ordered\['k'\] has a level twice"):
        TableEncoder(ordered={"k": ["a", "b", "a"]}).fit(_FRAME)
    with pytest.raises(ValueError, match=r"'b' in row 1 .* its order has not.* Add it to ordered"):
        TableEncoder(ordered={"k": ["a", "c"]}).fit(_FRAME)


def test_arguments_and_shapes():
    with pytest.raises(ValueError, match="max_levels must be an integer of at least 1"):
        TableEncoder(max_levels=0).fit(_FRAME)
    with pytest.raises(ValueError, match="squash must be True or False"):
        TableEncoder(squash="yes").fit(_FRAME)
    with pytest.raises(ValueError, match="Expected 2D array"):
        TableEncoder().fit([1.0, 2.0])
    with pytest.raises(ValueError, match="minimum of 1 is required"):
        TableEncoder().fit(_FRAME[:0])
    with pytest.raises(ValueError, match="minimum of 1 is required"):
        TableEncoder().fit(_FRAME).transform(_FRAME[:0])
    with pytest.raises(ValueError, match="X has 4, y has 3"):
        TableEncoder().fit(_FRAME, np.zeros(3))
    with pytest.raises(FileNotFoundError, match="no such file"):
        TableEncoder().fit("nowhere/table.csv")
