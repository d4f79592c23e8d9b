"""What a row of each class counts in a fit."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def checked_weights(weights: Any, num_classes: int) -> tuple[float, ...] | None:
    """Return weights as plain numbers, one for each class; None stands for equal ones.

    Raises
    ------
    ValueError
        When they are not so many positive finite numbers.
    """
    if weights is None:
        return None
    try:
        values = np.asarray(weights, dtype=np.float64)
        good = values.shape == (num_classes,) and bool(np.all(np.isfinite(values) & (values > 0)))
    except (TypeError, ValueError):
        good = False
    if not good:
        raise ValueError(
            f"class_weights must be {num_classes} positive finite numbers, received {weights!r}."
        )
    return tuple(values.tolist())


def weights_of(weights: tuple[float, ...] | None, number: Any, dtype: Any) -> Float[Array, "*s"]:
    """Return the weight of each row by the number of its class."""
    number = jnp.asarray(number).astype(jnp.int32)
    if weights is None:
        return jnp.ones(number.shape, dtype)
    return jnp.asarray(weights, dtype)[number]
