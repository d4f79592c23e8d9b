"""The ``class_weight`` of classifiers, as in scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vastgp._arguments import is_number
from vastgp.data.validate import listed


def check_class_weight(class_weight: Any) -> None:
    """Raise ValueError for what is neither None, nor "balanced", nor a dict of positive numbers."""
    if class_weight is None or (isinstance(class_weight, str) and class_weight == "balanced"):
        return
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            f"class_weight must be None, 'balanced' or a dict of a number for each label, received {class_weight!r}."
        )
    for label, weight in class_weight.items():
        if not (is_number(weight) and np.isfinite(weight) and weight > 0):
            raise ValueError(
                f"class_weight must hold positive finite numbers, received {weight!r} for {label!r}. To leave out a "
                "class, remove its rows."
            )


def weights_by_class(
    class_weight: Any, classes: np.ndarray, numbers: np.ndarray
) -> list[float] | None:
    """Return a weight for each class, in their order, or None where all are equal.

    Parameters
    ----------
    class_weight
        As `check_class_weight` admits it; labels that are not named weigh 1.
    classes : ndarray of shape (C,)
    numbers : ndarray of shape (n,)
        A number for each row that is the same within a class and rises with it.

    Raises
    ------
    ValueError
        For a label that is none of the classes.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str):
        _, counts = np.unique(numbers, return_counts=True)
        return (len(numbers) / (len(classes) * counts)).tolist()
    known = classes.tolist()
    unknown = [label for label in class_weight if label not in known]
    if unknown:
        raise ValueError(
            f"class_weight names {listed(unknown)}, but the classes of y are {listed(known)}. Name classes of y alone."
        )
    return [float(class_weight.get(label, 1.0)) for label in known]
