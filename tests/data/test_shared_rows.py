"""What a process has of a table; `tests/system/test_processes.py` has several of them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vastgp.data import as_rows, processes
from vastgp.data.files import open_table_file


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
