"""Latent values of labels: draws of the right law, sums that follow them, hyperparameters as quadrature has them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest, multivariate_normal, truncnorm

from vastgp._precision import precision
from vastgp.bases.kernel_columns import KernelColumnBasis
from vastgp.data import Standardizer, as_rows
from vastgp.kernels import RBF
from vastgp.objectives.kernel_weight_prior import KernelPrior
from vastgp.objectives.reweighted_evidence import prepare
from vastgp.objectives.sufficient_statistics import (
    SufficientStatistics,
    feature_matrix,
    gather_statistics,
)
from vastgp.objectives.weight_priors import (
    DiagonalPrior,
    OrthogonalPrior,
    ScalePrior,
    SpectralPrior,
)
from vastgp.training import latent_chains
from vastgp.training.hyperparameter_chains import CHUNK, ChainPlan
from vastgp.training.latent_chains import (
    LatentRows,
    draw_coordinates,
    draw_latent_hyperparameters,
    signed_normal,
    with_targets,
)


@pytest.mark.parametrize("mean", [-2.0, 0.3, 6.0])
def test_signed_normals_have_the_law_of_a_truncated_normal(mean):
    with precision("float64"):
        key = jax.random.key(3, impl="threefry2x32")
        z = np.asarray(signed_normal(key, jnp.full(20_000, mean), jnp.full(20_000, -1.0)))
    assert kstest(z, truncnorm(-np.inf, -mean, loc=mean).cdf).pvalue > 1e-3


def test_signed_normals_of_the_far_tail_are_finite_and_keep_their_sign():
    with precision("float64"):
        mean = jnp.asarray([-80.0, -31.0, -29.0, 29.0, 1e5, 0.0])
        sign = jnp.asarray([1.0, 1.0, 1.0, -1.0, -1.0, 1.0])
        key = jax.random.key(0, impl="threefry2x32")
        z = np.asarray(signed_normal(key, mean, sign))
    assert np.all(np.isfinite(z)) and np.all(np.asarray(sign) * z >= 0.0)
    # above a the excess is about 1 / a
    assert np.all(np.abs(z[:5]) < 1.0)


def _priors(data, inputs):
    kernel = RBF(0.7)
    m = data.num_basis
    whitening = np.random.default_rng(2).normal(size=(len(inputs), m)) / 3.0
    return {
        "diagonal": DiagonalPrior.make(m, 0.3),
        "orthogonal": OrthogonalPrior.make(data.rank, 0.3),
        "scale": ScalePrior.make(0.3),
        "spectral": SpectralPrior.make(data.rank, 0.3, 2),
        "waves": KernelPrior.make(kernel, 0.3, inputs),
        "interpolation": KernelPrior.make(kernel, 0.3, inputs, whitening),
    }


@pytest.mark.parametrize(
    "kind", ["diagonal", "orthogonal", "scale", "spectral", "waves", "interpolation"]
)
def test_coordinates_are_drawn_from_the_posterior_of_the_function(kind):
    rng = np.random.default_rng(1)
    n, m = 9, 4
    phi, y = rng.normal(size=(n, m)), rng.normal(size=n)
    with precision("float64"):
        data = prepare(SufficientStatistics.of(phi, y))
        prior = _priors(data, rng.normal(size=(m, 2)))[kind]
        theta = 0.4 * rng.normal(size=prior.size) + np.log(0.5)
        keys = jax.random.split(jax.random.key(0, impl="threefry2x32"), 40_000)
        draw = jax.jit(jax.vmap(lambda key: draw_coordinates(prior, data, jnp.asarray(theta), key)))
        b = np.asarray(draw(keys))
    mean, covariance = prior.weights(data, theta)
    # f at the rows is U b = Phi w
    U = phi @ np.asarray(data.vectors)[:, : data.rank] / np.asarray(data.values)
    exact, spread = phi @ mean, phi @ covariance @ phi.T
    f = b @ U.T
    error = (f.mean(axis=0) - exact) / np.sqrt(np.diag(spread) / len(f))
    assert np.max(np.abs(error)) < 4.5
    relative = np.cov(f.T) - spread
    assert np.max(np.abs(relative)) < 0.03 * np.max(np.abs(spread))


def test_statistics_of_other_targets_are_those_of_one_pass():
    rng = np.random.default_rng(0)
    phi, y, z = rng.normal(size=(30, 5)), rng.normal(size=30), rng.normal(size=30)
    with precision("float64"):
        data, wanted = (prepare(SufficientStatistics.of(phi, t)) for t in (y, z))
        U = phi @ np.asarray(data.vectors)[:, : data.rank] / np.asarray(data.values)
        found = with_targets(data, jnp.asarray(U.T @ z), jnp.asarray(z @ z))
    for name in ("target", "square", "residual"):
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=1e-10)


def _labelled(n, seed=0):
    """Return rows with labels, a basis of five kernel functions and what a chain needs."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 1))
    y = np.where(np.sin(2.0 * X[:, 0]) + 0.5 * rng.normal(size=n) > 0, 1.0, -1.0)
    rows = as_rows(X, y)
    scaling = Standardizer().fit(as_rows(X))
    basis = KernelColumnBasis.interpolation(RBF(0.8), np.linspace(-1.5, 1.5, 5)[:, None])
    with precision("float64"):
        data = prepare(gather_statistics(rows, scaling, basis))
    return rows, scaling, basis, data


def _mean_and_deviation(values, weights):
    weights = weights / weights.sum()
    mean = weights @ values
    return mean, np.sqrt(weights @ (values - mean) ** 2)


@pytest.mark.parametrize("rows_per_step", [2, 5])
def test_hyperparameters_of_labels_agree_with_quadrature(rows_per_step):
    rows, scaling, basis, data = _labelled(5)
    prior = ScalePrior.make(1.0)
    with precision("float64"):
        phi = np.asarray(
            feature_matrix(basis, jnp.asarray(scaling.transform_X(rows.take(np.arange(5))[0])))
        )
    # p(labels | g) is the probability of an orthant under N(0, g Phi Phi^T + I)
    labels = np.asarray(rows.y)
    K = np.outer(labels, labels) * (phi @ phi.T)
    log_g = np.linspace(-8.0, 9.0, 120)
    likelihood = [
        multivariate_normal(np.zeros(5), np.exp(g) * K + np.eye(5)).cdf(np.zeros(5)) for g in log_g
    ]
    with precision("float64"):
        log_prior = [float(prior.log_hyper_prior(jnp.asarray([0.0, g]))) for g in log_g]
    exact = _mean_and_deviation(log_g, np.array(likelihood) * np.exp(log_prior))
    latent = LatentRows(rows, scaling, basis, data, "float64")
    plan = ChainPlan("nuts", 4, 500, 10_000, 1)
    chains = draw_latent_hyperparameters(
        prior, data, latent, plan, rows_per_step=rows_per_step, seed=0
    )
    assert np.max(chains.r_hat) < 1.01 and np.all(chains.theta[..., 0] == 0.0)
    draws = chains.theta[..., 1].ravel()
    error = exact[1] / np.sqrt(chains.ess[0])
    assert abs(draws.mean() - exact[0]) < 4.0 * error
    assert draws.std() == pytest.approx(exact[1], rel=0.08)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("kind", [OrthogonalPrior, DiagonalPrior])
def test_sums_follow_the_latent_values(kind, kept, monkeypatch):
    if not kept:
        monkeypatch.setattr(latent_chains, "_MOST_KEPT", 0)
    rows, scaling, basis, data = _labelled(60)
    latent = LatentRows(rows, scaling, basis, data, "float64")
    count = data.rank if kind is OrthogonalPrior else data.num_basis
    with precision("float64"):
        runner = latent_chains._LatentRunner(
            latent_chains.LatentPosterior(kind.make(count, 1.0), data),
            np.zeros((2, count)), np.ones(count), ChainPlan("mala", 2, 100, 100, 1), 0, latent, 7,
        )  # fmt: skip
        before = runner.z.copy()
        for _ in range(3):
            runner.advance(adapt=True)
    q, square = map(np.asarray, runner.sums)
    U = latent.vectors(np.arange(60))
    np.testing.assert_allclose(U.T @ U, np.eye(data.rank), atol=1e-9)
    np.testing.assert_allclose(q, runner.z @ U, atol=1e-9)
    np.testing.assert_allclose(square, np.sum(runner.z**2, axis=1), rtol=1e-12)
    assert np.all(np.sign(runner.z) == latent.labels)
    # 3 chunks of steps of 7 rows are eight sweeps and more: every value was renewed
    assert 3 * CHUNK * 7 > 8 * 60 and np.all(runner.z != before)
