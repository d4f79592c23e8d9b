"""Tiles of the covariance matrix of observations on an accelerator, and slopes by the kernel of sums of their entries.

Tiles have one size, so that one program makes all of them, whatever the number of rows.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import precision
from vastgp.data.padding import repeat_last
from vastgp.kernels.products import kernel_tile, with_slope


class InputTiles:
    """Rows in parts of one size on an accelerator, in float64; the last is filled with copies of the last row.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    tile : int
        Rows of a part.
    """

    def __init__(self, X: Float[np.ndarray, "n d"], tile: int) -> None:
        self.num_rows, self.tile = len(X), tile
        self.count = -(-len(X) // tile)
        filled = repeat_last(np.asarray(X, np.float64), self.count * tile)
        self.inputs = self.parts(filled)
        self.counted = self.parts(np.ones(len(X)))

    def parts(self, values: np.ndarray, fill: float = 0.0) -> list[Array]:
        """Return values of the rows in their parts, in float64."""
        missing = self.count * self.tile - len(values)
        widths = [(0, missing)] + [(0, 0)] * (values.ndim - 1)
        filled = np.pad(np.asarray(values, np.float64), widths, constant_values=fill)
        with precision("float64"):
            return [jax.device_put(part) for part in np.split(filled, self.count)]


class CovarianceTiles:
    """``A = K(X, X) + diag(noise)`` by its tiles, which are made when they are asked for, in float64.

    Parameters
    ----------
    kernel : Kernel
    rows : InputTiles
    noise : ndarray of shape (n,)
    """

    def __init__(self, kernel: Any, rows: InputTiles, noise: Float[np.ndarray, " n"]) -> None:
        self.kernel, self.rows = kernel, rows
        self._noise = rows.parts(noise, fill=1.0)
        with precision("float64"):
            self._nothing = jax.device_put(np.zeros(rows.tile))

    def __call__(self, i: int, j: int) -> Float[Array, "t t"]:
        """Return tile ``A_ij``; of rows that are filling that of the identity."""
        x, counted = self.rows.inputs, self.rows.counted
        added = self._noise[i] if i == j else self._nothing
        with precision("float64"):
            return _entries(self.kernel, x[i], x[j], counted[i], counted[j], added, i == j)

    def slope(
        self, tiles: Any, weights: Float[np.ndarray, " n"]
    ) -> tuple[Any, Float[np.ndarray, " n"]]:
        """Return the gradient by the kernel of ``1/2 sum_ij (w w^T - G)_ij K_ij``, and the diagonal of ``G``.

        Parameters
        ----------
        tiles : iterable of (int, int, Array)
            Row, column and entries of the tiles ``G_ij``, ``j <= i``.
        weights : ndarray of shape (n,)
            ``w``.
        """
        x, counted, w = self.rows.inputs, self.rows.counted, self.rows.parts(weights)
        total: Any = jax.tree.map(lambda leaf: np.zeros(np.shape(leaf)), self.kernel)
        diagonal = []
        for i, j, tile in tiles:
            with precision("float64"):
                total, on_diagonal = _slope(
                    total, self.kernel, (x[i], x[j]), (counted[i], counted[j]), (w[i], w[j]), tile, i == j
                )  # fmt: skip
                if i == j:
                    diagonal.append(np.asarray(on_diagonal, np.float64))
        return jax.tree.map(np.asarray, total), np.concatenate(diagonal)[: self.rows.num_rows]


@jax.jit
def _entries(
    kernel: Any, x: Array, z: Array, counts: Array, others: Array, added: Array, same: Any
) -> Float[Array, "t t"]:
    K = kernel_tile(kernel, x, z, same) * (counts[:, None] * others[None, :])
    return K + jnp.eye(len(x), dtype=K.dtype) * added


@jax.jit
def _slope(
    total: Any, kernel: Any, rows: Any, counted: Any, weights: Any, tile: Array, same: Any
) -> tuple[Any, Array]:
    """Return the total with what a tile and its mirror have in the gradient, and the diagonal of the tile."""
    cotangent = jnp.outer(*weights) - tile.astype(rows[0].dtype)
    cotangent = cotangent * jnp.outer(*counted) * jnp.where(same, 0.5, 1.0)
    return with_slope(total, kernel, rows[0], rows[1], same, cotangent), jnp.diagonal(tile)
