"""The evidence bound with one function for each class: a maximum over Gaussians, its value, its gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from vastgp._precision import precision
from vastgp.fitting.dual_evidence import DualEvidence, Sites
from vastgp.fitting.dual_start import start_from_dual_evidence
from vastgp.kernels import RBF
from vastgp.likelihoods import Bernoulli, Softmax

KERNEL = RBF(np.array([0.7, 1.3]), 1.7)
LIKELIHOODS = [Softmax(3), Softmax(3, class_weights=(0.5, 1.0, 3.0))]


def rows(n=12, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.argmax(X @ rng.normal(size=(2, 3)) + rng.gumbel(size=(n, 3)), axis=1)


def covariance(X):
    with precision("float64"):
        return np.asarray(KERNEL(jnp.asarray(X), jnp.asarray(X)))


def bound_of(likelihood, y, K, mean, covariances):
    """``sum E[log p] - sum KL(N(m_c, S_c) || N(0, K))`` as it is defined."""
    with precision("float64"):
        variance = np.array([np.diag(S) for S in covariances])
        value = float(np.sum(likelihood.expected_log_prob(y, mean, variance)))
    for m, S in zip(mean, covariances, strict=True):
        inside = np.trace(np.linalg.solve(K, S)) + m @ np.linalg.solve(K, m) - len(m)
        value -= 0.5 * (inside + np.linalg.slogdet(K)[1] - np.linalg.slogdet(S)[1])
    return value


def test_an_evaluation_has_one_slope_of_the_kernel_whatever_the_classes(monkeypatch):
    X, y = rows(40)
    calls, plain = [], DualEvidence._by_kernel
    monkeypatch.setattr(
        DualEvidence, "_by_kernel", lambda self, *given: (calls.append(1), plain(self, *given))[1]
    )
    DualEvidence(X, y).objective((KERNEL, Softmax(3)))
    assert len(calls) == 1


def test_starting_values_are_of_rough_averages_and_have_the_likelihood_s_own():
    """A search by half of the nodes ends where one by all of them does, to less than its own tolerance."""
    X, y = rows(60, 3)
    used, plain = set(), DualEvidence._local

    def noted(self, likelihood, *moments):
        used.add(likelihood.points)
        return plain(self, likelihood, *moments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DualEvidence, "_local", noted)
        start = start_from_dual_evidence(RBF(1.0), Softmax(3), X, y)
    assert used == {Softmax(3).rough().points} and start.likelihood.points == Softmax(3).points
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Softmax, "rough", lambda self: self)
        fine = start_from_dual_evidence(RBF(1.0), Softmax(3), X, y)
    at = [DualEvidence(X, y).objective((one.kernel, Softmax(3)))[0] for one in (start, fine)]
    assert abs(at[0] - at[1]) < 0.01 and abs(start.bound - fine.bound) < 0.01


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=repr)
def test_the_posterior_is_stationary_and_its_bound_that_of_the_definition(likelihood):
    X, y = rows()
    K = covariance(X) + 1e-10 * np.eye(len(y))
    found = DualEvidence(X, y).solve(KERNEL, likelihood)
    with precision("float64"):
        alpha, beta = (np.asarray(p) for p in likelihood.sites(y, found.mean, found.variance))
    # K^-1 m_c = alpha_c,  S_c^-1 = K^-1 + diag(beta_c); gains are quadratic in what is missing
    np.testing.assert_allclose(found.mean, alpha @ K, atol=3e-4)
    np.testing.assert_allclose(found.sites.precision, beta, atol=3e-4)
    np.testing.assert_allclose(found.mean.sum(axis=0), 0.0, atol=1e-12)
    covariances = [np.linalg.inv(np.linalg.inv(K) + np.diag(b)) for b in found.sites.precision]
    np.testing.assert_allclose(found.variance, [np.diag(S) for S in covariances], atol=1e-6)
    right = bound_of(likelihood, y, K, found.mean, covariances)
    assert found.bound == pytest.approx(right, abs=1e-5)


def test_it_is_the_maximum_over_independent_gaussians():
    X, y = rows(n=3)
    K, likelihood = covariance(X), Softmax(3)
    lower = np.tril_indices(3)
    with precision("float64"):
        inverse, log_det = jnp.linalg.inv(K), jnp.linalg.slogdet(K)[1]

        @jax.jit
        @jax.value_and_grad
        def loss(flat):
            mean = flat[:9].reshape(3, 3)
            L = jnp.zeros((3, 3, 3)).at[:, lower[0], lower[1]].set(flat[9:].reshape(3, 6))
            S = L @ jnp.swapaxes(L, 1, 2)
            variance = jnp.diagonal(S, axis1=1, axis2=2)
            fit = jnp.sum(likelihood.expected_log_prob(y, mean, variance))
            outer = S + mean[:, :, None] * mean[:, None, :]
            log_dets = 2.0 * jnp.sum(jnp.log(jnp.abs(jnp.diagonal(L, axis1=1, axis2=2))))
            return 0.5 * (jnp.sum(inverse * outer) - 9 + 3 * log_det - log_dets) - fit

        start = np.concatenate([np.zeros(9), np.tile(np.linalg.cholesky(K)[lower], 3)])
        best = optimize.minimize(
            lambda v: tuple(map(np.asarray, loss(v))), start, jac=True, tol=1e-10
        )
    found = DualEvidence(X, y).solve(KERNEL, likelihood)
    assert found.bound >= -best.fun - 1e-6
    assert found.bound == pytest.approx(-best.fun, abs=1e-5)


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=repr)
def test_gradient_by_finite_differences(likelihood):
    X, y = rows()
    _, (slope, _) = DualEvidence(X, y).objective((KERNEL, likelihood))

    def bound(lengthscales, variance):
        kernel = RBF(np.array(lengthscales), variance)
        return DualEvidence(X, y).objective((kernel, likelihood))[0]

    h = 1e-3
    difference = (bound([0.7 + h, 1.3], 1.7) - bound([0.7 - h, 1.3], 1.7)) / (2 * h)
    assert difference == pytest.approx(float(slope.lengthscales[0]), rel=2e-3)
    difference = (bound([0.7, 1.3], 1.7 + h) - bound([0.7, 1.3], 1.7 - h)) / (2 * h)
    assert difference == pytest.approx(float(slope.variance), rel=2e-3)


def test_two_classes_have_the_probabilities_of_one_function_of_twice_the_variance():
    """The difference of two independent functions has the sum of their variances; the mean-field bound is lower."""
    X, y = rows()
    y = (y > 0).astype(float)
    pair = DualEvidence(X, y).solve(KERNEL, Softmax(2))
    one = DualEvidence(X, 2.0 * y - 1.0).solve(RBF(KERNEL.lengthscales, 3.4), Bernoulli())
    assert pair.bound <= one.bound + 1e-6
    np.testing.assert_allclose(pair.mean[1] - pair.mean[0], one.mean, atol=0.1)


def test_centred_sites_have_the_centred_means():
    X, _ = rows()
    K, rng = covariance(X), np.random.default_rng(1)
    sites = Sites(rng.normal(size=(3, 12)), rng.uniform(0.1, 1.0, size=(3, 12)))

    def means(sites):
        return np.array(
            [
                np.linalg.solve(np.eye(12) + K * b, K @ a)
                for a, b in zip(sites.linear, sites.precision, strict=True)
            ]
        )

    before = means(sites)
    centred, mean = sites.centred(before)
    np.testing.assert_allclose(mean, before - before.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(means(centred), mean, atol=1e-9)
