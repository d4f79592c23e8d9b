"""How many threads linear algebra uses, and that they are given back."""

from functools import partial

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from vastgp.linalg.threads import _blas, blas_threads, one_blas_thread, own_threads
from vastgp.solvers.linear_model import line_of_few, of_average


@pytest.fixture
def threads():
    """Tell how many threads the libraries use; two, also where the suite has one in each of its processes."""
    ours = {library["filepath"] for library in _blas().info()}

    def told():
        # a library that another test loads later, for its own use, is not asked to hold back
        return {
            library["num_threads"]
            for library in threadpool_info()
            if library["user_api"] == "blas" and library["filepath"] in ours
        }

    with _blas().limit(limits=2, user_api="blas"):
        yield told


def test_threads_are_given_back(threads):
    assert threads() == {2}
    with blas_threads(100):
        assert threads() == {1}
    assert threads() == {2}
    with blas_threads(5000):
        assert threads() == {2}
    with one_blas_thread() as all_threads:
        with all_threads():
            assert threads() == {2}
        assert threads() == {1}
    assert threads() == {2}


@pytest.mark.parametrize("size", [(40, 60), (60, 5)])
def test_lines_of_few_rows_are_found_by_one_thread_whatever_their_inputs(
    threads, monkeypatch, size
):
    seen, known = [], {name: getattr(np.linalg, name) for name in ("qr", "eigh", "eigvalsh")}

    def watched(name, *given):
        seen.append(threads())
        return known[name](*given)

    for name in known:
        monkeypatch.setattr(np.linalg, name, partial(watched, name))
    X = np.random.default_rng(0).normal(size=size)
    found = line_of_few(X, X[:, 0], np.arange(len(X)))
    of_average(found, found.basis)
    assert seen and all(used == {1} for used in seen)
    assert threads() == {2}


def test_threads_are_given_back_by_the_last_that_needs_one(threads):
    """As two fits in threads do, of which the first ends first: one thread was left for the process."""
    first, second = one_blas_thread(), one_blas_thread()
    first.__enter__()
    all_threads = second.__enter__()
    with all_threads():
        assert threads() == {1}  # the first still needs it
    first.__exit__(None, None, None)
    assert threads() == {1}
    with blas_threads(100):
        assert threads() == {1}
    second.__exit__(None, None, None)
    assert threads() == {2}


def test_own_threads_are_no_more_than_those_of_blas_and_the_cores(threads, monkeypatch):
    monkeypatch.setattr("vastgp.linalg.threads.cores", lambda: 5)
    assert own_threads() == 2
    with one_blas_thread() as all_threads:
        assert own_threads() == 1
        with all_threads():
            assert own_threads() == 2
    monkeypatch.setattr("vastgp.linalg.threads.cores", lambda: 1)
    assert own_threads() == 1
