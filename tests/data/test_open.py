"""Whatever holds rows gives the same rows."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from vastgp.data import Rows, as_rows

_N = 1003
_RNG = np.random.default_rng(0)
_X = _RNG.normal(size=(_N, 3)) * [1, 1e6, 1e-6]
_Y = _RNG.normal(size=_N)
_NAMES = ["age", "mass", "length"]


def _frame() -> pd.DataFrame:
    return pd.DataFrame({"age": _X[:, 0], "y": _Y, "mass": _X[:, 1], "length": _X[:, 2]})


def _table() -> pa.Table:
    return pa.table({name: _frame()[name].to_numpy() for name in _frame().columns})


def _folder(tmp: Path) -> Path:
    for i, part in enumerate(np.array_split(np.arange(_N), 3)):
        (tmp / "parts").mkdir(exist_ok=True)
        pq.write_table(_table().take(part), tmp / "parts" / f"part-{i}.parquet", row_group_size=100)
    (tmp / "parts" / "_SUCCESS").write_text("")
    (tmp / "parts" / "readme.txt").write_text("not data")
    return tmp / "parts"


def _saved(write: Callable[[Path], object], path: Path) -> Path:
    write(path)
    return path


_SOURCES: dict[str, Callable[[Path], tuple[object, object]]] = {
    "arrays": lambda tmp: (_X, _Y),
    "arrays by column": lambda tmp: (np.asfortranarray(_X), _Y),
    "lists": lambda tmp: (_X.tolist(), _Y.tolist()),
    "objects": lambda tmp: (_X.astype(object), _Y.astype(object)),
    "array and Series": lambda tmp: (_X, pd.Series(_Y, index=np.arange(_N)[::-1])),
    "npy": lambda tmp: (
        _saved(lambda p: np.save(p, _X), tmp / "X.npy"),
        _saved(lambda p: np.save(p, _Y), tmp / "y.npy"),
    ),
    "npy as text and array": lambda tmp: (str(_saved(lambda p: np.save(p, _X), tmp / "X.npy")), _Y),
    "npz": lambda tmp: (
        _saved(lambda p: np.savez(p, X=_X, y=_Y, other=_Y[:3]), tmp / "d.npz"),
        None,
    ),
    "npz, compressed, by column": lambda tmp: (
        _saved(lambda p: np.savez_compressed(p, X=np.asfortranarray(_X), t=_Y), tmp / "d.npz"),
        "t",
    ),
    "pandas": lambda tmp: (_frame(), "y"),
    "pandas and Series": lambda tmp: (_frame().drop(columns="y"), _frame()["y"]),
    "pandas, nullable": lambda tmp: (_frame().astype("Float64"), "y"),
    "pandas, Arrow": lambda tmp: (_frame().convert_dtypes(dtype_backend="pyarrow"), "y"),
    "pandas, objects": lambda tmp: (_frame().astype(object), "y"),
    "polars": lambda tmp: (pl.from_arrow(_table()), "y"),
    "polars, lazy": lambda tmp: (pl.from_arrow(_table()).lazy(), "y"),
    "polars and Series": lambda tmp: (pl.from_arrow(_table()).drop("y"), pl.Series("y", _Y)),
    "Arrow": lambda tmp: (_table(), "y"),
    "Arrow, in chunks": lambda tmp: (
        pa.concat_tables([_table()[:5], _table()[5:5], _table()[5:]]),
        "y",
    ),
    "Arrow batch": lambda tmp: (_table().to_batches()[0], "y"),
    "Arrow and array": lambda tmp: (_table().drop_columns("y"), pa.chunked_array([_Y[:7], _Y[7:]])),
    "csv": lambda tmp: (_saved(lambda p: _frame().to_csv(p, index=False), tmp / "d.csv"), "y"),
    "csv, semicolons": lambda tmp: (
        _saved(lambda p: _frame().to_csv(p, index=False, sep=";"), tmp / "d.CSV"),
        "y",
    ),
    "csv, gzip": lambda tmp: (
        _saved(lambda p: _frame().to_csv(p, index=False), tmp / "d.csv.gz"),
        "y",
    ),
    "tsv, byte order mark": lambda tmp: (
        _saved(
            lambda p: _frame().to_csv(p, index=False, sep="\t", encoding="utf-8-sig"), tmp / "d.tsv"
        ),
        "y",
    ),
    "parquet": lambda tmp: (_saved(lambda p: pq.write_table(_table(), p), tmp / "d.parquet"), "y"),
    "parquet of pandas, with row labels": lambda tmp: (
        _saved(
            lambda p: _frame().set_index(pd.Index(np.arange(_N)[::-1] * 2)).to_parquet(p),
            tmp / "d.pq",
        ),
        "y",
    ),
    "parquet folder": lambda tmp: (_folder(tmp), "y"),
    "parquet and npy": lambda tmp: (
        _saved(lambda p: pq.write_table(_table().drop_columns("y"), p), tmp / "d.parquet"),
        _saved(lambda p: np.save(p, _Y), tmp / "y.npy"),
    ),
    "parquet and an array named y": lambda tmp: (
        _saved(lambda p: pq.write_table(_table().drop_columns("y"), p), tmp / "d.parquet"),
        pd.Series(_Y, name="y"),
    ),
}


@pytest.mark.parametrize("source", _SOURCES)
@pytest.mark.parametrize("memory_budget", [float(1 << 28), 1000.0], ids=["memory", "disk"])
def test_the_same_rows_from_every_source(source: str, memory_budget: float, tmp_path: Path) -> None:
    """To the last bit, text files included, in order, with names where there are some."""
    X, y = _SOURCES[source](tmp_path)
    rows = as_rows(X, y, require_y=True, memory_budget=memory_budget)
    assert (rows.n, rows.d) == _X.shape
    X_blocks, y_blocks = zip(*rows.batches(100), strict=True)
    np.testing.assert_array_equal(np.concatenate(X_blocks), _X)
    np.testing.assert_array_equal(np.concatenate(y_blocks), _Y)
    taken = rows.take(np.array([1000, 3]))
    np.testing.assert_array_equal(taken[0], _X[[1000, 3]])
    np.testing.assert_array_equal(taken[1], _Y[[1000, 3]])
    unnamed = source.split(",")[0].split()[0] in {
        "arrays",
        "array",
        "lists",
        "objects",
        "npy",
        "npz",
    }
    assert rows.feature_names == (None if unnamed else _NAMES)
    from_file = (
        source.split(",")[0].split()[0] in {"csv", "tsv", "parquet", "npz"} and "npy" not in source
    )
    if from_file:
        assert rows.in_memory == (memory_budget > 1e6)


def test_target_names() -> None:
    assert as_rows(_frame(), "y").target_name == "y"
    assert as_rows(_X, pd.Series(_Y, name="height")).target_name == "height"
    assert as_rows(_frame().drop(columns="y"), pd.Series(_Y, name="height")).target_name == "height"
    assert as_rows(_X, _Y).target_name is None


def test_a_memory_map_stays_where_it_is(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", _X)
    stored = np.load(tmp_path / "X.npy", mmap_mode="r")
    for X in (stored, tmp_path / "X.npy"):
        rows = as_rows(X)
        assert not rows.in_memory and rows.X.dtype == np.float64
    assert np.shares_memory(as_rows(stored).X, stored)


def test_arrays_are_not_copied() -> None:
    for array in (_X, np.asfortranarray(_X), _X.astype(np.float32), (_X > 0)):
        assert np.shares_memory(as_rows(array).X, array)


def test_rows_pass_through() -> None:
    rows = as_rows(_frame(), "y")
    assert as_rows(rows) is rows
    assert as_rows(rows, feature_names=_NAMES, n_features=3) is rows
    with pytest.raises(ValueError, match="already has its targets"):
        as_rows(rows, _Y)
    with pytest.raises(ValueError, match="X has 3 features, but Model is expecting 2 features"):
        as_rows(rows, n_features=2, estimator="Model")
    with pytest.raises(
        ValueError, match=r"but Model was fitted with 'mass', 'age', 'length', in this order"
    ):
        as_rows(rows, feature_names=["mass", "age", "length"], estimator="Model")
    with pytest.raises(ValueError, match="yet now missing:\n- width\n"):
        as_rows(rows, feature_names=["age", "mass", "width"])


# ---------------------------------------------------------------- types of columns


@pytest.mark.parametrize(
    ("dtypes", "stored"),
    [
        (("float32", "float32"), "float32"),
        (("float32", "int16"), "float32"),
        (("float16", "uint8"), "float32"),
        (("float32", "int32"), "float64"),
        (("float32", "float64"), "float64"),
        (("int64", "int64"), "float64"),
        (("bool", "float32"), "float32"),
    ],
)
def test_columns_of_a_table_are_stored_without_loss_in_as_little_as_that_takes(
    dtypes: tuple[str, str], stored: str
) -> None:
    values = {
        "bool": [True, False],
        "uint8": [255, 1],
        "int16": [-32768, 32767],
        "int32": [2**31 - 1, -(2**31)],
        "int64": [2**53, -(2**53)],
        "float16": [65504.0, 6e-8],
        "float32": [0.1, 3e38],
        "float64": [0.1, 1e300],
    }
    columns = {f"c{i}": np.array(values[dtype]).astype(dtype) for i, dtype in enumerate(dtypes)}
    expected = np.column_stack([column.astype(np.float64) for column in columns.values()])
    for table in (pd.DataFrame(columns), pa.table(columns)):
        rows = as_rows(table)
        assert rows.X.dtype == stored
        np.testing.assert_array_equal(rows.take(np.array([0, 1]))[0], expected)


def test_pandas_columns_of_many_types() -> None:
    frame = pd.DataFrame(
        {
            "nullable int": pd.array([1, 2, 3], dtype="Int8"),
            "nullable bool": pd.array([True, False, True], dtype="boolean"),
            "bool": [True, False, True],
            "decimal": [decimal.Decimal("1.25"), decimal.Decimal("-3"), decimal.Decimal("0.5")],
            "objects": pd.Series([1, 2.5, np.float32(0.25)], dtype=object),
            "arrow decimal": pd.array(
                [decimal.Decimal("1.5"), decimal.Decimal("2.5"), decimal.Decimal("3.5")],
                dtype=pd.ArrowDtype(pa.decimal128(5, 2)),
            ),
            "sparse": pd.arrays.SparseArray([0.0, 0.0, 7.0]),
            "unsigned": np.array([0, 2**40, 1], dtype=np.uint64),
        }
    )
    expected = [
        [1, 1, 1, 1.25, 1, 1.5, 0, 0],
        [2, 0, 0, -3, 2.5, 2.5, 0, 2**40],
        [3, 1, 1, 0.5, 0.25, 3.5, 7, 1],
    ]
    np.testing.assert_array_equal(as_rows(frame).X, expected)


def test_arrow_and_polars_columns_of_many_types() -> None:
    table = pa.table(
        {
            "bool": [True, False],
            "decimal": pa.array([decimal.Decimal("1.25"), decimal.Decimal("-3")]),
            "half": pa.array(np.array([0.5, 2.0], np.float16)),
            "long": pa.array([2**40, -1]),
        }
    )
    expected = [[1, 1.25, 0.5, 2**40], [0, -3, 2, -1]]
    np.testing.assert_array_equal(as_rows(table).X, expected)
    frame = pl.DataFrame(
        {
            "bool": [True, False],
            "decimal": [decimal.Decimal("1.25"), decimal.Decimal("-3")],
            "int": [3, 4],
        },
        schema_overrides={"int": pl.UInt8},
    )
    np.testing.assert_array_equal(as_rows(frame).X, [[1, 1.25, 3], [0, -3, 4]])


_DAY = datetime.datetime(2020, 1, 1)


def _coded() -> pa.Table:
    return pa.table({"kind": pa.array([10, 20]).dictionary_encode()})


@pytest.mark.parametrize(
    "make", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "Arrow"]
)
@pytest.mark.parametrize(
    ("values", "what"),
    [
        (["a", "b"], "text"),
        ([_DAY, _DAY], "dates"),
        ([datetime.timedelta(1), datetime.timedelta(2)], "durations"),
        ([[1.0], [2.0]], "objects|list"),
    ],
)
def test_columns_that_are_not_numbers_are_named(make: Callable, values: list, what: str) -> None:
    table = make({"x": [1.0, 2.0], "bad column": values, "y": [1.0, 2.0]})
    with pytest.raises(
        ValueError,
        match=rf"has columns that are not numbers: 'bad column' \(.*({what}).*\)\. .*Drop them, or encode",
    ):
        as_rows(table, "y")
    with pytest.raises(ValueError, match=rf"target column y='bad column' of .* holds .*({what})"):
        as_rows(table, "bad column")
    # Where a model picks its columns by name, the others do not matter.
    assert as_rows(table, feature_names=["x"]).X.tolist() == [[1.0], [2.0]]


def test_categories_and_zoned_dates_are_named() -> None:
    frame = pd.DataFrame(
        {
            "x": [1.0, 2.0],
            "kind": pd.Categorical(["a", "b"]),
            "when": pd.to_datetime([_DAY, _DAY]).tz_localize("UTC"),
            "z": [1j, 2.0],
        }
    )
    with pytest.raises(
        ValueError,
        match=r"'kind' \(categories\), 'when' \(dates or times\), 'z' \(complex numbers\)\.",
    ):
        as_rows(frame)
    with pytest.raises(ValueError, match=r"'kind' \(categories\)"):
        as_rows(pl.DataFrame({"kind": ["a", "b"]}, schema={"kind": pl.Categorical}))
    # numbers that stand for categories are categories, wherever they come from
    for kind in (pd.DataFrame({"kind": pd.Categorical([1, 2])}), _coded()):
        with pytest.raises(ValueError, match=r"'kind' \(categories\)"):
            as_rows(kind)


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, None]}),
        pd.DataFrame({"a": [1.0, 2.0], "b": pd.array([1, None], dtype="Int64")}),
        pd.DataFrame({"a": [1.0, 2.0], "b": pd.array([True, None], dtype="boolean")}),
        pd.DataFrame({"a": [1.0, 2.0], "b": pd.array([1, None], dtype="int64[pyarrow]")}),
        pd.DataFrame({"a": [1.0, 2.0], "b": pd.Series([1, None], dtype=object)}),
        pd.DataFrame({"a": [1.0, 2.0], "b": pd.Series([1, pd.NA], dtype=object)}),
        pl.DataFrame({"a": [1.0, 2.0], "b": [1, None]}),
        pa.table({"a": [1.0, 2.0], "b": [True, None]}),
        pa.table({"a": [1.0, 2.0], "b": pa.array([decimal.Decimal(1), None])}),
        pa.table({"a": [1.0, 2.0], "b": pa.nulls(2)[1:].cast(pa.null()).take([None, 0])}),
    ],
)
def test_missing_values_are_found_in_every_type(table: object) -> None:
    with pytest.raises(
        ValueError, match=r"Input X contains NaN: at row [01], column 'b'.*SimpleImputer"
    ):
        as_rows(table)
    with pytest.raises(
        ValueError,
        match=r"Input y \(column 'b'\) contains NaN: at row [01].*Drop the rows that have no",
    ):
        as_rows(table, "b")


def test_batches_of_a_large_table_join(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 256 rows; a missing value in a later one is reported with its row number in the table."""
    monkeypatch.setattr("vastgp.data.open.BLOCK_BYTES", 1)
    for table in (_frame(), _table()):
        np.testing.assert_array_equal(as_rows(table, "y").X, _X)
    frame = _frame()
    frame.loc[700, "mass"] = np.nan
    with pytest.raises(ValueError, match=r"at row 700, column 'mass'\."):
        as_rows(frame, "y")
    frame = _frame()
    frame.loc[701, "y"] = np.inf
    with pytest.raises(
        ValueError, match=r"Input y \(column 'y'\) contains infinity .*: at row 701\."
    ):
        as_rows(frame, "y")


def test_the_result_is_rows() -> None:
    assert isinstance(as_rows(_X), Rows) and as_rows(_X).y is None
