"""Factor, inverse and solutions by tiles: those of LAPACK, and the same bits by any number of threads."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.linalg import lapack

from vastgp.linalg import cholesky, lapack_pointers, tiled_factor
from vastgp.linalg.cholesky import factorize
from vastgp.linalg.threads import _blas, own_threads
from vastgp.linalg.tiled_factor import (
    diagonal_of_inverse,
    factorize_in_place,
    invert_in_place,
    solve_in_place,
)

BLOCK, MANY = tiled_factor._BLOCK, tiled_factor._MANY_ROWS


def covariance(n, seed=0):
    """Return a matrix with eigenvalues from 0.01 to some n, and rubbish above its diagonal."""
    X = np.random.default_rng(seed).normal(size=(n, 3))
    A = np.exp(-0.5 * np.sum((X[:, None] - X) ** 2, axis=-1)) + 0.01 * np.eye(n)
    return np.asfortranarray(np.tril(A) + np.triu(np.full((n, n), 7.0), 1))


@pytest.fixture
def threads(monkeypatch):
    """Set how many threads of our own there are, whatever the machine and the suite's processes have."""

    def use(number, least_rows=1):
        monkeypatch.setattr(tiled_factor, "own_threads", lambda: number)
        monkeypatch.setattr(tiled_factor, "_LEAST_ROWS_OF_TWO", least_rows)

    return use


@pytest.mark.parametrize("n", [1, 2, 50, BLOCK - 1, BLOCK, BLOCK + 1, 333, 700, MANY + 5])
def test_they_are_those_of_lapack_and_nothing_above_the_diagonal_is_touched(n, threads):
    threads(2)
    A = covariance(n)
    right = np.asfortranarray(np.random.default_rng(1).normal(size=(n, 300 if n < MANY else 3)))
    factor, _ = lapack.dpotrf(A, lower=1)
    inverse, _ = lapack.dpotri(factor, lower=1)
    found = A.copy(order="F")
    assert factorize_in_place(found)
    np.testing.assert_allclose(np.tril(found), np.tril(factor), atol=1e-11)
    for half in (True, False):
        solution = right.copy(order="F")
        solve_in_place(found, solution, half=half)
        solve = lapack.dtrtrs if half else lapack.dpotrs
        np.testing.assert_allclose(solution, solve(factor, right, lower=1)[0], atol=1e-9)
    np.testing.assert_allclose(diagonal_of_inverse(found), np.diagonal(inverse), atol=1e-9)
    invert_in_place(found)
    np.testing.assert_allclose(np.tril(found), np.tril(inverse), atol=1e-9)
    np.testing.assert_array_equal(np.triu(found, 1), np.triu(A, 1))


@pytest.mark.parametrize("block", [BLOCK, 48])
def test_any_number_of_threads_finds_the_same_bits(threads, monkeypatch, block):
    """A fit that is resumed on a machine with other cores goes on as it would have."""
    monkeypatch.setattr(tiled_factor, "_BLOCK", block)
    monkeypatch.setattr(tiled_factor, "_PART", 40)
    A = covariance(600)
    right = np.asfortranarray(np.random.default_rng(2).normal(size=(600, 500)))
    found = []
    for number in (1, 2, 5):
        threads(number)
        lower, solution = A.copy(order="F"), right.copy(order="F")
        assert factorize_in_place(lower)
        factor = lower.copy()
        solve_in_place(lower, solution, half=False)
        diagonal = diagonal_of_inverse(lower)
        np.testing.assert_array_equal(lower, factor)
        invert_in_place(lower)
        found.append((factor, solution, diagonal, lower))
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


def test_each_works_by_one_thread_of_blas_and_as_many_as_that_may_have_are_at_work(monkeypatch):
    """Threads of OpenBLAS that wait for each other spin: two fits on two cores took five times as long."""
    seen = set()
    routine = tiled_factor.routine

    def watched(name, arguments):
        called = routine(name, arguments)

        def call(*given):
            of_blas = {each.get_num_threads() for each in _blas().lib_controllers}
            seen.add((threading.get_ident(), *of_blas))
            called(*given)

        return call

    monkeypatch.setattr(tiled_factor, "routine", watched)
    monkeypatch.setattr("vastgp.linalg.threads.cores", lambda: 3)
    for allowed in (1, 2):
        seen.clear()
        with _blas().limit(limits=allowed, user_api="blas"):
            assert own_threads() == allowed
            lower = covariance(1500)
            assert factorize_in_place(lower)
            invert_in_place(lower)
            assert {each.get_num_threads() for each in _blas().lib_controllers} == {allowed}
        assert {of_blas for _, of_blas in seen} == {1}
        assert 1 <= len({thread for thread, _ in seen}) <= 2 * allowed - 1


def test_where_no_thread_can_be_started_this_one_does_all_of_it(threads, monkeypatch):
    """As within a limit of memory, of which each thread's stack takes some."""

    class Full(ThreadPoolExecutor):
        def _adjust_thread_count(self):
            raise RuntimeError("can't start new thread")

    A, found = covariance(300), []
    for pool in (ThreadPoolExecutor, Full):
        threads(3)
        monkeypatch.setattr("vastgp.linalg.threads.ThreadPoolExecutor", pool)
        lower = A.copy(order="F")
        assert factorize_in_place(lower)
        invert_in_place(lower)
        found.append(lower)
    np.testing.assert_array_equal(*found)


def test_a_pivot_that_is_not_positive_is_told_wherever_it_is():
    for place in (0, BLOCK + 3, 399):
        A = covariance(400)
        A[place, place] = -1.0
        assert not factorize_in_place(A)
    # NaN passes to the end, wherever it is
    for place in ((3, 1), (399, 398), (200, 200)):
        A = covariance(400)
        A[place] = np.nan
        if factorize_in_place(A):
            assert np.isnan(A[-1, -1])


def test_a_library_with_other_integers_is_called_by_scipy(monkeypatch):
    A = covariance(200)
    A = np.tril(A) + np.tril(A, -1).T
    right = np.random.default_rng(3).normal(size=200)

    def all_of_it():
        factor = factorize(A)
        found = [np.tril(factor.lower), factor.solve(right), factor.half_solve(right)]
        return [*found, np.tril(factor.into_inverse())]

    ours = all_of_it()
    monkeypatch.setattr(lapack_pointers, "is_available", lambda: False)
    monkeypatch.setattr(cholesky, "factorize_in_place", None)
    for one, other in zip(ours, all_of_it(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10)
