"""Nearest neighbours: by brute force, approximate with the recall that is stated, kept in memory or on disk."""

import importlib

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from vastgp.data import neighbours
from vastgp.data.neighbours import (
    NeighbourIndex,
    NeighbourTable,
    nearest_predecessors,
    overlap,
)
from vastgp.data.ranked_neighbours import RankedIndex


def brute(X, Z, scales, count):
    return np.argsort(cdist(X / scales, Z / scales), axis=1, kind="stable")[:, :count]


@pytest.mark.parametrize(("size", "width"), [(400, 3), (400, 8), (150, 8), (400, 12)])
def test_an_exact_index_finds_what_all_distances_find(size, width):
    """A tree, one in many dimensions, and all distances."""
    rng = np.random.default_rng(0)
    Z, X, scales = (
        rng.normal(size=(size, width)),
        rng.normal(size=(50, width)),
        np.geomspace(0.1, 9, width),
    )
    index = NeighbourIndex(Z, scales, "exact")
    assert index.recall == 1.0
    np.testing.assert_array_equal(index.query(X, 7), brute(X, Z, scales, 7))


def test_an_approximate_index_has_the_recall_that_it_states():
    rng = np.random.default_rng(1)
    Z, X = rng.normal(size=(4000, 8)), rng.normal(size=(300, 8))
    scales = np.geomspace(0.5, 2, 8)
    index = NeighbourIndex(Z, scales, "approximate")
    assert 0.98 <= index.recall <= 1.0
    found = overlap(brute(X, Z, scales, 64), index.query(X, 64))
    assert abs(found - index.recall) < 0.02


def test_without_faiss_the_extra_is_named(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ImportError, match=r"pip install 'vastgp\[neighbors\]'"):
        NeighbourIndex(np.zeros((10, 2)), np.ones(2), "approximate")


def test_predecessors_come_before_and_are_nearest(monkeypatch):
    rng = np.random.default_rng(2)
    Z, scales = rng.normal(size=(90, 2)), np.array([0.5, 2.0])
    found = nearest_predecessors(Z, scales, 4)
    assert np.all(found[0] == -1) and np.all(found[2, :2] >= 0) and np.all(found[2, 2:] == -1)
    distance = cdist(Z / scales, Z / scales)
    for j in range(4, 90):
        np.testing.assert_array_equal(found[j], np.argsort(distance[j, :j], kind="stable")[:4])


def test_of_many_points_blocks_choose_among_those_before_the_block():
    Z = np.random.default_rng(3).normal(size=(3000, 2))
    found = nearest_predecessors(Z, np.ones(2), 3)
    assert np.all(found < np.arange(3000)[:, None])
    distance = cdist(Z[2600:], Z)
    np.testing.assert_array_equal(found[2600:], np.argsort(distance[:, :2560], axis=1)[:, :3])


@pytest.mark.parametrize("budget", [1e9, 100])
def test_a_table_asks_once_for_each_row(budget):
    rng = np.random.default_rng(4)
    Z, X = rng.normal(size=(60, 2)), rng.normal(size=(200, 2))
    index = NeighbourIndex(Z, np.ones(2))
    table = NeighbourTable(200, 5, budget)
    assert table.on_disk == (budget == 100)
    rows = rng.integers(0, 200, 80)
    first = table.lookup(rows, X[rows], index)
    np.testing.assert_array_equal(first, brute(X[rows], Z, 1.0, 5))
    assert np.count_nonzero(table._known) == len(np.unique(rows))
    # inputs of known rows are not looked at again
    np.testing.assert_array_equal(table.lookup(rows, 0.0 * X[rows], index), first)
    table.forget()
    assert np.count_nonzero(table._known) == 0


def test_a_full_disk_is_told(monkeypatch):
    def full(descriptor, size):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(neighbours, "_reserve", full)
    with pytest.raises(OSError, match=r"the table of neighbours takes 4,000 bytes"):
        NeighbourTable(100, 10, memory_budget=10)


def test_distances_of_many_rows_are_those_of_each_to_the_last_bit():
    rng = np.random.default_rng(6)
    points, X = rng.normal(size=(200, 7)), rng.normal(size=(60, 7))
    index = RankedIndex(points, np.linspace(0.5, 2.0, 7))
    distance, found = index.ranked(X, 5)  # more pairs than points
    for k in range(len(X)):
        alone = index.ranked(X[k : k + 1], 5)
        np.testing.assert_array_equal(alone[0][0], distance[k])
        np.testing.assert_array_equal(alone[1][0], found[k])
    expected = np.sort(cdist(X / index._scales, points / index._scales, "sqeuclidean"))[:, :5]
    np.testing.assert_allclose(distance, expected, rtol=1e-12)
