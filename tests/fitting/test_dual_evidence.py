"""The evidence bound of any likelihood: exact where it can be, a maximum of the variational problem elsewhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from vastgp._precision import precision
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.fitting.dual_evidence import DualEvidence
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.kernels import RBF, Matern32
from vastgp.likelihoods import Bernoulli, Gaussian, Laplace, Poisson, Softmax, StudentT
from vastgp.solvers.basis_evidence import BasisDualEvidence

KERNEL = RBF(np.array([0.7, 1.3]), 1.7)


def rows(likelihood, n=30, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    f = np.sin(2.0 * X[:, 0]) + X[:, 1]
    if isinstance(likelihood, Bernoulli):
        return X, np.where(rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-2.0 * f)), 1.0, -1.0)
    if isinstance(likelihood, Poisson):
        return X, rng.poisson(2.0 * np.exp(0.7 * f)).astype(float)
    return X, f + 0.3 * rng.standard_t(3, size=n)


LIKELIHOODS = [
    Gaussian(0.2), Laplace(0.4), StudentT(0.3, 4.0), Bernoulli("logit"), Bernoulli("probit"), Poisson(2.0)
]  # fmt: skip


def moved(params, place, factor):
    leaves, structure = jax.tree.flatten(params)
    leaves = [np.array(leaf, dtype=float) for leaf in leaves]
    which, entry = place
    leaves[which].reshape(-1)[entry] *= factor
    return jax.tree.unflatten(structure, leaves)


def test_with_gaussian_noise_the_bound_is_the_evidence_and_its_gradient():
    X, y = rows(Gaussian(0.2))
    value, (by_kernel, by_likelihood) = DualEvidence(X, y).objective((KERNEL, Gaussian(0.2)))
    exact, (right, by_noise) = ExactEvidence(X, y).value_and_gradient(KERNEL, 0.2)
    assert value == pytest.approx(exact, abs=1e-9)
    for mine, theirs in zip(jax.tree.leaves(by_kernel), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-8)
    assert float(by_likelihood.noise_variance) == pytest.approx(by_noise, rel=1e-8)


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=repr)
def test_gradient_by_finite_differences(likelihood):
    X, y = rows(likelihood)
    params = (KERNEL, likelihood)
    _, gradient = DualEvidence(X, y).objective(params)
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(gradient)])
    values = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])
    places = [
        (which, entry)
        for which, leaf in enumerate(jax.tree.leaves(params))
        for entry in range(np.size(leaf))
    ]
    step = 1e-3
    for place, slope, value in zip(places, flat, values, strict=True):
        up, down = (
            DualEvidence(X, y).objective(moved(params, place, 1.0 + sign * step))[0]
            for sign in (1, -1)
        )
        assert (up - down) / (2.0 * step * value) == pytest.approx(slope, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("likelihood", [Bernoulli("logit"), Poisson(2.0), Laplace(0.4)], ids=repr)
def test_sites_are_the_maximum_over_all_gaussians(likelihood):
    X, y = rows(likelihood, n=4)
    with precision("float64"):
        K = np.asarray(KERNEL(jnp.asarray(X), jnp.asarray(X)))
        lower = np.tril_indices(4)

        @jax.jit
        @jax.value_and_grad
        def loss(flat):
            mean = flat[:4]
            L = jnp.zeros((4, 4)).at[lower].set(flat[4:])
            S = L @ L.T
            fit = jnp.sum(likelihood.expected_log_prob(y, mean, jnp.diagonal(S)))
            solved = jnp.linalg.solve(K, S + jnp.outer(mean, mean))
            log_det = jnp.linalg.slogdet(K)[1] - 2.0 * jnp.sum(jnp.log(jnp.abs(jnp.diagonal(L))))
            return 0.5 * (jnp.trace(solved) - 4 + log_det) - fit

        start = np.concatenate([np.zeros(4), np.linalg.cholesky(K)[lower]])
        found = optimize.minimize(
            lambda v: tuple(map(np.asarray, loss(v))), start, jac=True, tol=1e-12
        )
    bound = DualEvidence(X, y).objective((KERNEL, likelihood))[0]
    assert bound == pytest.approx(-found.fun, abs=1e-6)


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=repr)
def test_the_bound_is_below_the_evidence(likelihood):
    X, y = rows(likelihood, n=2)
    with precision("float64"):
        K = np.asarray(KERNEL(jnp.asarray(X), jnp.asarray(X)))
        nodes, weights = np.polynomial.hermite_e.hermegauss(120)
        weights = weights / np.sqrt(2.0 * np.pi)
        grid = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 2)
        f = grid @ np.linalg.cholesky(K).T
        density = np.exp(
            np.sum(np.asarray(likelihood.log_prob(jnp.asarray(y), jnp.asarray(f))), axis=1)
        )
    evidence = float(np.log(np.outer(weights, weights).ravel() @ density))
    bound = DualEvidence(X, y).objective((KERNEL, likelihood))[0]
    slack = 1e-3 if isinstance(likelihood, (Laplace, StudentT)) else 1e-9  # of the quadrature
    assert bound <= evidence + slack
    assert bound > evidence - 0.5


@pytest.mark.parametrize("likelihood", [Laplace(0.1), Bernoulli("probit")], ids=repr)
def test_a_log_concave_likelihood_has_one_optimum_wherever_the_sites_start(likelihood):
    X, y = rows(likelihood, n=40)
    evidence = DualEvidence(X, y)
    evidence.objective((Matern32(np.array([0.1, 0.1]), 30.0), likelihood))
    warm = evidence.objective((KERNEL, likelihood))[0]
    cold = DualEvidence(X, y).objective((KERNEL, likelihood))[0]
    assert warm == pytest.approx(cold, abs=1e-6)


def test_outliers_far_away_do_not_stop_the_search():
    X, y = rows(StudentT(0.05, 2.0), n=40)
    clean = DualEvidence(X, y).solve(KERNEL, StudentT(0.05, 2.0))
    y[3] = 1e4
    found = DualEvidence(X, y).solve(KERNEL, StudentT(0.05, 2.0))
    assert np.isfinite(found.bound)
    assert found.sites.precision[3] < 1e-6 * np.median(found.sites.precision)
    others = np.arange(40) != 3
    assert np.median(np.abs(found.mean - clean.mean)[others]) < 0.1


def test_with_many_features_it_is_that_of_the_kernel():
    X, y = rows(Bernoulli("logit"))
    kernel = RBF(np.array([1.5, 1.5]), 1.2)
    basis = RandomFourierBasis(kernel, seed_key(3), 200_000)
    mine = BasisDualEvidence(X, y, basis).objective((kernel, Bernoulli("logit")))
    exact = DualEvidence(X, y).objective((kernel, Bernoulli("logit")))
    assert mine[0] == pytest.approx(exact[0], abs=0.05)
    for a, b in zip(jax.tree.leaves(mine[1]), jax.tree.leaves(exact[1]), strict=True):
        np.testing.assert_allclose(a, b, atol=0.1)


@pytest.mark.parametrize("weights", [None, (1.0, 0.2, 5.0)])
def test_sites_of_few_rows_of_several_classes_are_those_of_the_program(weights, monkeypatch):
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(20, 2)), rng.integers(0, 3, 20).astype(float)
    likelihood, found = Softmax(3, class_weights=weights), []
    for most in (Softmax.most_in_numpy, 0):
        monkeypatch.setattr(Softmax, "most_in_numpy", most)
        value, (by_kernel, _) = DualEvidence(X, y).objective((RBF([0.8, 1.2], 2.0), likelihood))
        found.append([value, *by_kernel.lengthscales, by_kernel.variance])
    # the same updates, but for rounding
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


def counts_under_a_wide_prior(n):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return X, rng.poisson(np.exp(np.sin(2.0 * X[:, 0]))).astype(float)


@pytest.mark.parametrize(("n", "variance"), [(100, 30.0), (100, 100.0), (500, 100.0)])
def test_counts_under_a_prior_of_large_variance_find_their_sites(n, variance):
    """The prior's averages of a rate are ``e^(v/2)``: sites from there left bounds of -10^24 or +10^3 nats."""
    X, y = counts_under_a_wide_prior(n)
    found = DualEvidence(X, y).solve(RBF(np.full(2, 1.5), variance), Poisson())
    assert found.settled
    # a Poisson's log-likelihood is below that of its own mean, and no evidence of counts is positive
    assert -3.0 * n < found.bound < 0.0
    # the fixed point of eq. (12)-(13) of t-SVGP: sites are what the derivatives at the posterior ask for
    rate = np.exp(found.mean + 0.5 * found.variance)
    np.testing.assert_allclose(found.sites.precision, rate, rtol=0.02)
    np.testing.assert_allclose(
        found.sites.linear, rate * found.mean + y - rate, rtol=0.02, atol=0.02
    )


@pytest.mark.parametrize(
    "likelihood", [Bernoulli("logit"), StudentT(0.3, 4.0), Softmax(3)], ids=repr
)
def test_sites_of_many_rows_start_from_those_of_some(likelihood, monkeypatch):
    """The same maximum as from none; of labels under a prior of large variance from half of the updates of all rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 6))
    y = 3.0 * np.sin(X[:, 0]) + 2.0 * X[:, 1] + rng.logistic(size=600)
    if isinstance(likelihood, Bernoulli):
        y = np.sign(y)
    if isinstance(likelihood, Softmax):
        y = np.digitize(y, [-0.5, 0.5]).astype(float)
    kernel, updates = RBF(np.full(6, 4.0), 20.0), []

    def solved():
        evidence, own = DualEvidence(X, y), DualEvidence._posterior

        def count(self, *args):
            updates[-1] += self is evidence
            return own(self, *args)

        updates.append(0)
        with monkeypatch.context() as patch:
            patch.setattr(DualEvidence, "_posterior", count)
            return evidence.solve(kernel, likelihood)

    found = solved()
    monkeypatch.setattr(DualEvidence, "_by_some_rows", lambda self, _, given: self._none(given))
    alone = solved()
    assert found.settled and alone.settled
    assert found.bound == pytest.approx(alone.bound, abs=1e-4)
    np.testing.assert_allclose(found.mean, alone.mean, atol=0.02)
    if isinstance(likelihood, Bernoulli):
        assert updates[0] <= 0.7 * updates[1]


def test_a_bound_that_rounding_made_is_none():
    """Where the terms cancel to nothing the bound is not finite, and no fit takes it for a good one."""
    X, y = counts_under_a_wide_prior(60)
    evidence = DualEvidence(X, y)
    K = evidence._covariance(RBF(np.full(2, 1.5), 1000.0))
    from_prior = evidence._posterior(K, Poisson(), evidence._none(Poisson()))
    assert from_prior.bound == -np.inf
