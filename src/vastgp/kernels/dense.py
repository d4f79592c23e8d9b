"""Kernel matrices of few rows and their slopes in NumPy, where a compiled program would take longer than the work.

For stationary, linear and constant kernels with known hyperparameters, their sums and products. A program of a slope
takes 0.9 s to compile; here a matrix of 1000 rows and its slope take a fifth of its factorisation.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import cache, reduce
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from vastgp.kernels.base import Kernel, Product, Sum
from vastgp.kernels.linear import Constant, Linear
from vastgp.kernels.stationary import Stationary
from vastgp.linalg.leaves import from_vector
from vastgp.linalg.threads import blas_threads

# Numbers of a tile, which stays in a core's cache.
_TILE_ENTRIES = 1 << 16
# Beyond so many inputs the expanded form of distances is faster. It errs by 2e-16 of the rows' squares, of which a
# distance has this share at least; with more than this share of pairs that have less, it is not worth it.
_MOST_SUMMED, _ROUNDS, _MOST_ROUNDED = 24, 1e-5, 0.05
# Of more inputs than these the products of a tile are work for several threads.
_WIDE = 256
# Numbers of an array that is asked for and freed once, see `_keep_freed_memory`.
_LARGE = 1 << 20


def has_closed_form(kernel: Kernel) -> bool:
    """Whether the functions of this module take the kernel."""
    if isinstance(kernel, (Sum, Product)):
        return all(map(has_closed_form, kernel.parts))
    if isinstance(kernel, Stationary):
        return type(kernel).correlation_slope is not Stationary.correlation_slope
    return isinstance(kernel, (Constant, Linear))


# What overflows is for the factorisation to name.
_quiet = np.errstate(over="ignore", invalid="ignore")


@_quiet
def dense_matrix(kernel: Kernel, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """Return ``K(X, Z)`` in float64."""
    K = np.empty((len(X), len(Z)))
    rows = _rows_of_a_tile(Z)
    with _threads(Z):
        for start in range(0, len(X), rows):
            K[start : start + rows] = _matrix(kernel, X[start : start + rows], Z)
    return K


@_quiet
def dense_upper(kernel: Kernel, X: np.ndarray, out: np.ndarray) -> None:
    """Write what stands on and above the diagonal of ``K(X, X)`` in float64; what stands below is left as it is.

    In the memory of the factor: a matrix of its own is a quarter of the time of an evidence of 2000 rows, most of which
    is the memory that is asked for.
    """
    rows = _rows_of_a_tile(X)
    with _threads(X):
        for start in range(0, len(X), rows):
            out[start : start + rows, start:] = _matrix(kernel, X[start : start + rows], X[start:])


def dense_variances(kernel: Kernel, X: np.ndarray) -> np.ndarray:
    """Return ``k(x_i, x_i)`` of each row in float64."""
    if isinstance(kernel, (Sum, Product)):
        return _joined(kernel, (dense_variances(part, X) for part in kernel.parts))
    if isinstance(kernel, Linear):
        return np.sum(_for_inputs(kernel.slope_variances, X) * X**2, axis=1)
    return np.full(len(X), float(kernel.total_variance()))


@_quiet
def dense_slope(kernel: Kernel, X: np.ndarray, G: np.ndarray, w: np.ndarray) -> Kernel:
    """Return the gradient by the kernel of ``1/2 sum_ij (w w^T - G)_ij K(X, X)_ij``.

    Parameters
    ----------
    G : ndarray of shape (n, n)
        Symmetric; its upper triangle alone is read.
    """
    rows = _rows_of_a_tile(X)
    total: Any = 0.0
    with _threads(X):
        for start in range(0, len(X), rows):
            here = slice(start, start + rows)
            W = np.outer(w[here], w[start:]) - G[here, start:]
            # what stands above the diagonal stands for both places, and the diagonal for its half
            corner = W[:, : len(W)]
            corner[...] = np.triu(corner, 1) + np.diag(0.5 * np.diagonal(corner))
            total = total + np.concatenate(_slopes(kernel, X[here], X[start:], W))
    return from_vector(total, kernel)


@_quiet
def dense_cross_slope(kernel: Kernel, X: np.ndarray, Z: np.ndarray, W: np.ndarray) -> Kernel:
    """Return the gradient by the kernel of ``sum_ij W_ij K(X, Z)_ij``."""
    rows = _rows_of_a_tile(Z)
    total: Any = 0.0
    with _threads(Z):
        for start in range(0, len(X), rows):
            here = slice(start, start + rows)
            total = total + np.concatenate(_slopes(kernel, X[here], Z, W[here]))
    return from_vector(total, kernel)


def _threads(X: np.ndarray) -> AbstractContextManager[None]:
    """Use one BLAS thread inside the block, but where products of a tile are large: rows with very many inputs.

    NumPy and SciPy each bring an OpenBLAS, whose threads wait for the next product by spinning: those of the one took
    a core from the factorisation in the other (2000 rows, 8 inputs: evidence and slope in 0.23 s, so in 0.13 s).
    """
    _keep_freed_memory()
    return blas_threads(len(X) if X.shape[1] > _WIDE else 1)


@cache
def _keep_freed_memory() -> None:
    """Have what a tile frees kept for the next one, by glibc, which learns from the largest array freed so far.

    It gives back what is larger, and asking for that again took half the time of a slope (2000 rows: 34 ms, so 18; 334
    rows: 1.6 and 0.9).
    """
    np.empty(_LARGE)  # never written to, so no memory is used


def _rows_of_a_tile(X: np.ndarray) -> int:
    # what is made of all rows for each tile takes little beside it
    return max(16, _TILE_ENTRIES // max(len(X), 1), X.shape[1] // 2)


def _joined(kernel: Sum | Product, of_parts: Iterable[np.ndarray]) -> np.ndarray:
    return reduce(np.add if isinstance(kernel, Sum) else np.multiply, of_parts)


def _matrix(kernel: Any, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    if isinstance(kernel, (Sum, Product)):
        return _joined(kernel, (_matrix(part, X, Z) for part in kernel.parts))
    if isinstance(kernel, Linear):
        return (X * _for_inputs(kernel.slope_variances, X)) @ Z.T
    if isinstance(kernel, Constant):
        return np.full((len(X), len(Z)), float(kernel.variance))
    scales = _for_inputs(kernel.scales, X)
    return float(kernel.variance) * kernel.correlation(squared_distances(X / scales, Z / scales))


def _slopes(kernel: Any, X: np.ndarray, Z: np.ndarray, W: np.ndarray) -> list[np.ndarray]:
    """Return ``sum_ij W_ij dK(X, Z)_ij`` by each leaf of the kernel, in their order, as vectors."""
    if isinstance(kernel, Sum):
        return [leaf for part in kernel.parts for leaf in _slopes(part, X, Z, W)]
    if isinstance(kernel, Product):
        found = []
        for i, part in enumerate(kernel.parts):
            others = (_matrix(other, X, Z) for j, other in enumerate(kernel.parts) if j != i)
            found += _slopes(part, X, Z, reduce(np.multiply, others, W))
        return found
    if isinstance(kernel, Constant):
        return [np.sum(W, keepdims=True).ravel()]
    if isinstance(kernel, Linear):
        return [_as_given(kernel.slope_variances, np.einsum("ij,ij->j", X, W @ Z))]
    # dk/dl_j = v c'(r2) dr2/dl_j,  dr2/dl_j = -2 (u_j - t_j)^2 / l_j  of scaled rows u, t, and with A = W v c'(r2)
    # sum_ab A_ab (u_aj - t_bj)^2 = sum_a A_a. u_aj^2 + sum_b A_.b t_bj^2 - 2 sum_a u_aj (A t)_aj: one matrix product
    scales = _for_inputs(kernel.scales, X)
    U, T = X / scales, Z / scales
    r2 = squared_distances(U, T)
    c = kernel.correlation(r2)
    A = kernel.correlation_slope(r2, c)
    A *= float(kernel.variance) * W
    moved = A.sum(axis=1) @ U**2 + A.sum(axis=0) @ T**2 - 2.0 * np.einsum("ij,ij->j", U, A @ T)
    shapes = kernel.shape_slopes(r2, c)
    return [
        _as_given(kernel.lengthscales, -2.0 * moved / scales, kernel.inputs),
        np.array([np.vdot(W, c)]),
        *(np.array([float(kernel.variance) * np.vdot(W, slope)]) for slope in shapes),
    ]


def squared_distances(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """Return ``|x_i - z_j|^2`` in float64, to a relative error of some 1e-10.

    Differences are summed, as in `squared_distance`, and why; of many inputs by the expanded form (4000 rows with 300:
    evidence and slope in 1.4 s, 3.8 s by differences), but for rows that are near for how far they are from the origin.
    """
    if X.shape[1] <= _MOST_SUMMED:
        return cdist(X, Z, "sqeuclidean")
    squares = np.einsum("ij,ij->i", X, X)[:, None] + np.einsum("ij,ij->i", Z, Z)
    found = X @ Z.T
    found *= -2.0
    found += squares
    rounded = ~(found >= _ROUNDS * squares)  # what is no number, too
    a, b = np.nonzero(rounded)
    if len(a) > _MOST_ROUNDED * rounded.size:
        return cdist(X, Z, "sqeuclidean")
    found[a, b] = np.sum((X[a] - Z[b]) ** 2, axis=1)
    return found


def _for_inputs(values: Any, X: np.ndarray) -> np.ndarray:
    return np.broadcast_to(np.asarray(values, np.float64), (X.shape[1],))


def _as_given(values: Any, slopes: np.ndarray, inputs: tuple[int, ...] | None = None) -> np.ndarray:
    """Return slopes by one value of each column as those by the values: their sum where one is for several."""
    if np.size(values) == 1:
        return np.sum(slopes, keepdims=True)
    return slopes if inputs is None else np.bincount(inputs, slopes)
