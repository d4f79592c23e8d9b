"""Which precision a system asks for."""

import numpy as np
import pytest
from scipy.linalg import eigh

from vastgp.kernels import RBF, Matern32
from vastgp.kernels.matrices import kernel_matrix
from vastgp.methods.iterative import kernel_system
from vastgp.methods.iterative.kernel_system import dtypes_of, rounding_of_entries
from vastgp.solvers.distinct_rows import DistinctRows


def rows(n, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 4, n)
    return DistinctRows(rng.normal(size=(n, 3)).astype(dtype), rng.normal(size=n), counts, 0.0)


def summed(kernel, X):
    """Return the matrix of a squared exponential by differences, in the precision of ``X``."""
    lengthscales = np.asarray(kernel.lengthscales, X.dtype)
    squares = np.sum(((X[:, None] - X[None]) / lengthscales) ** 2, axis=-1)
    return np.asarray(kernel.variance, X.dtype) * np.exp(-0.5 * squares)


def test_rounding_of_entries_is_the_largest_generalised_eigenvalue():
    kernel, observed, noise = RBF([1.0, 2.0, 2.0], 1.5), rows(60), 1e-5
    scale = np.sqrt(observed.counts)
    outer = scale * scale[:, None]
    narrow = np.asarray(kernel_matrix(kernel, observed.X, observed.X))
    assert narrow.dtype == np.float32
    rounded = RBF(np.float32(kernel.lengthscales), np.float32(kernel.variance))
    exact = summed(rounded, observed.X.astype(np.float64))
    error = (narrow - exact) * outer
    np.fill_diagonal(error, 0.0)
    expected = np.max(np.abs(eigh(error, exact * outer + noise * np.eye(60), eigvals_only=True)))
    assert rounding_of_entries(kernel, noise, observed, 0) == pytest.approx(expected, rel=1e-2)
    assert expected > 1e-4


def test_some_rows_tell_of_all(monkeypatch):
    # a smooth kernel: on a quarter of the rows with a quarter of the noise the same share is lost
    kernel, observed = RBF([0.5, 4.0, 4.0], 10.0), rows(1000)
    every = rounding_of_entries(kernel, 1e-4, observed, 0)
    monkeypatch.setattr(kernel_system, "_MEASURED_ROWS", 250)
    some = [rounding_of_entries(kernel, 1e-4, observed, seed) for seed in range(3)]
    assert 0.3 * every < np.median(some) < 3.0 * every


@pytest.mark.parametrize(
    ("kernel", "noise", "dtype", "expected"),
    [
        (RBF([2.0, 2.0, 2.0], 1.0), 0.5, np.float32, ("float32", "float32")),
        (Matern32([2.0, 2.0, 2.0], 10.0), 1e-4, np.float32, ("float64", "float32")),
        (RBF([9.0, 9.0, 9.0], 10.0), 1e-7, np.float32, ("float64", "float64")),
        (RBF([2.0, 2.0, 2.0], 1.0), 0.1, np.float64, ("float64", "float64")),
    ],
)
def test_the_precision_of_vectors_and_entries(kernel, noise, dtype, expected):
    assert dtypes_of(kernel, noise, rows(400, dtype), 0) == expected
