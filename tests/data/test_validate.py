"""Every bad input and its message: what was received, what was expected, what to do."""

from __future__ import annotations

import datetime
import warnings
from typing import Any

import cftime
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
from sklearn.exceptions import DataConversionWarning

from vastgp.data import as_rows
from vastgp.data.column_names import missing_target_error
from vastgp.data.labels import open_labelled

_X = np.arange(12.0).reshape(4, 3)
_Y = np.arange(4.0)


def _with(values: np.ndarray, index: Any, value: float) -> np.ndarray:
    values = values.copy()
    values[index] = value
    return values


def _column(values: list) -> np.ndarray:
    array = np.empty((len(values), 1), dtype=object)
    array[:, 0] = values
    return array


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (
            _with(_X, (2, 1), np.nan),
            ValueError,
            r"Input X contains NaN: at row 2, column 1\. Drop these rows, or fill",
        ),
        (
            _with(_X, (2, 1), np.inf),
            ValueError,
            r"Input X contains infinity or a value too large for dtype\('float64'\)",
        ),
        (
            _with(_X, (0, 2), -np.inf),
            ValueError,
            r"at row 0, column 2\. Remove these rows, or correct what made them",
        ),
        (
            _with(_X, slice(0, 3), np.nan),
            ValueError,
            r"at row 0, column 0 \(and 8 more in the 4 rows read with it\)",
        ),
        (np.full((2, 2), 2.0, np.longdouble) ** 2000, ValueError, "Input X contains infinity"),
        (
            _X[0],
            ValueError,
            r"Expected 2D array for X, got 1D array of shape \(3,\) instead\. Reshape your data: ",
        ),
        (
            np.float64(3),
            ValueError,
            r"Expected 2D array for X, got scalar array instead: 3\.0\. Reshape your data",
        ),
        (
            _X[None],
            ValueError,
            r"Found array with dim 3: X has shape \(1, 4, 3\), while dim <= 2 is required",
        ),
        (
            _X[:0],
            ValueError,
            r"Found array with 0 sample\(s\) \(shape=\(0, 3\)\) while a minimum of 1 is required for X",
        ),
        (
            _X[:, :0],
            ValueError,
            r"0 feature\(s\) \(shape=\(4, 0\)\) while a minimum of 1 is required\. X needs",
        ),
        (
            _X + 1j,
            ValueError,
            "Complex data not supported: X has dtype complex128.*real and imaginary part",
        ),
        (_column([1j, 2.0]), ValueError, "Complex data not supported: X holds 1j"),
        (
            scipy.sparse.csr_array(_X),
            TypeError,
            r"Sparse data was passed for X \(csr_array\), but dense data is required",
        ),
        (scipy.sparse.coo_matrix(_X), TypeError, r"Use X\.toarray\(\)"),
        (
            _X.astype(str),
            ValueError,
            r"X holds strings \(dtype <U32\), for example '0\.0'.*astype\(float\).*OneHotEncoder",
        ),
        (
            _column(["1.5", "2"]),
            ValueError,
            r"X holds strings \(dtype object\), for example '1\.5'\. Expected numbers",
        ),
        (
            _column([{"foo": "bar"}, 1]),
            TypeError,
            "argument must be .* string.* number, not 'dict'",
        ),
        (
            _column([[1, 2], [3]]),
            ValueError,
            "X has dtype object: .*Expected rows of numbers, all of one length",
        ),
        (_column([10**400, 1]), ValueError, "X has dtype object: int too large"),
        (
            [[1, 2], [3]],
            ValueError,
            "X cannot be made into an array .*Expected rows of equal length",
        ),
        (
            np.array([["2020-01-01"]], "M8[D]"),
            ValueError,
            "X holds dates or durations .*days since the first row",
        ),
        (
            np.zeros(3, [("a", float)]),
            ValueError,
            "X has the structured dtype .*structured_to_unstructured",
        ),
        (
            np.ma.masked_array(_X, _X == 4.0),
            ValueError,
            r"X is a masked array with 1 masked values \(missing, NaN\)\. Drop these rows",
        ),
        (_column([1.0, None]), ValueError, "Input X contains NaN: at row 1, column 0"),
        (_column([1.0, pd.NA]), ValueError, "Input X contains NaN: at row 1, column 0"),
        (
            pd.Series([1.0, 2.0]),
            ValueError,
            r"Expected 2D array for X, got 1D array of shape \(2,\).*Reshape your data",
        ),
        (
            pd.DataFrame(index=range(3)),
            ValueError,
            r"0 feature\(s\) \(shape=\(3, 0\)\) while a minimum of 1",
        ),
        (
            pd.DataFrame({"a": []}, dtype=float),
            ValueError,
            r"0 sample\(s\) \(shape=\(0, 1\)\) while a minimum of 1",
        ),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ValueError, "has several columns named 'a'"),
        (
            pd.DataFrame([[1, 2]], columns=["a", 5]),
            ValueError,
            r"column names of several types, for example 5 \(int\)",
        ),
        (
            pa.table([[1], [2]], names=["a", "a"]),
            ValueError,
            "the data frame X has several columns named 'a'",
        ),
        (
            pa.table([[1], [2]], names=["a", " "]),
            ValueError,
            "Column 1 of the Arrow table X has no name.*index=False",
        ),
        ({"a": [1, 2]}, TypeError, "X has dtype object: float.. argument must be .* not 'dict'"),
    ],
)
def test_bad_X(X: object, error: type[Exception], message: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the error is all that is said
        with pytest.raises(error, match=message):
            as_rows(X)


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (_with(_Y, 3, np.nan), ValueError, r"Input y contains NaN: at row 3\. Drop the rows"),
        (
            _with(_Y, 1, np.inf),
            ValueError,
            r"Input y contains infinity or a value too large .*: at row 1\.",
        ),
        (
            _Y[:3],
            ValueError,
            "X and y have inconsistent numbers of rows: X has 4, y has 3. Expected one target for every",
        ),
        (
            np.zeros((4, 2)),
            ValueError,
            r"y should be a 1d array, got an array of shape \(4, 2\).*one model for each column",
        ),
        (np.float64(1), ValueError, "y should be a 1d array, got a single float 1.0"),
        (_Y + 1j, ValueError, "Complex data not supported: y has dtype complex128"),
        (["a", "b", "c", "d"], ValueError, r"y holds strings \(dtype <U1\), for example 'a'"),
        (
            np.array([1, "b", 2, 3], dtype=object),
            ValueError,
            r"y holds strings \(dtype object\), for example 'b'",
        ),
        (scipy.sparse.csr_array(_Y[:, None]), TypeError, "Sparse data was passed for y"),
        (
            pd.Series([1, 2, None, 4], dtype="Int64"),
            ValueError,
            r"Input y contains NaN: at row 2\.",
        ),
        (np.array(["2020-01-01"] * 4, "M8[D]"), ValueError, "y holds dates or durations"),
        (
            pd.Series(pd.period_range("2020-01", periods=4, freq="M")),
            ValueError,
            r"y holds periods .*example Period\('2020-01', 'M'\)\. Expected numbers\. .*ordinal of a period",
        ),
        (
            [pd.NaT, *pd.period_range("2020-01", periods=3, freq="M")],
            ValueError,
            "y holds periods",
        ),
        (pd.interval_range(0, 4), ValueError, r"y holds intervals .*Interval\(0, 1.*its mid"),
        (
            [datetime.date(2020, 1, day) for day in (1, 2, 3, 4)],
            ValueError,
            r"y holds dates or durations \(dtype object\), for example .*since the first row",
        ),
        (
            [cftime.Datetime360Day(2020, 2, day) for day in (27, 28, 29, 30)],
            ValueError,
            r"y holds dates or durations \(dtype object\), for example cftime",
        ),
        (
            "target",
            ValueError,
            "y='target' is a string.*column name can be given only when X is a table, and X is an array",
        ),
        ("none.npy", FileNotFoundError, "y: no such file.*Check the name"),
    ],
)
def test_bad_y(y: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        as_rows(_X, y)
    if not isinstance(y, str):
        with pytest.raises(error, match=message):
            as_rows(pd.DataFrame(_X, columns=["a", "b", "c"]), y)


def test_no_y_where_one_is_needed() -> None:
    for X in (_X, pd.DataFrame(_X)):
        with pytest.raises(
            ValueError,
            match=r"Model requires y to be passed, but the target y is None\. Pass an array",
        ):
            as_rows(X, require_y=True, estimator="Model")


def test_one_row() -> None:
    with pytest.raises(
        ValueError,
        match=r"Found array with 1 sample\(s\) .* minimum of 2 is required for X\. Nothing can be learned from one row",
    ):
        as_rows(_X[:1], _Y[:1], min_rows=2)
    assert as_rows(_X[:1]).n == 1


def test_a_column_vector_is_flattened_with_a_warning() -> None:
    for y in (_Y[:, None], pd.DataFrame({"y": _Y}), pa.table({"y": _Y}).to_pandas()):
        with pytest.warns(
            DataConversionWarning, match="A column-vector y was passed when a 1d array was expected"
        ):
            assert as_rows(_X, y).y.tolist() == _Y.tolist()


def test_a_target_that_is_no_column() -> None:
    frame = pd.DataFrame(_X, columns=["Height", "weight", "age"])
    with pytest.raises(
        ValueError,
        match=r"y='wieght' is not in the pandas DataFrame X\. Did you mean 'weight' or 'Height'\? Its columns are: "
        r"'Height', 'weight', 'age'\.",
    ):
        as_rows(frame, "wieght")
    with pytest.raises(ValueError, match=r"Did you mean 'Height'\?"):
        as_rows(frame, "HEIGHT")
    with pytest.raises(ValueError, match=r"is not in the pandas DataFrame X\. Its columns are"):
        as_rows(frame, "nothing like it at all")
    wide = pd.DataFrame(np.zeros((2, 50)), columns=[f"c{j}" for j in range(50)])
    with pytest.raises(ValueError, match=r"'c29', \.\.\. \(20 more\)"):
        as_rows(wide, "zzz")


@pytest.mark.filterwarnings("error")
def test_columns_that_pandas_calls_by_numbers_or_tuples_are_targets_by_these() -> None:
    numbered = pd.DataFrame(np.column_stack([_X, _Y]))
    levels = numbered.set_axis(pd.MultiIndex.from_product([["a", "b"], [0, 1]]), axis=1)
    named = numbered.set_axis(["a", "b", "c", "y"], axis=1)
    for frame, y in ((numbered, 3), (numbered, np.int64(3)), (levels, ("b", 1)), (named, ["y"])):
        rows, labelled = as_rows(frame, y), open_labelled(frame.round(), y)[0]
        for one in (rows, labelled):
            np.testing.assert_array_equal(one.X, _X)
        np.testing.assert_array_equal(rows.y, _Y)
    with pytest.raises(ValueError, match=r"got a single int 7 instead\. .* the name of the target"):
        as_rows(named, 7)


def test_a_file_without_a_line_of_names_is_told() -> None:
    error = missing_target_error("y", ["Oslo", "1.5"], "'rows.csv'")
    assert "first line seems to hold values: write a line of column names" in str(error)
    assert "first line" not in str(missing_target_error("y", ["a", "b"], "'rows.csv'"))


def test_a_row_of_a_table_is_no_table() -> None:
    row = pd.DataFrame({"city": ["Oslo"], "size": [1.0]}).iloc[0]
    with pytest.raises(ValueError, match=r"got 1D array of shape \(2,\).*table.iloc\[\[0\]\]"):
        as_rows(row)
    with pytest.raises(TypeError, match=r"not 'dict'.*pandas.DataFrame\(X\) makes one"):
        as_rows([{"a": 1.0}])


def test_only_a_target() -> None:
    with pytest.raises(
        ValueError,
        match=r"0 feature\(s\) \(shape=\(4, 0\)\) .* at least one column of numbers beside the",
    ):
        as_rows(pd.DataFrame({"y": _Y}), "y")


def test_many_bad_columns_are_cut() -> None:
    frame = pd.DataFrame({f"t{j}": ["x"] for j in range(12)})
    with pytest.raises(ValueError, match=r"'t9' .* and 2 more\. Expected numbers"):
        as_rows(frame)


def test_large_finite_values_are_no_infinity() -> None:
    X = np.full((100, 2), 1e308)
    np.testing.assert_array_equal(as_rows(X).X, X)
    assert as_rows(np.full((100, 2), 60000, np.float16)).n == 100
