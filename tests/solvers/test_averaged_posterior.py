"""The average over posteriors has the moments of the mixture; over hyperparameters, those of the integral."""

import numpy as np
import pytest

from vastgp import RBF, Matern52
from vastgp.fitting.best_fit import fit_evidence
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.fitting.hyperparameter_prior import HyperparameterPrior
from vastgp.likelihoods import Gaussian
from vastgp.solvers.averaged_posterior import AveragedPosterior, around_optimum
from vastgp.solvers.exact_posterior import ExactPosterior
from vastgp.solvers.linear_model import LinearPosterior

pytestmark = pytest.mark.little_work


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(14, 1))
    return X, np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=14)


@pytest.fixture(scope="module")
def mixture(rows):
    parts = (
        LinearPosterior(np.array([[0.1, 0.8]]), 0.2 * np.eye(2)[None], 1.0),
        ExactPosterior.condition(RBF([0.7]), 0.1, *rows)[0],
        ExactPosterior.condition(RBF([2.0], 3.0), 0.3, *rows)[0],
    )
    return AveragedPosterior(parts, np.array([0.3, 0.5, 0.2]), np.array([0.1, 0.1, 0.3]))


def test_moments_are_those_of_its_draws(mixture):
    """40,000 joint draws of three values."""
    X, many = np.array([[-1.0], [0.3], [4.0]]), 40_000
    drawn = mixture.samples(X, many, 1)
    mean, variance = mixture.mean_and_latent_variance(X)
    covariance = mixture.covariance(X)
    np.testing.assert_allclose(mixture.mean(X), mean, rtol=1e-12)
    np.testing.assert_allclose(np.diagonal(covariance), variance, rtol=1e-6)
    error = np.sqrt(variance / many)
    assert np.all(np.abs(drawn.mean(axis=1) - mean) < 4.0 * error)
    away = drawn - mean[:, None]
    products = away[:, None] * away[None]
    errors = products.std(axis=2) / many**0.5
    assert np.all(np.abs(products.mean(axis=2) - covariance) < 4.0 * errors)


def test_where_parts_differ_it_is_uncertain(mixture):
    """Far away the line goes on and the processes go back: that is in the variance."""
    X = np.array([[30.0]])
    mean, variance = mixture.mean_and_latent_variance(X)
    alone = np.array([part.mean(X)[0] for part in mixture.parts])
    assert variance[0] > np.average((alone - mean) ** 2, weights=mixture.weights) > 1.0


def test_its_state_is_all_of_it(mixture, rows):
    again = AveragedPosterior.from_state(*mixture.to_state())
    X = rows[0] + 0.1
    np.testing.assert_array_equal(again.covariance(X), mixture.covariance(X))
    np.testing.assert_array_equal(again.samples(X, 5, 2), mixture.samples(X, 5, 2))


def test_what_parts_share_is_told_once():
    """Lines of 6 rows and 40 inputs: the directions of the rows take more room than all else of them."""
    rng = np.random.default_rng(4)
    basis = np.linalg.qr(rng.normal(size=(41, 6)))[0]
    parts = tuple(
        LinearPosterior(rng.normal(size=(1, 6)), rng.normal(size=(1, 6, 6)), scale, basis)
        for scale in (0.5, 1.0, 2.0)
    )
    mixture = AveragedPosterior(parts, np.full(3, 1 / 3), np.full(3, 0.1))
    state, arrays = mixture.to_state()
    assert sum(array.shape == basis.shape for array in arrays.values()) == 1
    again, new = AveragedPosterior.from_state(state, arrays), rng.normal(size=(5, 40))
    np.testing.assert_array_equal(again.covariance(new), mixture.covariance(new))
    np.testing.assert_array_equal(again.samples(new, 5, 2), mixture.samples(new, 5, 2))


@pytest.mark.parametrize("kernel", [RBF([1.0, 2.0]), RBF([1.0, 0.5]) + Matern52([2.0, 3.0], 0.5)])
def test_volumes_of_common_shifts_are_integrals(kernel):
    prior, noise = HyperparameterPrior(2), Gaussian(0.1)
    shifts = np.linspace(-12.0, 12.0, 2401)

    def volume(moved):
        logs = np.array([prior(moved(np.exp(shift)))[0] for shift in shifts])
        return logs.max() + np.log(np.sum(np.exp(logs - logs.max())) * (shifts[1] - shifts[0]))

    found = prior.log_of_shifts((kernel, noise))
    at_peak = {
        "lengthscales": lambda by: (kernel.in_units(by, 1.0), noise),
        "variance": lambda by: (kernel.in_units(1.0, by**0.5), noise),
        "noise_variance": lambda by: (kernel, Gaussian(0.1 * by)),
    }
    for name, moved in at_peak.items():
        peak = max(prior(moved(np.exp(shift)))[0] for shift in shifts)
        assert volume(moved) - peak == pytest.approx(found[name], abs=1e-3), name


def test_the_average_over_hyperparameters_is_that_of_a_fine_grid(rows):
    evidence, prior = ExactEvidence(*rows), HyperparameterPrior(1)
    best = fit_evidence(evidence, (RBF([1.0]), Gaussian(0.1)), noise_floor=1e-6, tol=1e-6)
    kernel, noise = best.params[0], float(best.params[1].noise_variance)
    found = around_optimum(kernel, noise, *rows)

    logs, noises = [], []
    axis = np.linspace(-3.6, 3.6, 13)
    for scale in axis:
        for amplitude in axis:
            for level in axis:
                here = kernel.in_units(np.exp(scale), np.exp(0.5 * amplitude))
                noises.append(noise * np.exp(level))
                value = evidence(here, noises[-1])
                logs.append(value + prior((here, Gaussian(noises[-1])))[0])
    logs = np.array(logs)
    share = np.exp(logs - logs.max())
    wanted = logs.max() + np.log(share.sum() * (axis[1] - axis[0]) ** 3)
    wanted -= sum(prior.log_of_shifts(best.params).values())
    # three points along each direction, of a density that is no normal one
    assert found.log_evidence == pytest.approx(wanted, abs=0.2)
    mean = share @ np.array(noises) / share.sum()
    assert found.weights @ found.noise_variances == pytest.approx(mean, rel=0.15)
    assert found.weights.sum() == pytest.approx(1.0)
