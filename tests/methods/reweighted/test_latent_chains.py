"""Chains with latent values: sums that follow these, functions and hyperparameters as exact computation has them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import logsumexp
from scipy.stats import multivariate_normal

from several_processes import in_threads
from vastgp._precision import precision
from vastgp.bases.kernel_columns import KernelColumnBasis
from vastgp.data import Standardizer, as_rows
from vastgp.data.shared_rows import as_shared_rows
from vastgp.fitting.checkpoint import Checkpoint
from vastgp.fitting.run import Run
from vastgp.fitting.sufficient_statistics import (
    SufficientStatistics,
    feature_matrix,
    gather_statistics,
)
from vastgp.kernels import RBF
from vastgp.likelihoods import MultinomialProbit, PoissonLogNormal
from vastgp.methods.reweighted import latent_chains
from vastgp.methods.reweighted.chain_steps import CHUNK
from vastgp.methods.reweighted.chains import run_chains
from vastgp.methods.reweighted.evidence import prepare
from vastgp.methods.reweighted.kernel_weight_prior import KernelPrior
from vastgp.methods.reweighted.latent_chains import (
    LatentPosterior,
    LatentRows,
    LatentSteps,
    draw_coordinates,
    draw_latent_hyperparameters,
    with_targets,
)
from vastgp.methods.reweighted.latent_values import Counts, Largest, Signs
from vastgp.methods.reweighted.options import MALA, NUTS
from vastgp.methods.reweighted.weight_priors import (
    DiagonalPrior,
    OrthogonalPrior,
    ScalePrior,
    SpectralPrior,
)


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
def test_coordinates_are_drawn_from_the_posterior_of_each_function(kind):
    rng = np.random.default_rng(1)
    n, m = 9, 4
    phi, z = rng.normal(size=(n, m)), rng.normal(size=(2, n))
    with precision("float64"):
        data = prepare(SufficientStatistics.of(phi, z[0]))
        prior = _priors(data, rng.normal(size=(m, 2)))[kind]
        theta = 0.4 * rng.normal(size=prior.size) + np.log(0.5)
        noise = float(np.exp(theta[0]))
        U = phi @ np.asarray(data.vectors)[:, : data.rank] / np.asarray(data.values)
        q = jnp.asarray(z @ U)
        on_data = prior.on_data(data, jnp.asarray(theta))
        keys = jax.random.split(jax.random.key(0, impl="threefry2x32"), 40_000)
        b = np.asarray(
            jax.jit(jax.vmap(lambda key: draw_coordinates(on_data, q, noise, key)))(keys)
        )
        both = with_targets(data, q, jnp.asarray(np.sum(z**2, axis=1)))
    mean, covariance = prior.weights(both, theta)
    assert mean.shape == (2, m)
    own = phi if prior.lift is None else phi @ prior.lift
    spread = own @ covariance @ own.T
    for number in range(2):
        # f at the rows is U b = Phi w
        f, exact = b[:, number] @ U.T, phi @ mean[number]
        error = (f.mean(axis=0) - exact) / np.sqrt(np.diag(spread) / len(f))
        assert np.max(np.abs(error)) < 4.5
        assert np.max(np.abs(np.cov(f.T) - spread)) < 0.03 * np.max(np.abs(spread))
        # the mean of one function is what it is without the other
        with precision("float64"):
            alone = prior.weights(prepare(SufficientStatistics.of(phi, z[number])), theta)
        np.testing.assert_allclose(mean[number], alone[0], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(covariance, alone[1], rtol=1e-9, atol=1e-12)


def test_statistics_of_other_targets_are_those_of_one_pass():
    rng = np.random.default_rng(0)
    phi, z = rng.normal(size=(30, 5)), rng.normal(size=(2, 30))
    with precision("float64"):
        data = prepare(SufficientStatistics.of(phi, rng.normal(size=30)))
        wanted = [prepare(SufficientStatistics.of(phi, one)) for one in z]
        U = phi @ np.asarray(data.vectors)[:, : data.rank] / np.asarray(data.values)
        found = with_targets(data, jnp.asarray(z @ U), jnp.asarray(np.sum(z**2, axis=1)))
    for name in ("target", "square", "residual"):
        right = np.stack([np.asarray(getattr(one, name)) for one in wanted])
        np.testing.assert_allclose(getattr(found, name), right, rtol=1e-10)


@pytest.mark.parametrize("kept", [True, False])
def test_singular_vectors_of_several_processes_are_those_of_one_to_the_last_bit(monkeypatch, kept):
    """Chains of three classes tell rounding from none: parts of whole tiles have the same numbers."""
    whole, scaling, basis, data = _labelled(100, classes=3)
    monkeypatch.setattr(latent_chains, "_TILE", 16)
    if not kept:
        monkeypatch.setattr(latent_chains, "_MOST_KEPT", 0)
    z = np.random.default_rng(3).normal(size=(3, 100))
    some = np.sort(np.random.default_rng(4).choice(100, 70, replace=False))

    def found(rows):
        latent = LatentRows(rows, scaling, basis, data, "float64")
        return latent.vectors(some), latent.projected(z), latent.y

    one, ends = found(whole), [0, 0, 32, 48, 100]

    def work(number):
        mine = slice(ends[number], ends[number + 1])
        return found(as_shared_rows(whole.X[mine], np.asarray(whole.y)[mine], min_rows=2))

    for parts in in_threads(monkeypatch, 4, work):
        for part, alone in zip(parts, one, strict=True):
            np.testing.assert_array_equal(part, alone)


def _labelled(n, seed=0, classes=2):
    """Return rows with labels, a basis of five kernel functions and what a chain needs."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 1))
    f = np.sin(2.0 * X[:, 0]) + 0.5 * rng.normal(size=n)
    y = np.sign(f) if classes == 2 else np.digitize(f, [-0.4, 0.4]).astype(float)
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


# None: all five, filled up to the rows of a program
@pytest.mark.parametrize("rows_per_step", [2, None])
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
    plan = NUTS(4, 500, 10_000, rows_per_step=rows_per_step)
    chains = draw_latent_hyperparameters(prior, data, latent, Signs(), plan, Run())
    assert np.max(chains.r_hat) < 1.01 and np.all(chains.theta[..., 0] == 0.0)
    draws = chains.theta[..., 1].ravel()
    error = exact[1] / np.sqrt(chains.ess[0])
    assert abs(draws.mean() - exact[0]) < 4.0 * error
    assert draws.std() == pytest.approx(exact[1], rel=0.08)


def test_hyperparameters_of_three_classes_agree_with_quadrature():
    rows, scaling, basis, data = _labelled(6, classes=3)
    labels = np.asarray(rows.y)
    assert set(labels) == {0.0, 1.0, 2.0}
    prior = ScalePrior.make(1.0)
    likelihood, log_g = MultinomialProbit(3), np.linspace(-7.0, 8.0, 24)
    # p(labels | g) = E[prod_i p(y_i | f_i)] under f_c ~ N(0, g Phi Phi^T), by the same normals for every g
    normals = np.random.default_rng(0).normal(size=(3, basis.num_basis, 4000))
    with precision("float64"):
        inputs = jnp.asarray(scaling.transform_X(rows.take(np.arange(6))[0]))
        phi = np.asarray(feature_matrix(basis, inputs))

        @jax.jit
        def probability(g):
            logs = likelihood.log_prob(labels[:, None], jnp.exp(0.5 * g) * (phi @ normals))
            return jnp.mean(jnp.exp(jnp.sum(logs, axis=0)))

        of_labels = np.array([float(probability(g)) for g in log_g])
        log_prior = [float(prior.log_hyper_prior(jnp.asarray([0.0, g]))) for g in log_g]
    exact = _mean_and_deviation(log_g, of_labels * np.exp(log_prior))
    latent = LatentRows(rows, scaling, basis, data, "float64")
    plan = NUTS(4, 500, 3000, rows_per_step=4)
    chains = draw_latent_hyperparameters(prior, data, latent, Largest(3), plan, Run())
    assert chains.coordinates.shape == (4, 3000, 3, data.rank) and np.max(chains.r_hat) < 1.01
    draws = chains.theta[..., 1].ravel()
    assert abs(draws.mean() - exact[0]) < 4.0 * exact[1] / np.sqrt(chains.ess[0]) + 0.02
    assert draws.std() == pytest.approx(exact[1], rel=0.08)


def test_hyperparameters_of_counts_agree_with_quadrature():
    rows, scaling, basis, data = _labelled(6, classes=3)
    rows.y = np.array([0.0, 4.0, 1.0, 9.0, 2.0, 0.0])
    prior, rate = ScalePrior.make(0.2), 2.0
    log_noise, log_g = np.linspace(-5.0, 3.0, 15), np.linspace(-6.0, 6.0, 15)
    normals = np.random.default_rng(0).normal(size=(basis.num_basis, 2000))
    with precision("float64"):
        inputs = jnp.asarray(scaling.transform_X(rows.take(np.arange(6))[0]))
        phi = np.asarray(feature_matrix(basis, inputs))

        @jax.jit
        def log_joint(theta):
            likelihood = PoissonLogNormal(rate, jnp.exp(theta[0]))
            logs = likelihood.log_prob(rows.y[:, None], jnp.exp(0.5 * theta[1]) * (phi @ normals))
            return logsumexp(jnp.sum(logs, axis=0)) + prior.log_hyper_prior(theta)

        logs = [[float(log_joint(jnp.array([a, b]))) for b in log_g] for a in log_noise]
    weights = np.exp(np.array(logs) - np.max(logs))
    latent = LatentRows(rows, scaling, basis, data, "float64")
    plan = NUTS(4, 500, 5000, rows_per_step=4)
    chains = draw_latent_hyperparameters(prior, data, latent, Counts(rate), plan, Run())
    assert np.max(chains.r_hat) < 1.01
    for number, (values, of) in enumerate(((log_noise, weights.sum(1)), (log_g, weights.sum(0)))):
        mean, deviation = _mean_and_deviation(values, of)
        draws = chains.theta[..., number].ravel()
        assert abs(draws.mean() - mean) < 4.0 * deviation / chains.ess[number] ** 0.5 + 0.02
        assert draws.std() == pytest.approx(deviation, rel=0.08)


@pytest.mark.little_work
@pytest.mark.parametrize(
    ("kind", "kept", "classes"),
    [
        (OrthogonalPrior, True, 3),
        (DiagonalPrior, True, 2),
        (OrthogonalPrior, False, 2),
        (DiagonalPrior, False, 3),
    ],
)
def test_sums_follow_the_latent_values(kind, kept, classes, tmp_path, monkeypatch):
    if not kept:
        monkeypatch.setattr(latent_chains, "_MOST_KEPT", 0)
    rows, scaling, basis, data = _labelled(60, classes=classes)
    labels = Signs() if classes == 2 else Largest(3)
    latent = LatentRows(rows, scaling, basis, data, "float64")
    count = data.rank if kind is OrthogonalPrior else data.num_basis
    plan = MALA(2, 100, 50, rows_per_step=7)
    with precision("float64"):
        target = LatentPosterior(kind.make(count, 1.0), data, learns_noise=False)
        steps = LatentSteps(target, plan, 0, latent, labels)
        state = steps.start(np.zeros((2, count)), np.ones(count))
        before = state.latent[0].copy()
        for first in range(0, 3 * CHUNK, CHUNK):
            state, _ = steps.warm_up(state, first, CHUNK)
    z, q, square = map(np.asarray, state.latent)
    U = latent.vectors(np.arange(60))
    np.testing.assert_allclose(U.T @ U, np.eye(data.rank), atol=1e-9)
    np.testing.assert_allclose(q, z @ U, atol=1e-9)
    np.testing.assert_allclose(square, np.sum(z**2, axis=2), rtol=1e-12)
    if classes == 2:
        assert np.all(np.sign(z[:, 0]) == latent.y)
    else:
        assert np.all(np.argmax(z, axis=1) == latent.y)
    # 3 chunks of steps of 7 rows are eight sweeps and more: every value was renewed
    assert 3 * CHUNK * 7 > 8 * 60 and np.all(z != before)
    sweep = [steps.renewed_rows(step) for step in range(60 // 7)]
    assert len(np.unique(sweep)) == 7 * (60 // 7)
    # where chains begin is told by other numbers than which rows come first
    assert not np.array_equal(np.random.default_rng(0).permutation(60)[:7], sweep[0])
    if kept:
        _resumes(steps, np.zeros((2, count)), tmp_path, monkeypatch)


@pytest.mark.little_work
@pytest.mark.parametrize("classes", [2, 3])
def test_what_fills_up_the_rows_of_a_step_is_in_no_sum(classes):
    rows, scaling, basis, data = _labelled(20, classes=classes)
    latent = LatentRows(rows, scaling, basis, data, "float64")
    with precision("float64"):
        target = LatentPosterior(OrthogonalPrior.make(data.rank, 1.0), data, learns_noise=False)
        labels = Signs() if classes == 2 else Largest(3)
        steps = LatentSteps(target, MALA(2, 25, 25, thin=1), 0, latent, labels)
        assert steps.rows_per_step == 20
        state = steps.start(np.zeros((2, data.rank)), np.ones(data.rank))
        before = state.latent[0].copy()
        state, _ = steps.warm_up(state, 0, CHUNK)
    z, q, square = map(np.asarray, state.latent)
    assert np.all(z != before)
    np.testing.assert_allclose(q, z @ latent.vectors(np.arange(20)), atol=1e-9)
    np.testing.assert_allclose(square, np.sum(z**2, axis=2), rtol=1e-12)


def _resumes(steps, starts, tmp_path, monkeypatch):
    """Check that draws and latent values are the same to the last bit after a kill among the draws."""
    scale = np.ones(starts.shape[1])
    whole = run_chains(steps, starts, scale, Run())
    writes, write = [], Checkpoint.write

    def dying(self):
        write(self)
        writes.append(1)
        if len(writes) == 6:
            raise KeyError

    monkeypatch.setattr(Checkpoint, "due", lambda self: True)
    monkeypatch.setattr(Checkpoint, "write", dying)
    with pytest.raises(KeyError):
        run_chains(steps, starts, scale, Run(None, Checkpoint(tmp_path / "fit", fingerprint={})))
    file = Checkpoint(tmp_path / "fit", fingerprint={})
    assert list(file.phases) == ["warm-up", "chains"]
    again = run_chains(steps, starts, scale, Run(None, file))
    np.testing.assert_array_equal(again.theta, whole.theta)
    np.testing.assert_array_equal(again.coordinates, whole.coordinates)
