"""What all likelihoods of numbered classes share: one latent function for each."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import numpy as np

from vastgp.likelihoods.base import Likelihood, whole_number


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
