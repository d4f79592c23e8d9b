"""What all likelihoods of numbered classes share: one latent function for each."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import numpy as np

from vastgp.likelihoods.base import Likelihood, whole_number
from vastgp.likelihoods.quadrature import array_module


class SeveralClasses(Likelihood):
    """Labels ``y`` in {0, ..., C - 1}; arrays of latent values have the C functions as the first axis.

    Predictive moments are those of the C indicators of ``y = c``.
    """

    scales_target: ClassVar[bool] = False
    num_classes: eqx.AbstractVar[int]

    @property
    def num_latent(self) -> int:
        """Number of latent functions, one for each class."""
        return self.num_classes

    def is_label(self, y: Any, ndim: int) -> Any:
        """Return whether each class is the label, ``(C, *s)``: of the array module that labels are of."""
        return np.arange(self.num_classes).reshape(-1, *[1] * (ndim - 1)) == _as_index(y)

    def predictive_variance(self, mean: Any, latent_variance: Any) -> Any:
        """Return ``p (1 - p)`` of each predictive probability ``p``."""
        probability = self.predictive_mean(mean, latent_variance)
        return probability * (1.0 - probability)

    def _possible(self, y: np.ndarray) -> tuple[Any, str, str]:
        advice = "Number the classes, as np.unique(y, return_inverse=True) does."
        wanted = f"class numbers 0 to {self.num_classes - 1}"
        return np.isin(y, np.arange(self.num_classes)), wanted, advice


def number_of_classes(value: Any) -> int:
    """Return a number of classes.

    Raises
    ------
    ValueError
        When it is not an integer of at least 2.
    """
    return whole_number("num_classes", value, 2)


def of_label(values: Any, y: Any) -> Any:
    """Return each row's entry of its own class, of values with the classes as the first axis."""
    return array_module(values).take_along_axis(values, _as_index(y)[None], axis=0)[0]


def _as_index(y: Any) -> Any:
    return array_module(y).asarray(y).astype(np.int32)
