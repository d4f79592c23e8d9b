"""Averages of iterates."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array


def average_weight(visits: Any, exponent: Any) -> Array:
    """Return the weight of a new value in the polynomial-decay average (Shamir and Zhang 2013).

    With ``w_t = min(1, (a + 1) / (t + a))`` and ``average_t = (1 - w_t) average_{t-1} + w_t value_t`` the value of
    visit ``s`` counts in proportion to ``s (s + 1) ... (s + a - 1)``, about ``s^a``: all alike for ``a = 0``, about the
    last ``1 / (1 + a)`` of them for larger ones.

    Parameters
    ----------
    visits : int or float, or Array
        Values so far, this one included; it may be an expected number. Up to one, the value is the average.
    exponent : float
        ``a``, from 0.
    """
    visits = jnp.asarray(visits)
    visits = visits if jnp.issubdtype(visits.dtype, jnp.floating) else visits.astype(float)
    return jnp.minimum(1.0, (exponent + 1.0) / (visits + exponent))


def moved(average: Any, value: Any, weight: Any) -> Any:
    """Return ``(1 - weight) average + weight value`` of pytrees."""
    return jax.tree.map(lambda a, b: a + weight * (b - a), average, value)
