"""Held-out rows and the rest: a partition, at random, that needs no memory for all rows."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vastgp.data import Rows, held_out_indices, minibatch_indices, without


def test_size_and_cap() -> None:
    assert held_out_indices(1000, 0.1, 0).size == 100
    assert held_out_indices(10**10, 0.1, 0).size == 10_000
    assert held_out_indices(10**6, 0.1, 0, max_rows=None).size == 100_000
    assert held_out_indices(3, 0.01, 0).size == 1  # at least one held out
    assert held_out_indices(2, 0.99, 0).size == 1  # at least one left


def test_sorted_distinct_and_of_the_seed() -> None:
    a = held_out_indices(5000, 0.2, 3)
    assert np.all(np.diff(a) > 0) and a[0] >= 0 and a[-1] < 5000
    np.testing.assert_array_equal(a, held_out_indices(5000, 0.2, 3))
    assert (
        np.intersect1d(a, held_out_indices(5000, 0.2, 4)).size < 300
    )  # 200 expected of independent ones
    assert not np.array_equal(a, np.sort(minibatch_indices(3, 0, 5000, 1000)))


def test_every_row_is_held_out_equally_often() -> None:
    """2,000 seeds; n = 40, a quarter held out."""
    counts = np.zeros(40)
    for seed in range(2000):
        counts[held_out_indices(40, 0.25, seed)] += 1
    # Variance of a count: S p (1 - p); of their sum: none.
    statistic = np.sum((counts - 500) ** 2) / (2000 * 0.25 * 0.75) * 39 / 40
    assert 1e-4 < stats.chi2.sf(statistic, 39) < 1 - 1e-4


def test_rows_of_one_group_are_held_out_together_and_large_groups_last() -> None:
    """3,000 rows: one group of 1,000, 20 of 25, and 1,500 rows alone; a twentieth held out."""
    groups = np.r_[np.zeros(1000, int), np.repeat(np.arange(1, 21), 25), np.arange(21, 1521)]
    groups = np.random.default_rng(0).permutation(groups)
    counts = np.zeros(1521)
    for seed in range(500):
        held_out = held_out_indices(3000, 0.05, seed, groups=groups)
        assert np.all(np.diff(held_out) > 0)
        assert not np.intersect1d(groups[held_out], np.delete(groups, held_out)).size
        assert 125 < held_out.size <= 150
        counts[np.unique(groups[held_out])] += 1
    assert counts[0] == 0
    # whatever their size, the other groups are held out equally often: a share p of them each time, 4 standard errors
    share = counts[1:].mean() / 500
    error = np.sqrt(share * (1 - share) / (500 * 20))
    assert abs(counts[1:21].mean() / 500 - share) < 4 * error
    # where all are large, one of them
    assert held_out_indices(3000, 0.05, 0, groups=np.repeat(np.arange(10), 300)).size == 300


def test_memory_is_that_of_the_held_out_rows() -> None:
    held_out_indices(10**9, 0.5, 0)
    tracemalloc.start()
    held_out_indices(10**9, 0.5, 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200 * 10_000


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_bad_fraction(fraction: float) -> None:
    with pytest.raises(ValueError, match="Expected a number between 0 and 1"):
        held_out_indices(10, fraction, 0)


def test_too_few_rows() -> None:
    with pytest.raises(ValueError, match="n=1: a held-out part needs at least two rows"):
        held_out_indices(1, 0.5, 0)


@settings(max_examples=100, deadline=None)
@given(n=st.integers(2, 60), data=st.data())
def test_the_rest_is_what_deleting_gives(n: int, data) -> None:
    held = data.draw(st.lists(st.integers(0, n - 1), unique=True, max_size=n - 1))
    X = np.arange(2.0 * n).reshape(n, 2)
    rest = without(Rows(X, X[:, 0] * 10), np.array(held, dtype=np.int64))
    expected = np.delete(X, held, axis=0)
    assert (rest.n, rest.d) == expected.shape
    np.testing.assert_array_equal(np.asarray(rest.X), expected)
    for batch_rows in (1, 3, n):
        X_parts, y_parts = zip(*rest.batches(batch_rows), strict=True)
        np.testing.assert_array_equal(np.concatenate(X_parts), expected)
        np.testing.assert_array_equal(np.concatenate(y_parts), expected[:, 0] * 10)
    k = np.array(data.draw(st.lists(st.integers(0, rest.n - 1), max_size=20)), dtype=np.int64)
    X_k, y_k = rest.take(k)
    np.testing.assert_array_equal(X_k, expected[k])
    np.testing.assert_array_equal(y_k, expected[k, 0] * 10)
    start, stop = sorted(data.draw(st.tuples(st.integers(-n, n), st.integers(-n, n))))
    step = data.draw(st.sampled_from([1, 2, 3]))
    np.testing.assert_array_equal(rest.X[start:stop:step], expected[start:stop:step])


def test_the_rest_of_a_memory_map_copies_nothing(tmp_path: Path) -> None:
    X = np.lib.format.open_memmap(
        tmp_path / "X.npy", mode="w+", dtype=np.float64, shape=(500_000, 4)
    )
    X[:, 0] = np.arange(500_000)
    tracemalloc.start()
    rest = without(Rows(X), held_out_indices(500_000, 0.5, 0))
    taken, _ = rest.take(np.array([0, 400_000]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not rest.in_memory
    assert peak < 2_000_000  # the array has 16 MB
    assert taken[1, 0] == np.delete(np.arange(500_000), held_out_indices(500_000, 0.5, 0))[400_000]


def test_held_out_rows_must_be_rows_and_not_all() -> None:
    rows = Rows(np.ones((3, 1)))
    with pytest.raises(IndexError, match="held_out runs from 1 to 3, but rows are numbered 0 to 2"):
        without(rows, np.array([1, 3]))
    with pytest.raises(ValueError, match="All 3 rows are held out"):
        without(rows, np.array([0, 1, 2]))
    with pytest.raises(IndexError, match="of 2"):
        without(rows, np.array([1])).X[np.array([2])]


def test_a_bad_value_is_reported_with_its_row_in_the_whole(tmp_path: Path) -> None:
    X = np.zeros((50, 2))
    X[20, 1] = np.nan
    np.save(tmp_path / "X.npy", X)
    whole = Rows(np.load(tmp_path / "X.npy", mmap_mode="r"))
    part = without(without(whole, np.arange(0, 10)), np.arange(0, 5))  # rows 15 to 49
    with pytest.raises(ValueError, match="NaN: at row 20, column 1"):
        list(part.batches(4))
    with pytest.raises(ValueError, match="NaN: at row 20, column 1"):
        part.take(np.array([7, 5]))
    assert part.take(np.array([4, 6]))[0].shape == (2, 2)
