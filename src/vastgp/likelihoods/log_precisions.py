"""Where an average over the precisions of Student-t noise has its mass.

With the residual ``d``, the latent variance ``v`` and noise of the variance ``s^2 / l``, ``l ~ Gamma(a, a)``, the
logarithm of what is averaged is, in ``x = log l`` and up to a constant,

    h(x) = a (x - e^x + 1) + g(x),    g(x) = -1/2 [d^2 / W + log W],    W = v + s^2 e^-x.

It has one peak or two: a residual may be large because of the latent variance, ``x`` near 0, or because of this noise,
``W`` near ``d^2``. Each has about the width ``1 / sqrt(a + 1/2)``, and they may be far apart.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

# What is below e^-25 of the height is left out.
_FALL = 25.0
_MODE_STEPS, _END_STEPS = 6, 5


def range_of_log_precisions(d2: Any, v: Any, s2: Any, a: Any) -> tuple[Any, Any, Any]:
    """Return between which ``log l`` all lies that counts, and about how high ``h`` is at most.

    Parameters
    ----------
    d2, v, s2 : Array of shape (*s,)
        ``d^2``, the latent variance, and ``s^2``.
    a : Array of shape (*s,)
        Half the degrees of freedom.
    """
    lower, upper = _modes(d2, v, s2, a)
    heights = (a * (x - jnp.expm1(x)) + _of_data(_width(x, v, s2), d2) for x in (lower, upper))
    top = jnp.maximum(*heights)
    floor = top - _FALL
    return _low(floor, lower, d2, v, s2, a), _high(floor, upper, d2, v, s2, a), top


def _width(x: Any, v: Any, s2: Any) -> Any:
    return v + s2 * jnp.exp(-x)


def _of_data(width: Any, d2: Any) -> Any:
    return -0.5 * (d2 / width + jnp.log(width))


def _modes(d2: Any, v: Any, s2: Any, a: Any) -> tuple[Any, Any]:
    """Return about the lowest and the highest mode, by expectation maximisation from either side.

    ``l = (2 a + 1) / (2 a + E[n^2 | l] / s^2)`` with ``n`` the noise given ``d``: it rises with ``l`` on the right, so
    that steps from below all modes come up to the lowest, and from above down to the highest.
    """
    lower, upper = (2.0 * a + 1.0) / (2.0 * a + (d2 + v) / s2), (2.0 * a + 1.0) / (2.0 * a)
    for _ in range(_MODE_STEPS):
        lower, upper = (
            (2.0 * a + 1.0) / (2.0 * a + share * (d2 * share + v) / s2)
            for share in (s2 / (v * l + s2) for l in (lower, upper))  # noqa: E741
        )
    return jnp.log(lower), jnp.log(upper)


def _low(floor: Any, mode: Any, d2: Any, v: Any, s2: Any, a: Any) -> Any:
    """Return below which ``x`` all is under a floor."""
    # below all peaks, and where W is no longer v, h falls at least as the law of a + 1/2 does
    tiny = jnp.finfo(d2.dtype).tiny
    huge = 0.9 * jnp.log(jnp.finfo(d2.dtype).max) - jnp.maximum(jnp.log(s2), 0.0)
    first = jnp.minimum(mode, jnp.log(s2 / jnp.maximum(v, tiny)))
    low = jnp.maximum(jnp.minimum(first, 0.0) - _fallen(_FALL / (a + 0.5)), -huge)
    for _ in range(_END_STEPS):
        # above an end the data give no more than they do at d^2, or at that end
        most = _of_data(jnp.minimum(_width(low, v, s2), jnp.maximum(d2, v + s2)), d2)
        low = jnp.maximum(low, -_fallen(jnp.maximum(most - floor, 0.0) / a))
    return low


def _fallen(e: Any) -> Any:
    """Return how far below 0 ``e^x - 1 - x`` is at least ``e``, as it is at least ``x^2 / (2 - x)`` there."""
    return 0.5 * (e + jnp.sqrt(e * (e + 8.0)))


def _high(floor: Any, mode: Any, d2: Any, v: Any, s2: Any, a: Any) -> Any:
    """Return above which ``x`` all is under a floor."""
    # e^x - 1 - x >= (e^x - 1)^2 / (2 e^x) above 0
    e = _FALL / a
    high = jnp.log1p(e + jnp.sqrt(2.0 * e))
    for _ in range(_END_STEPS):
        # below an end the law of precisions gives no more than at that end, or at 0, and the data fall with z = d^2 / W
        # where z - log z = q, of which this is the solution for large q
        below = jnp.minimum(high, 0.0)
        most = a * (below - jnp.expm1(below))
        q = 2.0 * (most - floor) - jnp.log(jnp.maximum(d2, jnp.finfo(d2.dtype).tiny))
        q = jnp.maximum(q, 1.0)
        beyond = d2 / (q + jnp.log(q + jnp.log(q))) - v
        end = jnp.log(s2 / jnp.where(beyond > 0.0, beyond, 1.0))
        high = jnp.where(beyond > 0.0, jnp.minimum(high, jnp.maximum(end, mode)), high)
    return high
