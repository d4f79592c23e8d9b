"""Several classes, each told from the rest by a logistic function of its own."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from vastgp.likelihoods.base import number_of_points
from vastgp.likelihoods.bernoulli import Bernoulli
from vastgp.likelihoods.several_classes import SeveralClasses, number_of_classes, of_label


class OneVsRest(SeveralClasses):
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
    num_classes: int = eqx.field(static=True)
    points: int = eqx.field(static=True)

    def __init__(self, num_classes: Any = 3, points: Any = 32) -> None:
        self.num_classes = number_of_classes(num_classes)
        self.points = number_of_points(points)

    def log_prob(self, y: Any, f: Any) -> Any:
        """Return ``log p(y | f)``."""
        each = jax.nn.log_sigmoid(jnp.asarray(f))
        return of_label(each - jax.nn.logsumexp(each, axis=0), y)

    def log_density(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        """Return the logarithm of the label's predictive probability."""
        one = jnp.ones(np.shape(mean))
        each = Bernoulli(points=self.points).log_density(one, mean, latent_variance)
        return of_label(each - jax.nn.logsumexp(each, axis=0), y)

    def predictive_mean(self, mean: Any, latent_variance: Any) -> Any:
        """Return the probability of each class for independent normal functions."""
        each = Bernoulli(points=self.points).predictive_mean(mean, latent_variance)
        return each / jnp.sum(each, axis=0)

    def median(self, mean: Any) -> Any:
        """Return the probability of each class at the functions' means."""
        each = jax.nn.sigmoid(jnp.asarray(mean))
        return each / jnp.sum(each, axis=0)
