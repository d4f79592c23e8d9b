"""Kernel matrices, each as one compiled function for all that need it."""

from __future__ import annotations

from typing import Any

import jax
from jaxtyping import Array, Float


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
