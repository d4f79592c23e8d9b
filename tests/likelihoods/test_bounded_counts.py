"""Moments of counts whose rate is bounded, and where laws of counts start."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy.integrate import quad
from scipy.stats import norm

from vastgp.estimators.first_hyperparameters import first_counts
from vastgp.likelihoods import Gaussian, NegativeBinomial, Poisson, PoissonLogNormal
from vastgp.likelihoods.poisson import moments_below


@pytest.mark.parametrize(("mean", "variance", "rate", "size", "most"), [
    (0.3, 1.5, 2.0, np.inf, 30.0), (-3.0, 4.0, 1.0, 0.5, 5.0), (10.0, 9.0, 1.0, 7.0, 50.0),
    (0.0, 0.01, 1.0, np.inf, 1.05),
])  # fmt: skip
def test_moments_are_the_integrals_of_the_rate_that_is_cut(mean, variance, rate, size, most):
    def average(power: int) -> float:
        def part(f: float) -> float:
            return min(rate * np.exp(f), most) ** power * norm.pdf(f, mean, variance**0.5)

        corner, reach = np.log(most / rate), 12.0 * variance**0.5
        points = [corner] if abs(corner - mean) < reach else None
        return float(quad(part, mean - reach, mean + reach, points=points, limit=400)[0])

    found, spread = moments_below(rate, np.array([mean]), np.array([variance]), size, most)
    assert found[0] == pytest.approx(average(1), rel=1e-6)
    assert spread[0] == pytest.approx(
        average(1) + average(2) * (1.0 + 1.0 / size) - average(1) ** 2, rel=1e-6
    )


def test_without_a_bound_in_reach_they_are_those_of_the_likelihood():
    mean, variance = np.array([0.2, -1.0]), np.array([0.5, 0.0])
    law = NegativeBinomial(3.0, 0.7)
    spread = moments_below(3.0, mean, variance, 0.7, 1e12)[1]
    np.testing.assert_allclose(spread, law.predictive_variance(mean, variance), rtol=1e-6)
    found, spread = moments_below(3.0, mean, variance, np.inf, 1e12)
    np.testing.assert_allclose(found, Poisson(3.0).predictive_mean(mean, variance), rtol=1e-6)
    np.testing.assert_allclose(spread, Poisson(3.0).predictive_variance(mean, variance), rtol=1e-6)
    # however wide the function is, they are finite and within the bound
    found, spread = moments_below(
        1.0, np.array([50.0, -50.0]), np.array([900.0, 900.0]), np.inf, 10.0
    )
    assert np.all(np.isfinite(found)) and np.all(found <= 10.0) and np.all(np.isfinite(spread))


@pytest.mark.parametrize(("mean", "variance"), [(3.0, 0.3), (0.4, 1.5), (20.0, 0.8)])
def test_a_law_that_scatters_starts_where_its_moments_are_those_of_the_counts(mean, variance):
    # a sample whose moments are those of the law, to its own rounding
    rng = np.random.default_rng(0)
    y = rng.poisson(
        mean * np.exp(variance**0.5 * rng.normal(size=400_000) - 0.5 * variance)
    ).astype(float)
    found = first_counts(PoissonLogNormal(), y)
    nodes, weights = hermegauss(40)
    weights = weights / weights.sum()
    rates = float(found.rate) * np.exp(float(found.variance) ** 0.5 * nodes)
    total = weights @ rates
    assert total == pytest.approx(y.mean(), rel=1e-6)
    assert total + weights @ rates**2 - total**2 == pytest.approx(y.var(), rel=1e-4)
    assert float(first_counts(Poisson(), y).rate) == pytest.approx(y.mean())
    law = first_counts(NegativeBinomial(), y)
    assert float(law.rate) == pytest.approx(y.mean())
    assert float(law.predictive_variance(0.0, 0.0)) == pytest.approx(y.var(), rel=1e-6)


def test_counts_that_do_not_scatter_and_zeros_alone_have_a_start_too():
    for y in (np.array([0.0, 1.0, 2.0, 1.0, 2.0]), np.zeros(9), np.array([0.0] * 999 + [500.0])):
        found = first_counts(PoissonLogNormal(), y)
        assert 0.0 < float(found.rate) < np.inf and 0.05 <= float(found.variance) <= 4.0
    assert first_counts(Gaussian(1.0), np.zeros(3)) == Gaussian(1.0)
