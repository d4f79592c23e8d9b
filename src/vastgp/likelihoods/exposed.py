"""Counts of rows with exposures of their own."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from vastgp.likelihoods.base import Likelihood
from vastgp.likelihoods.beside_target import BesideTarget


class Exposed(BesideTarget):
    """Counts ``y_i ~ p(y | f_i + log e_i)`` where ``p`` is the law of counts at an exposure of one.

    An exposure multiplies the rate, ``e exp(f) = exp(f + log e)``: a known shift of the function. Targets have two
    columns, count and ``log e`` (`vastgp.data.observations`), and whatever the law says at a function is said at the
    shifted one. Where no target is given (`predictive_mean`, `predictive_variance`, `median`) the exposure is one: the
    shift of predictions is in their mean already.

    Parameters
    ----------
    of_one : Likelihood
        The law at an exposure of one, of counts.
    """

    name: ClassVar[str] = "exposed"
    counts: ClassVar[bool] = True

    def __init__(self, of_one: Any) -> None:
        if not isinstance(of_one, Likelihood) or not of_one.counts or isinstance(of_one, Exposed):
            raise ValueError(
                f"of_one must be a likelihood of counts, such as Poisson(), received {of_one!r}."
            )
        self.of_one = of_one

    def log_prob(self, y: Any, f: Any) -> Any:
        """Return ``log p(y | f + log e)``, elementwise."""
        return self.of_one.log_prob(y[..., 0], f + y[..., 1])

    def feature(self, y: Any) -> tuple[Any, Any]:
        """Return where ``log p(y | f + log e)`` bends, and how fast."""
        centre, width = self.of_one.feature(y[..., 0])
        return centre - y[..., 1], width

    def expected_log_prob(self, y: Any, mean: Any, variance: Any) -> Any:
        """Return ``E[log p(y | f + log e)]`` for ``f ~ N(mean, variance)``, elementwise."""
        return self.of_one.expected_log_prob(y[..., 0], mean + y[..., 1], variance)

    def sites(self, y: Any, mean: Any, variance: Any) -> tuple[Any, Any]:
        """Return the averaged slope and curvature, which the shift leaves as they are at the shifted mean."""
        return self.of_one.sites(y[..., 0], mean + y[..., 1], variance)

    def curvature_along(self, y: Any, mean: Any, variance: Any, change: Any) -> Any:
        """Return the averaged curvature along a change."""
        return self.of_one.curvature_along(y[..., 0], mean + y[..., 1], variance, change)

    def site_bound(self, y: Any, mean: Any, variance: Any) -> Any:
        """Return what Gaussian sites maximise."""
        return self.of_one.site_bound(y[..., 0], mean + y[..., 1], variance)

    def bound_and_sites(self, y: Any, mean: Any, variance: Any) -> tuple[Any, Any, Any]:
        """Return what Gaussian sites maximise and are made of."""
        return self.of_one.bound_and_sites(y[..., 0], mean + y[..., 1], variance)

    def most_curvature(self) -> float:
        """Return the largest curvature, the same at any shift."""
        return self.of_one.most_curvature()

    def log_density(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        """Return ``log E[p(y | f + log e)]`` for ``f ~ N(mean, latent_variance)``, elementwise."""
        return self.of_one.log_density(y[..., 0], mean + y[..., 1], latent_variance)

    def distribution(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        """Return ``P(count <= y)`` for ``f ~ N(mean, latent_variance)``, continuous in ``y``."""
        return self.of_one.distribution(y[..., 0], mean + y[..., 1], latent_variance)


def of_exposure(likelihood: Likelihood, exposure: float) -> Likelihood:
    """Return a law of counts at another exposure than one: ``exposure`` times the rate."""
    changed: Any = likelihood
    return dataclasses.replace(changed, rate=changed.rate * exposure)
