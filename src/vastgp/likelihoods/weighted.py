"""Labels of rows that count for more or less than one."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from vastgp.likelihoods.base import Likelihood
from vastgp.likelihoods.beside_target import BesideTarget


class Weighted(BesideTarget):
    """Labels whose ``log p(y_i | f_i)`` a fit takes ``w_i`` times: a row counts as ``w_i`` rows of its label would.

    Targets have two columns, label and ``log w`` (`vastgp.data.observations`), so that rows of zeros, which fill up a
    batch, have the weight one. What is averaged over a posterior in a fit is multiplied by the weight; what is said of
    new rows (`log_prob`, `log_density`, the predictive moments) knows nothing of it, as with the weights of classes.

    Parameters
    ----------
    of_one : Likelihood
        The law of a label, of classes.
    """

    name: ClassVar[str] = "weighted"

    def __init__(self, of_one: Any) -> None:
        if not isinstance(of_one, Likelihood) or of_one.scales_target or of_one.counts:
            raise ValueError(
                f"of_one must be a likelihood of labels, such as Bernoulli(), received {of_one!r}."
            )
        self.of_one = of_one

    @property
    def shift_invariant(self) -> bool:  # type: ignore[override]
        """Whether it does not see what several latent functions have in common."""
        return self.of_one.shift_invariant

    @property
    def nodes_for_each(self) -> int:  # type: ignore[override]
        """About how many numbers averages make of each target and moment."""
        return self.of_one.nodes_for_each

    @property
    def log_concave(self) -> bool:  # type: ignore[override]
        """Whether it is log-concave: a positive weight changes nothing of that."""
        return self.of_one.log_concave

    def log_prob(self, y: Any, f: Any) -> Any:
        return self.of_one.log_prob(y[..., 0], f)

    def feature(self, y: Any) -> tuple[Any, Any]:
        """Return where ``log p(y | f)`` bends, and how fast."""
        return self.of_one.feature(y[..., 0])

    def expected_log_prob(self, y: Any, mean: Any, variance: Any) -> Any:
        """Return ``w E[log p(y | f)]`` for ``f ~ N(mean, variance)``, elementwise."""
        return self.of_one.expected_log_prob(y[..., 0], mean, variance) * jnp.exp(y[..., 1])

    def sites(self, y: Any, mean: Any, variance: Any) -> tuple[Any, Any]:
        """Return the averaged slope and curvature, both times ``w``."""
        alpha, beta = self.of_one.sites(y[..., 0], mean, variance)
        weight = jnp.exp(y[..., 1])
        return alpha * weight, beta * weight

    def curvature_along(self, y: Any, mean: Any, variance: Any, change: Any) -> Any:
        """Return the averaged curvature along a change, times ``w``."""
        along = self.of_one.curvature_along(y[..., 0], mean, variance, change)
        return along * jnp.exp(y[..., 1])

    def site_bound(self, y: Any, mean: Any, variance: Any) -> Any:
        """Return what Gaussian sites maximise, times ``w``."""
        return self.of_one.site_bound(y[..., 0], mean, variance) * jnp.exp(y[..., 1])

    def bound_and_sites(self, y: Any, mean: Any, variance: Any) -> tuple[Any, Any, Any]:
        """Return what Gaussian sites maximise and are made of, times ``w``."""
        found = self.of_one.bound_and_sites(y[..., 0], mean, variance)
        value, alpha, beta = (part * np.exp(y[..., 1]) for part in found)
        return value, alpha, beta

    def log_density(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        return self.of_one.log_density(y[..., 0], mean, latent_variance)
