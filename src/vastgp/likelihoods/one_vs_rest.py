"""Several classes, each told from the rest by a logistic function of its own."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from vastgp.likelihoods.base import Likelihood, number_of_points
from vastgp.likelihoods.bernoulli import Bernoulli


class OneVsRest(Likelihood):
    """Labels ``y`` in {0, ..., C - 1} with ``p(y = c | f) = sigmoid(f_c) / sum_k sigmoid(f_k)``.

    What C separate two-class models make together: each says how likely its class is beside all others, and their
    probabilities are brought to the sum of one. Averages over independent normal functions are those of each model.
    As in `vastgp.likelihoods.Softmax`, arrays of latent values have the functions as the first axis.

    Parameters
    ----------
    num_classes : int
        C >= 2.
    points : int
        Quadrature nodes of `Bernoulli`.
    """

    name: ClassVar[str] = "one-vs-rest"
    log_concave: ClassVar[bool] = False
    scales_target: ClassVar[bool] = False
    num_classes: int = eqx.field(static=True)
    points: int = eqx.field(static=True)

    def __init__(self, num_classes: Any = 3, points: Any = 32) -> None:
        whole = isinstance(num_classes, (int, np.integer)) and not isinstance(num_classes, bool)
        if not whole or num_classes < 2:
            raise ValueError(
                f"num_classes must be an integer of at least 2, received {num_classes!r}."
            )
        self.num_classes = int(num_classes)
        self.points = number_of_points(points)

    @property
    def num_latent(self) -> int:
        """Number of latent functions, one for each class."""
        return self.num_classes

    def log_prob(self, y: Any, f: Any) -> Any:
        """Return ``log p(y | f)``."""
        each = jax.nn.log_sigmoid(jnp.asarray(f))
        return _of_label(each - jax.nn.logsumexp(each, axis=0), y)

    def log_density(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        """Return the logarithm of the label's predictive probability."""
        one = jnp.ones(np.shape(mean))
        each = Bernoulli(points=self.points).log_density(one, mean, latent_variance)
        return _of_label(each - jax.nn.logsumexp(each, axis=0), y)

    def predictive_mean(self, mean: Any, latent_variance: Any) -> Any:
        """Return the probability of each class for independent normal functions."""
        each = Bernoulli(points=self.points).predictive_mean(mean, latent_variance)
        return each / jnp.sum(each, axis=0)

    def predictive_variance(self, mean: Any, latent_variance: Any) -> Any:
        """Return ``p (1 - p)`` of each predictive probability."""
        p = self.predictive_mean(mean, latent_variance)
        return p * (1.0 - p)

    def median(self, mean: Any) -> Any:
        """Return the probability of each class at the functions' means."""
        each = jax.nn.sigmoid(jnp.asarray(mean))
        return each / jnp.sum(each, axis=0)

    def check_targets(self, y: Any) -> None:
        """Refuse anything but 0, ..., C - 1.

        Raises
        ------
        ValueError
            Naming ``y``, how many entries are wrong and the first of them.
        """
        y = np.asarray(y)
        numbers = f"the numbers of classes 0 to {self.num_classes - 1}"
        self._refuse(
            y, ~np.isin(y, np.arange(self.num_classes)), numbers, "Code the classes by numbers."
        )


def _of_label(values: Any, y: Any) -> Any:
    index = jnp.asarray(y).astype(jnp.int32)
    return jnp.take_along_axis(values, index[None], axis=0)[0]
