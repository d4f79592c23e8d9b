"""Distributions that are mixtures of normal ones: densities, quantiles and scores are those of the mixture."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from vastgp import ExactGPRegressor
from vastgp.data import Rows, Standardizer
from vastgp.estimators.mixed_predictive import MixedPredictive

pytestmark = pytest.mark.little_work

WEIGHTS = np.array([0.5, 0.3, 0.2])
MEANS = np.array([[0.0, 1.0], [0.5, 1.0], [-3.0, 1.0]])
VARIANCES = np.array([[0.1, 0.2], [2.0, 1e14], [9.0, 1.0]])
NOISES = np.array([0.1, 0.3, 0.2])


@pytest.fixture(scope="module")
def found():
    rng = np.random.default_rng(0)
    scaling = Standardizer().fit(Rows(rng.normal(size=(30, 1)), 5.0 + 3.0 * rng.normal(size=30)))
    return MixedPredictive.of(MEANS, VARIANCES, NOISES, WEIGHTS, scaling)


def by_hand(found, row):
    scaling = found.scaling
    means = scaling.y_mean + scaling.y_scale * MEANS[:, row]
    stds = scaling.y_scale * np.sqrt(VARIANCES[:, row] + NOISES)
    return means, stds


def test_densities_and_moments_are_those_of_the_mixture(found):
    means, stds = by_hand(found, 0)

    def density(y):
        return float(np.exp(found.log_density(np.array([y, 0.0]))[0]))

    assert density(4.0) == pytest.approx(WEIGHTS @ norm.pdf(4.0, means, stds), rel=1e-10)
    ends = -60.0, 70.0
    assert quad(density, *ends, limit=200)[0] == pytest.approx(1.0, abs=1e-6)
    mean = quad(lambda y: y * density(y), *ends, limit=200)[0]
    variance = quad(lambda y: (y - mean) ** 2 * density(y), *ends, limit=200)[0]
    assert found.mean[0] == pytest.approx(mean, rel=1e-6)
    assert found.std[0] == pytest.approx(variance**0.5, rel=1e-5)


def test_quantiles_have_their_probability_where_a_part_is_wide_and_where_it_is_not(found):
    """The second row has a part of ten million deviations beside one of half a deviation."""
    wanted = np.array([1e-4, 0.025, 0.3, 0.5, 0.8, 0.975])
    quantiles = found.quantiles(wanted)
    for row in range(2):
        means, stds = by_hand(found, row)
        reached = norm.cdf((quantiles[:, row, None] - means) / stds) @ WEIGHTS
        np.testing.assert_allclose(reached, wanted, rtol=1e-5)
        scores = [
            found.of_rows(np.array([row])).normal_scores(y[None])[0] for y in quantiles[:, row]
        ]
        np.testing.assert_allclose(norm.cdf(scores), wanted, rtol=1e-5)


def test_rows_with_noise_of_their_own_add_it_to_every_part(found):
    # twice the noise, and a variance of 4 in units of the target
    y = np.array([[4.0, 2.0, 4.0], [2.0, 1.0, 0.0]])
    means, stds = by_hand(found, 0)
    variance = stds**2 + found.scaling.y_scale**2 * NOISES + 4.0
    wanted = np.log(WEIGHTS @ norm.pdf(4.0, means, variance**0.5))
    noisy = found.with_noise_of(y)
    assert noisy.log_density(y[:, 0])[0] == pytest.approx(wanted, rel=1e-9)
    assert noisy.log_density(y[:, 0])[1] == pytest.approx(found.log_density(y[:, 0])[1])
    assert noisy.std[0] == pytest.approx(
        (found.std[0] ** 2 + WEIGHTS @ variance - WEIGHTS @ stds**2) ** 0.5
    )


def test_a_line_that_goes_on_takes_no_more_from_the_process_than_its_weight():
    """Rows of one place up to a ten-millionth: new ones are 1e7 deviations away, where a line may be anything."""
    rng = np.random.default_rng(3)
    X = np.ones((12, 2)) + 1e-7 * rng.normal(size=(12, 2))
    y = np.array([0.0, 1.0])[np.arange(12) % 2] + 0.1 * rng.normal(size=12)
    new, target = rng.normal(size=(200, 2)), rng.uniform(-0.5, 1.5, 200)
    model = ExactGPRegressor(restarts=1).fit(X, y)
    assert model.answer_ == "average"
    mean, std = model.predict(new, return_std=True)
    assert np.median(std) > 1e3
    assert np.mean(model.log_predictive_density(new, target)) > -5.0
    assert np.mean(norm.logpdf(target, mean, std)) < -8.0
    low, high = model.predict_quantiles(new, (0.4, 0.6)).T
    assert np.median(high - low) < 3.0
