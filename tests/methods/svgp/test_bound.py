"""Bounds at inducing points: exact where they can be, natural gradients by brute force, tighter bounds of t-SVGP."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compiled_programs import batched_factorisations
from vastgp._precision import precision
from vastgp.fitting.damped_updates import toward
from vastgp.fitting.dual_evidence import DualEvidence, local_sites
from vastgp.kernels import RBF, Linear, Matern32
from vastgp.likelihoods import Bernoulli, Gaussian, Poisson, Softmax, StudentT
from vastgp.methods.svgp import bound as bound
from vastgp.methods.svgp.bound import (
    HOLDS,
    Rows,
    SiteSums,
    better_sums,
    centred,
    moved_bound,
    posterior_under,
    untied_bound,
    whitener,
)
from vastgp.methods.svgp.slope import bound_slope_and_sites
from vastgp.solvers.exact_posterior import ExactPosterior

pytestmark = pytest.mark.little_work


def log_normaliser(sums):
    """Return ``log Z``, the integral of the prior times all sites: eq. (17) at inducing points.

    ``1/2 b^T R^-1 b - 1/2 log |R|``, without the constants of normalised sites.
    """
    q = bound.posterior_of(sums)
    log_det = -jnp.sum(jnp.log(jnp.diagonal(q.root, axis1=1, axis2=2)))
    return 0.5 * jnp.sum(sums.linear * q.mean) - log_det


KERNEL = RBF(np.array([0.7, 1.3]), 1.7)
# compiled whole: one by one, their operations take far longer to compile
bound_of, coordinates, held, log_normaliser, posterior_of, quadratic_fit, whitened_features = (
    jax.jit(each, static_argnames=static)
    for each, static in [
        (bound.bound_of, None),
        (bound.coordinates, None),
        (bound.held, "hold"),
        (log_normaliser, None),
        (bound.posterior_of, None),
        (bound.quadratic_fit, None),
        (bound.whitened_features, None),
    ]
)


@pytest.fixture(autouse=True)
def double():
    with precision("float64"):
        yield


def data(n=30, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return jnp.asarray(X), np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n)


def everything(X, y):
    return Rows(X, jnp.asarray(y), jnp.ones(len(y)))


@jax.jit
def improved(kernel, likelihood, Z, sums, rows):
    """Return the sums of better sites on some rows, and the bound before."""
    psi = whitened_features(kernel, Z, coordinates(kernel, Z, 0.0).inverse, rows.X)
    sums, q = posterior_under(likelihood, sums)
    fit, better = better_sums(
        likelihood, rows.y, rows.weights, psi, *q.moments(psi, kernel.total_variance())
    )
    return better, fit - q.divergence()


def optimum(kernel, likelihood, Z, rows, rate=1.0, steps=60):
    sums = SiteSums.none(likelihood.num_latent, len(Z), Z.dtype)
    for _ in range(steps):
        sums = toward(sums, improved(kernel, likelihood, Z, sums, rows)[0], rate)
    return sums


def test_gaussian_noise_and_points_at_the_rows_one_step_is_exact():
    X, y = data()
    likelihood, rows = Gaussian(0.2), everything(X, y)
    sums, _ = improved(KERNEL, likelihood, X, SiteSums.none(1, 30, X.dtype), rows)
    posterior, evidence = ExactPosterior.condition(KERNEL, 0.2, np.asarray(X), y)
    inverse = coordinates(KERNEL, X, 0.0).inverse
    q = posterior_of(sums)
    assert float(bound_of(KERNEL, likelihood, X, inverse, q, rows)) == pytest.approx(
        evidence, abs=1e-8
    )
    # the gain of that step without another pass over the rows
    nothing = SiteSums.none(1, 30, X.dtype)
    before = posterior_of(nothing)
    gain = quadratic_fit(sums, q) - quadratic_fit(sums, before) - q.divergence()
    start = bound_of(KERNEL, likelihood, X, inverse, before, rows)
    assert float(start + gain) == pytest.approx(evidence, abs=1e-8)
    # eq. (17): log Z with unnormalised sites t_i = exp(y f / s2 - f^2 / 2 s2)
    constant = -0.5 * float(y @ y) / 0.2 - 15.0 * np.log(2.0 * np.pi * 0.2)
    assert float(log_normaliser(sums)) + constant == pytest.approx(evidence, abs=1e-8)
    new = jnp.asarray(np.random.default_rng(1).normal(size=(20, 2)))
    mean, variance = q.moments(whitened_features(KERNEL, X, inverse, new), KERNEL.total_variance())
    right = posterior.mean_and_latent_variance(np.asarray(new))
    np.testing.assert_allclose(mean[0], right[0], atol=1e-8)
    np.testing.assert_allclose(variance[0], right[1], atol=1e-8)


@pytest.mark.parametrize("likelihood", [Bernoulli("probit"), Poisson(2.0)], ids=repr)
def test_points_at_the_rows_give_the_dense_dual_bound(likelihood):
    X, y = data()
    y = np.where(y > 0, 1.0, -1.0) if isinstance(likelihood, Bernoulli) else np.round(np.exp(y))
    rows = everything(X, y)
    sums = optimum(KERNEL, likelihood, X, rows)
    inverse = coordinates(KERNEL, X, 0.0).inverse
    bound = bound_of(KERNEL, likelihood, X, inverse, posterior_of(sums), rows)
    dense = DualEvidence(np.asarray(X), y).solve(KERNEL, likelihood).bound
    assert float(bound) == pytest.approx(dense, abs=1e-6)


@pytest.mark.parametrize("likelihood", [Gaussian(0.2), Poisson(2.0)], ids=repr)
def test_minibatches_have_the_fixed_point_of_all_rows(likelihood):
    X, y = data(6)
    y = y if isinstance(likelihood, Gaussian) else np.round(np.exp(y))
    Z, rows = X[:3] + 0.1, everything(X, y)
    sums = optimum(KERNEL, likelihood, Z, rows)
    # the mean over every minibatch of two rows, weighted by n / |M| = 3
    steps = []
    for pair in itertools.combinations(range(6), 2):
        which = jnp.array(pair)
        batch = Rows(X[which], jnp.asarray(y)[which], jnp.full(2, 3.0))
        steps.append(improved(KERNEL, likelihood, Z, sums, batch)[0])
    for mine, parts in zip(sums, zip(*steps, strict=True), strict=True):
        np.testing.assert_allclose(np.mean(parts, axis=0), mine, atol=1e-9)


def test_e_steps_are_natural_gradient_steps_of_svgp():
    # eq. (5) on the whole bound, KL included, by automatic differentiation with respect to the expectation parameters
    X, y = data()
    y, Z, likelihood = np.where(y > 0, 1.0, -1.0), X[:5], Bernoulli("logit")
    rows, rate = everything(X, y), 0.3
    K = KERNEL(Z, Z)
    A = jnp.linalg.solve(K, KERNEL(Z, X))

    def elbo(expectations):
        m, second = expectations
        S = second - jnp.outer(m, m)
        mean = A.T @ m
        variance = 1.7 - jnp.sum(A * (K @ A), axis=0) + jnp.sum(A * (S @ A), axis=0)
        fit = jnp.sum(likelihood.expected_log_prob(rows.y, mean, variance))
        solved = jnp.linalg.solve(K, S + jnp.outer(m, m))
        log_det = jnp.linalg.slogdet(K)[1] - jnp.linalg.slogdet(S)[1]
        return fit - 0.5 * (jnp.trace(solved) - 5 + log_det)

    slope = jax.jit(jax.grad(elbo))
    m, S = jnp.zeros(5), K
    sums, lower = SiteSums.none(1, 5, Z.dtype), coordinates(KERNEL, Z, 0.0).lower
    for _ in range(8):
        by_mean, by_second = slope((m, S + jnp.outer(m, m)))
        precision_, linear = jnp.linalg.inv(S), jnp.linalg.solve(S, m)
        linear, half = linear + rate * by_mean, -0.5 * precision_ + rate * by_second
        S = jnp.linalg.inv(-(half + half.T))
        m = S @ linear
        sums = toward(sums, improved(KERNEL, likelihood, Z, sums, rows)[0], rate)
        q = posterior_of(sums)
        inverse = q.root[0] @ lower.T
        np.testing.assert_allclose(lower @ q.mean[0], m, atol=1e-6)
        np.testing.assert_allclose(inverse.T @ inverse, S, atol=1e-6)


@pytest.fixture(scope="module")
def banana():
    """Two crescents, ten inducing points, and the optimum at unit hyperparameters."""
    rng = np.random.default_rng(0)
    t, label = rng.uniform(-2.0, 2.0, 150), np.where(rng.uniform(size=150) < 0.5, 1.0, -1.0)
    X = np.stack([t, 0.6 * t**2 - 1.0 + 0.5 * label + 0.35 * rng.normal(size=150)], axis=1)
    with precision("float64"):
        X = jnp.asarray((X - X.mean(axis=0)) / X.std(axis=0))
        Z, rows = X[rng.permutation(150)[:10]], everything(X, label)
        start, likelihood = RBF(np.ones(2), 1.0), Bernoulli("logit")
        sums = optimum(start, likelihood, Z, rows, steps=40)
        here = coordinates(start, Z, 0.0)
        psi = whitened_features(start, Z, here.inverse, X)
        mean, variance = posterior_of(sums).moments(psi, 1.0)
        _, sites = local_sites(likelihood, rows.y, mean[0], variance[0])
        return Z, rows, sums, here, tuple(part[None] for part in sites)


def test_the_bound_of_the_m_step_is_tighter(banana):
    Z, rows, sums, here, sites = banana
    likelihood = Bernoulli("logit")
    moved = {hold: jax.jit(partial(moved_bound, hold=hold)) for hold in HOLDS}
    untied = jax.jit(untied_bound)
    rng = np.random.default_rng(1)
    found = []
    for _ in range(50):
        kernel = RBF(np.exp(rng.uniform(-1.5, 1.5, 2)), np.exp(rng.uniform(-2.0, 3.0)))
        given = {"kernel": kernel, "likelihood": likelihood, "Z": Z, "jitter": 0.0}
        bounds = [
            moved[hold](**given, sums=sums, before=here, rows=rows)
            for hold in ("sites", "whitened", "unwhitened")
        ]
        found.append([*bounds, untied(**given, sites=sites, rows=rows)])
    tied, whitened, unwhitened, full = np.array(found, float).T
    # eq. (15) with one site a row is above both standard bounds (14) at every one of the hyperparameters
    assert np.all(full >= np.maximum(whitened, unwhitened) - 1e-9)
    # tied sites are not everywhere, but nearly, and by far on average
    assert np.mean(tied >= whitened) > 0.9 and np.mean(tied >= unwhitened) > 0.8
    assert np.mean(full - tied) < 0.4 * np.mean(full - whitened)


def test_all_bounds_and_their_slopes_meet_where_the_sites_were_found(banana):
    Z, rows, sums, here, sites = banana
    likelihood = Bernoulli("logit")

    def at(log_variance, log_scale, hold):
        kernel = RBF(jnp.exp(log_scale) * jnp.ones(2), jnp.exp(log_variance))
        if hold == "full":
            return untied_bound(kernel, likelihood, Z, 0.0, sites, rows)
        return moved_bound(kernel, likelihood, Z, 0.0, hold, sums, here, rows)

    values = {
        hold: jax.jit(jax.value_and_grad(partial(at, hold=hold), argnums=(0, 1)))(0.0, 0.0)
        for hold in (*HOLDS, "full")
    }
    (right, (by_variance, by_scale)) = values.pop("whitened")
    for value, slope in values.values():
        assert float(value) == pytest.approx(float(right), abs=1e-7)
        np.testing.assert_allclose(slope, (by_variance, by_scale), atol=1e-5)


@pytest.mark.parametrize(
    "kernel",
    [Matern32(np.array([1.2, 0.9]), 1.3), RBF(0.8 * np.ones(2)) + Linear(np.array([0.4, 1.1]))],
    ids=str,
)
def test_slopes_in_closed_form_by_finite_differences(banana, kernel):
    Z, rows, sums, here, _ = banana
    likelihood = StudentT(0.5, 4.0)
    X_rows = Rows(rows.X, jnp.sin(3.0 * rows.X[:, 0]), rows.weights)
    # sites away from their optimum, where what is held matters
    here = coordinates(kernel, Z, 1e-8)
    logs = jax.tree.map(lambda leaf: jnp.log(jnp.asarray(leaf)), (kernel, likelihood))
    moved = jax.jit(moved_bound, static_argnames="hold")
    q = posterior_of(sums)
    flat, tree = jax.tree.flatten((*logs, Z))
    psi = whitened_features(kernel, Z, here.inverse, X_rows.X)
    moments = q.moments(psi, kernel.diag(X_rows.X))
    _, better = better_sums(likelihood, X_rows.y, X_rows.weights, psi, *moments)

    def bound(leaves, hold):
        kernel, likelihood, Z = jax.tree.unflatten(tree, leaves)
        kernel, likelihood = jax.tree.map(jnp.exp, (kernel, likelihood))
        return float(moved(kernel, likelihood, Z, 1e-8, hold, sums, here, X_rows))

    rng, step = np.random.default_rng(2), 1e-5
    for hold in HOLDS:
        value, slope, asked = jax.jit(bound_slope_and_sites, static_argnames="hold")(
            *logs, Z, 1e-8, hold, q, here, X_rows
        )
        for found, expected in zip(asked, better, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
        assert float(value) == pytest.approx(bound(flat, hold), abs=1e-8)
        for which in range(len(flat)):
            along = [jnp.zeros_like(leaf) for leaf in flat]
            along[which] = jnp.asarray(rng.normal(size=flat[which].shape))
            sides = [
                bound([a + sign * step * b for a, b in zip(flat, along, strict=True)], hold)
                for sign in (1.0, -1.0)
            ]
            numeric = (sides[0] - sides[1]) / (2.0 * step)
            found = jnp.sum(jax.tree.leaves(slope)[which] * along[which])
            assert float(found) == pytest.approx(numeric, rel=1e-6, abs=1e-5)


def test_the_slope_of_a_factor_and_its_inverse(banana):
    Z, *_ = banana
    K = coordinates(RBF(np.ones(2), 1.0), Z, 1e-3).lower
    K = K @ K.T
    rng = np.random.default_rng(3)
    weights = [jnp.asarray(np.tril(rng.normal(size=K.shape))) for _ in range(2)]

    def value(K):
        return sum(jnp.sum(w * part) for w, part in zip(weights, whitener(K), strict=True))

    change = rng.normal(size=K.shape)
    change = jnp.asarray(change + change.T)
    numeric = (value(K + 1e-6 * change) - value(K - 1e-6 * change)) / 2e-6
    assert float(jnp.sum(jax.grad(value)(K) * change)) == pytest.approx(float(numeric), rel=1e-5)


def test_what_is_held_is_held():
    X, y = data()
    Z, rows = X[:5], everything(X, y)
    sums = optimum(KERNEL, Gaussian(0.2), Z, rows, steps=1)
    other = RBF(np.array([1.1, 0.9]), 3.0)
    before, after = coordinates(KERNEL, Z, 0.0), coordinates(other, Z, 0.0)

    def moments_of_u(sums, there):
        q = posterior_of(sums)
        root = q.root[0] @ there.lower.T
        return there.lower @ q.mean[0], root.T @ root

    m, S = moments_of_u(sums, before)
    m_u, S_u = moments_of_u(held("unwhitened", sums, before, after), after)
    np.testing.assert_allclose(m_u, m, atol=1e-9)
    np.testing.assert_allclose(S_u, S, atol=1e-9)
    # sites: the posterior's natural parameters minus those of the prior do not change
    m_s, S_s = moments_of_u(held("sites", sums, before, after), after)
    K, K_after = KERNEL(Z, Z), other(Z, Z)
    np.testing.assert_allclose(
        jnp.linalg.inv(S_s) - jnp.linalg.inv(K_after),
        jnp.linalg.inv(S) - jnp.linalg.inv(K),
        atol=1e-7,
    )
    np.testing.assert_allclose(jnp.linalg.solve(S_s, m_s), jnp.linalg.solve(S, m), atol=1e-7)
    assert bound.held("whitened", sums, before, after) is sums


def test_functions_of_classes_are_solved_together():
    X, y = data()
    y, Z, likelihood = np.digitize(y, [-0.7, 0.7]).astype(float), X[:6], Softmax(3)
    rows = everything(X, y)
    sums = optimum(KERNEL, likelihood, Z, rows, rate=2.0 / 3.0, steps=20)
    q = posterior_of(sums)
    # nothing common to the functions is left
    np.testing.assert_allclose(centred(sums, q)[1].mean.sum(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(q.mean.sum(axis=0), 0.0, atol=1e-6)
    for c in range(3):
        one = posterior_of(SiteSums(sums.linear[c : c + 1], sums.precision[c : c + 1]))
        np.testing.assert_allclose(one.mean[0], q.mean[c], atol=1e-10)
        np.testing.assert_allclose(one.root[0], q.root[c], atol=1e-10)
    psi = whitened_features(KERNEL, Z, coordinates(KERNEL, Z, 0.0).inverse, X)
    predicted = np.argmax(np.asarray(q.moments(psi, KERNEL.total_variance())[0]), axis=0)
    assert np.mean(predicted == y) > 0.7
    # a batch of factorisations can hang (CONTRIBUTING.md)
    assert batched_factorisations(posterior_of, sums) == []


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extreme_variances_and_repeated_points_leave_no_nan(dtype):
    X, y = data(64)
    with precision(dtype):
        Z = jnp.asarray(np.concatenate([X[:10], X[:10], X[:5] + 1e-7]), dtype)
        rows = Rows(*(jnp.asarray(part, dtype) for part in (X, y, np.ones(64))))

        @jax.jit
        def slope(log_variance, sums):
            kernel = RBF(np.array([0.7, 1.3]), jnp.exp(log_variance))
            here = coordinates(kernel, Z, 0.0)
            return jax.value_and_grad(
                lambda v: moved_bound(
                    RBF(np.array([0.7, 1.3]), jnp.exp(v)),
                    Gaussian(1e-3), Z, 0.0, "sites", sums, here, rows,
                )
            )(log_variance)  # fmt: skip

        for variance in (1e-4, 1.0, 1e4):
            kernel, sums = RBF(np.array([0.7, 1.3]), variance), SiteSums.none(1, 25, Z.dtype)
            bounds = []
            for _ in range(3):
                sums, bound = improved(
                    as_(kernel, dtype), as_(Gaussian(1e-3), dtype), Z, sums, rows
                )
                bounds.append(float(bound))
            assert np.all(np.isfinite(bounds)) and bounds[2] >= bounds[0]
            value, by_variance = slope(jnp.asarray(np.log(variance), dtype), sums)
            assert np.isfinite(float(value)) and np.isfinite(float(by_variance))


def as_(tree, dtype):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), tree)
