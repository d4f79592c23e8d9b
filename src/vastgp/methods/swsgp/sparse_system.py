"""Weights of all rows and inducing inputs of a sparse-within-sparse process, and the bound that they give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from scipy.sparse import csc_matrix, csr_matrix, identity

from vastgp._precision import precision
from vastgp.data import Rows, Standardizer, observations, processes
from vastgp.data.neighbours import NeighbourIndex, nearest_predecessors
from vastgp.fitting.progress import Progress
from vastgp.kernels import Kernel
from vastgp.kernels.metric import metric_lengthscales
from vastgp.likelihoods import Likelihood
from vastgp.likelihoods.rowwise import by_rows
from vastgp.linalg.threads import blas_threads
from vastgp.methods.swsgp.options import SwsgpOptions
from vastgp.solvers.neighbour_weights import row_weights

# Entries of the local matrices of a tile of rows, or of its neighbours' inputs, and rows read at a time.
_TILE_ENTRIES, _READ_ROWS = 2**22, 16_384


@dataclass(frozen=True)
class SparseSystem:
    """Weights of all rows that this process has, and of all inducing inputs.

    Attributes
    ----------
    A : csr_matrix of shape (n, M)
    conditional : ndarray of shape (n,)
        Prior variance of each row given its neighbours.
    B : csr_matrix of shape (M, M)
        Strictly lower triangular.
    v : ndarray of shape (M,)
        Prior variance of each inducing variable given its predecessors.
    y : ndarray of shape (n,) or (n, 3)
        Standardised targets, with noise of the rows' own or without.
    points : ndarray of shape (M, d)
        Inducing inputs over their lengthscales.
    num_rows : int
        Of all processes.
    recall : float
        Share of true neighbours that the index of the inducing inputs finds.
    """

    A: csr_matrix
    conditional: np.ndarray
    B: csr_matrix
    v: np.ndarray
    y: np.ndarray
    points: np.ndarray
    num_rows: int
    recall: float = 1.0

    def prior_product(self, m: np.ndarray) -> np.ndarray:
        """Return ``Q m``."""
        rest = (m - self.B @ m) / self.v
        return rest - self.B.T @ rest

    def prior_diagonal(self) -> np.ndarray:
        """Return ``Q_jj = 1 / v_j + sum_k B_kj^2 / v_k``."""
        return 1.0 / self.v + self.B.power(2).T @ (1.0 / self.v)

    def prior_root(self) -> csc_matrix:
        """Return ``V^-1/2 (I - B)``, of which ``Q`` is the square."""
        rest = identity(len(self.v), format="csr") - self.B
        return csc_matrix(rest.multiply(1.0 / np.sqrt(self.v)[:, None]))

    def squares(self) -> csr_matrix:
        """Return the transpose of ``A_ij^2``."""
        return self.A.power(2).T.tocsr()

    def moments(self, m: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance at all rows: (n,), or (C, n) where there are several functions."""
        mean, variance = self.A @ m, self.A.power(2) @ s + self.conditional[:, None]
        return (mean[:, 0], variance[:, 0]) if m.shape[1] == 1 else (mean.T, variance.T)

    def at_targets(self, likelihood: Likelihood, method: str, *moments: np.ndarray) -> Any:
        """Return what a method of the likelihood gives for the targets and moments of all rows."""
        with precision("float64"):
            if observations.has_own_noise(self.y):
                # a few products of normal noise, in whose targets the rows do not come last
                found = getattr(likelihood, method)(self.y, *moments)
                return jax.tree.map(np.asarray, found)
            return by_rows(likelihood, method, self.y, *moments)

    def bound(self, likelihood: Likelihood, m: np.ndarray, s: np.ndarray) -> float:
        """Return the bound, all rows and inducing inputs counted."""
        fit = self.at_targets(likelihood, "expected_log_prob", *self.moments(m, s))
        rest = m - self.B @ m
        spread = s + self.B.power(2) @ s
        v = self.v[:, None]
        divergence = 0.5 * np.sum((rest**2 + spread) / v - 1.0 + np.log(v / s))
        # the divergence is counted once, and all have the same number
        own = np.sum(fit) - (divergence if processes.number() == 0 else 0.0)
        return float(processes.added(own))


def build_sparse(
    rows: Rows,
    standardizer: Standardizer,
    kernel: Kernel,
    Z: np.ndarray,
    options: SwsgpOptions,
    verbose: bool = False,
    on_tile: Callable[[float], None] | None = None,
) -> SparseSystem:
    """Return the weights of all rows and inducing inputs: ``O((n + M) H^3)`` time, ``O((n + M) H)`` memory.

    Of several processes each has those of its own rows. ``on_tile`` is told the share of the weights that is done, and
    what it raises ends the work.
    """
    num_rows, rows = rows.n, rows.local
    size, sees = len(Z), min(options.num_neighbors, len(Z))
    jitter = options.least_jitter("float64")
    metric = metric_lengthscales(kernel, rows.d)
    index = NeighbourIndex(Z, metric, options.search)
    fades = options.taper and sees < size
    weights, numbers = np.empty((rows.n, sees)), np.empty((rows.n, sees), np.int32)
    assert rows.y is not None
    conditional, targets, done = np.empty(rows.n), np.empty(rows.y.shape), 0

    def told(before: int) -> Callable[[int], None]:
        return lambda count: on_tile and on_tile((before + count) / (rows.n + size))

    with Progress("SWSGP", verbose) as progress:
        for X, y in rows.batches(_READ_ROWS):
            assert y is not None
            here = slice(done, done + len(X))
            X = standardizer.transform_X(X)
            near = index.query(X, sees + fades)
            border = Z[near[:, -1]] if fades else None
            numbers[here] = near[:, :sees]
            weights[here], conditional[here] = _weights(
                kernel, X, Z, near[:, :sees], jitter, border, told(done)
            )
            targets[here] = standardizer.transform_y(y)
            done += len(X)
            progress.update(done / rows.n)
    before = nearest_predecessors(Z, metric, sees, options.search)
    b, v = _weights(kernel, Z, Z, before, jitter, None, told(rows.n))
    v = v + jitter * float(kernel.total_variance())
    A, B = _sparse(weights, numbers, size), _sparse(b, before, size)
    return SparseSystem(A, conditional, B, v, targets, index.points, num_rows, index.recall)


def _weights(
    kernel: Kernel,
    X: np.ndarray,
    Z: np.ndarray,
    near: np.ndarray,
    jitter: float,
    border: np.ndarray | None,
    on_rows: Callable[[int], None],
) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and conditional variances of rows by tiles of one size, and tell of each."""
    tile = max(16, _TILE_ENTRIES // (near.shape[1] * max(near.shape[1], X.shape[1])))
    tile = min(1 << (tile.bit_length() - 1), 1 << max(len(X) - 1, 1).bit_length())
    weights, left = np.empty(near.shape), np.empty(len(X))
    with precision("float64"), blas_threads(near.shape[1]):
        for start in range(0, len(X), tile):
            some = np.minimum(np.arange(start, start + tile), len(X) - 1)
            numbers = near[some]
            edge = None if border is None else border[some]
            a, conditional = row_weights(
                kernel, X[some], Z[np.maximum(numbers, 0)], numbers >= 0, edge, jitter, devices=1
            )  # fmt: skip
            stop = min(start + tile, len(X))
            weights[start:stop] = np.asarray(a)[: stop - start]
            left[start:stop] = np.asarray(conditional)[: stop - start]
            on_rows(stop)
    return weights, left


def _sparse(weights: np.ndarray, numbers: np.ndarray, width: int) -> csr_matrix:
    present = numbers.ravel() >= 0
    ends = np.concatenate([[0], np.cumsum(np.sum(numbers >= 0, axis=1))])
    parts = (weights.ravel()[present], numbers.ravel()[present], ends)
    return csr_matrix(parts, shape=(len(numbers), width))
