"""`ExactGPRegressor` with fixed hyperparameters is scikit-learn's Gaussian process, and dense textbook formulas."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from vastgp import RBF, ExactGPRegressor, Matern12, Matern32, Matern52, RationalQuadratic
from vastgp.fitting.hyperparameter_prior import HyperparameterPrior
from vastgp.likelihoods import Gaussian
from vastgp.options import Fixed

SCALES = np.array([0.8, 30.0, 0.02])
PAIRS = [
    (RBF(SCALES, 4.0), 4.0 * sk.RBF(SCALES)),
    (Matern12(SCALES, 0.5), 0.5 * sk.Matern(SCALES, nu=0.5)),
    (Matern32(SCALES, 4.0), 4.0 * sk.Matern(SCALES, nu=1.5)),
    (Matern52(SCALES, 4.0), 4.0 * sk.Matern(SCALES, nu=2.5)),
    (
        RBF(SCALES, 2.0) + Matern32(2.0 * SCALES, 3.0),
        2.0 * sk.RBF(SCALES) + 3.0 * sk.Matern(2.0 * SCALES, nu=1.5),
    ),
    (
        RBF(3.0 * SCALES, 2.0) * Matern12(SCALES),
        2.0 * sk.RBF(3.0 * SCALES) * sk.Matern(SCALES, nu=0.5),
    ),
]
NAMES = ["rbf", "matern12", "matern32", "matern52", "sum", "product"]


def data(n=70, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) * [1.0, 40.0, 0.03] + [0.0, 500.0, 1.0]
    y = 20.0 + np.sin(X[:, 0]) + 0.01 * X[:, 1] + 0.3 * rng.normal(size=n)
    return X, y


def fixed(kernel, noise_std):
    return ExactGPRegressor(kernel, hyperparameters=Fixed(noise_std=noise_std))


def peer(kernel, noise_std, X, y):
    """Return scikit-learn's posterior of the same model: its prior mean is the mean of the target too."""
    model = GaussianProcessRegressor(kernel, alpha=noise_std**2, optimizer=None)
    return model.fit(X, y - y.mean())


@pytest.mark.parametrize(("kernel", "sk_kernel"), PAIRS, ids=NAMES)
def test_mean_std_covariance_and_evidence_are_scikit_learns(kernel, sk_kernel):
    X, y = data()
    X_new = np.concatenate([data(20, seed=1)[0], X[:5]])
    model, theirs = fixed(kernel, 0.3).fit(X, y), peer(sk_kernel, 0.3, X, y)
    mean, std = model.predict(X_new, return_std="latent")
    sk_mean, sk_covariance = theirs.predict(X_new, return_cov=True)
    np.testing.assert_allclose(mean, sk_mean + y.mean(), rtol=1e-8)
    np.testing.assert_allclose(std, np.sqrt(np.diag(sk_covariance)), rtol=1e-8)
    assert model.log_evidence_ == pytest.approx(theirs.log_marginal_likelihood_value_, rel=1e-8)
    # density of new observations, jointly Gaussian with independent noise
    expected = [
        multivariate_normal.logpdf(value, m + y.mean(), c + 0.09)
        for value, m, c in zip(y[:5], sk_mean[-5:], np.diag(sk_covariance)[-5:], strict=True)
    ]
    np.testing.assert_allclose(model.log_predictive_density(X[:5], y[:5]), expected, rtol=1e-8)


def test_joint_samples_have_the_posterior_covariance():
    X, y = data(30)
    X_new = data(6, seed=1)[0]
    draws = 20_000
    found = fixed(PAIRS[0][0], 0.3).fit(X, y).sample_y(X_new, draws, random_state=3)
    mean, covariance = peer(PAIRS[0][1], 0.3, X, y).predict(X_new, return_cov=True)
    spread = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(found.mean(axis=1) - mean - y.mean()) < 4.0 * spread / draws**0.5)
    # standard error of a covariance of Gaussians: sqrt((c_ii c_jj + c_ij^2) / draws)
    error = np.sqrt((np.outer(spread, spread) ** 2 + covariance**2) / draws)
    assert np.all(np.abs(np.cov(found) - covariance) < 4.5 * error)


def test_the_rational_quadratic_is_scikit_learns():
    X, y = data()
    model = fixed(RationalQuadratic(1.7, 1.3, alpha=0.6), 0.2).fit(X[:, :1], y)
    theirs = peer(1.3 * sk.RationalQuadratic(1.7, 0.6), 0.2, X[:, :1], y)
    mean, std = model.predict(X[:, :1] + 0.1, return_std="latent")
    sk_mean, sk_std = theirs.predict(X[:, :1] + 0.1, return_std=True)
    np.testing.assert_allclose(mean, sk_mean + y.mean(), rtol=1e-8)
    np.testing.assert_allclose(std, sk_std, rtol=1e-8)


@pytest.mark.parametrize("n", [2, 3, 31, 32, 33, 513])
def test_every_size_is_the_same_model(n):
    # sizes up to 512 are padded to powers of two inside
    X, y = data(n)
    model, theirs = fixed(*_rbf()).fit(X, y), peer(PAIRS[0][1], 0.3, X, y)
    X_new = data(17, seed=2)[0]
    mean, std = model.predict(X_new, return_std="latent")
    sk_mean, sk_std = theirs.predict(X_new, return_std=True)
    np.testing.assert_allclose(mean, sk_mean + y.mean(), rtol=1e-8)
    np.testing.assert_allclose(std, sk_std, rtol=1e-7)
    assert model.log_evidence_ == pytest.approx(theirs.log_marginal_likelihood_value_, rel=1e-8)


def test_rows_that_repeat_count_as_observations_of_one_value():
    # two observations y1, y2 at one place are one observation of their mean with half the noise variance
    X, y = data(20)
    twice = fixed(*_rbf()).fit(np.concatenate([X, X]), np.concatenate([y + 0.2, y - 0.2]))
    once = fixed(PAIRS[0][0], 0.3 / 2.0**0.5).fit(X, y)
    for found, expected in zip(
        twice.predict(X + 0.1, return_std="latent"),
        once.predict(X + 0.1, return_std="latent"),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_hardly_any_noise_interpolates():
    rng = np.random.default_rng(0)
    X = np.linspace(0.0, 1.0, 12)[:, None]
    y = rng.normal(size=12)
    mean, std = fixed(Matern32(0.2), 1e-7).fit(X, y).predict(X, return_std="latent")
    np.testing.assert_allclose(mean, y, atol=1e-9)
    assert np.all(std < 1e-6)
    # repeated rows without noise have no covariance matrix of full rank: jitter stands in for the noise
    doubled = fixed(RBF(0.2), 1e-9).fit(np.concatenate([X, X]), np.concatenate([y, y]))
    np.testing.assert_allclose(doubled.predict(X), y, atol=1e-3)


def test_integers_and_float32_are_the_numbers_they_stand_for():
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 50, size=(40, 2)), rng.integers(0, 9, size=40)
    kernel = RBF([9.0, 20.0], 5.0)
    expected = fixed(kernel, 1.0).fit(X.astype(float), y.astype(float)).predict(X + 0.5)
    np.testing.assert_array_equal(fixed(kernel, 1.0).fit(X, y).predict(X + 0.5), expected)
    narrow = fixed(kernel, 1.0).fit(X.astype(np.float32), y.astype(np.float32))
    np.testing.assert_array_equal(narrow.predict((X + 0.5).astype(np.float32)), expected)


def test_what_is_learned_has_a_density_of_at_least_scikit_learns():
    """Ours is the mode of evidence times prior; the evidence at theirs, which has no prior, is the same number."""
    X, y = data(80)
    model = ExactGPRegressor("rbf", restarts=2).fit(X, y)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    kernel = sk.ConstantKernel(1.0, (1e-4, 1e4)) * sk.RBF(np.ones(3), (1e-3, 1e3))
    theirs = GaussianProcessRegressor(
        kernel + sk.WhiteKernel(0.1, (1e-6, 10.0)), normalize_y=True, n_restarts_optimizer=3, random_state=0
    ).fit(scaled, y)  # fmt: skip
    # theirs is the evidence of the standardised target
    at_best = theirs.log_marginal_likelihood_value_ - len(y) * np.log(y.std())
    found = theirs.kernel_
    at_theirs = fixed(
        RBF(found.k1.k2.length_scale * X.std(axis=0), found.k1.k1.constant_value * y.var()),
        found.k2.noise_level**0.5 * y.std(),
    ).fit(X, y)
    assert at_theirs.log_evidence_ == pytest.approx(at_best, abs=1e-6)

    def density(model):
        kernel = model.kernel_.in_units(1.0 / X.std(axis=0), 1.0 / y.std())
        noise = Gaussian(float(model.likelihood_.noise_variance) / y.var())
        return model.log_evidence_ + HyperparameterPrior(3)((kernel, noise))[0]

    assert at_best - 5.0 < model.log_evidence_ < at_best
    assert density(model) > density(at_theirs) + 0.5


def test_learned_values_as_fixed_ones_are_the_same_model():
    X, y = data(60)
    learned = ExactGPRegressor("matern52", restarts=1).fit(X, y)
    again = fixed(learned.kernel_, float(learned.likelihood_.noise_std)).fit(X, y)
    assert again.log_evidence_ == pytest.approx(learned.log_evidence_, rel=1e-9)
    for found, expected in zip(
        again.predict(X + 0.01, return_std=True),
        learned.predict(X + 0.01, return_std=True),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-8)


def _rbf():
    return PAIRS[0][0], 0.3
