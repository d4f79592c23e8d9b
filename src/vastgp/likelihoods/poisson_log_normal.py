"""Counts whose rates vary by more than the function."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from vastgp.likelihoods.base import Likelihood, number_of_points, positive
from vastgp.likelihoods.poisson import Poisson
from vastgp.likelihoods.quadrature import nodes_over, together

# Nodes for minibatches.
_ROUGH_POINTS = 24


class PoissonLogNormal(Likelihood):
    """Counts ``y ~ Poisson(rate exp(f + eps))``, ``eps ~ N(0, variance)`` anew for every count.

    Overdispersed: what a Poisson process would take for a function that jumps from row to row is scatter here. For a
    normal ``f`` predictions are those of `Poisson` with ``variance`` added to that of ``f``; ``log p`` is an integral,
    log-concave in ``f`` as what is integrated is so in both (Prekopa 1973).

    Parameters
    ----------
    rate : float
        Median rate where the latent function is 0, in place of standardising the target.
    variance : float
        Of the logarithm of the rate, beside what the function says.
    points : int
        Quadrature nodes over ``eps``, and over ``f`` for averages.
    """

    name: ClassVar[str] = "poisson-log-normal"
    scales_target: ClassVar[bool] = False
    counts: ClassVar[bool] = True
    rate: Any
    variance: Any
    points: int = eqx.field(static=True)

    def __init__(self, rate: Any = 1.0, variance: Any = 0.1, points: Any = 32) -> None:
        self.rate = positive("rate", rate)
        self.variance = positive("variance", variance)
        self.points = number_of_points(points)

    def _poisson(self) -> Poisson:
        return Poisson(self.rate, self.points)

    def log_prob(self, y: Any, f: Any) -> Any:
        return self._poisson().log_density(y, f, self.variance)

    def expected_log_prob(self, y: Any, mean: Any, variance: Any) -> Any:
        """Return ``E[log p(y | f)]`` for ``f ~ N(mean, variance)``, elementwise."""
        return _expected(self, *together(y, mean, variance))

    def sites(self, y: Any, mean: Any, variance: Any) -> tuple[Any, Any]:
        """Return ``alpha = E[d log p / df]`` and ``beta = -E[d^2 log p / df^2]``."""
        found = _averages(self, *together(y, mean, variance))
        return found.slope, -found.bend

    def feature(self, y: Any) -> tuple[Any, Any]:
        """Return where `Poisson` has it, and its width with that of ``eps``."""
        centre, width = self._poisson().feature(y)
        return centre, jnp.sqrt(width**2 + 4.0 * self.variance)

    def log_density(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        return self._poisson().log_density(y, mean, latent_variance + self.variance)

    def distribution(self, y: Any, mean: Any, latent_variance: Any) -> Any:
        """Return ``P(count <= y)`` for ``f ~ N(mean, latent_variance)``, continuous in ``y``."""
        return self._poisson().distribution(y, mean, latent_variance + float(self.variance))

    def predictive_mean(self, mean: Any, latent_variance: Any) -> Any:
        """Return ``rate exp(mean + (latent_variance + variance) / 2)``."""
        return self._poisson().predictive_mean(mean, latent_variance + self.variance)

    def predictive_variance(self, mean: Any, latent_variance: Any) -> Any:
        """Return the mean count plus the variance of the rate."""
        return self._poisson().predictive_variance(mean, latent_variance + self.variance)

    def moments_below(self, mean: Any, latent_variance: Any, most: Any) -> Any:
        """Return mean and variance of counts whose rate is no more than ``most``."""
        return self._poisson().moments_below(mean, latent_variance + float(self.variance), most)

    def median(self, mean: Any) -> Any:
        """Return the median count at the median rate, ``rate exp(mean)`` (plug-in)."""
        return self._poisson().median(mean)

    def rough(self) -> PoissonLogNormal:
        """Return the likelihood with fewer nodes."""
        return PoissonLogNormal(self.rate, self.variance, min(self.points, _ROUGH_POINTS))

    def check_targets(self, y: Any) -> None:
        """Refuse negative, fractional and missing counts.

        Raises
        ------
        ValueError
            Naming ``y``, how many entries are wrong and the first of them.
        """
        self._poisson().check_targets(y)


class _Averages(NamedTuple):
    """Averages over ``f`` of ``log p``, its first two derivatives by ``f``, and its derivative by ``variance``."""

    value: Any
    slope: Any
    bend: Any
    by_variance: Any


def _averages(likelihood: PoissonLogNormal, y: Any, mean: Any, variance: Any) -> _Averages:
    """Return averages over a normal ``f``, one node after another: memory is that of one average over ``eps``.

    With expectations over ``eps`` given ``y`` and the count ``c = rate e^(f + eps)``,

        d log p / df = E[y - c],    d^2 log p / df^2 = Var[y - c] - E[c],
        d log p / d variance = 1/2 (d^2 log p / df^2 + (d log p / df)^2).
    """
    poisson = Poisson(likelihood.rate, likelihood.points)
    nodes, weights = nodes_over(likelihood, y, mean, variance)

    def add(totals: _Averages, node: tuple[Any, Any]) -> tuple[_Averages, None]:
        f, weight = node
        highest, parts, inner = poisson.log_parts(y, f, likelihood.variance)
        total = jnp.sum(parts, axis=-1)
        value, share = highest + jnp.log(total), parts / total[..., None]
        count = poisson.rate * jnp.exp(inner)
        surplus = y[..., None] - count
        slope = jnp.sum(share * surplus, axis=-1)
        spread = jnp.sum(share * (surplus - slope[..., None]) ** 2, axis=-1)
        bend = spread - jnp.sum(share * count, axis=-1)
        here = _Averages(value, slope, bend, 0.5 * (bend + slope**2))
        return jax.tree.map(lambda total, part: total + weight * part, totals, here), None

    nothing = _Averages(*(jnp.zeros_like(mean) for _ in range(4)))
    return jax.lax.scan(add, nothing, (jnp.moveaxis(nodes, -1, 0), jnp.moveaxis(weights, -1, 0)))[0]


@jax.custom_jvp
def _expected(likelihood: PoissonLogNormal, y: Any, mean: Any, variance: Any) -> Any:
    return _averages(likelihood, y, mean, variance).value


@_expected.defjvp
def _expected_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    # Bonnet (1964) and Price (1958) by the moments; log rate and f are one by the other
    likelihood, _, mean_change, variance_change = tangents
    found = _averages(*primals)
    change = found.slope * (mean_change + likelihood.rate / primals[0].rate)
    change = change + 0.5 * found.bend * variance_change + found.by_variance * likelihood.variance
    return found.value, change
