"""Cholesky factors of large matrices in square tiles on an accelerator.

The rows of tiles are made one after the other, each a solution with those before, as `vastgp.linalg.panels` does on the
host: memory is that of half of the matrix, and a factor that is stopped is that of the leading rows. Tiles have one
size, so that a handful of compiled programs serves any number of rows; the last ones are filled with those of the
identity. On an H200 the factor of 40,960 rows took 0.6 s in float64 (38 TFLOP/s; a product of matrices ran at 56), of
81,920 rows 4.4 s.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp import _accelerator
from vastgp._precision import precision
from vastgp.linalg.panels import GoOn, GrowingFactor

# Rows of a tile: products of two take a third of a millisecond of a large card, thrice what it takes to start them.
# Beyond so many rows there are so many products that twice as large ones are better.
TILE_ROWS, _MANY_ROWS = 2048, 1 << 16
# Of the memory that is free, what a factor may take: predictions need some beside it.
_MEMORY_SHARE = 0.8
# Rows of a product of the host that the accelerator's are compared with.
_HOST_ROWS = 1024
# Right-hand sides are filled up to a power of two, so that few programs serve all.
_LEAST_COLUMNS = 8
# The rate of a factorisation, of that of products of tiles, and what each product takes to start, in seconds.
_OF_PRODUCTS, _STARTING = 0.65, 1e-4

# ``tile(i, j)``: the tile of the matrix in row i and column j of tiles, j <= i, filled up with those of the identity.
MakeTile = Callable[[int, int], Array]


def tile_rows(n: int) -> int:
    """Return the rows of a tile of n."""
    return TILE_ROWS if n <= _MANY_ROWS else 2 * TILE_ROWS


def rows_on_device(itemsize: int) -> int | None:
    """Return the rows of the largest factor that the accelerator holds; None where there is none that tells."""
    free = _accelerator.free_bytes()
    if free is None:
        return None
    # n (n + t) / 2 numbers in tiles of t rows
    half = TILE_ROWS
    return max(1, int((2.0 * _MEMORY_SHARE * free / itemsize + half**2) ** 0.5 - half))


def belongs_on_device(n: int, itemsize: int) -> bool:
    """Whether the factor of n rows is an accelerator's: there is one that holds it, and it is faster than the host."""
    return n <= (rows_on_device(itemsize) or 0) and (itemsize == 4 or is_faster())


def seconds_on_device(n: int, cubes: float = 1.0 / 3.0) -> float:
    """Return about what work of ``cubes * n^3`` operations in float64 takes on tiles of n rows, compilation apart."""
    count = -(-n // tile_rows(n))
    filled = float(count * tile_rows(n))
    started = 0.5 * cubes * count**3 + count**2
    return cubes * filled**3 / (_OF_PRODUCTS * product_rate()) + _STARTING * started


@functools.cache
def is_faster() -> bool:
    """Whether products in float64 are faster on the accelerator than on the host: cards made for pictures are not."""
    block = np.ones((_HOST_ROWS, _HOST_ROWS))
    block @ block  # the threads start
    began = time.perf_counter()
    block @ block
    return product_rate() > 2.0 * _HOST_ROWS**3 / max(time.perf_counter() - began, 1e-9)


@functools.cache
def product_rate(dtype: str = "float64") -> float:
    """Return the operations a second of products of tiles on the accelerator, timed once."""
    with precision(dtype):
        shape = (TILE_ROWS, TILE_ROWS)
        A, C = jax.device_put((np.ones(shape, dtype), np.zeros(shape, dtype)))
        C = jax.block_until_ready(_less_across(C, A, A))
        times = 4
        began = time.perf_counter()
        for _ in range(times):
            C = _less_across(C, A, A)
        jax.block_until_ready(C)
    return 2.0 * TILE_ROWS**3 * times / max(time.perf_counter() - began, 1e-9)


@dataclass
class DeviceCholesky(GrowingFactor):
    """Lower factor ``L`` of ``A = L L^T`` in tiles on the first accelerator.

    What is given as an array of NumPy comes back as one; what lies on the accelerator stays there.

    Attributes
    ----------
    tile : int
        Rows of a tile.
    tiles : list of list of Array of shape (tile, tile)
        ``tiles[i][j]``, ``j <= i``, of ``L / unit``.
    """

    on_device: ClassVar[bool] = True
    tile: int = TILE_ROWS
    tiles: list[list[Array]] = field(default_factory=list)

    def half_solve(self, right: Any) -> Any:
        """Return ``L^-1 right``, in the precision of the factor."""
        with precision("float64"):
            return self._joined(self._half_solved(self._parts(right)), right, self.unit)

    def solve(self, right: Any) -> Any:
        """Return ``A^-1 right``, in the precision of the factor."""
        with precision("float64"):
            parts = self._half_solved(self._parts(right))
            for i in reversed(range(len(parts))):
                # x_i = L_ii^-T (b_i - sum_{j > i} L_ji^T x_j)
                for j in range(i + 1, len(parts)):
                    parts[i] = _less_turned(parts[i], self.tiles[j][i], parts[j])
                parts[i] = _above(self.tiles[i][i], parts[i])
            return self._joined(parts, right, self.unit**2)

    def half_product(self, right: Any) -> Any:
        """Return ``L right``, in the precision of the factor."""
        with precision("float64"):
            parts, found = self._parts(right), []
            for row in self.tiles:
                total = _zeros_like(parts[0])
                for tile, part in zip(row, parts, strict=False):
                    total = _less(total, tile, part)
                found.append(total)
            return self._joined(found, right, -1.0 / self.unit)

    def inverse_diagonal(self) -> np.ndarray:
        """Return the diagonal of ``A^-1``: column norms of ``L^-1``, one column of tiles at a time."""
        found = []
        with precision("float64"):
            for j in range(len(self.tiles)):
                norms = sum(_column_norms(part) for part in self._inverse_column(j))
                found.append(np.asarray(norms, np.float64))
        return np.concatenate(found)[: self.size] / self.unit**2

    def inverse_tiles(self) -> Iterator[tuple[int, int, Array]]:
        """Yield ``(i, j, tile)`` of ``A^-1`` for ``j <= i``: ``2 n^3 / 3`` operations, and once more the memory.

        ``[A^-1]_ij = sum_{l >= i} W_li^T W_lj`` with ``W = L^-1``.
        """
        with precision("float64"):
            columns = [self._inverse_column(j) for j in range(len(self.tiles))]
        for i in range(len(columns)):
            for j in range(i + 1):
                with precision("float64"):  # not across a yield, see `precision`
                    total = _zeros_like(self.tiles[0][0])
                    for below, beside in zip(columns[i], columns[j][i - j :], strict=True):
                        total = _less_turned(total, below, beside)
                    total = _times(total, np.asarray(-(self.unit**-2), self.dtype))
                yield i, j, total

    def append(self, make: MakeTile, end: int) -> None:
        """Add a row of tiles, the rows of the matrix up to ``end``.

        Raises
        ------
        FactorizationError
            When no jitter that is tried makes the diagonal tile positive definite.
        """
        i, row = len(self.tiles), list[Array]()
        with precision("float64"):
            for j, before in enumerate(self.tiles):
                # L_ij = (A_ij - sum_{l < j} L_il L_jl^T) L_jj^-T
                row.append(_across(before[j], self._less_products(make(i, j), row, before)))
            corner = self._less_products(make(i, i), row, row)
            for jitter in self._tried_jitters():
                root, pivots = _root(corner, np.asarray(jitter, self.dtype))
                pivots = np.asarray(pivots, np.float64)
                # a pivot that is no root of a positive number is NaN, and so are all that follow
                if np.all(np.isfinite(pivots)):
                    break
            else:
                raise self._not_definite(self.size, end)
        self.tiles.append([*row, root])
        self._note(end, jitter, float(np.sum(np.log(pivots))))

    def _less_products(self, tile: Array, left: list[Array], right: list[Array]) -> Array:
        tile = tile.astype(self.dtype)
        for a, b in zip(left, right, strict=False):
            tile = _less_across(tile, a, b)
        return tile

    def _half_solved(self, parts: list[Array]) -> list[Array]:
        """Replace the parts ``b_i`` by those of ``unit L^-1 b``."""
        for i, row in enumerate(self.tiles):
            # x_i = L_ii^-1 (b_i - sum_{j < i} L_ij x_j)
            for j in range(i):
                parts[i] = _less(parts[i], row[j], parts[j])
            parts[i] = _below(row[i], parts[i])
        return parts

    def _inverse_column(self, j: int) -> list[Array]:
        """Return the tiles of ``unit L^-1`` in column j, the first on the diagonal."""
        found = [_inverse(self.tiles[j][j])]
        for row in self.tiles[j + 1 :]:
            total = _zeros_like(found[0])
            for tile, part in zip(row[j:-1], found, strict=True):
                total = _less(total, tile, part)
            found.append(_below(row[-1], total))
        return found

    def _parts(self, right: Any) -> list[Array]:
        """Return right-hand sides in the factor's parts of rows, filled up with zeros."""
        count = math.prod(np.shape(right)[1:])
        columns = max(_LEAST_COLUMNS, 1 << (count - 1).bit_length())
        return _split(right, self.tile, (self.tile * len(self.tiles), columns), str(self.dtype))

    def _joined(self, parts: list[Array], like: Any, unit: float) -> Any:
        found = _joined(parts, np.asarray(unit, self.dtype), np.shape(like))
        return found if isinstance(like, jax.Array) else np.array(found)


def factorize_on_device(
    make: MakeTile,
    size: int,
    dtype: str,
    *,
    largest: float = 1.0,
    tile: int = TILE_ROWS,
    go_on: GoOn | None = None,
    most_jitter: float = np.inf,
) -> DeviceCholesky:
    """Factorise a symmetric matrix that is made tile by tile, on the accelerator.

    Parameters
    ----------
    make : callable
        See `MakeTile`; in any precision.
    size : int
        Rows of the matrix.
    dtype : {"float32", "float64"}
    largest : float, default 1.0
        Largest entry of the diagonal, see `GrowingFactor`.
    tile : int
        Rows of a tile.
    go_on, most_jitter
        As in `vastgp.linalg.panels.factorize_panels`.

    Raises
    ------
    FactorizationError
        When the matrix is not positive definite by more than rounding.
    """
    factor = DeviceCholesky(np.dtype(dtype), largest, most_jitter=most_jitter, tile=tile)
    factor._grow(size, tile, partial(factor.append, make), go_on)
    return factor


@jax.jit(static_argnames=("tile", "shape", "dtype"))
def _split(right: Array, tile: int, shape: tuple[int, int], dtype: str) -> list[Array]:
    flat = right.astype(dtype).reshape(len(right), -1)
    filled = jnp.pad(
        flat, [(0, size - length) for size, length in zip(shape, flat.shape, strict=True)]
    )
    return [filled[start : start + tile] for start in range(0, len(filled), tile)]


@jax.jit(static_argnames="shape")
def _joined(parts: list[Array], unit: Array, shape: tuple[int, ...]) -> Array:
    return jnp.concatenate(parts)[: shape[0], : math.prod(shape[1:])].reshape(shape) / unit


@jax.jit
def _zeros_like(C: Array) -> Array:
    return jnp.zeros_like(C)


@jax.jit(donate_argnums=0)
def _times(C: Array, by: Array) -> Array:
    return C * by


@jax.jit(donate_argnums=0)
def _less_across(C: Float[Array, "t t"], A: Float[Array, "t t"], B: Float[Array, "t t"]) -> Array:
    return C - A @ B.T


@jax.jit(donate_argnums=0)
def _less(C: Float[Array, "t c"], A: Float[Array, "t t"], B: Float[Array, "t c"]) -> Array:
    return C - A @ B


@jax.jit(donate_argnums=0)
def _less_turned(C: Float[Array, "t c"], A: Float[Array, "t t"], B: Float[Array, "t c"]) -> Array:
    return C - A.T @ B


@jax.jit
def _across(lower: Float[Array, "t t"], C: Float[Array, "t t"]) -> Array:
    return jax.scipy.linalg.solve_triangular(lower, C.T, lower=True).T


@jax.jit
def _below(lower: Float[Array, "t t"], C: Float[Array, "t c"]) -> Array:
    return jax.scipy.linalg.solve_triangular(lower, C, lower=True)


@jax.jit
def _above(lower: Float[Array, "t t"], C: Float[Array, "t c"]) -> Array:
    return jax.scipy.linalg.solve_triangular(lower, C, lower=True, trans=1)


@jax.jit
def _inverse(lower: Float[Array, "t t"]) -> Array:
    return jax.scipy.linalg.solve_triangular(
        lower, jnp.eye(len(lower), dtype=lower.dtype), lower=True
    )


@jax.jit
def _root(C: Float[Array, "t t"], jitter: Float[Array, ""]) -> tuple[Array, Array]:
    """Return the factor of a tile, and its pivots."""
    lower = jnp.linalg.cholesky(C + jitter * jnp.eye(len(C), dtype=C.dtype))
    return lower, jnp.diagonal(lower)


@jax.jit
def _column_norms(part: Float[Array, "t t"]) -> Float[Array, " t"]:
    return jnp.sum(part.astype(jnp.float64) ** 2, axis=0)
