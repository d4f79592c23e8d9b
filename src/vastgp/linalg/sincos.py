"""Sine and cosine in one pass.

XLA's CPU backend calls the scalar ``libm`` routine for float32 sines, which is ten times
slower than the matrix product that feeds it. Random Fourier features are nothing but
sines and cosines, so these functions decide the speed of the library on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


def _sharing_slopes(pair: Callable[[Array], tuple[Array, Array]]) -> Any:
    """Return sine and cosine whose derivatives are each other: differentiation adds no further evaluation."""
    shared = jax.custom_jvp(pair)

    @shared.defjvp
    def jvp(primals, tangents):  # type: ignore[no-untyped-def]
        (x,), (dx,) = primals, tangents
        sine, cosine = shared(x)
        return (sine, cosine), (cosine * dx, -sine * dx)

    return shared


def _moderate(x: Array) -> tuple[Array, Array]:
    if x.dtype != jnp.float32:
        return _sincos_library(x)
    return jax.lax.platform_dependent(x, cpu=_sincos_polynomial, default=_sincos_library)


_any_pair, _moderate_pair = _sharing_slopes(_sincos_library), _sharing_slopes(_moderate)


def sincos(x: Float[Array, "*shape"]) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """Return ``(sin(x), cos(x))`` of angles of any size, in radians, elementwise; derivatives reuse them."""
    sine, cosine = _any_pair(x)
    return sine, cosine


def sincos_of_moderate(
    x: Float[Array, "*shape"],
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """Return `sincos` of angles that are known to be within `LARGEST_ARGUMENT`.

    In float32 on a CPU these are polynomials after a four-term range reduction (largest error about 1e-7), ten times as
    fast. Angles are not looked at: without a test of every one the compiler makes one pass of all that surrounds it.
    """
    sine, cosine = _moderate_pair(x)
    return sine, cosine
