"""Hyper-priors, and posteriors of weights against dense algebra."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import lognorm
from sklearn.exceptions import ConvergenceWarning

from vastgp import ReweightedBasisRegressor
from vastgp._precision import precision
from vastgp.bases.kernel_columns import KernelColumnBasis
from vastgp.fitting.sufficient_statistics import SufficientStatistics, feature_matrix
from vastgp.kernels import RBF, Linear, Matern32, Periodic, RationalQuadratic
from vastgp.methods.reweighted.evidence import prepare, reflect
from vastgp.methods.reweighted.kernel_weight_prior import KernelPrior
from vastgp.methods.reweighted.weight_priors import (
    DiagonalPrior,
    OrthogonalPrior,
    ScalePrior,
    SpectralPrior,
    log_normal,
)
from vastgp.options import NUTS


@pytest.mark.parametrize(("mode", "variance"), [(1.0, 100.0), (0.01, 0.04), (2.0, 1e-6)])
def test_a_log_normal_has_the_mode_and_variance_asked_for(mode, variance):
    mean, spread = log_normal(mode, variance)
    law = lognorm(s=spread, scale=np.exp(mean))
    assert law.var() == pytest.approx(variance, rel=1e-8)
    found = minimize_scalar(
        lambda x: -law.logpdf(np.exp(x)), bracket=(np.log(mode) - 0.1, np.log(mode) + 0.1)
    )
    assert np.exp(found.x) == pytest.approx(mode, rel=1e-4)


def test_the_density_of_a_logarithm_holds_the_jacobian():
    prior = DiagonalPrior.make(3, 0.05)
    theta = np.array([-2.0, 0.3, -0.4, 1.0])
    with precision("float64"):
        found = float(prior.log_hyper_prior(jnp.asarray(theta)))
    expected = 0.0
    for value, (mode, variance) in zip(
        np.exp(theta), [(0.05, 0.04)] + 3 * [(1.0, 100.0)], strict=True
    ):
        mean, spread = log_normal(mode, variance)
        # d gamma = gamma d log gamma
        expected += lognorm(s=spread, scale=np.exp(mean)).logpdf(value) + np.log(value)
    assert found == pytest.approx(expected, rel=1e-10)
    # the start is the mode of the numbers, which is not that of their logarithms
    np.testing.assert_allclose(np.exp(prior.start()), [0.05, 1.0, 1.0, 1.0], rtol=1e-10)


def _problem(n, m, seed=0):
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(n, m))
    y = phi @ rng.normal(size=m) + 0.3 * rng.normal(size=n)
    with precision("float64"):
        return phi, y, prepare(SufficientStatistics.of(phi, y)), rng


def _dense(phi, y, covariance, noise):
    cross = covariance @ phi.T
    A = np.linalg.inv(phi @ cross + noise * np.eye(len(y)))
    return cross @ A @ y, covariance - cross @ A @ cross.T


def _covariance(prior, data, theta):
    """Return the prior covariance of all weights."""
    m, k = data.num_basis, data.rank
    if isinstance(prior, DiagonalPrior):
        return np.diag(np.exp(theta[1:])[prior.groups])
    if isinstance(prior, ScalePrior):
        return np.exp(theta[1]) * np.eye(m)
    V, s = np.asarray(data.vectors), np.asarray(data.values)
    mirrors = np.zeros((0, k)) if isinstance(prior, OrthogonalPrior) else prior._split(theta)[1]
    scales = theta[1 : 1 + k]
    U = np.eye(k)
    for a in mirrors:
        U = U @ (np.eye(k) - 2.0 * np.outer(a, a) / (a @ a))
    inner = U @ np.diag(s**2 * np.exp(scales)) @ U.T
    into = V[:, :k] / s
    outside = V[:, k:]
    return into @ inner @ into.T + outside @ outside.T


@pytest.mark.parametrize(("n", "m"), [(30, 5), (4, 7)])
@pytest.mark.parametrize("kind", ["diagonal", "groups", "scale", "orthogonal", "spectral"])
def test_the_weights_posterior_is_the_dense_one(n, m, kind):
    phi, y, data, rng = _problem(n, m)
    prior = {
        "diagonal": lambda: DiagonalPrior.make(m, 0.1),
        "groups": lambda: DiagonalPrior.make(m, 0.1, groups=np.arange(m) // 2),
        "scale": lambda: ScalePrior.make(0.1),
        "orthogonal": lambda: OrthogonalPrior.make(data.rank, 0.1),
        "spectral": lambda: SpectralPrior.make(data.rank, 0.1, 3),
    }[kind]()
    theta = prior.start() + 0.5 * rng.normal(size=prior.size)
    mean, covariance = prior.weights(data, theta)
    expected = _dense(phi, y, _covariance(prior, data, theta), np.exp(theta[0]))
    np.testing.assert_allclose(mean, expected[0], atol=1e-9)
    np.testing.assert_allclose(covariance, expected[1], atol=1e-9)


def test_mirrors_undo_each_other_backwards():
    rng = np.random.default_rng(0)
    mirrors, v = rng.normal(size=(3, 5)), rng.normal(size=5)
    with precision("float64"):
        there = reflect(jnp.asarray(mirrors), jnp.asarray(v))
        back = reflect(jnp.asarray(mirrors[::-1]), there)
    np.testing.assert_allclose(back, v, atol=1e-12)


@pytest.mark.parametrize("form", [RBF, Matern32])
def test_an_interpolant_follows_its_kernel(form):
    """With other hyperparameters the prior at the points themselves is exactly the other kernel."""
    rng = np.random.default_rng(1)
    Z, y = rng.normal(size=(6, 2)), rng.normal(size=6)
    first, second = form([1.0, 1.5], 2.0), form([0.6, 2.0], 0.8)
    basis = KernelColumnBasis.interpolation(first, Z)
    with precision("float64"):
        phi = np.asarray(feature_matrix(basis, jnp.asarray(Z)))
        np.testing.assert_allclose(phi @ phi.T, first(jnp.asarray(Z), jnp.asarray(Z)), atol=1e-10)
        data = prepare(SufficientStatistics.of(phi, y))
        K = np.asarray(second(jnp.asarray(Z), jnp.asarray(Z)))
    prior = KernelPrior.make(first, 0.1, Z, np.asarray(basis.transform))
    leaves = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(second)])
    theta = np.concatenate([[np.log(0.2)], np.log(leaves)])
    mean, covariance = prior.weights(data, theta)
    A = np.linalg.inv(K + 0.2 * np.eye(6))
    np.testing.assert_allclose(phi @ mean, K @ A @ y, atol=1e-8)
    # the coordinates are values at the points, where these are the rows
    np.testing.assert_allclose(covariance, K - K @ A @ K, atol=1e-8)
    np.testing.assert_allclose(phi @ prior.lift, np.eye(6), atol=1e-8)
    assert repr(prior.kernel_at(theta)) == repr(second)
    named = prior.named(np.stack([theta, theta]))
    np.testing.assert_allclose(named["noise_variance"], 0.2)
    assert named["lengthscales"].shape == (2, 2) and named["variance"].shape == (2,)


def test_a_kernel_without_a_density_is_refused():
    with pytest.raises(ValueError, match="has no spectral density in closed form"):
        KernelPrior.make(RationalQuadratic(), 0.1, np.zeros((4, 1)))


@pytest.mark.parametrize(
    "kernel",
    [
        RBF([0.7], 1.3) + Linear([0.2]),
        RBF([0.7], 1.3) * Matern32([2.0], 0.4),
        Periodic(1.5, [0.8], 0.6) * RationalQuadratic([3.0], 2.0, 0.5),
    ],
)
def test_named_hyperparameters_in_other_units_are_those_of_the_kernel_there(kernel):
    Z = np.linspace(-1.0, 1.0, 4)[:, None]
    prior = KernelPrior.make(kernel, 0.1, Z, np.eye(4))
    theta = prior.centre + 0.3 * np.random.default_rng(0).normal(size=prior.size)
    x_scale, y_scale = np.array([20.0]), 300.0
    named, units = prior.named(theta[None]), prior.units(x_scale, y_scale)
    leaves = jax.tree_util.tree_leaves_with_path(prior.kernel_at(theta).in_units(x_scale, y_scale))
    assert len(leaves) + 1 == len(named)
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path).lstrip(".")
        np.testing.assert_allclose(named[name][0] * units[name], leaf, rtol=1e-12, err_msg=name)
    assert units["noise_variance"] == y_scale**2


def test_draws_of_a_kernel_are_in_the_units_of_inputs_and_target():
    pytest.importorskip("blackjax")
    rng = np.random.default_rng(0)
    X = 50.0 + 20.0 * rng.normal(size=(40, 1))
    y = 100.0 * np.sin(X[:, 0] / 20.0) + 3.0 * X[:, 0] + rng.normal(size=40)
    chains = NUTS(num_warmup=3, num_steps=2, num_chains=1)
    model = ReweightedBasisRegressor("rbf + linear", 8, basis="interpolation", inference=chains)
    with pytest.warns(ConvergenceWarning):  # two draws are not enough
        draws = model.fit(X, y)._posterior(model._model).posterior
    # the kernel that is told is that of one of the draws
    slopes = np.asarray(draws["parts[1].slope_variances"]).ravel()
    told = model._model.kernel.in_units(model.standardizer_.x_scale, model.standardizer_.y_scale)
    assert np.min(np.abs(slopes / told.parts[1].slope_variances - 1.0)) < 1e-9
