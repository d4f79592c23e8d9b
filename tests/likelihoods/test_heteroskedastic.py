"""Gaussian noise of varying variance: closed forms against brute force."""

import jax
import numpy as np
import pytest
from scipy.integrate import cumulative_trapezoid
from scipy.stats import norm

from vastgp._precision import precision
from vastgp.fitting.dual_evidence import local_sites
from vastgp.likelihoods import HeteroskedasticGaussian, from_name, from_spec, to_spec
from vastgp.likelihoods.quantiles import quantiles

MEAN, VARIANCE, Y = np.array([[0.4], [-0.7]]), np.array([[0.3], [1.2]]), np.array([1.1])
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
LIKELIHOOD = HeteroskedasticGaussian(0.5)


@pytest.fixture(autouse=True)
def double():
    with precision("float64"):
        yield


def averaged(function):
    f1, f2 = (MEAN[c, 0] + VARIANCE[c, 0] ** 0.5 * NODES for c in (0, 1))
    values = function(f1[:, None], f2[None, :])
    return np.einsum("i,j,ij->", WEIGHTS, WEIGHTS, values) / WEIGHTS.sum() ** 2


def test_the_expectation_is_that_of_the_log_density():
    right = averaged(lambda a, b: norm.logpdf(Y[0], a, (0.5 * np.exp(b)) ** 0.5))
    assert float(LIKELIHOOD.expected_log_prob(Y, MEAN, VARIANCE)[0]) == pytest.approx(
        right, abs=1e-8
    )


def test_moments_that_are_whole_numbers_are_read_as_floating_point_ones():
    """Quadrature nodes had the type of the means."""
    y, mean, variance = np.array([3.0]), np.array([[1], [0]]), np.array([[1], [2]])
    found = LIKELIHOOD.log_density(y, mean, variance)
    wanted = LIKELIHOOD.log_density(y, mean.astype(float), variance.astype(float))
    np.testing.assert_array_equal(found, wanted)
    f2 = 2.0**0.5 * NODES
    parts = norm.pdf(3.0, 1.0, (1.0 + 0.5 * np.exp(f2)) ** 0.5)
    right = np.log(WEIGHTS @ parts / WEIGHTS.sum())
    assert float(found[0]) == pytest.approx(right, abs=1e-6)


def test_log_prob_is_the_normal_one():
    f = np.array([[0.2], [0.9]])
    right = norm.logpdf(Y[0], 0.2, (0.5 * np.exp(0.9)) ** 0.5)
    assert float(LIKELIHOOD.log_prob(Y, f)[0]) == pytest.approx(right, abs=1e-12)


def test_sites_are_derivatives_of_the_expectation():
    def total(mean, variance):
        return LIKELIHOOD.expected_log_prob(Y, mean, variance).sum()

    by_mean, by_variance = jax.grad(total, argnums=(0, 1))(MEAN, VARIANCE)
    alpha, beta = LIKELIHOOD.sites(Y, MEAN, VARIANCE)
    np.testing.assert_allclose(alpha, by_mean, atol=1e-12)
    np.testing.assert_allclose(beta, -2.0 * by_variance, atol=1e-12)
    assert np.all(beta > 0.0)
    _, sites = local_sites(LIKELIHOOD, Y, MEAN, VARIANCE)
    np.testing.assert_allclose(sites.precision, beta, atol=1e-12)


def test_predictive_density_integrates_to_one_with_the_predictive_moments():
    y = np.linspace(-40.0, 40.0, 20001)
    wide = [np.broadcast_to(part, (2, len(y))) for part in (MEAN, VARIANCE)]
    density = np.exp(np.asarray(LIKELIHOOD.log_density(y, *wide)))
    moments = [np.trapezoid(y**k * density, y) for k in range(3)]
    assert moments[0] == pytest.approx(1.0, abs=1e-6)
    below = np.interp([-2.0, 0.4, 3.0], y, cumulative_trapezoid(density, y, initial=0.0))
    wide = [np.broadcast_to(part, (2, 3)) for part in (MEAN, VARIANCE)]
    found = LIKELIHOOD.distribution(np.array([-2.0, 0.4, 3.0]), *wide)
    np.testing.assert_allclose(found, below, atol=1e-6)
    again = quantiles(LIKELIHOOD, found, MEAN, VARIANCE, (np.zeros(1), np.ones(1)))
    np.testing.assert_allclose(again[:, 0], [-2.0, 0.4, 3.0], atol=1e-7)
    assert moments[1] == pytest.approx(
        float(LIKELIHOOD.predictive_mean(MEAN, VARIANCE)[0]), abs=1e-6
    )
    variance = float(LIKELIHOOD.predictive_variance(MEAN, VARIANCE)[0])
    assert moments[2] - moments[1] ** 2 == pytest.approx(variance, rel=1e-4)
    # brute force over both functions
    f1, f2 = (np.linspace(-8.0, 8.0, 2001) * VARIANCE[c, 0] ** 0.5 + MEAN[c, 0] for c in (0, 1))
    joint = norm.pdf(Y[0], f1[:, None], (0.5 * np.exp(f2)) ** 0.5)
    for f, c, axis in ((f2, 1, 1), (f1, 0, 0)):
        weights = norm.pdf(f, MEAN[c, 0], VARIANCE[c, 0] ** 0.5)
        joint = np.trapezoid(joint * weights, f, axis=axis)
    found = float(np.exp(LIKELIHOOD.log_density(Y, MEAN, VARIANCE)[0]))
    assert found == pytest.approx(float(joint), rel=1e-6)


def test_units_names_and_files():
    scaled = LIKELIHOOD.in_units(3.0)
    # a density per unit of y: that of y / 3, divided by 3
    there = scaled.log_prob(3.0 * Y, np.array([[0.6], [0.9]]))
    here = LIKELIHOOD.log_prob(Y, np.array([[0.2], [0.9]]))
    assert float(there[0]) == pytest.approx(float(here[0]) - np.log(3.0), abs=1e-12)
    assert repr(from_spec(to_spec(LIKELIHOOD))) == repr(LIKELIHOOD)
    assert isinstance(from_name("heteroskedastic"), HeteroskedasticGaussian)
    with pytest.raises(ValueError, match="noise_variance must be one positive finite number"):
        HeteroskedasticGaussian(-1.0)
