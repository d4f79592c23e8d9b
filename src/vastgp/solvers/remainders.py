"""What a factor of low rank leaves out of a covariance, kept within groups of neighbouring rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float, Int

from vastgp.linalg.threads import blas_threads, cores

_POWER_STEPS = 5


class NeighbourBlocks(eqx.Module):
    """The inverse ``H = L^-1`` of the Cholesky factor of a matrix that is block-diagonal over groups of rows.

    Attributes
    ----------
    inverses : Array of shape (g, b, b)
        ``L^-1`` of each block; zero for places that are filling.
    rows : Array of int, shape (g b,)
        Row of each place; n for filling.
    places : Array of int, shape (n,)
        Place of each row.
    """

    inverses: Float[Array, "g b b"]
    rows: Int[Array, " places"]
    places: Int[Array, " n"]

    def half(self, V: Float[Array, "C n"]) -> Float[Array, "C n"]:
        """Return ``H v`` of each row of ``V``."""
        return self._by_blocks("gij,cgj->cgi", V)

    def half_transposed(self, V: Float[Array, "C n"]) -> Float[Array, "C n"]:
        """Return ``H^T v``."""
        return self._by_blocks("gji,cgj->cgi", V)

    def _by_blocks(self, how: str, V: Array) -> Array:
        count, size, _ = self.inverses.shape
        filled = jnp.concatenate([V, jnp.zeros((len(V), 1), V.dtype)], axis=1)
        grouped = filled[:, self.rows].reshape(len(V), count, size)
        products = jnp.einsum(how, self.inverses.astype(V.dtype), grouped, precision="highest")
        return products.reshape(len(V), -1)[:, self.places]


class Neighbours(NamedTuple):
    """Groups of neighbouring rows, within which what a factor of low rank leaves out of a covariance is kept.

    Attributes
    ----------
    groups : sequence of ndarray of int
        Rows of each group, all but the last of one size.
    covariance : callable
        The covariance within a group, without noise.
    """

    groups: Sequence[np.ndarray]
    covariance: Callable[[np.ndarray], np.ndarray]

    def scale(self, factor: Float[np.ndarray, "k n"], noise_variance: float) -> NeighbourBlocks:
        """Return the blocks of ``A - U^T U + sigma^2 I``; the factor ``U`` becomes ``U H^T``, in place."""
        dtype, n = factor.dtype, factor.shape[1]
        size = len(self.groups[0])
        inverses = np.zeros((len(self.groups), size, size), dtype)
        rows = np.full((len(self.groups), size), n, np.int32)
        (trtri,) = scipy.linalg.get_lapack_funcs(("trtri",), dtype=np.float64)

        def make(number: int) -> None:
            group = self.groups[number]
            part, count = factor[:, group], len(group)
            left = self.covariance(group) - (part.T @ part)
            lower = _root(0.5 * (left + left.T), noise_variance)
            inverse = np.tril(trtri(lower, lower=1)[0]).astype(dtype)
            factor[:, group] = part @ inverse.T
            inverses[number, :count, :count] = inverse
            rows[number, :count] = group

        # a group on each core, not all cores on a group: sixteen threads of BLAS took 90 ms for 8 ms of work
        with blas_threads(size), ThreadPoolExecutor(cores()) as pool:
            list(pool.map(make, range(len(self.groups))))
        places = np.empty(n, np.int32)
        flat = rows.ravel()
        places[flat[flat < n]] = np.flatnonzero(flat < n)
        return NeighbourBlocks(*map(jax.device_put, (inverses, flat, places)))


def _root(block: np.ndarray, noise_variance: float) -> np.ndarray:
    """Return the Cholesky factor of a block and the noise; what rounding left below zero of the block is lifted."""
    try:
        return scipy.linalg.cholesky(block + noise_variance * np.eye(len(block)), lower=True)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(block)
        lifted = (vectors * (np.maximum(values, 0.0) + noise_variance)) @ vectors.T
        return scipy.linalg.cholesky(0.5 * (lifted + lifted.T), lower=True)


def group_neighbours(points: Float[np.ndarray, "n d"], size: int) -> list[np.ndarray]:
    """Return groups of ``size`` neighbouring points, the last of what is left: halves along the widest direction."""
    direction = np.random.default_rng(0).standard_normal((points.shape[1],))
    groups: list[np.ndarray] = []
    waiting = [np.arange(len(points))]
    while waiting:
        group = waiting.pop()
        blocks = -(-len(group) // size)
        if blocks == 1:
            groups.append(group)
            continue
        centred = points[group] - np.mean(points[group], axis=0)
        widest = direction
        for _ in range(_POWER_STEPS):
            widest = centred.T @ (centred @ widest)
            widest /= max(np.linalg.norm(widest), np.finfo(np.float64).tiny)
        middle = (blocks // 2) * size
        order = np.argpartition(centred @ widest, middle)
        # the second part first: the last group alone may be short
        waiting += [group[order[middle:]], group[order[:middle]]]
    return groups
