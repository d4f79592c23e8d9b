"""Checked vectors of predictions: every score and every plot reads its arguments through these."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from vastgp._arguments import is_number

FloatArray = NDArray[np.float64]


def half_width(level: Any) -> float:
    """Half width of the central interval of a standard normal variable."""
    if not (is_one_number(level) and 0.0 < level < 1.0):
        raise ValueError(f"level: expected a probability in (0, 1), got {level!r}; 95 % is 0.95")
    return float(ndtri(0.5 * (1.0 + level)))


def is_one_number(value: Any) -> bool:
    """Whether a value is a real number, or an array of shape () that holds one; truths and texts are none."""
    return np.ndim(value) == 0 and np.asarray(value).dtype.kind in "fiu"


def whole_number(name: str, value: Any, least: int) -> int:
    """An argument that is a whole number of at least ``least``."""
    if not is_number(value, whole=True) or value < least:
        raise ValueError(f"{name}: expected a whole number of at least {least}, got {value!r}")
    return int(value)


def unmasked(name: str, value: ArrayLike) -> NDArray[Any]:
    """`value` as an array, none of whose entries is masked: what lies under a mask is no number to score."""
    if np.ma.is_masked(value):
        raise ValueError(
            f"{name}: {np.ma.count_masked(value)} of {np.size(value)} values are masked; drop these rows, such as by "
            f"the mask of {name}, ~np.ma.getmaskarray({name})"
        )
    return np.asarray(value)


def vector(name: str, value: ArrayLike, *, endless: bool = False) -> FloatArray:
    """`value` as a finite float64 vector of at least one number; of ``endless`` ones some may be infinite."""
    array = unmasked(name, value)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name}: expected real numbers, got an array of dtype {array.dtype}")
    if array.ndim != 1:
        raise ValueError(
            f"{name}: expected one value an observation, shape (n,), got shape {array.shape}"
        )
    if array.size == 0:
        raise ValueError(f"{name}: expected at least one value, got an empty array")
    array = array.astype(np.float64)
    bad = np.flatnonzero(np.isnan(array) if endless else ~np.isfinite(array))
    if bad.size:
        what = "NaN" if endless else "NaN or infinite"
        raise ValueError(
            f"{name}: {bad.size} of {array.size} values are {what} (the first at index "
            f"{bad[0]}); drop these rows, or look for what made them"
        )
    return array


def target_vectors(y: ArrayLike, mean: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """`y` and `mean` as vectors of one length."""
    first, second = vector("y", y), vector("mean", mean)
    same_length("mean", second, first)
    return first, second


def prediction_vectors(
    y: ArrayLike, mean: ArrayLike, std: ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """`y`, `mean` and `std` as vectors of one length; a scalar `std` holds for every row."""
    first, second = target_vectors(y, mean)
    spread = vector("std", np.broadcast_to(std, first.shape) if np.ndim(std) == 0 else std)
    same_length("std", spread, first)
    return first, second, positive("std", spread)


def same_length(name: str, value: np.ndarray, y: np.ndarray) -> None:
    """Refuse a vector of another length than the targets."""
    if value.size != y.size:
        raise ValueError(
            f"{name}: expected as many values as y, {y.size}, got {value.size}; "
            "predict for the same rows as the targets"
        )


def interval_ends(
    y: FloatArray, low: ArrayLike, high: ArrayLike, names: tuple[str, str] = ("low", "high")
) -> tuple[FloatArray, FloatArray]:
    """The lower and the upper ends of intervals, one for each target; an interval may be endless."""
    ends = vector(names[0], low, endless=True), vector(names[1], high, endless=True)
    for name, end in zip(names, ends, strict=True):
        same_length(name, end, y)
    wrong = np.flatnonzero(ends[0] > ends[1])
    if wrong.size:
        raise ValueError(
            f"{names[0].partition('[')[0]}: expected lower ends that are not above the upper ones, got "
            f"{ends[0][wrong[0]]:.4g} above {ends[1][wrong[0]]:.4g} at index {wrong[0]} and in {wrong.size} of "
            f"{y.size} rows; give (low, high)"
        )
    return ends


def positive(name: str, value: FloatArray) -> FloatArray:
    """`value` when every entry is positive: a standard deviation."""
    if not np.all(value > 0.0):
        raise ValueError(
            f"{name}: expected positive values, got {extremes(value)}; give the standard deviation "
            "of a new observation, not a variance that rounded to zero"
        )
    return value


def checked_units(mean: Any, scale: Any) -> tuple[float, float]:
    """The statistics of the training targets that define standardised units."""
    for name, value in (("y_train_mean", mean), ("y_train_scale", scale)):
        if not is_one_number(value) or not np.isfinite(value):
            raise ValueError(f"{name}: expected a finite number, got {value!r}")
    if scale <= 0.0:
        raise ValueError(
            f"y_train_scale: expected the positive standard deviation of the training targets, "
            f"got {scale!r}"
        )
    return float(mean), float(scale)


def extremes(values: FloatArray) -> str:
    """The range of a vector, for messages."""
    return f"values from {values.min():.4g} to {values.max():.4g}"
