"""Tables as they should not be: each is read, or refused by the column's name, what it held and what to do."""

from __future__ import annotations

import datetime
import gzip

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from sklearn.preprocessing import StandardScaler

from vastgp import GPClassifier, GPRegressor
from vastgp.auto import TableEncoder
from vastgp.auto.inputs import Inputs
from vastgp.likelihoods import StudentT

N = 40
LATE = 20_000


def plain():
    rng = np.random.default_rng(0)
    kinds = rng.choice(list("xyz"), N)
    return pd.DataFrame({"a": rng.normal(size=N), "k": kinds, "y": rng.normal(size=N)})


def text_of(table, **more):
    return table.to_csv(index=False, **more)


# ---------------------------------------------------------------- tables in memory, to fit


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"o": [[1]] * N}, "Column 'o' .* holds objects such as list.* Convert it .* exclude"),
        ({"o": [b"a"] * N}, "Column 'o' .* holds objects such as bytes.* Convert it"),
        ({"o": [1j] * N}, "Column 'o' .* holds complex numbers.* Convert it"),
        ({"o": [{}] * N}, "Column 'o' .* holds objects such as dict.* Convert it"),
        (
            {"o": [datetime.date(2020, 1, 1), *["x"] * (N - 1)]},
            "Column 'o' .* holds objects such as date.* Convert it",
        ),
        ({"o": pd.period_range("2020", periods=N)}, "Column 'o' .* such as Period.* Convert it"),
        ({"a": [np.inf, *[1.0] * (N - 1)]}, "Column 'a' .* infinity .* row 0 .* Remove the row"),
        ({"a": [10**400, *[1] * (N - 1)]}, "Column 'a' .* a number too large in row 0 .* Remove"),
        (
            {"o": np.array(["2020-01-01", "300000-01-01"] * 20, dtype="M8[s]")},
            "Column 'o' .* dates out of range, such as 300000-01-01.* Correct them",
        ),
        ({"y": [1.0, -np.inf] * 20}, "'y' contains infinity .* row 1 .* make it missing"),
        ({"y": [np.nan] * N}, "'y' is missing in all 40. .* name another column"),
        ({"y": [1.0, *[np.nan] * 39]}, "'y' is there in one row only. Give more rows"),
        ({"y": list("xy") * 20}, "'y' holds text, for example 'x': classes.* GPClassifier"),
        ({"y": ["1", "2", "n.d.", "4"] * 10}, "'y' holds numbers, but 10 rows have text, .*'n.d.' in row 2"),
        ({"y": ["1.5", "2"] * 20}, r"'y' holds text that is numbers.*'1.5'.* astype\(float\)"),
        ({"y": ["1,5", "2,75"] * 20}, r"'y' holds numbers with a comma .*'1,5' in row 0.*decimal=','"),
        ({"y": ["1.5", "1,002"] * 20}, r"text that is numbers.*'1,002'.* \.str\.replace\(',', ''\)"),
        ({"y": ["$1.50", "-$2"] * 20}, r"'y' holds numbers with '\$', as text.*'\$1.50' in row 0.*alone"),
        ({"y": pd.date_range("2020", periods=N)}, "'y' holds dates .* Convert them to a number"),
        ({"y": [True, False] * 20}, "'y' holds booleans.* GPClassifier"),
    ],
)  # fmt: skip
def test_a_frame_that_cannot_be_fitted(columns, message):
    # a date among text may be called odd, or the text among dates
    message = message.replace("objects such as date.*", "objects such as (date|str 'x').*")
    with pytest.raises(ValueError, match=message):
        GPRegressor().fit(plain().assign(**columns), "y")


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (
            np.array([[np.datetime64("2020-01-01")], [np.datetime64(10**13, "s")]] * 9, dtype=object),
            np.arange(18.0),
            "Column 'x0' .* dates out of range, such as 318857.* Correct them",
        ),
        (np.arange(5.0), np.arange(5.0), r"Expected 2D array for X.*reshape\(-1, 1\)"),
        (np.zeros((5, 2, 2)), np.arange(5.0), r"X has shape \(5, 2, 2\).*reshape\(len\(X\), -1\)"),
        (np.zeros((5, 2), complex), np.arange(5.0), "Complex data not supported.* real"),
        (np.array([[1, {}], [2, {}]], object), [1.0, 2.0], "Column 'x1' of the array X .* dict"),
        (np.array([[1.0], [np.inf]]), [1.0, 2.0], "Column 'x0' of the array X holds infinity"),
        ([[1, 2], [3]], [1.0, 2.0], "X cannot be made into an array.* rows of equal length"),
        ({"a": [1.0, 2.0]}, [1.0, 2.0], r"X is a dict.* pandas.DataFrame\(X\) .* pandas.DataFrame\(\[X\]\)"),
        (pd.DataFrame({"a": [1.0], "k": "x"}).iloc[0], [1.0, 2.0], r"one row of a table.* table.iloc\[\[0\]\]"),
        (np.zeros((5, 2)), np.arange(4.0), "X has 5, y has 4. Expected one target for every row"),
        (pl.DataFrame({"o": [[1]] * 4, "y": [1.0] * 4}), "y", "Column 'o' of the polars .* List"),
        (pa.table({"o": [{"q": 1}] * 4, "y": [1.0] * 4}), "y", "Column 'o' of the Arrow .* Struct"),
        (pd.concat([plain(), plain()[["a"]]], axis=1), "y", "several columns named 'a'. Give every"),
        (plain()[["y"]], "y", "has no columns beside the target.* Give the table's inputs"),
        (plain()[:0], "y", "there are no rows"),
        (plain()[:1], "y", "from one row alone.* Give more rows"),
        (plain(), "z", "y='z' is not in the pandas DataFrame X. Its columns are: 'a', 'k', 'y'"),
        (plain(), None, "requires y to be passed.* name of the target column"),
        (pd.DataFrame({"id": range(N), "y": 1.0 * np.arange(N)}), "y", r"No column .*'id' \(whole num"),
        (pd.DataFrame({"a": 1.0, 1: range(4)}), [1.0] * 4, r"names of several types.* 1 \(int\)"),
    ],
)  # fmt: skip
def test_what_is_no_table(X, y, message):
    with pytest.raises(ValueError, match=message):
        GPRegressor().fit(X, y)


# ---------------------------------------------------------------- files


def _late(column):
    """A column of numbers whose text comes after the first megabyte, beyond which Arrow has settled its type."""
    lines = [f"{k},{k / 2},{k % 7},{'a note':>60}" for k in range(LATE + 1000)]
    parts = lines[LATE].split(",")
    parts[column] = "oops"
    lines[LATE] = ",".join(parts)
    return "\n".join(["a,b,y,c", *lines, ""])


_CUT = gzip.compress((text_of(plain()) * 50).encode())[:300]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.csv", "", "is empty.* Expected a line of column names"),
        ("header.csv", "a,k,y\n", "there are no rows, as in a file with its column names alone"),
        ("row.csv", "a,k,y\n1,2,3\n", "from one row alone"),
        ("twice.csv", "a,a,y\n1,2,3\n2,3,4\n", "several columns named 'a'. Give every column"),
        ("nameless.csv", ",,y\n1,2,3\n2,3,4\n", "has 2 columns without a name. Give every"),
        ("numbers.csv", "1,2,3\n1,2,4\n", "no line of column names.* Put a line"),
        ("latin.csv", "größe,y\n1,2\n".encode("latin-1"), "column name is no UTF-8.* iconv"),
        ("words.csv", ("k,y\n" + "Köln,2\nBonn,3\n" * 9).encode("latin-1"), "'k' .* no UTF-8 .* iconv"),
        ("wide.csv", text_of(plain()).encode("utf-16"), "is UTF-16 text. Save it as UTF-8"),
        ("bytes.csv", bytes(range(256)), "holds null bytes: it is no text"),
        ("ragged.csv", "a,k,y\n1,2,3\n1,2\n", "another number of columns.* Correct it.*1,2"),
        ("cut.csv.gz", _CUT, "cut off: the compressed data end too early. Copy"),
        ("plain.csv.gz", b"a,y\n1,2\n", "not compressed as its name says. Give it the right ending"),
        ("late.csv", _late(2), "'y' holds numbers, but one row has text, the first 'oops' in row 20000"),
        ("infinite.csv", "a,y\n1,1\ninf,2\n", "Column 'a' .* infinity .* row 1"),
        ("cut.parquet", b"PAR1" + bytes(100), "cut off, or is no Parquet file.* write it again"),
        ("table.xlsx", b"PK", r"suffix '.xlsx'\). Expected .* pandas.read_excel"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_fitted(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ValueError, match=message):
        GPRegressor().fit(path, "y")


def test_a_truncated_parquet_file_is_refused(tmp_path):
    path = tmp_path / "t.parquet"
    plain().to_parquet(path)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"t.parquet' cannot be read: it is cut off"):
        GPClassifier().fit(path, "k")


# ---------------------------------------------------------------- what is read all the same


@pytest.mark.parametrize(
    ("good", "bad", "kind"),
    [
        ([f"{k / 3:.3f}" for k in range(39)], ["unknown"], "number"),
        ([f"{k / 3:.3f}" for k in range(78)], ["high", "low"], "number"),
        ([f"2020-03-{k % 28 + 1:02d} 10:{k:02d}" for k in range(39)], ["2020-02-31"], "date"),
        ([f"{k % 24:02d}:{k:02d}" for k in range(39)], ["25:61"], "time of day"),
        ([f"{k} days" for k in range(39)], ["soon"], "duration"),
        ([f"1.{k:03d},5" for k in range(39)], ["k.A."], "number"),
    ],
)
def test_a_few_words_that_cannot_be_read_are_gaps(good, bad, kind):
    values = [*good[:7], *bad, *good[7:]]
    gaps = [*good[:7], *[None] * len(bad), *good[7:]]
    encoder, expected = TableEncoder(), TableEncoder()
    found = encoder.fit_transform(pd.DataFrame({"o": values}))
    np.testing.assert_array_equal(found, expected.fit_transform(pd.DataFrame({"o": gaps})))
    column = encoder.columns_[0]
    assert column.kind == kind and column.missing == len(bad)
    assert f"{bad[0]!r}" in column.done and "could not be read" in column.done
    # also in new rows, and by an encoder from a file
    again = TableEncoder.from_state(encoder.to_state())
    new, of_gaps = (
        pd.DataFrame({"o": [good[3], "never seen"]}),
        pd.DataFrame({"o": [good[3], None]}),
    )
    np.testing.assert_array_equal(again.transform(new), expected.transform(of_gaps))
    assert again.columns_ == encoder.columns_


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        # more than a few, or other words each time, say something of their own
        ([f"{k}" for k in range(60)] + ["unknown"] * 6, "codes"),
        ([f"{k}" for k in range(200)] * 2 + [f"V{k}" for k in range(5)] * 2, "codes"),
        # few levels are kept as levels, of which nothing is lost
        (["1", "2", "3"] * 20 + ["x"], "category"),
    ],
)
def test_words_that_say_something_stay_words(values, kind):
    column = TableEncoder().fit(pd.DataFrame({"o": values * 2})).columns_[0]
    assert column.kind == kind and not column.unread.rows


def test_a_word_that_only_held_out_rows_have_is_no_error_of_the_fit():
    table = plain().assign(o=[f"{k / 3:.3f}" for k in range(N - 1)] + ["unknown"])
    inputs = Inputs.of(table, None, "y", np.arange(N), None, N)
    _, held_out, _ = inputs.fold(0, np.arange(30), np.arange(30, N), np.zeros(N))
    fold, whole = inputs.encoder_of_fold(0), inputs.encoder_of_whole
    assert not fold.columns_[1].unread.rows and whole.columns_[2].unread.rows == 1
    place = fold.get_feature_names_out().tolist().index("o")
    # it has the median of the 30 training rows there
    assert held_out.X[-1, place] == pytest.approx((14 / 3 + 15 / 3) / 2, abs=1e-3)


def test_text_far_down_in_a_column_of_numbers_is_read(tmp_path):
    path = tmp_path / "late.csv"
    path.write_text(_late(0))
    encoder = TableEncoder().fit(path, "y")
    assert [column.kind for column in encoder.columns_[:2]] == ["number", "number"]
    assert "'oops' could not be read" in encoder.columns_[0].done
    again = TableEncoder().fit(pd.read_csv(path, dtype={"a": str}), "y")
    assert [c.done for c in again.columns_] == [c.done for c in encoder.columns_]
    of_frame = again.transform(pd.read_csv(path, dtype={"a": str}))
    np.testing.assert_array_equal(encoder.transform(path), of_frame)
    blocks = list(encoder.transform_batches(path, 9_000))
    np.testing.assert_array_equal(np.concatenate(blocks), of_frame)
    # what training had only numbers of is refused by its row
    strict = TableEncoder().fit(pd.DataFrame({"a": np.arange(50.0) ** 1.5, "b": np.arange(50.0)}))
    with pytest.raises(ValueError, match=r"Column 'a' .* text such as 'oops' in row 20000"):
        strict.transform(path)


def test_labels_far_down_are_labels(tmp_path):
    path = tmp_path / "late.csv"
    path.write_text(_late(2))
    from vastgp.data.labels import read_labels

    found = read_labels(str(path), "y")
    assert found[LATE] == "oops" and set(found[:7]) == set(map(str, range(7)))


@pytest.mark.parametrize("sep", [";", "\t"])
def test_a_table_with_decimal_commas_is_read(tmp_path, sep):
    table = pd.DataFrame({"a": np.arange(30) / 4, "n": range(30), "y": np.arange(30) / 8 - 1})
    path = tmp_path / "european.csv"
    path.write_text(text_of(table, sep=sep, decimal=","))
    np.testing.assert_array_equal(
        TableEncoder().fit_transform(path), TableEncoder().fit_transform(table)
    )
    from vastgp.data import as_rows

    np.testing.assert_array_equal(as_rows(path, "y").y[:], table.y)


def test_numbers_with_points_between_thousands_and_decimal_commas_are_read():
    values = ["1.234,5", "-2,25", "12", "1.000.000"] * 5
    found = TableEncoder(squash=False).fit_transform(pd.DataFrame({"a": values}))
    np.testing.assert_array_equal(found[:4, 0], [1234.5, -2.25, 12.0, 1e6])
    # where all are numbers with commas between thousands, they are that
    plain = TableEncoder(squash=False).fit_transform(pd.DataFrame({"a": ["1,234", "12"] * 5}))
    np.testing.assert_array_equal(plain[:2, 0], [1234.0, 12.0])


@pytest.mark.parametrize("freq", ["dates", "periods"])
def test_dates_in_an_index_are_not_seen_without_a_word(freq):
    frame = plain()
    frame.index = pd.date_range("2020-01-01", periods=N)
    if freq == "periods":
        frame.index = frame.index.to_period("D")
    with pytest.warns(
        UserWarning, match="index of the pandas DataFrame X holds dates.*reset_index"
    ):
        GPRegressor(max_seconds=2).fit(frame, "y")
    with pytest.warns(
        UserWarning, match="index of the pandas DataFrame X holds dates.*reset_index"
    ):
        GPClassifier(max_seconds=2).fit(frame, "k")


def test_an_empty_name_and_a_byte_order_mark_are_read(tmp_path):
    path = tmp_path / "index.csv"
    path.write_text("\ufeff" + plain().to_csv(), encoding="utf-8")
    encoder = TableEncoder().fit(path, "y")
    assert list(encoder.dropped_) == [""] and "number the rows" in encoder.dropped_[""]


# ---------------------------------------------------------------- rows to predict


@pytest.fixture(scope="module")
def fitted():
    return GPRegressor(method="exact", max_seconds=None, calibrate=None).fit(plain()[:15], "y")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (plain().assign(a="x"), "Column 'a' .* holds text such as 'x' in row 0 .* kind 'number'"),
        (plain().assign(a=np.inf), "Column 'a' .* infinity .* row 0"),
        (plain().assign(a=[[1]] * N), "Column 'a' .* holds objects such as list"),
        (plain().assign(k=pd.Timestamp("2020")), "Column 'k' .* dates such as .* 'category'"),
        (plain()[:0], "0 sample"),
        (np.zeros((3, 5)), "X has 5 features, but TableEncoder is expecting 2"),
        (plain().drop(columns="a").rename(columns={"k": "K"}), "unseen at fit time:\n- K\n.*\n- a\n- k"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_predicted(fitted, table, message):
    with pytest.raises(ValueError, match=message):
        fitted.predict(table)


def test_the_target_is_no_stranger_among_rows_to_predict(fitted):
    with pytest.raises(ValueError, match="yet now missing:\n- a\n") as raised:
        fitted.predict(plain().drop(columns="a"))
    assert "unseen" not in str(raised.value) and "- y" not in str(raised.value)


@pytest.mark.parametrize("size", [1e155, 1e200, 1e300])
def test_a_target_without_a_deviation_in_float64_is_refused_by_name(size):
    """It was each candidate that failed, after a warning of NumPy's."""
    y = np.linspace(-1.0, 1.0, 30) * size
    with pytest.raises(ValueError, match=r"^The target y runs from .* Express it in another unit"):
        GPRegressor(max_seconds=2).fit(np.arange(30.0)[:, None], y)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1e155, 1e300, 1e-155, 1e-300])
@pytest.mark.parametrize("encoder", [None, StandardScaler(with_std=False)])
def test_an_input_without_a_deviation_in_float64_is_refused_by_name(size, encoder):
    """It was each candidate that failed, at column 1, after a warning of NumPy's."""
    line = np.linspace(-1.0, 1.0, 30)
    frame = pd.DataFrame({"a": line, "far": size * line})
    name = "'far'" if encoder is None else "1 of what StandardScaler made of X"
    for door, y in ((GPRegressor, line), (GPClassifier, line > 0.0)):
        with pytest.raises(ValueError, match=f"^Column {name} runs from .* in another unit"):
            door(max_seconds=2, encoder=encoder).fit(frame, y)


@pytest.mark.parametrize("likelihood", ["foo", "two_part", "AUTO", "bernoulli", None])
def test_an_unknown_likelihood_is_refused_by_its_name(likelihood):
    """It was a candidate that failed, with a list of likelihoods in which classes had theirs."""
    known = "'auto', 'two-part', 'gaussian', 'laplace', 'student-t', .*'negative-binomial', 'het"
    with pytest.raises(ValueError, match=f"^likelihood must be one of .{known}") as told:
        GPRegressor(max_seconds=2, likelihood=likelihood).fit(np.eye(30), np.arange(30.0))
    said = str(told.value)
    assert f"received {likelihood!r}" in said and "softmax" not in said and "GPClassifier" in said


@pytest.mark.parametrize("likelihood", ["two-part", "Student-T", StudentT(0.1), "gaussian"])
def test_likelihoods_that_are_known_are_not(likelihood):
    y = np.random.default_rng(0).normal(size=40)
    y[::2] = 0.0
    method = {"gaussian": "exact", "two-part": "exact"}.get(str(likelihood), "tsvgp")
    model = GPRegressor(method, max_work=40, likelihood=likelihood)
    assert hasattr(model.fit(np.arange(40.0)[:, None], y), "model_")


def test_a_constant_target_is_told_by_name():
    with pytest.warns(UserWarning, match="'y' is constant: every value is 3"):
        model = GPRegressor(method="exact", max_seconds=None).fit(plain()[:15].assign(y=3.0), "y")
    np.testing.assert_allclose(model.predict(plain()), 3.0, atol=1e-6)
