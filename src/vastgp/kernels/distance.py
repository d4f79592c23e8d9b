"""Squared distances between rows, by the form that fits the precision."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# The loop over dimensions is unrolled into one fused pass; beyond this many the matrix
# product is faster and the compiled program stays small.
_MOST_UNROLLED = 32


def squared_distance(X: Float[Array, "n d"], Z: Float[Array, "m d"]) -> Float[Array, "n m"]:
    """Return ``|x_i - z_j|^2``.

    In float64 the differences are summed directly: the expanded form leaves 1e-15 where
    rows coincide, which the root in a Matern kernel turns into 3e-8. In float32, where speed
    matters more, one matrix product does the work on centred rows.
    """
    if X.dtype == jnp.float64 and X.shape[1] <= _MOST_UNROLLED:
        return _summed_differences(X, Z)
    centre = jnp.mean(Z, axis=0)
    X, Z = X - centre, Z - centre
    cross = jnp.matmul(X, Z.T, precision="highest")
    norms = jnp.sum(X**2, axis=1)[:, None] + jnp.sum(Z**2, axis=1)[None, :]
    return jnp.maximum(norms - 2.0 * cross, 0.0)


@jax.custom_vjp
def _summed_differences(X: Float[Array, "n d"], Z: Float[Array, "m d"]) -> Float[Array, "n m"]:
    total = jnp.zeros((X.shape[0], Z.shape[0]), dtype=X.dtype)
    for j in range(X.shape[1]):
        total = total + (X[:, j, None] - Z[None, :, j]) ** 2
    return total


def _forward(X: Array, Z: Array) -> tuple[Array, tuple[Array, Array]]:
    return _summed_differences(X, Z), (X, Z)


def _backward(inputs: tuple[Array, Array], by_r2: Array) -> tuple[Array, Array]:
    # d r2_ij / d x_i = 2 (x_i - z_j), summed by matrix products: a tenth of the time of autodiff,
    # which makes d passes over an n x m array (n = 1000, d = 20: 7 ms against 68 ms).
    X, Z = inputs
    by_X = 2.0 * (X * jnp.sum(by_r2, axis=1)[:, None] - by_r2 @ Z)
    by_Z = 2.0 * (Z * jnp.sum(by_r2, axis=0)[:, None] - by_r2.T @ X)
    return by_X, by_Z


_summed_differences.defvjp(_forward, _backward)
