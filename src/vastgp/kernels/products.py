"""Products with kernel matrices that are never formed: tile by tile, each made, used and forgotten.

Memory is that of the vectors and of one tile. A tile is recomputed for every product: on a CPU the correlations of
500 x 500 rows take about as long as reading as many numbers from memory would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp import _accelerator

# Rows of a square tile: a quarter of a megabyte in float32, which stays in a core's cache (one core, n = 6000, d = 8, 8
# right-hand sides: a product 26 ms and a slope 80 ms, 29 and 108 with tiles of 512, 26 and 71 with 384; in float64
# 71 and 134, 75 and 150, 73 and 144).
_TILE = 256
# A GPU takes a tile of this many at once, and starting one takes as long as a small one (H200, n = 40,000, d = 8, 33
# right-hand sides, a product in float32: 125 ms with tiles of 256, 14 with 2048, 5 with 8192; in float64 164, 24, 11).
_DEVICE_TILE = 4096
# Tiles have a multiple of this many rows, so that data of similar sizes share compiled code.
_STEP = 32

# Multiplications that a value of the kernel takes, about.
OF_VALUE = 16.0

# The number of a part of the tiles, from 0, and how many parts there are: their products and slopes add up.
Share = tuple[Any, Any]
# Rows of a tile by rows, whether these are the same ones, and the cotangent of its entries.
Piece = tuple[Array, Array, Any, Array]


class KernelMatrix(eqx.Module):
    """``A = S K(X, X) S + sigma^2 I`` by its products, with a diagonal ``S`` (ones, or the root of repeats).

    Entries are made in the precision of ``X``. Products and sums over tiles are done in the precision of the vectors,
    so that float64 vectors with float32 inputs have float64 accumulation at 1.7 times the cost.

    Attributes
    ----------
    kernel : Kernel
    noise_variance : Array of shape ()
    X : Array of shape (n, d)
        In the units of the kernel's lengthscales.
    scale : Array of shape (n,)
        Diagonal of ``S``.
    shares : Array of shape (n,), or None
        Of the rows in the slope by the noise variance, where ``S`` depends on that; None: all are one.
    """

    kernel: Any
    noise_variance: Any
    X: Float[Array, "n d"]
    scale: Float[Array, " n"]
    shares: Float[Array, " n"] | None = None

    def product(self, V: Float[Array, "C n"]) -> Float[Array, "C n"]:
        """Return ``A v`` of each row of ``V``."""
        return _product(self, V)

    def _slope_of_kernel(
        self, U: Float[Array, "C n"], V: Float[Array, "C n"], signs: Float[Array, " C"]
    ) -> Any:
        """Return the gradient by the kernel of ``sum_c signs_c u_c^T K v_c``."""
        return bilinear_slope(self.kernel, self.X, U, V, signs)

    def slope(
        self, U: Float[Array, "C n"], V: Float[Array, "C n"], signs: Float[Array, " C"]
    ) -> tuple[Any, Float[Array, ""]]:
        """Return the gradient of ``sum_c signs_c u_c^T A v_c`` by the kernel and by the noise variance."""
        inner = U * V if self.shares is None else self.shares * (U * V)
        by_noise = jnp.sum(signs * jnp.sum(inner, axis=1))
        return self._slope_of_kernel(U * self.scale, V * self.scale, signs), by_noise


@jax.jit
def _product(matrix: KernelMatrix, V: Array) -> Array:
    of_kernel = kernel_product(matrix.kernel, matrix.X, times(V, matrix.scale))
    return with_noise(of_kernel, matrix.scale, matrix.noise_variance, V)


@jax.jit
def times(V: Array, scale: Array) -> Array:
    """Return ``S v`` of each row of ``V``."""
    return V * scale.astype(V.dtype)


@jax.jit
def with_noise(of_kernel: Array, scale: Array, noise_variance: Any, V: Array) -> Array:
    """Return ``A v`` from ``K S v``."""
    return times(of_kernel, scale) + jnp.asarray(noise_variance, V.dtype) * V


@jax.jit
def kernel_product(
    kernel: Any, X: Float[Array, "n d"], V: Float[Array, "C n"], share: Share | None = None
) -> Float[Array, "C n"]:
    """Return ``K(X, X) v`` of each row of ``V``, or with a ``share`` the part of some tiles in it.

    Every tile off the diagonal serves twice, as ``K_ij v_j`` and as ``K_ij^T v_i``. So the operator is symmetric to the
    last bit whatever the rounding of its entries, which conjugate gradients rely on.
    """
    tile, count = _tiling(len(X))
    n = len(X)
    X, V = _pad(X, tile * count, 0), _pad(V, tile * count, 1)

    def diagonal(i: Any, total: Array) -> Array:
        x = _rows(X, i, tile)
        K = kernel_tile(kernel, x, x, True).astype(V.dtype)
        return _add(total, _columns(V, i, tile) @ K, i)

    def off_diagonal(k: Any, total: Array) -> Array:
        i, j = first[k], second[k]
        K = kernel(_rows(X, i, tile), _rows(X, j, tile)).astype(V.dtype)
        total = _add(total, _columns(V, j, tile) @ K.T, i)
        return _add(total, _columns(V, i, tile) @ K, j)

    first, second = (jnp.asarray(numbers) for numbers in _pairs(count, 1))
    total = jax.lax.fori_loop(*_ends(share, count), diagonal, jnp.zeros_like(V))
    if count > 1:
        total = jax.lax.fori_loop(*_ends(share, len(first)), off_diagonal, total)
    return total[:, :n]


@jax.jit
def block_product(
    kernel: Any, X: tuple[Array, Array], V: tuple[Array, Array], share: Share, turned: Any
) -> tuple[Array, Array]:
    """Return ``K(X, Z) w`` and ``K(Z, X) v`` of two blocks of as many rows, or what a share of their tiles has in both.

    Parameters
    ----------
    kernel : Kernel
    X : tuple of Array of shape (n, d)
        ``X`` and ``Z``.
    V : tuple of Array of shape (C, n)
        ``v`` and ``w``.
    share : Share
    turned : bool or Array of shape ()
        Whether tiles are numbered by columns: so two that hold the same blocks the other way round share them.
    """
    n = len(X[0])
    tile, count = _tiling(n)
    X, V = _both_padded(X, tile * count, 0), _both_padded(V, tile * count, 1)

    def add(k: Any, totals: tuple[Array, Array]) -> tuple[Array, Array]:
        i, j = _place(k, count, turned)
        K = kernel(_rows(X[0], i, tile), _rows(X[1], j, tile)).astype(V[0].dtype)
        here, there = _columns(V[1], j, tile) @ K.T, _columns(V[0], i, tile) @ K
        return _add(totals[0], here, i), _add(totals[1], there, j)

    start = jnp.zeros_like(V[0]), jnp.zeros_like(V[1])
    here, there = jax.lax.fori_loop(*_ends(share, count**2), add, start)
    return here[:, :n], there[:, :n]


@jax.jit
def cross_product(
    kernel: Any, X: Float[Array, "n d"], Z: Float[Array, "m d"], V: Float[Array, "C m"]
) -> Float[Array, "C n"]:
    """Return ``K(X, Z) v`` of each row of ``V``, in tiles of the rows of ``Z``."""
    tile, count = _tiling(len(Z))
    Z, V = _pad(Z, tile * count, 0), _pad(V, tile * count, 1)

    def body(total: Array, some: tuple[Array, Array]) -> tuple[Array, None]:
        z, v = some
        return total + v @ kernel(X, z).astype(V.dtype).T, None

    parts = (Z.reshape(count, tile, -1), jnp.moveaxis(V.reshape(len(V), count, tile), 1, 0))
    total, _ = jax.lax.scan(body, jnp.zeros((len(V), len(X)), V.dtype), parts)
    return total


@jax.jit
def bilinear_slope(
    kernel: Any,
    X: Float[Array, "n d"],
    U: Float[Array, "C n"],
    V: Float[Array, "C n"],
    signs: Float[Array, " C"],
    share: Share | None = None,
) -> Any:
    """Return the gradient by the kernel of ``sum_c signs_c u_c^T K(X, X) v_c``, vectors held; or a share's part in it.

    Each tile is made again, and its entries' cotangent ``sum_c signs_c u_c v_c^T`` is pulled back to the few
    hyperparameters: nothing is kept between tiles. As ``K`` is symmetric, a tile above the diagonal takes the
    cotangents of both places.
    """
    tile, count = _tiling(len(X))
    X = _pad(X, tile * count, 0)
    U, V = (_pad(W.astype(X.dtype), tile * count, 1) for W in (U * signs[:, None], V))
    first, second = (jnp.asarray(numbers) for numbers in _pairs(count, 0))

    def piece(k: Any) -> Piece:
        i, j = first[k], second[k]
        both = _columns(U, i, tile).T @ _columns(V, j, tile)
        both += _columns(V, i, tile).T @ _columns(U, j, tile)
        cotangent = jnp.where(i == j, 0.5, 1.0).astype(X.dtype) * both
        return _rows(X, i, tile), _rows(X, j, tile), i == j, cotangent

    return _summed_slopes(kernel, piece, _ends(share, len(first)))


@jax.jit
def cross_slope(
    kernel: Any,
    X: tuple[Array, Array],
    U: tuple[Array, Array],
    V: tuple[Array, Array],
    signs: Float[Array, " C"],
    share: Share,
    turned: Any,
) -> Any:
    """Return what tiles of one block by another, and their mirrors, have in `bilinear_slope`; as `block_product`."""
    tile, count = _tiling(len(X[0]))
    X = _both_padded(X, tile * count, 0)
    U = U[0] * signs[:, None], U[1] * signs[:, None]
    U, V = (
        _both_padded((W[0].astype(X[0].dtype), W[1].astype(X[0].dtype)), tile * count, 1)
        for W in (U, V)
    )

    def piece(k: Any) -> Piece:
        i, j = _place(k, count, turned)
        both = _columns(U[0], i, tile).T @ _columns(V[1], j, tile)
        both += _columns(V[0], i, tile).T @ _columns(U[1], j, tile)
        return _rows(X[0], i, tile), _rows(X[1], j, tile), False, both

    return _summed_slopes(kernel, piece, _ends(share, count**2))


@jax.jit
def matrix_slope(
    kernel: Any, X: Float[Array, "n d"], G: Float[Array, "n n"], w: Float[Array, " n"]
) -> Any:
    """Return the gradient by the kernel of ``1/2 sum_ij (w w^T - G)_ij K(X, X)_ij``, tile by tile.

    Parameters
    ----------
    G : Array of shape (n, n)
        Symmetric; its upper triangle alone is read.
    """
    tile, count = _tiling(len(X))
    X, w = _pad(X, tile * count, 0), _pad(w, tile * count, 0)
    G = _pad(_pad(G, tile * count, 0), tile * count, 1)

    upper = jnp.triu(jnp.ones((tile, tile), X.dtype), 1) + 0.5 * jnp.eye(tile, dtype=X.dtype)
    first, second = (jnp.asarray(numbers) for numbers in _pairs(count, 0))

    def piece(k: Any) -> Piece:
        i, j = first[k], second[k]
        corner = jax.lax.dynamic_slice(G, (i * tile, j * tile), (tile, tile))
        left, right = (jax.lax.dynamic_slice_in_dim(w, at * tile, tile) for at in (i, j))
        cotangent = (jnp.outer(left, right) - corner) * jnp.where(i == j, upper, 1.0)
        return _rows(X, i, tile), _rows(X, j, tile), i == j, cotangent

    return _summed_slopes(kernel, piece, (0, len(first)))


def _summed_slopes(kernel: Any, piece: Callable[[Any], Piece], ends: tuple[Any, Any]) -> Any:
    """Return the gradient by the kernel of the sum of all entries of some tiles times a cotangent each.

    A tile above the diagonal has the cotangents of both places. One loop over all kinds of tiles: compiled code of a
    slope takes most of a second.
    """

    def add(k: Any, total: Any) -> Any:
        return with_slope(total, kernel, *piece(k))

    return jax.lax.fori_loop(*ends, add, jax.tree.map(jnp.zeros_like, kernel))


def with_slope(
    total: Any, kernel: Any, x: Array, z: Array, same: Any, cotangent: Float[Array, "t t"]
) -> Any:
    """Return the total with the gradient by the kernel of the entries of a tile, times a cotangent each."""
    _, pull = jax.vjp(lambda kernel: kernel_tile(kernel, x, z, same), kernel)
    return jax.tree.map(jnp.add, total, pull(cotangent)[0])


def kernel_tile(
    kernel: Any, x: Float[Array, "t d"], z: Float[Array, "t d"], same: Any
) -> Float[Array, "t t"]:
    """Return ``K(x, z)``, with the exact diagonal where both are the ``same`` rows.

    With very many inputs 1e-3 in float32 may stand for no distance.
    """
    exact = jnp.eye(len(x), dtype=bool) & same
    return jnp.where(exact, kernel.diag(x)[:, None], kernel(x, z))


def _tiling(n: int) -> tuple[int, int]:
    """Return the rows of a tile and the number of tiles."""
    count = -(-n // (_DEVICE_TILE if _accelerator.is_present() else _TILE))
    tile = -(-n // (count * _STEP)) * _STEP
    return tile, -(-n // tile)


def _pairs(count: int, above: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the tiles on the diagonal and above it, or (1) of those above it alone."""
    first, second = np.triu_indices(count, k=above)
    return first.astype(np.int32), second.astype(np.int32)


def _ends(share: Share | None, pieces: int) -> tuple[Any, Any]:
    """Return from which piece of work to which: all, or those of a share."""
    if share is None:
        return 0, pieces
    number, of = share
    each, rest = pieces // of, pieces % of
    first, last = (at * each + at * rest // of for at in (number, number + 1))
    return first, last


def _place(k: Any, count: int, turned: Any) -> tuple[Any, Any]:
    """Return row and column of a tile of a block, by its number."""
    by_rows, by_columns = k // count, k % count
    return jnp.where(turned, by_columns, by_rows), jnp.where(turned, by_rows, by_columns)


def _rows(X: Array, which: Any, tile: int) -> Array:
    return jax.lax.dynamic_slice_in_dim(X, which * tile, tile)


def _columns(W: Array, which: Any, tile: int) -> Array:
    return jax.lax.dynamic_slice_in_dim(W, which * tile, tile, axis=1)


def _add(total: Array, piece: Array, which: Any) -> Array:
    """Return the total with a piece added to the columns of a tile."""
    piece = _columns(total, which, piece.shape[1]) + piece
    return jax.lax.dynamic_update_slice_in_dim(total, piece, which * piece.shape[1], axis=1)


def _both_padded(pair: tuple[Array, Array], size: int, axis: int) -> tuple[Array, Array]:
    return _pad(pair[0], size, axis), _pad(pair[1], size, axis)


def _pad(array: Array, size: int, axis: int) -> Array:
    """Return the array with zeros up to ``size``; rows of padding meet zeros of vectors in every product."""
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, size - array.shape[axis])
    return jnp.pad(array, widths)
