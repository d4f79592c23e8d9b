"""The multinomial probit: probabilities as the integral has them, logarithms also far out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from likelihoods.conformance import Compiled
from vastgp._precision import precision
from vastgp.likelihoods import MultinomialProbit, from_spec, to_spec

pytestmark = pytest.mark.little_work


def _exact(mean, variance):
    std = np.sqrt(1.0 + variance)
    found = []
    for c in range(len(mean)):
        rest = np.arange(len(mean)) != c

        def density(u, c=c, rest=rest):
            below = norm.cdf(u, mean[rest], std[rest])
            return norm.pdf(u, mean[c], std[c]) * np.prod(below)

        ends = mean[c] - 12.0 * std[c], mean[c] + 12.0 * std[c]
        found.append(quad(density, *ends, points=[mean[c]], limit=400, epsabs=1e-13)[0])
    return np.array(found)


@pytest.mark.parametrize("widest", [1.0, 3.0])
@pytest.mark.parametrize("num_classes", [2, 3, 8])
def test_probabilities_are_those_of_the_integral(num_classes, widest):
    rng = np.random.default_rng(num_classes)
    mean = 2.0 * rng.normal(size=(num_classes, 4))
    variance = widest ** (2.0 * rng.uniform(size=mean.shape)) - 1.0
    likelihood = Compiled(MultinomialProbit(num_classes))
    exact = np.stack([_exact(*pair) for pair in zip(mean.T, variance.T, strict=True)], axis=1)
    with precision("float64"):
        found = np.asarray(likelihood.predictive_mean(mean, variance))
        logs = [likelihood.log_density(np.full(4, c), mean, variance) for c in range(num_classes)]
        spread = np.asarray(likelihood.predictive_variance(mean, variance))
    np.testing.assert_allclose(found, exact, atol=1e-9)
    np.testing.assert_allclose(found.sum(axis=0), 1.0, rtol=1e-12)
    # the reference has no more digits of small ones
    likely = exact > 1e-4
    np.testing.assert_allclose(np.array(logs)[likely], np.log(exact[likely]), rtol=1e-8, atol=2e-9)
    np.testing.assert_allclose(spread, found * (1.0 - found))


def test_two_classes_are_the_probit_of_the_difference_however_unlikely():
    f = np.array([[0.0, 0.0, 0.0, 3.0], [1.0, 20.0, 80.0, -2.0]])
    likelihood = Compiled(MultinomialProbit(2))
    with precision("float64"):
        first, second = (likelihood.log_prob(np.full(4, float(c)), f) for c in (0, 1))
        median = np.asarray(likelihood.median(f))
    difference = (f[1] - f[0]) / 2.0**0.5
    np.testing.assert_allclose(first, norm.logcdf(-difference), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(second, norm.logcdf(difference), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(median[1], norm.cdf(difference), atol=1e-11)


def test_what_all_functions_have_in_common_does_not_count():
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(size=(3, 5)), rng.uniform(size=(3, 5))
    likelihood = Compiled(MultinomialProbit(3))
    with precision("float64"):
        found, moved = (likelihood.predictive_mean(mean + by, variance) for by in (0.0, 40.0))
    np.testing.assert_allclose(found, moved, rtol=1e-9)


def test_settings_are_checked_and_come_back_from_a_file():
    likelihood = MultinomialProbit(4, points=32)
    assert from_spec(to_spec(likelihood)) == likelihood and likelihood.num_latent == 4
    with pytest.raises(
        ValueError, match=r"num_classes must be an integer of at least 2, received 1\."
    ):
        MultinomialProbit(1)
    with pytest.raises(ValueError, match=r"y must hold class numbers 0 to 3 .*the first 4\.0\."):
        likelihood.check_targets(np.array([0.0, 4.0]))
