"""Variances of a fixed basis where some of its functions, or combinations of them, are next to nothing."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

from vastgp import RBF, ReweightedBasisRegressor
from vastgp._precision import as_dtype, precision
from vastgp.bases.kernel_columns import KernelColumnBasis
from vastgp.bases.laplace_eigenfunctions import LaplaceEigenfunctionBasis
from vastgp.fitting.sufficient_statistics import SufficientStatistics, feature_matrix
from vastgp.kernels.matrices import kernel_matrix
from vastgp.methods.reweighted.evidence import prepare
from vastgp.methods.reweighted.kernel_weight_prior import KernelPrior
from vastgp.methods.reweighted.mixtures import WeightMixture


@pytest.mark.parametrize("prior", ["kernel", "orthogonal"])
def test_inputs_that_do_not_matter_leave_sines_the_kernels(prior):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (200, 3))
    X[:, 2] = 5.0
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=200)
    model = ReweightedBasisRegressor(RBF([0.8, 200.0, 200.0]), 60, basis="laplace", prior=prior)
    model.fit(X, y)
    basis = model._model.features.basis
    assert model.answer_ == "own" and model.score(X, np.sin(2.0 * X[:, 0])) > 0.99
    # the functions are those of the kernel where the data are
    Z = model.standardizer_.transform_X(X[:5])
    with precision("float64"):
        phi = np.asarray(feature_matrix(basis, Z))
        K = np.asarray(kernel_matrix(model._model.features.kernel, Z, Z))
    assert np.max(np.abs(phi @ phi.T - K)) < 0.05 * np.max(K)


def test_deviations_where_hyperparameters_have_moved_far_from_the_basis():
    """Weights of functions that are next to nothing have variances of e^40: the others keep theirs."""
    basis = LaplaceEigenfunctionBasis.build(RBF(1.0), np.zeros(1), np.array([3.0]), 25)
    prior = KernelPrior.make(RBF(1.0), 0.1, basis.frequencies)
    theta = np.log([0.1, 0.7, 1.0])
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-2.0, 2.0, (30, 1)), rng.normal(size=30)
    with precision("float64"):
        phi = np.asarray(feature_matrix(basis, X))
        data = prepare(SufficientStatistics.of(phi, y))
        mixture = WeightMixture(basis, prior, data, theta[None], np.zeros(25))
        mean, variance = mixture.mean_and_latent_variance(X)
        samples = mixture.samples(X, 4000, 0)
        own = np.asarray(prior._log_variances(theta))
    assert own[-1] > 40.0
    # of the values themselves: K - K (K + sigma^2 I)^-1 K, K = Phi C Phi^T
    K = (phi * np.exp(own)) @ phi.T
    solved = np.linalg.solve(K + 0.1 * np.eye(30), np.column_stack([y, K]))
    np.testing.assert_allclose(mean, K @ solved[:, 0], atol=1e-9)
    np.testing.assert_allclose(variance, np.diag(K - K @ solved[:, 1:]), atol=1e-9)
    np.testing.assert_allclose(samples.std(axis=1), variance**0.5, rtol=0.1)


@pytest.mark.parametrize("count", [1, 3])
def test_deviations_of_an_interpolant_between_many_points(count):
    """A smooth kernel between eighty points: of the covariance of the weights themselves rounding leaves nothing."""
    rng = np.random.default_rng(0)
    Z, X = rng.uniform(-2.0, 2.0, (80, 1)), rng.uniform(-2.0, 2.0, (60, 1))
    y = np.sin(2.0 * X[:, 0]) + 0.01 * rng.normal(size=60)
    basis = KernelColumnBasis.interpolation(RBF(1.5, 5.0), Z)
    prior = KernelPrior.make(RBF(1.5, 5.0), 1e-4, Z, basis.transform)
    theta = np.log([[1e-4, 1.5, 4.0], [2e-4, 1.7, 5.0], [1e-4, 2.0, 6.0]])[:count]
    with precision("float64"):
        phi = np.asarray(feature_matrix(basis, X))
        data = prepare(SufficientStatistics.of(phi, y))
        mixture = WeightMixture(basis, prior, data, theta, np.zeros(80))
        mean, variance = mixture.mean_and_latent_variance(X)
        samples = mixture.samples(X, 4000, 0)
        density = mixture.log_density(X, y)
        evidence = [float(prior.log_evidence(data, jnp.asarray(each))) for each in theta]
        kernels = [np.asarray(kernel_matrix(RBF(*np.exp(each[1:])), Z, Z)) for each in theta]
    # values between the points are A u of those at them
    A = phi @ basis.transform.T
    means, variances, densities = [], [], []
    for each, K, found in zip(theta, kernels, evidence, strict=True):
        noise, K = np.exp(each[0]), A @ K @ A.T
        B = K + noise * np.eye(60)
        means.append(K @ np.linalg.solve(B, y))
        variances.append(np.diag(K - K @ np.linalg.solve(B, K)))
        densities.append(norm.logpdf(y, means[-1], (variances[-1] + noise) ** 0.5))
        assert found == pytest.approx(multivariate_normal.logpdf(y, np.zeros(60), B), abs=1e-4)
    expected = np.mean(variances, axis=0) + np.var(means, axis=0)
    np.testing.assert_allclose(mean, np.mean(means, axis=0), atol=1e-6)
    np.testing.assert_allclose(variance, expected, atol=1e-9)
    np.testing.assert_allclose(samples.std(axis=1), expected**0.5, rtol=0.1)
    np.testing.assert_allclose(density, logsumexp(densities, axis=0) - np.log(count), atol=1e-4)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_an_interpolant_between_many_points_in_either_precision(dtype):
    """Beside the exact process: rounding errors of features are not made as large as the functions."""
    rng = np.random.default_rng(0)
    Z, X = rng.uniform(-2.0, 2.0, (100, 1)), rng.uniform(-2.0, 2.0, (400, 1))
    new, kernel = np.linspace(-1.9, 1.9, 40)[:, None], RBF(1.5, 5.0)
    y = np.sin(2.0 * X[:, 0]) + 0.01 * rng.normal(size=400)
    basis = KernelColumnBasis.interpolation(kernel, Z, dtype)
    prior = KernelPrior.make(kernel, 1e-4, Z, basis.transform)
    theta = np.log([1e-4, 1.5, 5.0])
    with precision(dtype):
        phi = np.asarray(feature_matrix(as_dtype(basis, dtype), jnp.asarray(X, dtype)), np.float64)
    with precision("float64"):
        data = prepare(SufficientStatistics.of(phi, y))
        evidence = float(prior.log_evidence(data, jnp.asarray(theta)))
        B = np.asarray(kernel_matrix(kernel, X, X)) + 1e-4 * np.eye(400)
        cross = np.asarray(kernel(jnp.asarray(X), jnp.asarray(new)))
    with precision(dtype):
        mixture = WeightMixture(basis, prior, data, theta[None], np.zeros(100))
        mean, variance = mixture.mean_and_latent_variance(new.astype(dtype))
    solved = np.linalg.solve(B, cross)
    exact = (5.0 - np.sum(cross * solved, axis=0)) ** 0.5
    # the root of the variance times the unit of rounding of float32 is 8e-4
    np.testing.assert_allclose(mean, solved.T @ y, atol=1e-3 if dtype == "float32" else 1e-6)
    np.testing.assert_allclose(variance**0.5, exact, rtol=0.1 if dtype == "float32" else 1e-3)
    expected = multivariate_normal.logpdf(y, np.zeros(400), B)
    assert evidence == pytest.approx(expected, abs=2.0 if dtype == "float32" else 1e-3)


def test_float32_leaves_an_interpolant_of_a_fit_as_it_is():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (400, 1))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=400)
    wide, narrow = (
        ReweightedBasisRegressor("rbf", 100, basis="interpolation", dtype=dtype).fit(X, y)
        for dtype in ("float64", "float32")
    )
    assert narrow.converged_
    assert narrow.log_evidence_ == pytest.approx(wide.log_evidence_, abs=0.5)
    for found, expected in zip(
        *(m.predict(X, return_std=True) for m in (narrow, wide)), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=2e-3)
