"""Checked class probabilities: every score and every plot of a classifier reads its arguments here."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vastgp.metrics._vectors import FloatArray, unmasked


class CheckedProbabilities(NamedTuple):
    """What `check_probabilities` makes of the arguments of a score."""

    column: NDArray[np.int64]  #: (n,) the column of each observed label
    probabilities: FloatArray  #: (n, K)
    classes: list[Any]  #: (K,) as Python values
    epsilon: float  #: machine epsilon of the probabilities as they were given


def check_probabilities(
    labels: ArrayLike, probabilities: ArrayLike, classes: Any
) -> CheckedProbabilities:
    """Arguments of a score as columns and probabilities, or an error that says what is wrong."""
    p = unmasked("probabilities", probabilities)
    if p.dtype.kind not in "fiub":
        raise ValueError(f"probabilities: expected real numbers, got an array of dtype {p.dtype}")
    if p.size == 0 or p.ndim not in (1, 2) or (p.ndim == 2 and p.shape[1] < 2):
        raise ValueError(
            "probabilities: expected shape (n, K) with a column for each of K >= 2 classes, or "
            f"(n,) with that of the second of two classes, n >= 1; got shape {p.shape}"
        )
    epsilon = float(np.finfo(p.dtype if p.dtype.kind == "f" else np.float64).eps)
    p = p.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(p.reshape(len(p), -1)).all(axis=1))
    if bad.size:
        raise ValueError(
            f"probabilities: {bad.size} of {len(p)} rows hold NaN or infinite values (the first at "
            f"index {bad[0]}); drop these rows, or look for what made them"
        )
    rounding = 16.0 * epsilon  # of sums and quotients in the precision of the prediction
    if p.min() < -rounding or p.max() > 1.0 + rounding:
        raise ValueError(
            f"probabilities: expected values in [0, 1], got {p.min():.4g} to {p.max():.4g}; give "
            "probabilities, not values of the latent function or percentages"
        )
    p = np.clip(p, 0.0, 1.0)
    p = np.stack([1.0 - p, p], axis=1) if p.ndim == 1 else p
    total = p.sum(axis=1)
    worst = int(np.argmax(np.abs(total - 1.0)))
    if abs(total[worst] - 1.0) > max(1e-6, rounding):
        raise ValueError(
            f"probabilities: expected rows that sum to 1, got {total[worst]:.8g} in row {worst}; "
            "give all classes, one column each, normalised"
        )
    column, names = _columns(labels, classes, p.shape[1])
    if column.size != len(p):
        raise ValueError(
            f"probabilities: expected as many rows as labels, {column.size}, got {len(p)}; "
            "predict for the same rows as the labels"
        )
    return CheckedProbabilities(column, p, names, epsilon)


def _columns(labels: ArrayLike, classes: Any, k: int) -> tuple[NDArray[np.int64], list[Any]]:
    """The column of each label among `k` classes, and the classes."""
    values = _plain_vector("labels", labels)
    try:
        found, place = np.unique(values, return_inverse=True)
    except TypeError as error:  # such as None among strings
        raise ValueError(
            "labels: expected values of one type that can be sorted, got "
            f"{sorted({type(v).__name__ for v in values.tolist()})}; drop rows without a label"
        ) from error
    for kinds, missing, what in (("fc", np.isnan, "NaN"), ("mM", np.isnat, "NaT")):
        if values.dtype.kind in kinds and missing(found).any():
            raise ValueError(
                f"labels: {missing(values).sum()} of {values.size} values are {what}; drop these rows"
            )
    names = found.tolist() if classes is None else _plain_vector("classes", classes).tolist()
    if len(names) != k:
        got = f"{len(names)} ({_some(names)})"
        if classes is None:
            raise ValueError(
                f"classes: the probabilities are of {k} classes, but the labels hold {got}; "
                "give classes, the class of each column, in order"
            )
        raise ValueError(f"classes: expected {k}, one for each column of probabilities, got {got}")
    number = {name: i for i, name in enumerate(names)}
    if len(number) != k:
        raise ValueError(f"classes: expected distinct values, got {_some(names)}")
    unknown = [value for value in found.tolist() if value not in number]
    if unknown:
        raise ValueError(
            f"labels: {_some(unknown)} not among the classes {_some(names)}; give every class and "
            "labels of the same type"
        )
    return np.array([number[value] for value in found.tolist()])[place], names


def _plain_vector(name: str, value: Any) -> NDArray[Any]:
    array = unmasked(name, value)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(
            f"{name}: expected one value an entry, shape (n,) with n >= 1, got shape {array.shape}"
        )
    return array


def _some(values: list[Any], most: int = 5) -> str:
    """The first few of the values, for messages."""
    return ", ".join(map(repr, values[:most])) + (", ..." if len(values) > most else "")
