"""QSGP with an inducing basis in the limits where the answer is known."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from vastgp._precision import precision
from vastgp.bases import InducingBasis
from vastgp.data import Standardizer, as_rows
from vastgp.kernels import RBF, Matern32
from vastgp.kernels.matrices import covariance
from vastgp.methods.qsgp.inducing.diagonal_variances import (
    DiagonalVariances,
    inducing_diagonal,
)
from vastgp.methods.qsgp.inducing.fit import fit_inducing
from vastgp.methods.qsgp.inducing.nearest_variances import NearestVariances
from vastgp.methods.qsgp.inducing.options import Inducing
from vastgp.methods.qsgp.inducing.posterior import InducingPosterior
from vastgp.solvers.exact_posterior import ExactPosterior

NOISE = 0.05
KERNEL = Matern32([0.8, 1.1], 1.4)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (300, 2))
    rows = as_rows(X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.2 * rng.normal(size=300))
    return rows, Standardizer().fit(rows)


@pytest.fixture(scope="module")
def standardised(data):
    rows, standardizer = data
    X, y = rows.take(np.arange(rows.n))
    return standardizer.transform_X(X), standardizer.transform_y(y)


def fitted(data, inputs=None, kernel=KERNEL, tol=1e-6, dtype="float64", **options):
    options = Inducing(**({"row_batch": 40, "control_rank": 60} | options))
    return fit_inducing(*data, kernel, inputs, NOISE, options, tol=tol, dtype=dtype)


def posterior_of(fit, data, augment=True, rows=None):
    """By independent weights; ``rows``: what stands for the training rows where these are not the inducing inputs."""
    with precision("float64"):
        diagonal = inducing_diagonal(fit.basis, *data, NOISE, 0)
    variances = DiagonalVariances(
        fit.basis, diagonal, noise_variance=NOISE, augment=augment, num_rows=data[0].n, rows=rows
    )
    return InducingPosterior(fit.basis, fit.mean, variances)


def mean_of(fit, X):
    with precision("float64" if fit.mean.dtype == jnp.float64 else "float32"):
        by_few = NearestVariances(fit.basis, np.full(len(fit.mean), NOISE), 8)
        return InducingPosterior(fit.basis, fit.mean, by_few).mean(X)


@pytest.fixture(scope="module")
def by_rows(data):
    return fitted(data)


def test_all_rows_as_inducing_inputs_give_the_mean_of_the_exact_process(by_rows, standardised):
    X, y = standardised
    exact, _ = ExactPosterior.condition(KERNEL, NOISE, X, y)
    assert by_rows.loop.converged and "residual" in by_rows.loop.reason
    new = np.random.default_rng(1).normal(size=(50, 2))
    np.testing.assert_allclose(mean_of(by_rows, new), exact.mean(new), atol=1e-5)


def test_the_stopping_residual_bounds_the_error_of_the_function(data, standardised):
    X, y = standardised
    rough = fitted(data, tol=0.05, dtype="float32")
    exact, _ = ExactPosterior.condition(KERNEL, NOISE, X, y)
    gap = mean_of(rough, X) - exact.mean(X)
    assert rough.loop.converged
    assert np.mean(gap**2) ** 0.5 < 0.05 * NOISE**0.5


def test_sampled_basis_functions_reach_the_same_mean(data, standardised):
    """Two fifths of the functions in a set: the average of noisy iterates."""
    X, y = standardised
    fit = fitted(data, basis_batch=150, max_steps=4000, dtype="float32")
    exact, _ = ExactPosterior.condition(KERNEL, NOISE, X, y)
    gap = mean_of(fit, X) - exact.mean(X)
    assert np.mean(gap**2) ** 0.5 < 0.5 * NOISE**0.5
    residual = np.array(fit.loop.history["residual"])
    assert residual[-20:].mean() < 0.7 * residual[1:3].mean()


@pytest.fixture(scope="module")
def few_inputs():
    return np.random.default_rng(2).uniform(-1.7, 1.7, (25, 2))


@pytest.fixture(scope="module")
def direct(data, few_inputs):
    return fitted(data, few_inputs)


def kernel_matrix(X, Z):
    return covariance(KERNEL, X, Z)


def dense(standardised, Z):
    X, y = standardised
    with precision("float64"):
        phi, S = kernel_matrix(X, Z), kernel_matrix(Z, Z)
    mean = np.linalg.solve(phi.T @ phi + NOISE * S, phi.T @ y)
    return phi, S, mean


def test_few_inducing_inputs_solve_the_normal_equations(direct, standardised, few_inputs):
    phi, S, mean = dense(standardised, few_inputs)
    y = standardised[1]
    # up to the jitter of S, a millionth of the prior variance
    np.testing.assert_allclose(phi @ np.asarray(direct.mean), phi @ mean, atol=1e-5)
    L_mu = (np.sum((phi @ mean) ** 2) - 2 * y @ phi @ mean) / NOISE + mean @ S @ mean
    bound = -0.5 * (L_mu + y @ y / NOISE + len(y) * np.log(2 * np.pi * NOISE))
    assert direct.loop.history.last("objective") == pytest.approx(bound, rel=1e-6)


@pytest.mark.parametrize("basis_batch", [None, 15], ids=["whole", "sampled"])
def test_stochastic_gradients_of_the_weights_find_the_same(
    data, standardised, few_inputs, basis_batch
):
    fit = fitted(
        data, few_inputs, max_direct=0, basis_batch=basis_batch, row_batch=100, max_steps=4000, dtype="float32"
    )  # fmt: skip
    phi, _, mean = dense(standardised, few_inputs)
    gap = phi @ np.asarray(fit.mean, np.float64) - phi @ mean
    # slow in the directions that the preconditioner leaves: from 0.9 at the start
    assert np.mean(gap**2) ** 0.5 < (0.06 if basis_batch is None else 0.3)


def test_diagonal_is_that_of_proposition_1(data, direct, by_rows, standardised):
    for fit in (direct, by_rows):
        with precision("float64"):
            phi = kernel_matrix(standardised[0], fit.basis.inputs)
        expected = np.sqrt(NOISE / (np.sum(phi**2, axis=0) + NOISE * 1.4))
        found = posterior_of(fit, data).variances.diagonal
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_augmentation_is_the_best_variance_of_a_function_added_at_the_test_input(
    data, by_rows, standardised
):
    """Proposition 4 by brute force: minimise ``L_Sigma`` over the entry of the added column."""
    X = standardised[0]
    new = np.array([[0.3, -0.2], [1.9, 1.8], [6.0, -6.0]])
    with precision("float64"):
        _, plain = posterior_of(by_rows, data, augment=False).mean_and_latent_variance(new)
        _, augmented = posterior_of(by_rows, data).mean_and_latent_variance(new)
        k = kernel_matrix(X, new)
    for t in range(len(new)):
        curvature = k[:, t] @ k[:, t] / NOISE + 1.4
        best = minimize_scalar(
            lambda c, h=curvature: h * c**2 - 2 * np.log(c), bounds=(1e-6, 10), method="bounded", options={"xatol":
            1e-10}
        ).x  # fmt: skip
        assert augmented[t] - plain[t] == pytest.approx(1.4**2 * best**2, rel=1e-5)
    assert plain[2] < 1e-3
    assert augmented[2] == pytest.approx(1.4, rel=1e-3)  # the prior's
    assert np.all(augmented >= plain)


def test_rows_kept_for_the_augmentation_stand_for_all(data, direct, standardised):
    """With all rows kept it is Proposition 4; with half of them close to it among the rows."""
    X = standardised[0]
    with precision("float64"):
        whole = posterior_of(direct, data, rows=jnp.asarray(X))
        half = posterior_of(direct, data, rows=jnp.asarray(X[::2]))
        squares = np.sum(kernel_matrix(X[:20], X) ** 2, axis=1)
        _, variance = whole.mean_and_latent_variance(X[:20])
        _, plain = posterior_of(direct, data, augment=False).mean_and_latent_variance(X[:20])
        _, estimated = half.mean_and_latent_variance(X[:20])
    np.testing.assert_allclose(
        variance - plain, NOISE * 1.4**2 / (squares + NOISE * 1.4), rtol=1e-6
    )
    np.testing.assert_allclose(estimated - plain, variance - plain, rtol=0.6)


def test_samples_have_the_predicted_moments_and_are_continuous(data, by_rows):
    posterior = posterior_of(by_rows, data)
    new = np.array([[0.3, -0.2], [5.0, -5.0], [5.001, -5.0]])
    with precision("float64"):
        mean, variance = posterior.mean_and_latent_variance(new)
        drawn = posterior.samples(new, 400, 0)
    assert np.all(np.abs(drawn.mean(axis=1) - mean) < 5 * (variance / 400) ** 0.5)
    assert np.all(np.abs(drawn.var(axis=1) / variance - 1) < 5 * (2 / 400) ** 0.5)
    assert np.std(drawn[1] - drawn[2]) < 0.05 * np.std(drawn[1])


def test_repeated_rows_and_two_rows_are_no_trouble():
    X = np.repeat(np.linspace(-1, 1, 10)[:, None], 6, axis=0)
    for count in (60, 2):
        rows = as_rows(X[-count:] + (0.0 if count > 2 else [[0.0], [0.5]]), np.arange(count) * 0.1)
        standardizer = Standardizer().fit(rows)
        fit = fitted((rows, standardizer), kernel=RBF([0.7], 1.0), dtype="float32", tol=1e-2)
        X_, y_ = rows.take(np.arange(count))
        X_, y_ = standardizer.transform_X(X_), standardizer.transform_y(y_)
        exact, _ = ExactPosterior.condition(RBF([0.7], 1.0), NOISE, X_, y_)
        np.testing.assert_allclose(np.asarray(mean_of(fit, X_)), exact.mean(X_), atol=0.01)


def test_basis_blocks_are_the_kernel():
    Z = np.random.default_rng(0).normal(size=(7, 2))
    with precision("float64"):
        basis = InducingBasis(KERNEL, jnp.asarray(Z))
        i, j = jnp.array([4, 1]), jnp.array([0, 6, 1])
        X = jnp.asarray(Z[:3] + 0.1)
        np.testing.assert_allclose(basis.features(X, j), kernel_matrix(X, Z[[0, 6, 1]]))
        np.testing.assert_allclose(basis.prior_block(i, j), kernel_matrix(Z[[4, 1]], Z[[0, 6, 1]]))
        np.testing.assert_allclose(basis.prior_diagonal(i), [1.4, 1.4])
        moved = basis.with_kernel(dataclasses.replace(KERNEL))
        assert moved.num_basis == 7
    with pytest.raises(ValueError, match=r"inputs must have shape \(m, d\).*received \(7,\)"):
        InducingBasis(KERNEL, jnp.asarray(Z[:, 0]))
