"""Moments of counts that are bounded, and where laws of counts start."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy.stats import nbinom, norm, poisson

from vastgp.estimators.first_hyperparameters import first_counts
from vastgp.likelihoods import Gaussian, NegativeBinomial, Poisson, PoissonLogNormal


@pytest.mark.parametrize(("law", "mean", "variance", "most"), [
    (Poisson(2.0), 0.3, 1.5, 30.0), (Poisson(1.0), 10.0, 9.0, 50.0), (Poisson(1.0), -2.0, 44.0, 365.5),
    (Poisson(4.0), 0.0, 0.01, 1.05), (NegativeBinomial(1.0, 0.5), -3.0, 4.0, 5.0),
    (NegativeBinomial(1.0, 0.3), 2.0, 25.0, 200.0), (NegativeBinomial(1.3, 50.0), 3.0, 1.0, 1000.0),
    (NegativeBinomial(3.0, 7.0), -1.0, 0.5, 1.0), (PoissonLogNormal(2.0, 0.7), 0.3, 0.8, 30.0),
])  # fmt: skip
def test_moments_are_sums_over_the_counts_below_a_bound(law, mean, variance, most):
    u = np.linspace(-9.0, 9.0, 6001)
    if isinstance(law, PoissonLogNormal):
        spread = variance + float(law.variance)
    else:
        spread = variance
    weights = norm.pdf(u) / norm.pdf(u).sum()
    rate = float(law.rate) * np.exp(mean + spread**0.5 * u)
    k = np.arange(np.floor(most))[:, None]
    if isinstance(law, NegativeBinomial):
        size = float(law.size)
        beyond = nbinom.sf(k, size, size / (size + rate))
    else:
        beyond = poisson.sf(k, rate)
    # E[min(y, c)] = sum_{k < c} P(y > k), and of the square sum (2 k + 1) P(y > k)
    first, second = weights @ beyond.sum(axis=0), weights @ ((2 * k + 1) * beyond).sum(axis=0)
    found, square = law.moments_below(np.array([mean]), np.array([variance]), most)
    assert found[0] == pytest.approx(first, rel=1e-4)
    assert square[0] == pytest.approx(second - first**2, rel=2e-4)


def test_without_a_bound_in_reach_they_are_those_of_the_likelihood():
    mean, variance = np.array([0.2, -1.0]), np.array([0.5, 0.0])
    for law in (NegativeBinomial(3.0, 0.7), Poisson(3.0), PoissonLogNormal(3.0, 0.2)):
        found, spread = law.moments_below(mean, variance, 1e12)
        np.testing.assert_allclose(found, law.predictive_mean(mean, variance), rtol=1e-6)
        np.testing.assert_allclose(spread, law.predictive_variance(mean, variance), rtol=1e-6)
    # of millions the variance is no difference of their squares
    found, spread = Poisson(1e6).moments_below(np.zeros(1), np.full(1, 1e-10), 1e9)
    assert found[0] == pytest.approx(1e6, rel=1e-9)
    assert spread[0] == pytest.approx(1e6 + 1e12 * 1e-10, rel=1e-4)
    # however wide the function is, they are finite and within the bound
    for law in (NegativeBinomial(1.0, 0.7), Poisson(1.0)):
        found, spread = law.moments_below(np.array([50.0, -50.0]), np.array([900.0, 900.0]), 10.0)
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
