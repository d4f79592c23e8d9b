"""Kernel matrices, each as one compiled function for all that need it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import precision


@jax.jit
def kernel_matrix(kernel: Any, X: Float[Array, "n d"], Z: Float[Array, "m d"]) -> Array:
    """Return ``k(x_i, z_j)``."""
    return kernel(X, Z)


@jax.jit
def grid_factors(kernel: Any, axes: Any) -> tuple[Array, ...]:
    """Return the factors of a grid kernel's matrix between the points of a grid."""
    return kernel.factors(axes)


@jax.jit
def grid_cross_factors(kernel: Any, points: Any, axes: Any) -> tuple[Array, ...]:
    """Return the factors between other points and those of a grid."""
    return kernel.factors(points, axes)


def prior_variances(kernel: Any, X: Any) -> np.ndarray:
    """Return ``k(x_i, x_i)`` of each row, in float64."""
    with precision("float64"):
        return np.asarray(_diagonal(kernel, np.asarray(X, np.float64)))


@jax.jit
def _diagonal(kernel: Any, X: Float[Array, "n d"]) -> Float[Array, " n"]:
    return kernel.diag(X)
