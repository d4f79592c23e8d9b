"""Reading rows in order and at random, from memory and from disk, gives the stored values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vastgp.data import Rows


def _stored(tmp_path: Path, X: np.ndarray, order: str) -> np.memmap:
    np.save(tmp_path / "X.npy", np.asarray(X, order=order))
    return np.load(tmp_path / "X.npy", mmap_mode="r")


@pytest.fixture(params=["memory", "memory, by column", "map", "map, by column", "view of a map"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Rows, np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(97, 3)).astype(np.float32)
    y = np.arange(97)
    if request.param == "memory":
        stored = X.copy()
    elif request.param == "memory, by column":
        stored = np.asfortranarray(X)
    elif request.param == "view of a map":
        stored = np.asarray(_stored(tmp_path, np.hstack([X, X]), "C"))[:, :3]
    else:
        stored = _stored(tmp_path, X, "F" if "column" in request.param else "C")
    rows = Rows(stored, y)
    assert rows.in_memory == ("map" not in request.param)
    return rows, X.astype(np.float64), y.astype(np.float64)


@pytest.mark.parametrize("batch_rows", [1, 10, 97, 1000])
def test_batches_are_all_rows_in_order(
    both: tuple[Rows, np.ndarray, np.ndarray], batch_rows: int
) -> None:
    rows, X, y = both
    blocks = list(rows.batches(batch_rows))
    assert [len(block[0]) for block in blocks[:-1]] == [batch_rows] * (len(blocks) - 1)
    np.testing.assert_array_equal(np.concatenate([block[0] for block in blocks]), X)
    np.testing.assert_array_equal(np.concatenate([block[1] for block in blocks]), y)
    assert all(block[0].dtype == block[1].dtype == np.float64 for block in blocks)
    assert all(block[0].flags.c_contiguous for block in blocks)


@pytest.mark.parametrize("indices", [[], [5], [96, 0, 50], [3, 3, 3, 1], list(range(96, -1, -1))])
def test_take_keeps_the_order_asked_for(
    both: tuple[Rows, np.ndarray, np.ndarray], indices: list[int]
) -> None:
    rows, X, y = both
    taken = rows.take(np.array(indices, dtype=np.int64))
    np.testing.assert_array_equal(taken[0], X[indices].reshape(-1, 3))
    np.testing.assert_array_equal(taken[1], y[indices])
    assert taken[0].flags.c_contiguous and taken[0].dtype == np.float64


@settings(max_examples=50, deadline=None)
@given(indices=st.lists(st.integers(0, 39), max_size=200))
def test_take_from_a_map_equals_take_from_memory(
    tmp_path_factory: pytest.TempPathFactory, indices: list[int]
) -> None:
    X = np.arange(80.0).reshape(40, 2)
    mapped = Rows(_stored(tmp_path_factory.mktemp("rows"), X, "C"), X[:, 1])
    for part, expected in zip(
        mapped.take(np.array(indices, dtype=np.int64)), (X, X[:, 1]), strict=True
    ):
        np.testing.assert_array_equal(part, expected[np.array(indices, dtype=np.int64)])


def test_a_map_is_read_in_the_order_of_the_file(tmp_path: Path) -> None:
    """What reaches the array is sorted, so that each page is touched once."""

    class Recorder(np.ndarray):
        asked: list[np.ndarray] = []  # noqa: RUF012

        def __getitem__(self, index):
            Recorder.asked.append(index)
            return np.asarray(self.view(np.ndarray)[index])

    rows = Rows(_stored(tmp_path, np.arange(10.0)[:, None], "C"))
    rows.X = rows.X.view(Recorder)
    X, _ = rows.take(np.array([7, 2, 9, 2]))
    assert X[:, 0].tolist() == [7, 2, 9, 2]
    assert Recorder.asked[0].tolist() == [2, 2, 7, 9]


def test_blocks_that_are_the_stored_values_cannot_be_written_to() -> None:
    X = np.ones((4, 2))
    block, _ = next(Rows(X).batches(2))
    assert np.shares_memory(block, X)
    with pytest.raises(ValueError, match="read-only"):
        block[0, 0] = 5.0
    taken, _ = Rows(X).take(np.array([1]))
    taken[0, 0] = 5.0
    assert X.min() == X.max() == 1.0 and X.flags.writeable


class TestNotFinite:
    """A map is checked as it is read, naming the row of the whole data set."""

    @pytest.fixture
    def rows(self, tmp_path: Path) -> Rows:
        X = np.zeros((100, 3))
        X[57, 1] = np.nan
        X[90, 2] = -np.inf
        return Rows(_stored(tmp_path, X, "C"), np.zeros(100), feature_names=["a", "b", "c"])

    def test_in_order(self, rows: Rows) -> None:
        with pytest.raises(
            ValueError, match=r"Input X contains NaN: at row 57, column 'b'\. Drop these rows"
        ):
            list(rows.batches(10))

    def test_at_random(self, rows: Rows) -> None:
        rows.take(np.array([3, 91, 56]))
        with pytest.raises(ValueError, match="NaN: at row 57, column 'b'"):
            rows.take(np.array([99, 57, 1]))
        with pytest.raises(
            ValueError, match=r"infinity or a value too large .*: at row 90, column 'c'"
        ):
            rows.take(np.array([99, 90, 1]))

    def test_in_the_target(self, rows: Rows) -> None:
        y = np.zeros(100)
        y[[4, 6]] = np.nan
        with pytest.raises(
            ValueError,
            match=r"Input y contains NaN: at row 4 \(and 1 more in the 10 rows read with it",
        ):
            list(Rows(np.zeros((100, 1)), y).batches(10))

    def test_integers_have_no_nan_and_sums_may_overflow(self) -> None:
        assert len(list(Rows(np.full((4, 2), np.iinfo(np.int64).max)).batches(2))) == 2
        huge = np.full((4, 2), 1.5e308)  # finite, though its sum is not
        np.testing.assert_array_equal(next(Rows(huge).batches(4))[0], huge)


def test_bad_indices() -> None:
    rows = Rows(np.zeros((3, 1)))
    for indices in ([-1, 0], [0, 3]):
        with pytest.raises(IndexError, match="rows are numbered 0 to 2"):
            rows.take(np.array(indices))
    with pytest.raises(ValueError, match=r"numpy\.flatnonzero"):
        rows.take(np.array([True, False, True]))
    with pytest.raises(ValueError, match="batch_rows is 0"):
        next(rows.batches(0))
