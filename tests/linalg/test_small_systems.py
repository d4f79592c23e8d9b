"""Many small systems on the host."""

import threading

import numpy as np
import pytest

from vastgp.linalg import small_systems
from vastgp.linalg.lapack_pointers import is_available
from vastgp.linalg.small_systems import solve_each_on_host


def systems(count, size, sides=2, seed=0):
    generator = np.random.default_rng(seed)
    root = generator.normal(size=(count, size, size + 3))
    K = root @ np.swapaxes(root, 1, 2) / size + 0.1 * np.eye(size)
    return K, generator.normal(size=(count, size, sides))


@pytest.mark.parametrize(("count", "size"), [(5, 1), (300, 8), (40, 65), (3, 300)])
def test_solutions_and_halves_are_those_of_each(count, size):
    K, right = systems(count, size)
    before = K.copy(), right.copy()
    np.testing.assert_allclose(K @ solve_each_on_host(K, right), right, atol=1e-9)
    lower = np.linalg.cholesky(K)
    half = solve_each_on_host(K, right, half=True)
    np.testing.assert_allclose(lower @ half, right, atol=1e-9)
    # squared norms of halves are what variances are made of
    solved = np.linalg.solve(K, right)
    np.testing.assert_allclose(np.sum(half**2, 1), np.einsum("nij,nij->nj", right, solved))
    for given, kept in zip((K, right), before, strict=True):
        np.testing.assert_array_equal(given, kept)


def test_an_indefinite_one_is_no_number_and_the_others_are_solved():
    K, right = systems(4, 30)
    K[1] = -K[1]
    K[3, 2, 2] = np.nan
    for half in (False, True):
        found = solve_each_on_host(K, right, half=half)
        assert np.all(np.isnan(found[[1, 3]])) and np.all(np.isfinite(found[[0, 2]]))


def test_cores_share_the_work_to_the_same_bits(monkeypatch):
    K, right = systems(600, 40)
    monkeypatch.setattr(small_systems, "cores", lambda: 1)
    alone = solve_each_on_host(K, right)
    monkeypatch.setattr(small_systems, "cores", lambda: 3)
    monkeypatch.setattr(small_systems, "_WORTH_A_THREAD", 1)
    np.testing.assert_array_equal(solve_each_on_host(K, right), alone)


def test_several_threads_ask_at_once():
    K, right = systems(200, 40)
    wanted, found = solve_each_on_host(K, right), [None] * 6

    def ask(number):
        found[number] = solve_each_on_host(K, right)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(found))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in found:
        np.testing.assert_array_equal(each, wanted)


def test_lapack_of_this_scipy_is_reached():
    assert is_available()
