"""Sine and cosine in one pass.

XLA's CPU backend calls the scalar ``libm`` routine for float32 sines, which is ten times
slower than the matrix product that feeds it. Random Fourier features are nothing but
sines and cosines, so this one function decides the speed of the library on a CPU.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# pi/2 split into parts of eight bits and a rest, so that `quadrant * PART` is exact for every
# quadrant below 2**16 (Cody and Waite 1980).
_HALF_PI = (1.5703125, 4.825592041015625e-4, 1.2665987014770508e-6, 9.920935796805404e-10)
_TWO_OVER_PI = 0.6366197723675814
# Beyond, where neighbouring float32 numbers are 0.008 apart, the exact library call takes over.
LARGEST_ARGUMENT = 1e5


def _sincos_polynomial(x: Array) -> tuple[Array, Array]:
    """Return sine and cosine of moderate float32 arguments by minimax polynomials."""
    quadrant = jnp.round(x * _TWO_OVER_PI)
    reduced = x
    for part in _HALF_PI:
        reduced = reduced - quadrant * jnp.float32(part)
    square = reduced * reduced
    # Minimax polynomials on [-pi/4, pi/4] (coefficients as in Cephes, Moshier 1992).
    sine = (
        (jnp.float32(-1.9515295891e-4) * square + jnp.float32(8.3321608736e-3)) * square
        - jnp.float32(1.6666654611e-1)
    ) * square * reduced + reduced
    cosine = (
        (
            (jnp.float32(2.443315711809948e-5) * square - jnp.float32(1.388731625493765e-3))
            * square
            + jnp.float32(4.166664568298827e-2)
        )
        * square
        * square
        - jnp.float32(0.5) * square
        + jnp.float32(1.0)
    )
    turn = quadrant.astype(jnp.int32)
    swap = (turn & 1) == 1
    sine, cosine = jnp.where(swap, cosine, sine), jnp.where(swap, sine, cosine)
    sine = jnp.where((turn & 2) == 2, -sine, sine)
    cosine = jnp.where(((turn + 1) & 2) == 2, -cosine, cosine)
    return sine, cosine


def _sincos_library(x: Array) -> tuple[Array, Array]:
    return jnp.sin(x), jnp.cos(x)


def _sincos_cpu(x: Array) -> tuple[Array, Array]:
    moderate = jnp.max(jnp.abs(x), initial=0.0) <= LARGEST_ARGUMENT
    return jax.lax.cond(moderate, _sincos_polynomial, _sincos_library, x)


@jax.custom_jvp
def sincos(x: Float[Array, "*shape"]) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """Return ``(sin(x), cos(x))`` elementwise.

    Parameters
    ----------
    x : Array
        Angles in radians, any shape. In float32 on a CPU a polynomial with a four-term
        range reduction is used (largest error about 1e-7 up to ``abs(x) = 1e5``); larger arguments,
        other precisions and other devices use the exact library call.

    Returns
    -------
    tuple of Array
        Sine and cosine. The derivative of each reuses the other, so differentiation adds
        no further evaluation.
    """
    if x.dtype != jnp.float32:
        return _sincos_library(x)
    return jax.lax.platform_dependent(x, cpu=_sincos_cpu, default=_sincos_library)


@sincos.defjvp
def _sincos_jvp(primals, tangents):  # type: ignore[no-untyped-def]
    (x,), (dx,) = primals, tangents
    sine, cosine = sincos(x)
    return (sine, cosine), (cosine * dx, -sine * dx)


@jax.custom_jvp
def sincos_of_moderate(
    x: Float[Array, "*shape"],
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """Return `sincos` of arguments that are known to be within `LARGEST_ARGUMENT`.

    Without the test of every argument the compiler makes one pass of all that surrounds it: a product of
    features is a quarter faster.
    """
    if x.dtype != jnp.float32:
        return _sincos_library(x)
    return jax.lax.platform_dependent(x, cpu=_sincos_polynomial, default=_sincos_library)


@sincos_of_moderate.defjvp
def _sincos_of_moderate_jvp(primals, tangents):  # type: ignore[no-untyped-def]
    (x,), (dx,) = primals, tangents
    sine, cosine = sincos_of_moderate(x)
    return (sine, cosine), (cosine * dx, -sine * dx)
