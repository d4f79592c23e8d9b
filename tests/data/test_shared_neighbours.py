"""Neighbours among points that processes have parts of: those of all distances, in one order, whoever has which."""

import numpy as np
import pytest

from several_processes import in_threads
from vastgp.data import joint_programs, shared_neighbours
from vastgp.data.ranked_neighbours import RankedIndex
from vastgp.data.shared_neighbours import SharedNeighbours

RNG = np.random.default_rng(0)
N = 600
SCALES = np.array([0.5, 2.0, 1.0])
PLACES = {
    "spread": RNG.normal(size=(N, 3)),
    # many points at one distance, and many at one place
    "on a lattice": RNG.integers(0, 6, size=(N, 3)).astype(float),
    "of few places": RNG.normal(size=(5, 3))[RNG.integers(0, 5, size=N)],
}
WIDE = np.concatenate([PLACES["spread"], RNG.normal(size=(N, 9))], axis=1)


def by_all_distances(X, Z, scales, count):
    """Squared distances and numbers; of equal distances the earlier first."""
    distance = np.zeros((len(X), len(Z)))
    for k, scale in enumerate(scales):
        distance += (Z[:, k] / scale - X[:, k, None] / scale) ** 2
    order = np.argsort(distance, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(distance, order, axis=1), order


@pytest.mark.parametrize("count", [1, 7, 200, N])
@pytest.mark.parametrize("name", [*PLACES, "in many inputs"])
def test_an_index_has_one_order(name, count):
    Z, scales = (WIDE, np.geomspace(0.5, 2.0, 12)) if name not in PLACES else (PLACES[name], SCALES)
    X = np.concatenate([Z[:20], RNG.normal(size=(10, Z.shape[1]))])
    found, expected = RankedIndex(Z, scales).ranked(X, count), by_all_distances(X, Z, scales, count)
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_array_equal(found[0], expected[0])


# parts of the points that processes have, and of the inputs that they ask for: some have none
ENDS = {
    2: ([0, 450, N], [0, 13, 70]),
    3: ([0, 0, 590, N], [0, 50, 50, 70]),
    4: ([0, 5, 300, 301, N], [0, 0, 0, 0, 70]),
}


@pytest.mark.parametrize("count", [1, 8, 64])
@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("of", ENDS)
def test_processes_find_the_nearest_of_all_in_tiles(monkeypatch, of, name, count):
    Z, (ends, asked) = PLACES[name], ENDS[of]
    X, values = (
        np.concatenate([Z[:40], RNG.normal(size=(30, 3))]),
        np.column_stack([Z, np.arange(N)]),
    )
    monkeypatch.setattr(shared_neighbours, "_MOST_ROWS", 16)

    def work(number):
        mine, mine_asked = slice(*ends[number : number + 2]), slice(*asked[number : number + 2])
        index = SharedNeighbours(Z[mine], values[mine], SCALES)
        assert index.size == N
        return list(index.near(X[mine_asked], count))

    longest = []
    with pytest.MonkeyPatch.context() as patch:
        passed_on = joint_programs.passed_on

        def noted(own):
            longest.append(len(own))
            return passed_on(own)

        patch.setattr(shared_neighbours, "passed_on", noted)
        found = in_threads(monkeypatch, of, work)
    _, expected = by_all_distances(X, Z, SCALES, count)
    for number, parts in enumerate(found):
        mine = np.arange(*asked[number : number + 2])
        for near in parts:
            np.testing.assert_array_equal(near.numbers, expected[mine[near.rows]])
            np.testing.assert_array_equal(near.values, values[near.numbers])
        assert sum(len(near.numbers) for near in parts) == len(mine)
    assert max(longest) == 16 and len(longest) % of**2 == 0  # each tile meets all, tile by tile


@pytest.mark.parametrize("method", ["exact", "approximate"])
def test_where_no_distances_are_equal_places_are_not_made(method):
    """A million rows are put in the order of their inputs for that, which takes as long as to index them."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(3000, 4))
    index = RankedIndex(Z, np.ones(4), method)
    index.query(rng.normal(size=(20, 4)), 5)
    assert "_places" not in vars(index)
    if method == "exact":
        index = RankedIndex(np.round(Z), np.ones(4), method)
        index.query(np.zeros((1, 4)), 5)
        assert "_places" in vars(index)
