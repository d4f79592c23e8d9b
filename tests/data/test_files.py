"""Files as they come: quirks that are understood, and damage that is named."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vastgp.data import as_rows
from vastgp.data.files import open_npz


def _text(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


# ---------------------------------------------------------------- CSV


def test_types_that_change_further_down(tmp_path: Path) -> None:
    """The first megabyte of a column says whole numbers (or nothing at all); fractions come later."""
    rows = 400_000
    lines = "".join(f"{i % 7},,5\n" for i in range(rows))
    path = _text(tmp_path / "d.csv", "a,b,y\n" + lines + "0.25,1.5,1e-3\n")
    with pytest.raises(ValueError, match=r"contains NaN: at row 0, column 'b'"):
        as_rows(path, "y")
    read = as_rows(path, "y", feature_names=["a"])
    assert read.X[-1, 0] == 0.25 and read.y[-1] == 1e-3
    np.testing.assert_array_equal(read.X[:-1, 0], np.arange(rows) % 7)


def test_text_further_down_names_the_file_and_the_column(tmp_path: Path) -> None:
    path = _text(tmp_path / "d.csv", "a,y\n" + "1,2\n" * 300_000 + "oops,2\n")
    with pytest.raises(
        ValueError,
        match=r"Column 'a' of .*d\.csv' holds numbers at first, and 'oops' further down. Correct it",
    ):
        as_rows(path, "y")


def test_a_line_that_is_too_short(tmp_path: Path) -> None:
    path = _text(tmp_path / "d.csv", "a,y\n1,2\n3\n")
    with pytest.raises(ValueError, match=r"d\.csv' cannot be read: .*Expected 2 columns, got 1"):
        as_rows(path, "y")


def test_names_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_bytes("température,y\n1,2\n".encode("latin-1"))
    with pytest.raises(
        ValueError, match=r"d\.csv' cannot be read: a column name is no UTF-8.*iconv"
    ):
        as_rows(tmp_path / "d.csv", "y")


@pytest.mark.parametrize("gap", ["", "NA", "nan", "null", "N/A"])
def test_gaps(tmp_path: Path, gap: str) -> None:
    path = _text(tmp_path / "d.csv", f"a,b,y\n1,2,3\n4,{gap},6\n")
    with pytest.raises(ValueError, match=r"Input X contains NaN: at row 1, column 'b'"):
        as_rows(path, "y")


def test_no_line_of_names(tmp_path: Path) -> None:
    path = _text(tmp_path / "d.csv", "1.5,2,3\n4,5,6\n")
    with pytest.raises(
        ValueError,
        match=r"has no line of column names: its first line is '1\.5', '2', '3'\. Put a line",
    ):
        as_rows(path, "y")


@pytest.mark.parametrize("content", ["", "\n1,2\n"])
def test_empty_csv(tmp_path: Path, content: str) -> None:
    with pytest.raises(
        ValueError, match=r"is empty, or its first line is\. Expected a line of column names"
    ):
        as_rows(_text(tmp_path / "d.csv", content), "y")


def test_names_but_no_rows(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Found array with 0 sample\(s\) \(shape=\(0, 2\)\)"):
        as_rows(_text(tmp_path / "d.csv", "a,b,y\n"), "y")


def test_row_numbers_without_a_name_are_no_input(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "y": [3.0, 4.0]})
    frame.to_csv(tmp_path / "d.csv")
    with pytest.raises(
        ValueError,
        match=r"Column 0 of .*d\.csv' has no name\. Row numbers written by pandas .*index=False",
    ):
        as_rows(tmp_path / "d.csv", "y")


def test_twice_the_same_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"d\.csv' has several columns named 'a'"):
        as_rows(_text(tmp_path / "d.csv", "a,a,y\n1,2,3\n"), "y")


def test_text_columns_of_a_csv_are_named_and_do_not_matter_to_a_model(tmp_path: Path) -> None:
    path = _text(
        tmp_path / "d.csv",
        "a,city,when,ok,y\n1,Rome,2020-01-01,true,3\n2,Oslo,2020-01-02,false,4\n",
    )
    with pytest.raises(
        ValueError, match=r"not numbers: 'city' \(text\), 'when' \(dates or times\)\."
    ):
        as_rows(path, "y")
    rows = as_rows(path, "y", feature_names=["ok", "a"])
    assert rows.X.tolist() == [[1, 1], [0, 2]] and rows.y.tolist() == [3, 4]


def test_numbers_are_read_to_the_last_bit(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=2000) * 10.0 ** np.random.default_rng(1).integers(
        -300, 300, 2000
    )
    path = _text(
        tmp_path / "d.csv", "a,y\n" + "".join(f"{value!r},0\n" for value in values.tolist())
    )
    np.testing.assert_array_equal(as_rows(path, "y").X[:, 0], values)


# ---------------------------------------------------------------- Parquet


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    for name, first in (("b/1", 2.0), ("a/2", 1.0), ("a/10", 0.0), ("c", 3.0)):
        path = tmp_path / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"a": [first], "y": [first]}), path)
    assert as_rows(tmp_path, "y").y.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_types_that_differ_between_files(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2], "y": [1, 2]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"y": [0.5], "a": [0.25], "more": ["x"]}), tmp_path / "2.parquet")
    rows = as_rows(tmp_path, "y", feature_names=["a"])
    assert rows.X.tolist() == [[1], [2], [0.25]] and rows.y.tolist() == [1, 2, 0.5]


def test_a_file_that_lacks_a_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1.0], "b": [1.0], "y": [1.0]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [1.0], "y": [1.0]}), tmp_path / "2.parquet")
    with pytest.raises(
        ValueError, match=r"2\.parquet' lacks the columns 'b', which other files of the folder have"
    ):
        as_rows(tmp_path, "y")


def test_columns_in_the_names_of_folders(tmp_path: Path) -> None:
    for year in (2019, 2020):
        (tmp_path / f"year={year}").mkdir()
        pq.write_table(
            pa.table({"a": [1.0, 2.0], "y": [year / 2, 0.0]}),
            tmp_path / f"year={year}" / "p.parquet",
        )
    rows = as_rows(tmp_path, "y")
    assert rows.feature_names == ["a", "year"]
    assert rows.X.tolist() == [[1, 2019], [2, 2019], [1, 2020], [2, 2020]]
    # The same file alone has no such column: where it lies does not matter.
    assert as_rows(tmp_path / "year=2019" / "p.parquet", "y").feature_names == ["a"]


@pytest.mark.parametrize(
    "name",
    ["_temporary/0/1.parquet", "_delta_log/0.checkpoint.parquet", "._1.parquet", ".staging/1.pq"],
)
def test_hidden_files_of_a_folder_are_no_part_of_its_table(tmp_path: Path, name: str) -> None:
    """What a job that had failed left in the folder was read as rows, beside those of its second try."""
    columns = pa.table({"a": [1.0, 2.0], "y": [3.0, 4.0]})
    hidden = tmp_path / ".rides" / name
    hidden.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(columns, hidden)
    with pytest.raises(ValueError, match=r"no \.parquet files but '.*', which are hidden\."):
        as_rows(tmp_path / ".rides", "y")
    (tmp_path / ".rides" / "_key=5").mkdir()
    pq.write_table(columns, tmp_path / ".rides" / "_key=5" / "1.parquet")
    rows = as_rows(tmp_path / ".rides", "y")
    assert rows.feature_names == ["a", "_key"]
    np.testing.assert_array_equal(rows.X, [[1.0, 5.0], [2.0, 5.0]])


def test_an_empty_folder_and_other_files(tmp_path: Path) -> None:
    (tmp_path / "d.json").write_text("{}")
    with pytest.raises(ValueError, match=r"has no \.parquet files\. Expected \.npy, \.npz, \.csv"):
        as_rows(tmp_path, "y")
    with pytest.raises(
        ValueError, match=r"d\.json' has no known format \(suffix '\.json'\)\. Expected \.npy"
    ):
        as_rows(tmp_path / "d.json", "y")


def test_a_parquet_file_cut_off_anywhere_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    pq.write_table(pa.table({"a": np.arange(50.0), "y": np.arange(50.0)}), path)
    content = path.read_bytes()
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"d\.parquet' cannot be read: .*cut off"):
            as_rows(path, "y")


@pytest.mark.parametrize(
    ("start", "stop"), [(4, 24), (2000, 2001)], ids=["header of a page", "one byte of a value"]
)
def test_a_damaged_page_is_an_error(tmp_path: Path, start: int, stop: int) -> None:
    """Where the writer stored checksums (an option of the format) also when only values changed."""
    path = tmp_path / "d.parquet"
    table = pa.table({"a": np.random.default_rng(0).normal(size=5000), "y": np.arange(5000.0)})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)
    content = bytearray(path.read_bytes())
    for i in range(start, stop):
        content[i] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"d\.parquet' cannot be read"):
        as_rows(path, "y")


def test_names_with_dots(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a.b": [1.0], "a": [2.0], "y": [3.0]}), tmp_path / "d.parquet")
    assert as_rows(tmp_path / "d.parquet", "y").X.tolist() == [[1.0, 2.0]]


# ---------------------------------------------------------------- NumPy's formats


def test_npy_by_column_stays_a_map(tmp_path: Path) -> None:
    X = np.arange(12.0).reshape(4, 3)
    np.save(tmp_path / "X.npy", np.asfortranarray(X))
    rows = as_rows(tmp_path / "X.npy")
    assert not rows.in_memory
    np.testing.assert_array_equal(rows.take(np.array([2, 0]))[0], X[[2, 0]])


def test_a_npy_file_cut_off_anywhere_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "X.npy"
    np.save(path, np.arange(12.0).reshape(4, 3))
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(
            ValueError, match=r"X='.*X\.npy' is no array of numbers in NumPy's \.npy format"
        ):
            as_rows(path)


def test_a_npy_file_of_objects_is_not_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.array([[None]]), allow_pickle=True)
    with pytest.raises(ValueError, match="hold Python objects"):
        as_rows(tmp_path / "X.npy")
    np.savez(tmp_path / "d.npz", X=np.array([[None]]))
    for budget in (1e9, 1.0):
        with pytest.raises(ValueError, match=r"no \.npz file of numeric arrays: .*objects"):
            as_rows(tmp_path / "d.npz", memory_budget=budget)


def test_an_empty_npy_file(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.empty((0, 3)))
    with pytest.raises(ValueError, match=r"0 sample\(s\) \(shape=\(0, 3\)\)"):
        as_rows(tmp_path / "X.npy")


def test_npz_without_the_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x_train=np.ones((2, 2)), y_train=np.ones(2))
    with pytest.raises(
        ValueError,
        match=r"has no array X; it has 'x_train', 'y_train'\. Write numpy\.savez\(path, X=X",
    ):
        as_rows(tmp_path / "d.npz")
    np.savez(tmp_path / "e.npz", X=np.ones((2, 2)), y_train=np.ones(2))
    assert as_rows(tmp_path / "e.npz").y is None
    with pytest.raises(
        ValueError, match=r"y='y_trian' is not in .*e\.npz'\. Did you mean 'y_train'"
    ):
        as_rows(tmp_path / "e.npz", "y_trian")
    assert as_rows(tmp_path / "e.npz", "y_train").target_name == "y_train"


def test_only_what_is_asked_for_is_unpacked(tmp_path: Path) -> None:
    """The damaged array is not the one that is read."""
    np.savez_compressed(tmp_path / "d.npz", X=np.ones((2, 2)), huge=np.arange(10_000.0))
    with zipfile.ZipFile(tmp_path / "d.npz") as archive:
        start = archive.getinfo("huge.npy").header_offset + 60
    content = bytearray((tmp_path / "d.npz").read_bytes())
    content[start : start + 100] = bytes(100)
    (tmp_path / "d.npz").write_bytes(content)
    assert as_rows(tmp_path / "d.npz").X.tolist() == [[1, 1], [1, 1]]
    with pytest.raises(ValueError, match=r"is no \.npz file of numeric arrays"):
        open_npz(tmp_path / "d.npz", ["huge"])


def test_no_zip_at_all(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is no \.npz file: File is not a zip file"):
        as_rows(_text(tmp_path / "d.npz", "hello"))


# ---------------------------------------------------------------- no file


def test_missing_files_say_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "train.csv").touch()
    with pytest.raises(
        FileNotFoundError, match=r"X: no such file; in that folder there are 'train\.csv'"
    ):
        as_rows(tmp_path / "trian.csv", "y")
    with pytest.raises(FileNotFoundError, match="X: no such file; nothing like it is in"):
        as_rows(tmp_path / "trian.npy", "y")
    with pytest.raises(FileNotFoundError, match=r"the folder .*nowhere does not exist either"):
        as_rows(tmp_path / "nowhere" / "trian.npy", "y")
