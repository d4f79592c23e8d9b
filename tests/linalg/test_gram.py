"""The product of a matrix with itself by blocks: NumPy's, and the same bits by any number of threads."""

import numpy as np
import pytest

from vastgp.linalg import gram as module
from vastgp.linalg.gram import gram


@pytest.mark.parametrize(("block", "worth"), [(1, 2e8), (3, 2e8), (7, 2e8), (512, 2e8), (512, 0)])
@pytest.mark.parametrize("layout", ["C", "F", "reversed"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_it_is_the_product(block, worth, layout, dtype, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", block)
    monkeypatch.setattr(module, "_WORTH_TWO", worth)
    A = np.random.default_rng(0).normal(size=(20, 8)).astype(dtype)
    A = np.asarray(A, order=layout) if layout != "reversed" else A[::-1, ::-1]
    found = gram(A)
    assert found.dtype == dtype
    np.testing.assert_allclose(
        found, A.astype("float64").T @ A, atol=1e-4 if dtype == "float32" else 1e-12
    )
    np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize(("rows", "columns"), [(0, 3), (4, 0), (1, 1)])
def test_of_nothing(rows, columns):
    np.testing.assert_array_equal(gram(np.full((rows, columns), 2.0)), 4.0 * rows * np.ones([columns] * 2))  # fmt: skip


def test_any_number_of_threads_finds_the_same_bits(monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", 100)
    A = np.random.default_rng(1).normal(size=(150, 730))
    found = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(module, "own_threads", lambda threads=threads: threads)
        found.append(gram(A))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
