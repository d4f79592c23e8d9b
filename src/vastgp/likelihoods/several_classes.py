"""What all likelihoods of numbered classes share: one latent function for each."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import numpy as np

from vastgp.likelihoods.base import Likelihood


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

    def check_targets(self, y: Any) -> None:
        """Refuse anything but the numbers of the classes.

        Raises
        ------
        ValueError
            Naming ``y``, how many entries are wrong and the first of them.
        """
        y = np.asarray(y)
        self._refuse(
            y,
            ~np.isin(y, np.arange(self.num_classes)),
            f"class numbers 0 to {self.num_classes - 1}",
            "Number the classes, as np.unique(y, return_inverse=True) does.",
        )


def number_of_classes(value: Any) -> int:
    """Return a number of classes.

    Raises
    ------
    ValueError
        When it is not an integer of at least 2.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 2:
        raise ValueError(f"num_classes must be an integer of at least 2, received {value!r}.")
    return int(value)
