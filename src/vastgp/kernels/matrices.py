"""Kernel matrices: in NumPy, or as one compiled function for all that need it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import precision
from vastgp._programs import program
from vastgp.data.padding import pad_rows
from vastgp.kernels.dense import (
    dense_matrix,
    dense_slope,
    dense_upper,
    dense_variances,
    has_closed_form,
)
from vastgp.kernels.products import matrix_slope


@jax.jit
def kernel_matrix(kernel: Any, X: Float[Array, "n d"], Z: Float[Array, "m d"]) -> Array:
    """Return ``k(x_i, z_j)``."""
    return kernel(X, Z)


def _entries_of_factors(kernel: Any, points: Any, axes: Any = None) -> int:
    del kernel
    return sum(
        len(p) * len(a) for p, a in zip(points, points if axes is None else axes, strict=True)
    )


@program(work=_entries_of_factors)
def grid_factors(kernel: Any, axes: Any) -> tuple[Array, ...]:
    """Return the factors of a grid kernel's matrix between the points of a grid."""
    return kernel.factors(axes)


@program(work=_entries_of_factors)
def grid_cross_factors(kernel: Any, points: Any, axes: Any) -> tuple[Array, ...]:
    """Return the factors between other points and those of a grid."""
    return kernel.factors(points, axes)


def entries(kernel: Any, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """Return ``k(x_i, z_j)`` in the precision of the rows, compiled for padded sizes: for numbers of rows that vary."""
    return np.asarray(kernel_matrix(kernel, pad_rows(X), pad_rows(Z)))[: len(X), : len(Z)]


def covariance(kernel: Any, X: Any, Z: Any) -> np.ndarray:
    """Return ``k(x_i, z_j)`` in float64: in NumPy where the kernel can, compiled for a padded size otherwise."""
    X, Z = np.asarray(X, np.float64), np.asarray(Z, np.float64)
    if has_closed_form(kernel):
        return dense_matrix(kernel, X, Z)
    with precision("float64"):
        return entries(kernel, X, Z)


def covariance_upper(kernel: Any, X: np.ndarray, out: np.ndarray) -> None:
    """Write ``K(X, X)`` in float64, of which what stands below the diagonal may be left out."""
    if has_closed_form(kernel):
        dense_upper(kernel, X, out)
    else:
        out[...] = covariance(kernel, X, X)


def device_covariance(kernel: Any, X: Any, Z: Any) -> Float[Array, "n m"]:
    """Return ``k(x_i, z_j)`` in float64 as an array of the accelerator, compiled for a padded number of rows ``X``."""
    X, Z = np.asarray(X, np.float64), np.asarray(Z, np.float64)
    with precision("float64"):
        return kernel_matrix(kernel, pad_rows(X), Z)[: len(X)]


def covariance_slope(kernel: Any, X: Any, G: np.ndarray, w: np.ndarray) -> Any:
    """Return the gradient by the kernel of ``1/2 sum_ij (w w^T - G)_ij K(X, X)_ij`` in float64.

    Parameters
    ----------
    G : ndarray of shape (n, n)
        Symmetric; its upper triangle alone is read.
    """
    if has_closed_form(kernel):
        return dense_slope(kernel, np.asarray(X, np.float64), G, w)
    padded = pad_rows(np.asarray(X, np.float64))
    extra = len(padded) - len(X)  # zeros are no part of any gradient
    G, w = np.pad(G, ((0, extra), (0, extra))), np.pad(w, (0, extra))
    with precision("float64"):
        return jax.tree.map(np.asarray, matrix_slope(kernel, padded, G, w))


def prior_variances(kernel: Any, X: Any) -> np.ndarray:
    """Return ``k(x_i, x_i)`` of each row, in float64."""
    X = np.asarray(X, np.float64)
    if has_closed_form(kernel):
        return dense_variances(kernel, X)
    with precision("float64"):
        return np.asarray(_diagonal(kernel, X))


@jax.jit
def _diagonal(kernel: Any, X: Float[Array, "n d"]) -> Float[Array, " n"]:
    return kernel.diag(X)
