"""What a process has of a table; `tests/system/test_processes.py` has several of them."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from several_processes import in_threads
from vastgp.data import (
    Rows,
    Standardizer,
    as_rows,
    minibatch,
    minibatch_indices,
    processes,
    without,
)
from vastgp.data.files import open_table_file
from vastgp.data.minibatch import SharedMinibatches
from vastgp.data.shared_rows import SharedArray, as_shared_labelled, as_shared_rows


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


def test_a_target_that_pandas_calls_by_a_number_is_no_input(monkeypatch):
    frame = pd.DataFrame(np.arange(24.0).reshape(8, 3))
    frame[3] = np.arange(8) % 2
    for rows, classes in in_threads(
        monkeypatch, 2, lambda number: as_shared_labelled(frame[4 * number : 4 * number + 4], 3)
    ):
        own = frame[rows.first : rows.first + 4]
        np.testing.assert_array_equal(rows.local.X, own[[0, 1, 2]])
        np.testing.assert_array_equal(classes[rows.local.y.astype(int)], own[3])


@pytest.mark.parametrize(
    "index",
    [np.arange(9) % 2 == 0, np.array([-1, 0, -9, 4]), np.array([], int), slice(None, None, -2)],
)
def test_rows_of_processes_and_rows_left_are_asked_for_as_those_of_an_array(monkeypatch, index):
    """A mask was read as the numbers 0 and 1, and a negative number as one of the rows of process 0."""
    X = np.arange(18.0).reshape(9, 2)
    ends = [0, 2, 9]

    def of_processes(number):
        own = SharedArray(X[ends[number] : ends[number + 1]], [2, 7])
        return own[index]

    for found in in_threads(monkeypatch, 2, of_processes):
        np.testing.assert_array_equal(found, X[index])
    left = without(Rows(np.repeat(X, 2, axis=0)), np.arange(9) * 2)
    np.testing.assert_array_equal(left.X[index], X[index])
    for wrong in (np.ones(8, bool), np.array([9]), np.array([-10])):
        with pytest.raises(IndexError, match=r"of shape \(8,\) for 9 rows|, of 9\."):
            left.X[wrong]


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("row", [3, processes.BLOCK_ROWS + 2])
def test_a_gap_in_the_file_of_an_array_is_told_by_its_row_to_all(
    monkeypatch, tmp_path, row, labels
):
    X = np.zeros((processes.BLOCK_ROWS + 5, 2))
    X[row, 1] = np.nan
    np.save(tmp_path / "X.npy", X)
    opened = as_shared_labelled if labels else as_shared_rows

    def of_file(number):
        return opened(tmp_path / "X.npy", np.arange(len(X)) % 2, min_rows=2)

    for error in in_threads(monkeypatch, 2, of_file):
        assert f"Input X contains NaN: at row {row}, column 1" in str(error)

    def of_parts(number):
        mapped, some = np.load(tmp_path / "X.npy", mmap_mode="r"), processes.part_of(len(X))
        return opened(mapped[some], np.arange(len(X))[some] % 2, min_rows=2)

    for error in in_threads(monkeypatch, 2, of_parts):
        assert f"Input X contains NaN: at row {row % processes.BLOCK_ROWS}, column 1" in str(error)


@pytest.mark.parametrize("counts", [(600,), (300, 300), (150, 150, 150, 150), (0, 599, 1)])
def test_parts_of_minibatches_make_the_whole_and_none_is_told(monkeypatch, counts):
    X = np.arange(600.0)[:, None]
    rows, ends = as_rows(X, -X[:, 0]), np.cumsum([0, *counts])
    scaling = Standardizer().fit(rows)
    scaled = scaling.transform_X(X)[:, 0]

    def begin(number):
        some = slice(ends[number], ends[number + 1])
        part = as_shared_rows(X[some], -X[some, 0], min_rows=2)
        return SharedMinibatches(part, scaling, 3, 60)

    made = in_threads(monkeypatch, len(counts), begin) if len(counts) > 1 else [begin(0)]
    # what is told from here on has nobody to hear it
    drawn = [each.draw(7, 5) for each in made]
    for t in range(5):
        found = np.concatenate([part.X[t, part.counts[t], 0] for part in drawn])
        whole = minibatch_indices(3, 7 + t, 600, 60)
        np.testing.assert_array_equal(np.sort(found), np.sort(scaled[whole]))
    for number, part in enumerate(drawn):
        assert part.X.shape[:2] == (5, made[0].size)
        np.testing.assert_array_equal(part.y[part.counts], -part.X[part.counts][:, 0])
        filling = np.unique(part.X[~part.counts])
        np.testing.assert_array_equal(filling, scaled[:1][: len(filling)])
        own = ends[number] + part.numbers[part.counts]
        np.testing.assert_array_equal(part.X[part.counts][:, 0], scaled[own])
    # one part in a million is larger
    largest = 60 * max(counts) / 600
    assert largest <= made[0].size <= min(60, largest + 5.0 * largest**0.5)


def test_parts_that_are_larger_than_planned_are_whole_minibatches(monkeypatch):
    """Planned so that a tenth of the parts are: in some chunks of steps there is one."""
    X = np.arange(600.0)[:, None]
    scaling = Standardizer().fit(as_rows(X, X[:, 0]))
    monkeypatch.setattr(minibatch, "_TOO_LARGE", 0.1)

    def drawn(number):
        some = slice(300 * number, 300 * (number + 1))
        shared = SharedMinibatches(as_shared_rows(X[some], X[some, 0], min_rows=2), scaling, 3, 60)
        return shared.size, [shared.draw(first, 3) for first in range(0, 60, 3)]

    (size, first), (_, second) = in_threads(monkeypatch, 2, drawn)
    for one, other in zip(first, second, strict=True):
        most = max(part.counts.sum(axis=1).max() for part in (one, other))
        assert one.X.shape == other.X.shape == (3, 60 if most > size else size, 1)
    assert len({part.X.shape for part in first}) == 2
