"""What a process has of a table; `tests/system/test_processes.py` has several of them."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from several_processes import in_threads
from vastgp.data import as_rows, processes
from vastgp.data.files import open_table_file
from vastgp.data.shared_rows import as_shared_labelled


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    start = 0
    for number, n in enumerate((50, 1, 33)):
        values = np.arange(start, start + n, dtype=float)
        start += n
        pq.write_table(
            pa.table({"a": values, "y": -values}), folder / f"{number}.parquet", row_group_size=9
        )
    return folder


@pytest.mark.parametrize(
    "some", [slice(0, 84), slice(7, 9), slice(9, 60), slice(50, 51), slice(80, 84)]
)
def test_a_part_of_parquet_files_is_those_rows(folder, some):
    rows = as_rows(open_table_file(folder).part(some), "y")
    expected = np.arange(some.start, some.stop)
    np.testing.assert_array_equal(rows.X[:, 0], expected)
    np.testing.assert_array_equal(rows.y, -expected)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("n", [1, 16_384, 50_000, 1_000_000])
def test_shares_are_whole_blocks_and_make_the_whole(monkeypatch, n, count):
    monkeypatch.setattr(processes, "count", lambda: count)
    end = 0
    for number in range(count):
        monkeypatch.setattr(processes, "number", lambda number=number: number)
        some = processes.part_of(n)
        assert some.start == end and (some.stop == n or some.stop % processes.BLOCK_ROWS == 0)
        end = some.stop
    assert end == n


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labelled")
    n = processes.BLOCK_ROWS + 5
    colours = np.array(["red", "green", "blue"])[np.arange(n) % 3]
    colours[: processes.BLOCK_ROWS] = np.where(colours[:-5] == "blue", "red", colours[:-5])
    table = pa.table({"a": np.arange(n, dtype=float), "colour": colours})
    pq.write_table(table, folder / "rows.parquet")
    pa.csv.write_csv(table, folder / "rows.csv")
    return folder, colours


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv"])
def test_classes_are_those_of_all_processes(monkeypatch, labelled, name):
    folder, colours = labelled
    # the third class is in the last rows alone
    assert set(colours[: processes.BLOCK_ROWS]) < set(colours)
    found = in_threads(
        monkeypatch, 2, lambda number: as_shared_labelled(folder / name, "colour", min_rows=2)
    )
    for number, (rows, classes) in enumerate(found):
        assert classes.tolist() == ["blue", "green", "red"] and rows.n == len(colours)
        assert rows.local.n == (processes.BLOCK_ROWS, 5)[number] and rows.target_name == "colour"
        some = slice(rows.first, rows.first + rows.local.n)
        numbers = np.asarray(rows.local.y, np.int64)
        np.testing.assert_array_equal(classes[numbers], colours[some])
        np.testing.assert_array_equal(np.ravel(rows.local.X), np.arange(len(colours))[some])


def test_labels_of_several_types_or_of_one_class_are_refused_by_all(monkeypatch):
    X = np.zeros((4, 1))

    def mixed(number):
        return as_shared_labelled(X, np.array([0, 1, 0, 1]) if number else ["a", "b", "a", "b"])

    for error in in_threads(monkeypatch, 2, mixed):
        assert "text for labels in one process and numbers in another" in str(error)

    def alike(number):
        return as_shared_labelled(X, np.full(4, 3))

    for error in in_threads(monkeypatch, 2, alike):
        assert "one class only (3 in all 8 rows)" in str(error)
    # each has one class, and together they have two
    for rows, classes in in_threads(
        monkeypatch, 2, lambda number: as_shared_labelled(X, np.full(4, 3 + number))
    ):
        assert classes.tolist() == [3, 4] and rows.n == 8
