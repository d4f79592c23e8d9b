"""The prior on hyperparameters: its density and slope, and what it does to few rows and to many."""

import math

import jax
import numpy as np
import pytest
from scipy.special import digamma, polygamma

from vastgp import ExactGPRegressor
from vastgp.fitting.candidates import bounds_of, candidate_kernels
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.fitting.hyperparameter_prior import HyperparameterPrior, Scale
from vastgp.fitting.lbfgs import maximise
from vastgp.fitting.start import start_from_exact_gp
from vastgp.kernels import RBF, Constant, Linear, Matern32, RationalQuadratic
from vastgp.likelihoods import Gaussian, StudentT
from vastgp.metrics import nlpd
from vastgp.solvers.exact_posterior import ExactPosterior

KERNELS = {
    "one": RBF([0.7, 2.0, 5.0], 1.7),
    "isotropic": RBF(0.7, 1.7),
    "sum": RBF([0.7, 2.0, 5.0], 1.7) + Matern32([3.0, 0.2, 1.0], 0.1) + Linear([1.0, 2.0, 3.0]),
    "product": RBF([0.7], 1.7)
    * RBF([2.0], 0.3)
    * Constant(2.0)
    * RationalQuadratic([5.0], 1.0, 2.0),
}


def log_density(logs, amplitudes, noise, d):
    """The formula, of one summand."""
    mean = np.mean(logs)
    value = -0.5 * (mean - 0.5 * math.log(d) - 1.2) ** 2
    value -= np.sum(np.log(1.0 + ((logs - mean) / 0.3) ** 2))
    value -= 0.5 * (np.sum(np.log(amplitudes)) - 0.5) ** 2
    return value - 0.5 * ((math.log(noise) + 1.5) / 2.0) ** 2


def test_its_density_is_the_formula():
    logs = np.log([0.7, 2.0, 5.0])
    for kernel, amplitudes in ((KERNELS["one"], [1.7]), (KERNELS["product"], [1.7, 0.3, 2.0, 1.0])):
        value, _ = HyperparameterPrior(3)((kernel, Gaussian(0.02)))
        assert value == pytest.approx(log_density(logs, amplitudes, 0.02, 3), rel=1e-12)
    # summands are independent of each other
    a, b = RBF([0.7, 2.0], 1.7), Matern32([3.0, 0.2], 0.1)
    noise = -0.5 * ((math.log(0.02) + 1.5) / 2.0) ** 2
    parts = [HyperparameterPrior(2)((each, Gaussian(0.02)))[0] - noise for each in (a, b, a + b)]
    assert parts[0] + parts[1] == pytest.approx(parts[2], rel=1e-12)


def test_the_density_of_slopes_is_the_formula():
    """Beside a process, which it leaves as it is; one variance for all inputs has its total alone."""
    slopes, noise = np.array([1.0, 2.0, 0.3]), -0.5 * ((math.log(0.02) + 1.5) / 2.0) ** 2
    apart = (np.log(slopes) - np.mean(np.log(slopes))) / (40.0 / 3.0)
    wanted = -0.5 * (math.log(3.3) / 1.5) ** 2 - np.sum(np.log(1.0 + apart**2))
    prior, process = HyperparameterPrior(3), KERNELS["one"]
    assert prior((Linear(slopes), Gaussian(0.02)))[0] == pytest.approx(wanted + noise, rel=1e-12)
    beside = prior((process + Linear(slopes), None))[0] - prior((process, None))[0]
    assert beside == pytest.approx(wanted, rel=1e-12)
    assert prior((Linear(2.0), None))[0] == pytest.approx(-0.5 * (math.log(6.0) / 1.5) ** 2)


@pytest.mark.parametrize("rows", [60, 150])
def test_slopes_of_more_inputs_than_rows_do_not_pass_through_all_targets(rows):
    """The evidence alone ends at the least noise with 8 % of new rows within 95 % intervals."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(rows + 500, 200))
    y = X[:, :3] @ [0.7, -0.5, 0.5] + 0.3 * rng.normal(size=len(X))
    model = ExactGPRegressor(kernel="linear").fit(X[:rows], y[:rows])
    mean, deviation = model.predict(X[rows:], return_std=True)
    assert nlpd(y[rows:], mean, deviation) < 0.7
    assert np.mean(np.abs(y[rows:] - mean) < 1.96 * deviation) > 0.9


def test_an_open_scale_is_common_to_amplitudes_and_noise():
    """As the joint normal density of the logarithms says it, and its integral over common shifts."""
    kernel, scale = RBF([0.7, 2.0], 1.7) + Matern32([3.0, 0.2], 0.1), Scale(0.3, 1.2)
    known, open_ = HyperparameterPrior(2), HyperparameterPrior(2, scale)
    logs = np.log([1.7, 0.1, 0.02])
    mean, variances = np.array([0.5, 0.5, -1.5]), np.array([1.0, 1.0, 4.0])
    covariance = np.diag(variances) + 1.2

    def difference(kernel, noise):
        return open_((kernel, noise))[0] - known((kernel, noise))[0]

    away, moved = logs - mean, logs - mean - 0.3
    wanted = -0.5 * (moved @ np.linalg.solve(covariance, moved) - np.sum(away**2 / variances))
    assert difference(kernel, Gaussian(0.02)) == pytest.approx(wanted, rel=1e-9)
    # amplitudes move together, the noise by itself
    along = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    curvature = along @ np.linalg.solve(covariance, along.T)
    volumes = open_.log_of_shifts((kernel, Gaussian(0.02)))
    volume = np.log(2.0 * np.pi) - 0.5 * np.linalg.slogdet(curvature)[1]
    assert volumes["variance"] + volumes["noise_variance"] == pytest.approx(volume, rel=1e-9)


def test_what_rows_leave_open_of_their_deviation():
    """Of 20,000 draws of five normal rows; the error of a variance is a hundredth of it."""
    drawn = np.random.default_rng(0).normal(size=(20_000, 5))
    logs, scale = -np.log(drawn.var(axis=1)), Scale.of_groups(np.arange(5))
    assert scale.mean == pytest.approx(np.mean(logs), abs=0.03)
    assert scale.variance == pytest.approx(np.var(logs), rel=0.05)


def test_a_place_that_most_rows_are_of_leaves_more_open():
    """By 20,000 draws of the values at eight places; of rows that do not repeat it is the chi-squared law."""
    groups = np.repeat(np.arange(8), [40, 9, 5, 3, 2, 2, 1, 1])
    drawn = np.random.default_rng(0).normal(size=(20_000, 8))[:, groups]
    logs, scale = -np.log(drawn.var(axis=1)), Scale.of_groups(groups)
    assert scale.mean == pytest.approx(np.mean(logs), abs=0.03)
    assert scale.variance == pytest.approx(np.var(logs), rel=0.15)
    assert scale.variance > 2.0 * Scale.of_groups(np.arange(8)).variance
    for rows in (2, 5, 40):
        assert Scale.of_groups(np.arange(rows)) == pytest.approx(
            Scale(np.log(rows / 2) - digamma((rows - 1) / 2), float(polygamma(1, (rows - 1) / 2)))
        )


@pytest.mark.parametrize("likelihood", [Gaussian(0.02), StudentT(0.3, 4.0)], ids=["normal", "t"])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("scale", [Scale(), Scale(0.4, 1.5)], ids=["known", "open"])
def test_its_slope_is_that_of_finite_differences(kernel, likelihood, scale):
    prior, params = HyperparameterPrior(3, scale), (kernel, likelihood)
    leaves, structure = jax.tree.flatten(params)
    leaves = [np.asarray(leaf, np.float64) for leaf in leaves]
    slopes = jax.tree.leaves(prior(params)[1])

    def moved(number, place, by):
        changed = [leaf.copy() for leaf in leaves]
        changed[number].reshape(-1)[place] *= 1.0 + by
        return prior(jax.tree.unflatten(structure, changed))[0]

    for number, leaf in enumerate(leaves):
        for place in range(leaf.size):
            numeric = (moved(number, place, 1e-6) - moved(number, place, -1e-6)) / 2e-6
            expected = slopes[number].reshape(-1)[place] * leaf.reshape(-1)[place]
            assert numeric == pytest.approx(expected, abs=1e-7, rel=1e-6)


@pytest.mark.parametrize("seed", [0, 4, 5])
def test_noise_is_not_made_a_function(seed):
    """Of 73 rows of nothing with 12 inputs the evidence alone makes a function, wrong and sure of it."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(73, 12)), rng.normal(size=73)
    unseen, targets = rng.normal(size=(2000, 12)), rng.normal(size=2000)

    def loss(kernel, noise_variance):
        """Return the NLPD of rows not seen; that of the truth is 1.42."""
        posterior, _ = ExactPosterior.condition(kernel, noise_variance, X, y)
        mean, variance = posterior.mean_and_latent_variance(unseen)
        return nlpd(targets, mean, np.sqrt(variance + noise_variance))

    start = (candidate_kernels("rbf", 12)[0], Gaussian(0.1))
    low, high = bounds_of(start, 1e-4)
    alone = maximise(
        ExactEvidence(X, y).objective,
        start,
        lower=low,
        upper=high,
        max_iter=200,
        tol=1e-4,
        scale=73,
    )
    kernel, likelihood = alone.params
    assert loss(kernel, float(likelihood.noise_variance)) > 1.8
    assert loss(*start_from_exact_gp("rbf", X, y)[:2]) < 1.5


def test_many_rows_outweigh_it():
    """The mode of 1000 rows is that of their evidence: within its own uncertainty, and within a nat."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1000, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=1000)
    start = start_from_exact_gp("rbf", X, y)
    low, high = bounds_of((start.kernel, Gaussian(start.noise_variance)), 1e-4)
    alone = maximise(
        ExactEvidence(X, y).objective, (start.kernel, Gaussian(start.noise_variance)),
        lower=low, upper=high, max_iter=100, tol=1e-6, scale=1000,
    )  # fmt: skip
    assert alone.value - start.log_evidence < 3.0
    assert start.noise_variance == pytest.approx(float(alone.params[1].noise_variance), rel=0.02)
    assert start.kernel.lengthscales[0] == pytest.approx(alone.params[0].lengthscales[0], rel=0.1)
