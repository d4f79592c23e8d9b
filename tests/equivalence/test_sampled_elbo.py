"""Where sampling ends the estimates equal the closed forms, and the stochastic solver the exact posterior."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from small_models import exact_mean_gradient, exact_terms, small_model
from support_control import support_control, support_expectation
from vastgp._precision import precision
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.data import Standardizer, as_rows
from vastgp.kernels import RBF
from vastgp.likelihoods import Gaussian
from vastgp.methods.qsgp.stochastic.control_variates import (
    FittedCoefficient,
    running_product,
    target_control,
)
from vastgp.methods.qsgp.stochastic.finish import diagonal_columns
from vastgp.methods.qsgp.stochastic.fit import fit_stochastic
from vastgp.methods.qsgp.stochastic.index_sets import stratified_indices
from vastgp.methods.qsgp.stochastic.options import Stochastic
from vastgp.methods.qsgp.stochastic.posterior import ChevronPosterior
from vastgp.methods.qsgp.stochastic.sampled_elbo import (
    DensePrior,
    DiagonalPrior,
    constant_objective,
    covariance_objective,
    elbo,
    mean_gradient,
    mean_objective,
    optimal_diagonal,
    sampled_product,
)
from vastgp.methods.qsgp.stochastic.setup import make_plan


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float64", 1e-6)])
@pytest.mark.parametrize("dense", [False, True])
def test_full_batch_equals_the_closed_form(dtype, tolerance, dense):
    model = small_model(3, 40, 60, dense)
    n, m = model.phi.shape
    with precision(dtype):
        y, phi, S, mu, C = (jnp.asarray(part, dtype) for part in model[:5])
        common = {"noise_variance": model.noise, "row_factor": 1.0}
        blocks = DensePrior(S) if dense else DiagonalPrior(jnp.diagonal(S), jnp.diagonal(S))
        f = sampled_product(phi, mu[:, None], 1.0)[:, 0]
        prior = blocks.quadratic(mu[:, None], mu[:, None], 1.0, 1.0)[0]
        mean = mean_objective(y, f, f, prior, **common)
        h = sampled_product(phi, C, 1.0)
        covariance = covariance_objective(
            h, h, blocks.quadratic(C, C, 1.0, 1.0), jnp.diagonal(C), column_factor=1.0, **common
        )
        half = mean_gradient(phi, (f - y)[None], (S @ mu)[None], **common)[0]
    L_mu, L_Sigma, L_const = exact_terms(model)
    np.testing.assert_allclose(mean, L_mu, rtol=tolerance)
    np.testing.assert_allclose(covariance, L_Sigma, rtol=tolerance)
    np.testing.assert_allclose(
        2 * half, exact_mean_gradient(model), rtol=tolerance, atol=20 * tolerance
    )
    if dense:
        return  # Proposition 2 is for a diagonal prior
    with precision(dtype):
        constant = constant_objective(
            y, jnp.diagonal(S), basis_factor=1.0, num_rows=n, num_basis=m, **common
        )
        total = elbo(mean, covariance, constant)
    np.testing.assert_allclose(constant, L_const, rtol=tolerance)
    np.testing.assert_allclose(total, -0.5 * (L_mu + L_Sigma + L_const), rtol=tolerance)


def test_control_variates_vanish_at_full_batch():
    model = small_model(4, 20, 30, False)
    with precision("float64"):
        phi, mu, y = jnp.asarray(model.phi), jnp.asarray(model.mu)[:, None], jnp.asarray(model.y)
        support = phi[:6]
        expectation = support_expectation(support @ mu, support, mu, gradient_factor=1.0)
        eq3 = support_control(
            support, support, mu, mu, expectation, factor_i=1.0, factor_j=1.0, row_factor=20 / 6
        )
        b = phi.T @ y
        target = target_control(b, mu[:, 0], b @ mu[:, 0], basis_factor=1.0, noise_variance=0.3)
        # F.2's two gradients cancel entry by entry: it cannot help a gradient
        slope = jax.grad(
            lambda v: target_control(
                b[:5], v[:5], b[:5] @ v[:5] * 6.0, basis_factor=6.0, noise_variance=0.3
            )
        )(mu[:, 0])
    assert abs(float(eq3[0])) < 1e-12
    assert abs(float(target)) < 1e-12
    assert float(jnp.max(jnp.abs(slope))) < 1e-12


def test_running_product_is_the_product_after_many_sparse_changes():
    rng = np.random.default_rng(0)
    phi = rng.normal(size=(7, 50))
    v, a = np.zeros((50, 2)), np.zeros((7, 2))
    with precision("float64"):
        for _ in range(200):
            where = rng.choice(50, 8, replace=False)
            change = rng.normal(size=(8, 2))
            v[where] += change
            a = np.asarray(
                running_product(jnp.asarray(a), jnp.asarray(phi[:, where]), jnp.asarray(change))
            )
    np.testing.assert_allclose(a, phi @ v, atol=1e-11)


def test_fitted_coefficient_finds_the_slope_of_correlated_noise():
    rng = np.random.default_rng(1)
    with precision("float64"):
        coefficient = FittedCoefficient.start(jnp.float64)
        assert float(coefficient.value) == 1.0
        for _ in range(400):
            control = rng.normal(size=30)
            estimate = 0.6 * control + 0.1 * rng.normal(size=30)
            coefficient = coefficient.update(jnp.asarray(estimate), jnp.asarray(control))
        assert abs(float(coefficient.value) - 0.6) < 0.02


@pytest.mark.parametrize(
    ("size", "first", "stop"), [(10, 0, 10), (7, 3, 24), (1, 0, 5), (64, 0, 1000)]
)
def test_index_sets_are_distinct_and_equally_likely(size, first, stop):
    draws = 4000
    keys = jax.random.split(jax.random.key(0), draws)
    each = jax.vmap(lambda key: stratified_indices(key, size, first, stop))
    sets = np.asarray(jax.jit(each)(keys))
    assert sets.min() >= first and sets.max() < stop
    assert all(len(set(row)) == size for row in sets[:200])
    share = size / (stop - first)
    counts = np.bincount(sets.ravel() - first, minlength=stop - first)
    # binomial counts; 5 standard errors for up to a thousand of them
    gap = np.abs(counts - draws * share)
    assert np.all(gap <= 5 * np.sqrt(draws * share * (1 - share)) + 1e-9)


# ---------------------------------------------------------------- the solver against the closed form

NOISE = 0.05


def problem(n: int, m: int, d: int = 3, seed: int = 0):
    """Rows of a smooth function with noise, standardised, with a basis that fits them."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.5, 1.5, (n, d))
    y = np.sin(1.5 * X[:, 0]) * np.cos(X[:, 1]) + 0.3 * X[:, 2] + NOISE**0.5 * rng.normal(size=n)
    rows = as_rows(X, y)
    kernel = RBF(lengthscales=np.full(d, 1.2), variance=1.0)
    return rows, Standardizer().fit(rows), RandomFourierBasis(kernel, jnp.asarray(seed_key(1)), m)


@eqx.filter_jit
def features(basis, X, pairs):
    return basis.features(X, pairs)


def closed_form(rows, standardizer, basis, X):
    """Return mean, and standard deviation of the function, of the exact posterior at standardised ``X``."""
    with precision("float64"):
        pairs = jnp.arange(basis.num_pairs)
        own = standardizer.transform_X(rows.X)
        both = np.asarray(features(basis, jnp.asarray(np.concatenate([own, X])), pairs))
    phi, new = both[: len(own)], both[len(own) :]
    phi, new = phi.reshape(len(phi), -1), new.reshape(len(new), -1)
    H = phi.T @ phi / NOISE + np.eye(phi.shape[1])
    mean = new @ np.linalg.solve(H, phi.T @ standardizer.transform_y(rows.y) / NOISE)
    return mean, np.sqrt(np.sum(new * np.linalg.solve(H, new.T).T, axis=1)), H


@pytest.mark.parametrize("dense_columns", [0, 5])
@pytest.mark.parametrize("optimizer", ["preconditioned", "adagrad"])
def test_full_batch_finds_the_exact_mean(optimizer, dense_columns):
    rows, standardizer, basis = problem(200, 60)
    options = Stochastic(
        row_batch=200, basis_batch=60, control_rank=200, optimizer=optimizer, dense_columns=dense_columns,
        max_steps=300 if optimizer == "preconditioned" else 3000,
    )  # fmt: skip
    fit = fit_stochastic(rows, standardizer, basis, Gaussian(NOISE), options, dtype="float64")
    X = np.random.default_rng(2).uniform(-1.5, 1.5, (50, 3))
    mean, *_ = closed_form(rows, standardizer, basis, X)
    with precision("float64"):
        posterior = ChevronPosterior(fit.basis, fit.mean, fit.columns, fit.diagonal)
        found = posterior.mean(X)
    np.testing.assert_allclose(found, mean, atol=1e-4 if optimizer == "preconditioned" else 0.05)


def test_full_batch_finds_the_exact_dense_columns():
    """c_r minimises 1/2 c^T H c - log c_rr below the diagonal: c_r = h / sqrt(h_r), h = (H_>=r)^-1 e_r."""
    dense_columns = 5
    rows, standardizer, basis = problem(200, 60)
    options = Stochastic(
        row_batch=200, basis_batch=60, control_rank=200, dense_columns=dense_columns, max_steps=300
    )
    fit = fit_stochastic(rows, standardizer, basis, Gaussian(NOISE), options, dtype="float64")
    *_, H = closed_form(rows, standardizer, basis, np.zeros((1, 3)))
    flat = np.asarray(fit.columns).transpose(0, 2, 1).reshape(dense_columns, -1)
    order = np.concatenate([np.arange(0, 60, 2), np.arange(1, 60, 2)])
    H_ordered = np.zeros_like(H)
    H_ordered[np.ix_(order, order)] = H
    for r in range(dense_columns):
        column = np.linalg.inv(H_ordered[r:, r:])[0]
        np.testing.assert_allclose(flat[r, r:], column / column[0] ** 0.5, atol=2e-3)
        assert np.all(flat[r, :r] == 0)


def test_diagonal_columns_are_proposition_1_over_all_rows():
    rows, standardizer, basis = problem(150, 40)
    with precision("float64"):
        X = jnp.asarray(standardizer.transform_X(rows.X))
        plan = make_plan(Stochastic(dense_columns=3), 150, basis, Gaussian(NOISE))
        found = np.asarray(diagonal_columns(plan, basis, NOISE, X, 150))
        phi = np.asarray(features(basis, X, jnp.arange(20)))
        expected = np.asarray(optimal_diagonal(jnp.sum(jnp.asarray(phi) ** 2, axis=0), 1.0, NOISE))
    dense = np.zeros((2, 20), bool)
    dense[0, 0] = dense[1, 0] = dense[0, 1] = True
    assert np.all(found[dense] == 0)
    np.testing.assert_allclose(found[~dense], expected[~dense], rtol=1e-12)


def test_chevron_posterior_equals_dense_algebra():
    _, _, basis = problem(20, 30)
    rng = np.random.default_rng(3)
    with precision("float64"):
        mean, columns = rng.normal(size=(2, 15)), rng.normal(size=(2, 2, 15))
        diagonal = rng.uniform(0.1, 1.0, (2, 15))
        diagonal[:, 0] = 0
        posterior = ChevronPosterior(basis, *(jnp.asarray(a) for a in (mean, columns, diagonal)))
        X = rng.normal(size=(9, 3))
        phi = np.asarray(features(basis, jnp.asarray(X), jnp.arange(15))).reshape(9, -1)
        found_mean, found_variance = posterior.mean_and_latent_variance(X)
        again = ChevronPosterior.from_state(*posterior.to_state())
        samples = again.samples(X, 1000, seed=0)
    C = np.concatenate([columns.reshape(2, -1).T, np.diag(diagonal.ravel())], axis=1)
    covariance = phi @ C @ C.T @ phi.T
    np.testing.assert_allclose(found_mean, phi @ mean.ravel(), atol=1e-12)
    np.testing.assert_allclose(found_variance, np.diagonal(covariance), rtol=1e-10)
    # covariance of 1000 joint draws: 5 standard errors of a Gaussian's second moments
    spread = np.sqrt(np.outer(found_variance, found_variance) + covariance**2) / 1000**0.5
    assert np.all(np.abs(np.cov(samples) - covariance) < 5 * spread)
