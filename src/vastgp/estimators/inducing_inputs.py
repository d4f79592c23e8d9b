"""Inducing inputs as they are given: an array, or the name of a way to choose them."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from vastgp._arguments import OneOf
from vastgp.data import Standardizer
from vastgp.fitting.inducing_points import METHODS


class InducingInputs:
    """One of some words, or a finite array with an inducing input in each row."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def __call__(self, name: str, value: Any) -> None:
        if isinstance(value, str):
            OneOf(*self.words)(name, value)
        else:
            check_inputs(value)


InducingInputsLike = Annotated[str | list[list[float]] | np.ndarray, InducingInputs(*METHODS)]


def check_inputs(given: Any, width: int | None = None) -> np.ndarray:
    """Return inducing inputs as an array of float64; raise ValueError for what cannot be.

    Parameters
    ----------
    given : object
    width : int, optional
        Number of inputs, where it is known.
    """
    try:
        Z = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"inducing_inputs must be an array of numbers, received {type(given).__name__}."
        ) from None
    if Z.ndim != 2 or len(Z) == 0 or (width is not None and Z.shape[1] != width):
        columns = "d" if width is None else width
        raise ValueError(
            f"inducing_inputs must have shape (m, {columns}), a row for each and as many columns as X; received shape "
            f"{Z.shape}. Give them in the units of X."
        )
    if not np.all(np.isfinite(Z)):
        row = int(np.flatnonzero(~np.isfinite(Z).all(axis=1))[0])
        raise ValueError(
            f"inducing_inputs hold NaN or infinity, first at row {row}. Remove such rows."
        )
    return Z


def given_inputs(inducing_inputs: Any, num_inducing: Any, width: int) -> np.ndarray | None:
    """Return inducing inputs that were given, in the units of the inputs; None for a way to choose them."""
    if isinstance(inducing_inputs, str):
        return None
    Z = check_inputs(inducing_inputs, width)
    if num_inducing is not None and num_inducing != len(Z):
        raise ValueError(
            f"num_inducing={num_inducing}, but inducing_inputs holds {len(Z)} rows. Leave num_inducing out."
        )
    return Z


def inducing_attributes(Z: np.ndarray, scaling: Standardizer) -> dict[str, Any]:
    """Return the fitted attributes of standardised inducing inputs: in the units of the inputs, and their number."""
    points = Z * scaling.x_scale + scaling.x_mean
    return {"inducing_points_": points, "num_inducing_": len(Z)}
