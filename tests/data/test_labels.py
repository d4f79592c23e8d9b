"""Class labels of any type become numbers, or are refused with what to do."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from vastgp.auto.reading_targets import classes_of
from vastgp.data import as_rows
from vastgp.data.labels import column_of, open_labelled

_X = np.arange(8.0).reshape(4, 2)
_WORDS = ["no", "yes", "no", "yes"]
_GAP = ["no", None, "no", "yes"]
_DAYS = [datetime.date(2020, 1, 1 + i % 2) for i in range(4)]


@pytest.mark.parametrize(
    "y",
    [
        _WORDS,
        np.array(_WORDS),
        pd.Series(_WORDS, dtype="string"),
        pd.Series(_WORDS, dtype="string[pyarrow]"),
        pd.Categorical(_WORDS),
        pd.Series(_WORDS, dtype="category"),
        pl.Series(_WORDS),
        pl.Series(_WORDS, dtype=pl.Categorical),
        pa.chunked_array([_WORDS[:1], _WORDS[1:]]).dictionary_encode(),
        pd.Series([1, 2, 1, 2], dtype="Int64"),
        pa.chunked_array([[1, 2, 1, 2]]).dictionary_encode(),
        pd.Series([False, True, False, True], dtype="boolean"),
    ],
)
def test_labels_of_every_kind_are_numbered(y: object) -> None:
    rows, classes = open_labelled(_X, y)
    np.testing.assert_array_equal(rows.y, [0.0, 1.0, 0.0, 1.0])
    assert list(classes) in (["no", "yes"], [1, 2], [False, True])
    assert classes.dtype.kind in "Uib"


@pytest.mark.parametrize(
    "y",
    [
        _GAP,
        pd.Series(_GAP),
        pd.Series(_GAP, dtype="string"),
        pd.Series(_GAP, dtype="category"),
        pd.Series([1, None, 1, 2], dtype="category"),
        np.array(["no", pd.NA, "no", "yes"], dtype=object),
        pd.Series([True, None, False, True], dtype="boolean"),
        pl.Series(_GAP),
        pa.chunked_array([_GAP]).dictionary_encode(),
        pa.chunked_array([[1, None, 1, 2]]).dictionary_encode(),
        pd.Series(pd.to_datetime(["2020", None, "2021", "2020"])),
    ],
)
def test_a_missing_label_is_named_by_its_row(y: object) -> None:
    with pytest.raises(
        ValueError, match=r"missing label in row 1 \(|Input y contains NaN: at row 1"
    ):
        open_labelled(_X, y)
    if isinstance(y, pd.Series):
        with pytest.raises(ValueError, match=r"missing label in row 1 \(|contains NaN: at row 1"):
            open_labelled(pd.DataFrame({"a": _X[:, 0], "y": y}), "y")


def test_an_empty_label_of_a_csv_file_is_missing_and_no_class(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('a,y\n1,yes\n2,\n3,no\n4,""\n5,NA\n')
    assert column_of(path, "y")[0].tolist() == ["yes", None, "no", None, "NA"]
    with pytest.raises(ValueError, match="y has a missing label in row 1"):
        open_labelled(path, "y")
    codes, classes, _ = classes_of(path, "y")
    assert classes.tolist() == ["NA", "no", "yes"]
    np.testing.assert_array_equal(codes, [2.0, np.nan, 1.0, np.nan, 0.0])


@pytest.mark.parametrize(
    "y",
    [
        _DAYS,
        np.array(_DAYS, "M8[D]"),
        pd.Series(_DAYS).astype("datetime64[ns]"),
        pl.Series(_DAYS),
        np.array([b"a", b"b", b"a", b"b"]),
        [decimal.Decimal(i % 2) for i in range(4)],
    ],
)
def test_labels_that_no_file_can_keep_are_refused(y: object) -> None:
    with pytest.raises(
        ValueError, match=r"y holds labels such as .* numbers, booleans or text.*astype"
    ):
        open_labelled(_X, y)


def test_a_quantity_is_no_label() -> None:
    with pytest.raises(
        ValueError,
        match=r"Unknown label type: continuous. y holds numbers with decimals, for example 0.5 in row 1 .*GPRegressor",
    ):
        open_labelled(_X, [1.0, 0.5, 1.0, 2.0])
    with pytest.raises(ValueError, match="the target column 'price' holds numbers with decimals"):
        classes_of(pd.DataFrame({"a": _X[:, 0], "price": [1.0, 0.5, 1.0, 2.0]}), "price")


def test_a_name_is_the_column_of_a_table_only(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"y='label' is a string.*X is an array without column names"
    ):
        open_labelled(_X, "label")
    np.save(tmp_path / "y.npy", np.array(_WORDS))
    assert list(open_labelled(_X, tmp_path / "y.npy")[1]) == ["no", "yes"]
    np.savez(tmp_path / "d.npz", X=_X, y=np.array(_WORDS))
    pa.parquet.write_table(pa.table({"a": _X[:, 0], "label": _WORDS}), tmp_path / "d.parquet")
    for X, y in ((tmp_path / "d.npz", None), (tmp_path / "d.parquet", "label")):
        rows, classes = open_labelled(X, y)
        assert list(classes) == ["no", "yes"] and rows.target_name == (y or "y")
    with pytest.raises(ValueError, match=r"y='lable' is not in .* Did you mean 'label'\?"):
        open_labelled(tmp_path / "d.parquet", "lable")


def test_a_lazy_frame_is_collected_once() -> None:
    collected = []

    def seen(frame: pl.DataFrame) -> pl.DataFrame:
        collected.append(1)
        return frame

    lazy = pl.LazyFrame({"a": _X[:, 0], "b": _X[:, 1], "label": _WORDS}).map_batches(seen)
    rows, _ = open_labelled(lazy, "label")
    assert rows.feature_names == ["a", "b"] and len(collected) == 1
    as_rows(lazy, feature_names=["a", "b"])
    assert len(collected) == 2


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (["1", "4", "1", "4"], np.array([1, 4, 1, 4])),
        (["1", "", "1", "4"], np.array([1, None, 1, 4])),
        (["1.0", "4.0", "1.0", "4.0"], np.array([1.0, 4.0, 1.0, 4.0])),
        (["1", "4", "1", "4.5"], np.array([1, 4, 1, 4.5])),
    ],
    ids=["whole", "a gap", "written with a point", "a fraction"],
)
def test_whole_numbers_of_a_text_file_are_whole_labels(tmp_path, column, expected):
    """As those of the same table in pandas are: classes 1 and 4 were 1.0 and 4.0, and so were predictions."""
    path = tmp_path / "rows.csv"
    path.write_text("a,label\n" + "".join(f"{i},{label}\n" for i, label in enumerate(column)))
    found, name = column_of(str(path), "label")
    assert name == "label" and found.dtype == expected.dtype
    assert found.tolist() == expected.tolist()


def test_whole_numbers_of_a_text_file_with_a_fraction_far_down_are_floats(tmp_path):
    """Types are guessed from the first block of a file."""
    path = tmp_path / "rows.csv"
    path.write_text("a,label\n" + "1,2\n" * 400_000 + "1,2.5\n")
    found, _ = column_of(str(path), "label")
    assert found.dtype == np.float64 and found[-1] == 2.5
