"""Any table becomes the matrix that its columns say, the same one wherever it comes from."""

from __future__ import annotations

import datetime
import json
import pickle
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

import vastgp
from vastgp.auto import TableEncoder
from vastgp.auto import source as source_module
from vastgp.auto.inputs import Inputs
from vastgp.data import Rows

_N = 1500
_RNG = np.random.default_rng(0)
_Y = _RNG.normal(size=_N)


def _frame() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    when = pd.date_range("2019-03-01", periods=_N, freq="17h")
    frame = pd.DataFrame(
        {
            "row_id": np.arange(_N),
            "age": np.where(rng.random(_N) < 0.1, np.nan, rng.normal(40, 10, _N)),
            "income": np.exp(3 * rng.normal(size=_N)),
            "rooms": rng.integers(1, 9, _N),
            "flag": rng.random(_N) < 0.5,
            "city": rng.choice(["Oslo", "Bergen", "Rome"], _N),
            "zip": [f"z{i}" for i in rng.integers(0, 200, _N)],
            "name": [f"name {i}" for i in range(_N)],
            "when": when,
            "day": when.strftime("%Y-%m-%d"),
            "price": [f"{value:,.2f}" for value in rng.uniform(0, 9999, _N)],
            "lasts": pd.to_timedelta(rng.integers(1, 9999, _N), unit="min"),
            "opens": [datetime.time(int(h), 30) for h in rng.integers(0, 24, _N)],
            "constant": 1,
            "empty": np.nan,
        }
    )
    frame.loc[[3, 77], "city"] = None
    return frame


def _arrow() -> pa.Table:
    return pa.Table.from_pandas(_frame(), preserve_index=False)


def _saved(write: object, path: Path) -> Path:
    write(path)  # type: ignore[operator]
    return path


_SOURCES = {
    "polars": lambda tmp: pl.from_arrow(_arrow()),
    "lazy": lambda tmp: pl.from_arrow(_arrow()).lazy(),
    "arrow": lambda tmp: _arrow(),
    "parquet": lambda tmp: _saved(
        lambda p: pq.write_table(_arrow(), p, row_group_size=333), tmp / "t.parquet"
    ),
    "parquet as text": lambda tmp: str(_saved(lambda p: pq.write_table(_arrow(), p), tmp / "t.pq")),
    "csv": lambda tmp: _saved(lambda p: _frame().to_csv(p, index=False), tmp / "t.csv"),
    "objects": lambda tmp: _frame().astype(object),
}


@pytest.mark.parametrize("source", _SOURCES)
def test_every_source_gives_the_same_matrix(source, tmp_path):
    expected = TableEncoder().fit(_frame(), _Y)
    X = _SOURCES[source](tmp_path)
    encoder = TableEncoder().fit(X, _Y)
    assert encoder.to_state() == expected.to_state()
    np.testing.assert_array_equal(encoder.transform(X), expected.transform(_frame()))
    np.testing.assert_array_equal(
        TableEncoder().fit_transform(X, _Y), TableEncoder().fit_transform(_frame(), _Y)
    )


def test_a_folder_is_one_table(tmp_path):
    for part, start in enumerate(range(0, _N, 400)):
        pq.write_table(_arrow().slice(start, 400), tmp_path / f"part-{part}.parquet")
    expected = TableEncoder().fit(_frame())
    encoder = TableEncoder().fit(tmp_path)
    assert encoder.to_state() == expected.to_state()
    np.testing.assert_array_equal(encoder.transform(tmp_path), expected.transform(_frame()))


@pytest.mark.parametrize("rows", [1, 7, 512, 10_000])
def test_batches_are_the_whole(rows):
    frame = _frame()[:300]
    encoder = TableEncoder().fit(frame, _Y[:300])
    blocks = list(encoder.transform_batches(frame, rows))
    assert max(map(len, blocks)) <= rows
    np.testing.assert_array_equal(np.concatenate(blocks), encoder.transform(frame))


def test_kinds_and_ties():
    encoder = TableEncoder().fit(_frame(), _Y)
    kinds = {column.name: column.kind for column in encoder.columns_ if column.kept}
    assert kinds == {
        "age": "number",
        "income": "number",
        "rooms": "number",
        "flag": "boolean",
        "city": "category",
        "zip": "codes",
        "when": "date",
        "day": "date",
        "price": "number",
        "lasts": "duration",
        "opens": "time of day",
    }
    assert set(encoder.dropped_) == {"row_id", "name", "constant", "empty"}
    # every output is in one input, in order
    outputs = [j for group in encoder.tied_ for j in group]
    assert outputs == list(range(encoder.transform(_frame()).shape[1]))
    names = encoder.get_feature_names_out()
    assert len(names) == len(outputs) == len(set(names))
    tied = {tuple(names[list(group)]) for group in encoder.tied_}
    assert ("city=Bergen", "city=Oslo", "city=Rome", "city=(missing)", "city=(unseen)") in tied
    assert ("age",) in tied and ("age is missing",) in tied and ("zip mean target",) in tied
    assert ("opens sin", "opens cos") in tied and ("when season sin", "when season cos") in tied
    by_name = {column.name: column for column in encoder.columns_}
    assert by_name["age"].missing == by_name["age"].facts["missing"] == _frame()["age"].isna().sum()
    assert by_name["city"].facts["levels"] == ("Bergen", "Oslo", "Rome")
    of_city = [name.startswith(("city=", "city unknown")) for name in names]
    assert by_name["city"].outputs == tuple(np.flatnonzero(of_city))


def test_summary_has_a_line_for_every_column():
    encoder = TableEncoder().fit(_frame(), _Y)
    lines = encoder.summary().splitlines()
    assert repr(encoder) == encoder.summary()
    assert lines[0].startswith("15 columns become")
    assert [line.split()[0] for line in lines[1:]] == list(_frame().columns)
    assert "left out: whole numbers, all distinct" in lines[1]
    assert repr(TableEncoder(max_levels=3)) == "TableEncoder(max_levels=3)"


# ---------------------------------------------------------------- state


def test_state_goes_through_json_to_the_last_bit():
    encoder = TableEncoder(ordered={"rooms": range(1, 9)}).fit(_frame(), _Y)
    state = json.loads(json.dumps(encoder.to_state(), allow_nan=False))
    again = TableEncoder.from_state(state)
    assert again.columns_ == encoder.columns_
    assert again.tied_ == encoder.tied_ and again.dropped_ == encoder.dropped_
    assert again.to_state() == encoder.to_state()
    np.testing.assert_array_equal(again.transform(_frame()), encoder.transform(_frame()))
    np.testing.assert_array_equal(again.feature_names_in_, encoder.feature_names_in_)
    assert again.get_params()["max_levels"] == 24


def test_state_of_another_version_is_refused():
    with pytest.raises(ValueError, match=r"version 99; this program reads 1\. Fit the encoder"):
        TableEncoder.from_state({"version": 99})


def test_pickle_and_clone():
    encoder = TableEncoder(max_levels=2, ordered={"city": ["Rome", "Oslo", "Bergen"]})
    encoder.fit(_frame(), _Y)
    before = encoder.transform(_frame())
    again = pickle.loads(pickle.dumps(encoder))
    np.testing.assert_array_equal(again.transform(_frame()), before)
    fresh = clone(encoder)
    assert not hasattr(fresh, "columns_") and fresh.get_params() == encoder.get_params()


def test_pipeline_and_set_output():
    pipeline = make_pipeline(TableEncoder(), Ridge()).fit(_frame(), _Y)
    assert pipeline.predict(_frame()).shape == (_N,)
    frame = _frame().set_index(pd.Index(range(5, _N + 5)))
    encoder = TableEncoder().set_output(transform="pandas").fit(frame)
    found = encoder.transform(frame)
    assert list(found.columns) == list(encoder.get_feature_names_out())
    assert found.index.equals(frame.index)


def test_codes_do_not_depend_on_the_process():
    program = (
        "from vastgp.auto.categories import code_vectors; print(code_vectors(['Oslo']).tolist())"
    )
    path = {"PYTHONPATH": ":".join(sys.path), "PATH": ""}
    runs = [
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={**path, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    from vastgp.auto.categories import code_vectors

    assert json.loads(runs[0]) == json.loads(runs[1]) == code_vectors(["Oslo"]).tolist()


def test_a_file_whose_columns_begin_empty(tmp_path):
    # Arrow guesses types from the first megabyte
    n = 150_000
    lines = [f"{i / 7:.6f},,,\n" for i in range(n)]
    lines += [f"{i / 7:.6f},{'ab'[i % 2]},{i % 5}.5,2020-01-0{i % 3 + 1}\n" for i in range(30)]
    path = tmp_path / "t.csv"
    path.write_text("x,note,late,day\n" + "".join(lines))
    assert path.stat().st_size > 1 << 20
    encoder = TableEncoder().fit(path)
    kinds = [(column.kind, column.missing) for column in encoder.columns_]
    assert kinds == [("number", 0), ("category", n), ("number", n), ("date", n)]


# ---------------------------------------------------------------- arrays


def test_arrays_of_numbers():
    X = _RNG.normal(size=(200, 3))
    gaps = X.copy()
    gaps[[0, 5], 1] = np.nan
    encoder = TableEncoder()
    np.testing.assert_array_equal(encoder.fit_transform(X), X)
    assert not hasattr(encoder, "feature_names_in_") and encoder.n_features_in_ == 3
    found = encoder.fit_transform(gaps)
    np.testing.assert_array_equal(found[:, [0, -1]], X[:, [0, 2]])
    assert found[0, 1] == found[5, 1] == np.nanmedian(gaps[:, 1])
    np.testing.assert_array_equal(found[:, 2], np.isnan(gaps[:, 1]))
    masked = np.ma.MaskedArray(X, np.isnan(gaps))
    np.testing.assert_array_equal(encoder.fit_transform(masked), found)
    np.testing.assert_array_equal(encoder.fit_transform(gaps.astype(object)), found)
    np.testing.assert_array_equal(encoder.fit_transform(gaps.tolist()), found)
    np.testing.assert_array_equal(encoder.fit_transform(Rows(gaps)), found)


def test_numbers_of_pandas_are_read_together_as_they_are_column_by_column(monkeypatch):
    """A column that is taken out costs as much as ten thousand numbers; with one of booleans each of them is."""
    import narwhals as nw

    rng = np.random.default_rng(2)
    table = pd.DataFrame(
        {
            "a": rng.normal(size=40),
            "b": rng.normal(size=40).astype(np.float32),
            "c": rng.integers(0, 9, 40),
            "d": rng.integers(0, 200, 40).astype(np.uint8),
            "same": np.ones(40),
        }
    )
    table.loc[3, "a"] = np.nan
    given = table.copy()
    mixed = TableEncoder().fit(table.assign(z=np.arange(40) % 2 == 0))
    expected = mixed.transform(table.assign(z=True))[:, :-1]
    assert mixed.columns_[-1].name == "z" and len(mixed.columns_[-1].outputs) == 1

    def refused(self):
        raise AssertionError("a column was taken out")

    monkeypatch.setattr(nw.DataFrame, "iter_columns", refused)
    plain = TableEncoder().fit(table)
    np.testing.assert_array_equal(plain.transform(table), expected)
    np.testing.assert_array_equal(
        plain.transform(table.iloc[7:8][["d", "same", "c", "b", "a"]]), expected[7:8]
    )
    pd.testing.assert_frame_equal(table, given)
    for one, other in zip(plain.columns_, mixed.columns_, strict=False):
        assert (one.name, one.kind, one.reason) == (other.name, other.kind, other.reason)


def test_folds_of_a_small_table_take_each_column_out_of_it_once(monkeypatch):
    rng = np.random.default_rng(3)
    table = pd.DataFrame({"a": rng.normal(size=60), "b": rng.choice(["x", "y"], 60)})
    taken, read = [], source_module._from_series
    monkeypatch.setattr(
        source_module, "_from_series", lambda *given: taken.append(len(given[0])) or read(*given)
    )
    inputs = Inputs.of(table, None, None, np.arange(60), None, 60)
    found = []
    for number in range(3):
        out = np.arange(number, 60, 3)
        training = np.setdiff1d(np.arange(60), out)
        found.append(inputs.fold(number, training, out, np.zeros(60))[1].X)
    inputs.whole(np.zeros(60))
    assert taken == [60, 60]
    again = TableEncoder().fit(table.drop(index=range(1, 60, 3)))
    np.testing.assert_array_equal(again.transform(table[1::3]), found[1])


def test_files_of_arrays(tmp_path):
    X = _RNG.normal(size=(50, 2))
    np.save(tmp_path / "X.npy", X)
    np.savez(tmp_path / "X.npz", X=X)
    for name in ("X.npy", "X.npz"):
        np.testing.assert_array_equal(TableEncoder().fit_transform(tmp_path / name), X)


def test_arrays_of_objects_are_as_their_table():
    frame = _frame().drop(columns="row_id")  # an identifier by its name
    by_table = TableEncoder().fit(frame, _Y)
    by_array = TableEncoder().fit(frame.to_numpy(dtype=object), _Y)
    np.testing.assert_array_equal(by_array.transform(frame.to_numpy()), by_table.transform(frame))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        found = by_table.transform(frame.to_numpy(dtype=object))
    np.testing.assert_array_equal(found, by_table.transform(frame))
    with pytest.raises(ValueError, match="X has 2 features, but TableEncoder is expecting 14"):
        by_table.transform(np.zeros((3, 2)))


# ---------------------------------------------------------------- names


def test_columns_are_matched_by_name():
    frame = _frame()
    encoder = TableEncoder().fit(frame, _Y)
    before = encoder.transform(frame)
    other = frame[frame.columns[::-1]].assign(more="x").drop(columns=["name", "empty"])
    np.testing.assert_array_equal(encoder.transform(other), before)
    with pytest.raises(ValueError, match=r"now missing:\n- city\n.*Is 'City' what was 'city'\?"):
        encoder.transform(frame.rename(columns={"city": "City"}))


def test_excluded_columns_and_the_target_are_no_inputs():
    frame = _frame().assign(y=_Y, weight=2.0 + _Y)
    encoder = TableEncoder().fit(frame, "y", exclude=["weight"])
    assert encoder.to_state() == TableEncoder().fit(_frame(), _Y).to_state()
    assert "y" not in encoder.feature_names_in_
    with pytest.raises(ValueError, match="exclude names the columns 'weights', which"):
        encoder.fit(frame, exclude=["weights"])
    with pytest.raises(ValueError, match=r"'Y' is not in .* Did you mean 'y'\?"):
        encoder.fit(frame, "Y")


# ---------------------------------------------------------------- many rows


def test_a_million_rows_by_blocks(tmp_path):
    n, part = 1_000_000, 100_000
    path = tmp_path / "large.parquet"
    rng = np.random.default_rng(0)
    levels = pa.array(["a", "b", "c"])
    schema = pa.schema([("x", pa.float64()), ("k", pa.string()), ("t", pa.timestamp("s"))])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, n, part):
            times = np.datetime64("2015-01-01", "s") + 60 * np.arange(start, start + part)
            parts = [
                pa.array(rng.normal(size=part)),
                levels.take(pa.array(rng.integers(0, 3, part))),
                pa.array(times),
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(parts, schema=schema))
    tracemalloc.start()
    try:
        encoder = TableEncoder().fit(path)
        total = sum(block.sum(axis=0) for block in encoder.transform_batches(path, 20_000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # the encoded matrix is 136 MB (17 columns), the file's values as Python objects some 200 MB
    assert peak < 40e6
    names = list(encoder.get_feature_names_out())
    assert total[names.index("k=a") : names.index("k=c") + 1].sum() == n
    assert total[names.index("k=(unseen)")] == 0
    mean_trend = (n - 1) / 2 * 60 / (365.2425 * 86_400)
    assert total[names.index("t in years")] / n == pytest.approx(mean_trend, rel=1e-12)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (
            np.repeat([f"p{k:03d}" for k in range(50)], 2),
            "codes",
        ),  # more than half of few rows differ
        (np.repeat(np.arange(50), 2), "number"),  # all distinct under a name that numbers rows
        (["a"] * 98 + ["b"] * 2, "category"),
    ],
)
def test_some_rows_of_a_table_are_encoded_as_what_all_of_them_are(column, kind):
    frame = pd.DataFrame({"id": column})
    whole = TableEncoder().fit(frame)
    assert whole.columns_[0].kind == kind
    some = frame[::2]
    encoder = TableEncoder()
    found = encoder.fit_transform(some, like=whole)
    assert encoder.columns_[0].kind == kind and found.shape == (
        50,
        len(encoder.columns_[0].outputs),
    )


def test_what_all_rows_leave_out_no_part_of_them_takes_in():
    # of nine rows all distinct text may be chance
    frame = pd.DataFrame({"note": [f"t{k}" for k in range(100)], "x": np.arange(100.0)})
    whole, part = TableEncoder().fit(frame), TableEncoder()
    assert part.fit_transform(frame[:9], like=whole).shape == (9, 1)
    assert list(part.dropped_) == list(whole.dropped_) == ["note"]


def test_a_race_knows_a_column_that_is_an_input_of_all_rows():
    rng = np.random.default_rng(3)
    level = rng.normal(size=100)
    frame = pd.DataFrame({"subject": np.repeat([f"p{k:03d}" for k in range(100)], 2)})
    frame["x"] = rng.normal(size=200)
    frame["y"] = np.repeat(level, 2) * 3.0 + 0.1 * rng.normal(size=200)
    model = vastgp.GPRegressor(max_seconds=3, random_state=0).fit(frame, "y")
    assert model.leaderboard_[0].error < 0.85 * frame["y"].std()
    alone = vastgp.GPRegressor(max_seconds=2, random_state=0).fit(frame[["subject", "y"]], "y")
    assert alone.n_features_in_ == 1
