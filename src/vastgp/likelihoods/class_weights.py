"""What a row of each class counts in a fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from vastgp.likelihoods.quadrature import array_module


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


def weights_of(weights: tuple[float, ...] | None, number: Any, dtype: Any) -> Any:
    """Return the weight of each row by the number of its class, of the array module that the numbers are of."""
    xp = array_module(number)
    number = xp.asarray(number).astype(np.int32)
    if weights is None:
        return xp.ones(number.shape, dtype)
    return xp.asarray(weights, dtype)[number]
