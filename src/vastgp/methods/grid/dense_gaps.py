"""Systems of a grid with gaps whose few unknowns let their matrix be formed and factorised."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import precision
from vastgp.linalg.cholesky import factorize
from vastgp.linalg.kronecker import KroneckerEigen

# Numbers in the columns that are made together.
_BLOCK_ENTRIES = 1 << 24


class InverseOnMask(eqx.Module):
    """The inverse of a matrix whose rows and columns are some points of a grid.

    Conjugate gradients that have it as their preconditioner are iterative refinement: they end after a few steps
    however the matrix is conditioned, with the residual that was asked for.

    Attributes
    ----------
    where : Array of int, shape (u,)
        Positions of the points.
    inverse : Array of shape (u, u)
    """

    where: Array
    inverse: Array

    def solve(self, vectors: Float[Array, "C M"]) -> Float[Array, "C M"]:
        """Return the inverse times the points of every row, zero elsewhere."""
        here = jnp.matmul(vectors[:, self.where], self.inverse, precision="highest")
        return jnp.zeros_like(vectors).at[:, self.where].set(here)


def inverse_on_mask(
    eigen: KroneckerEigen,
    function_of_spectrum: np.ndarray,
    mask: np.ndarray,
    dtype: str,
    more: np.ndarray | None = None,
) -> InverseOnMask:
    """Return the inverse of ``W (Q diag(f) Q^T + diag(more)) W^T``, ``W`` the rows of a mask's points; in float64.

    Parameters
    ----------
    eigen : KroneckerEigen
        Gives ``Q``.
    function_of_spectrum : ndarray of shape (M,)
        ``f``, positive.
    mask : ndarray of bool, shape (M,)
    dtype : {"float32", "float64"}
        Of the result.
    more : ndarray of shape (M,), optional
        None is no more.
    """
    where = np.flatnonzero(mask)
    block = max(1, min(len(where), _BLOCK_ENTRIES // mask.size))
    # the last block is as long as the others: one compilation
    padded = np.resize(where, -(-len(where) // block) * block)
    with precision("float64"):
        ours = eigen.astype("float64")
        weights, points = jnp.asarray(function_of_spectrum), jnp.asarray(where)
        matrix = np.concatenate(
            [
                np.asarray(_rows_of(ours, weights, jnp.asarray(some), points))
                for some in padded.reshape(-1, block)
            ]
        )[: len(where)]
    matrix = 0.5 * (matrix + matrix.T)
    if more is not None:
        matrix[np.diag_indices(len(where))] += more[where]
    inverse = factorize(
        matrix, 0.0, what="the system of a grid with few unknowns"
    ).into_whole_inverse()
    return InverseOnMask(jnp.asarray(where), jnp.asarray(inverse, dtype))


@jax.jit
def _rows_of(eigen: KroneckerEigen, weights: Array, some: Array, points: Array) -> Array:
    units = jnp.zeros((len(some), len(weights))).at[jnp.arange(len(some)), some].set(1.0)
    return eigen.apply(weights, units)[:, points]
