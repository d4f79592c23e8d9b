"""Softmax: averages over several functions against tensor quadrature, and two classes against the logistic link."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from likelihoods.conformance import Compiled, _double  # noqa: F401
from vastgp._precision import precision
from vastgp.likelihoods import Bernoulli, Softmax, from_name, from_spec, to_spec

pytestmark = pytest.mark.little_work

# functions in rows, targets in columns
MEAN = np.array([[0.3, 5.0, -3.0], [1.0, 0.0, 2.0], [-2.0, -6.0, 2.5]])
RATIO = np.array([1.0, 0.5, 0.2])[:, None]
VARIANCES = [0.0, 1e-4, 0.1, 1.0, 4.0, 25.0, 100.0]
Y = np.array([0, 1, 2])


def tensor_average(function, mean, variance):
    """E[function(f)] over three independent normals by a tensor of Gauss-Hermite rules."""
    count = 40 if np.max(variance) < 2.0 else 90
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    weights = weights / weights.sum()
    grid = np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij")).reshape(3, -1)
    joint = np.einsum("i,j,k->ijk", weights, weights, weights).ravel()
    return function(mean[:, None] + np.sqrt(variance)[:, None] * grid) @ joint


@pytest.mark.parametrize("variance", VARIANCES)
def test_averages(variance):
    likelihood, V = Compiled(Softmax(3)), variance * RATIO * np.ones((3, 3))
    probability = np.asarray(likelihood.predictive_mean(MEAN, V))
    alpha, beta = (np.asarray(part) for part in likelihood.sites(Y, MEAN, V))
    value = np.asarray(likelihood.expected_log_prob(Y, MEAN, V))
    for s in range(3):

        def all_at_once(f, s=s):
            total = np.log(np.exp(f - f.max(axis=0)).sum(axis=0)) + f.max(axis=0)
            p = np.exp(f - total)
            return np.concatenate([p, p * (1.0 - p), [f[s] - total]])

        right = tensor_average(all_at_once, MEAN[:, s], V[:, s])
        np.testing.assert_allclose(probability[:, s], right[:3], atol=3e-6)
        np.testing.assert_allclose(alpha[:, s], (np.arange(3) == s) - right[:3], atol=3e-6)
        np.testing.assert_allclose(beta[:, s], right[3:6], atol=3e-6)
        assert value[s] == pytest.approx(right[6], abs=2e-5)
    np.testing.assert_allclose(probability.sum(axis=0), 1.0, rtol=1e-12)


def test_small_probabilities_are_relatively_right():
    mean, variance = np.array([[20.0], [0.0], [-25.0]]), np.array([[0.3], [0.3], [0.3]])
    found = Softmax(3).log_density(np.array([2]), mean, variance)[0]
    right = tensor_average(lambda f: softmax(f, axis=0)[2], mean[:, 0], variance[:, 0])
    assert float(found) == pytest.approx(np.log(float(right)), abs=1e-4)


@pytest.mark.parametrize("variance", [0.01, 1.0, 9.0])
def test_two_classes_are_the_logistic_link_on_the_difference(variance):
    rng = np.random.default_rng(0)
    m, V = rng.normal(size=(2, 7)), variance * rng.uniform(0.5, 1.0, size=(2, 7))
    y = np.array([0, 1, 1, 0, 1, 0, 0])
    two, one = Compiled(Softmax(2)), Compiled(Bernoulli("logit"))
    signs, difference, total = 2.0 * y - 1.0, m[1] - m[0], V.sum(axis=0)
    for method in ("expected_log_prob", "log_density"):
        np.testing.assert_allclose(
            getattr(two, method)(y, m, V), getattr(one, method)(signs, difference, total), atol=3e-5
        )
    alpha, beta = two.sites(y, m, V)
    its_alpha, its_beta = one.sites(signs, difference, total)
    np.testing.assert_allclose(alpha, np.stack([-its_alpha, its_alpha]), atol=3e-6)
    np.testing.assert_allclose(beta, np.stack([its_beta, its_beta]), atol=3e-6)
    np.testing.assert_allclose(two.median(m)[1], one.median(difference), atol=1e-12)


@pytest.mark.parametrize("weights", [None, (1.0, 0.2, 5.0)])
def test_sites_are_the_gradients(weights):
    likelihood, V = Compiled(Softmax(3, class_weights=weights)), RATIO * np.ones((3, 3))
    total = lambda m, v: likelihood.expected_log_prob(Y, m, v).sum()  # noqa: E731
    by_mean, by_variance = jax.jit(jax.grad(total, argnums=(0, 1)))(MEAN, V)
    alpha, beta = likelihood.sites(Y, MEAN, V)
    np.testing.assert_allclose(by_mean, alpha, atol=1e-9)
    np.testing.assert_allclose(by_variance, -0.5 * beta, atol=1e-9)
    value, step = jax.jit(lambda m, v: likelihood.expected_log_prob(Y, m, v)), 1e-3
    for c in range(3):
        shift = np.zeros((3, 1))
        shift[c] = step
        slope = (value(MEAN + shift, V) - value(MEAN - shift, V)) / (2.0 * step)
        np.testing.assert_allclose(slope, by_mean[c], atol=2e-5)
        slope = (value(MEAN, V + shift) - value(MEAN, V - shift)) / (2.0 * step)
        np.testing.assert_allclose(slope, by_variance[c], atol=2e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_are_finite(dtype):
    """Without variance, with much, and far from where the class is likely."""
    with precision(dtype):
        mean = jnp.array([[0.0, 60.0, -60.0], [0.0, 0.0, 60.0], [0.0, -60.0, 0.0]], dtype)
        slopes = jax.jit(
            jax.grad(
                lambda m, v: Softmax(3).expected_log_prob(jnp.zeros(3), m, v).sum(), argnums=(0, 1)
            )
        )
        for variance in (0.0, 1e-12, 1.0, 100.0):
            for part in slopes(mean, jnp.full_like(mean, variance)):
                assert part.dtype == dtype
                assert np.isfinite(part).all(), variance


def test_curvature():
    rng = np.random.default_rng(1)
    f, change = rng.normal(size=(4, 50)) * 2.0, rng.normal(size=(4, 50))
    likelihood, y = Softmax(4), np.zeros(50)
    found = likelihood.curvature_along(y, f, 0.0, change)
    p = softmax(f, axis=0)
    right = (p * change**2).sum(axis=0) - (p * change).sum(axis=0) ** 2
    np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-7)
    largest = [np.linalg.eigvalsh(np.diag(q) - np.outer(q, q))[-1] for q in p.T]
    assert max(largest) <= likelihood.most_curvature()
    # reached where two classes share everything
    pair = softmax([0.0, 0.0, -50.0, -50.0])
    top = np.linalg.eigvalsh(np.diag(pair) - np.outer(pair, pair))[-1]
    assert top == pytest.approx(likelihood.most_curvature())
    assert Softmax(2, class_weights=(1.0, 4.0)).most_curvature() == 2.0


def test_the_law():
    f = np.random.default_rng(2).normal(size=(3, 3))
    found = Softmax(3).log_prob(Y, f)
    np.testing.assert_allclose(found, log_softmax(f, axis=0)[Y, np.arange(3)], rtol=1e-12)


def test_files_and_names():
    for made in (Softmax(5), Softmax(3, class_weights=[1, 2, 0.5])):
        again = from_spec(json.loads(json.dumps(to_spec(made))))
        assert repr(again) == repr(made)
        assert jax.tree.structure(again) == jax.tree.structure(made)
    assert isinstance(from_name("softmax"), Softmax)
    assert (
        repr(Softmax(3, class_weights=(1, 2, 3)))
        == "Softmax(num_classes=3, class_weights=(1, 2, 3))"
    )


@pytest.mark.parametrize("number", [1, 0, 2.5, True, "three"])
def test_number_of_classes(number):
    with pytest.raises(ValueError, match="num_classes must be an integer of at least 2, received"):
        Softmax(number)


@pytest.mark.parametrize("weights", [(1.0, 2.0), (1.0, 0.0, 1.0), (1.0, np.nan, 1.0), "heavy"])
def test_class_weights_that_cannot_be(weights):
    with pytest.raises(ValueError, match="class_weights must be 3 positive finite numbers"):
        Softmax(3, class_weights=weights)


def test_weights_count_in_a_fit_alone():
    plain, heavy = Bernoulli(), Bernoulli(class_weights=(0.5, 3.0))
    y, m, v = np.array([-1.0, 1.0, 1.0]), np.array([0.3, -1.0, 2.0]), np.full(3, 0.7)
    weight = np.array([0.5, 3.0, 3.0])
    np.testing.assert_allclose(
        heavy.expected_log_prob(y, m, v), weight * plain.expected_log_prob(y, m, v), rtol=1e-12
    )
    for mine, theirs in zip(heavy.sites(y, m, v), plain.sites(y, m, v), strict=True):
        np.testing.assert_allclose(mine, weight * theirs, rtol=1e-12)
    assert heavy.most_curvature() == 0.75
    np.testing.assert_array_equal(heavy.log_density(y, m, v), plain.log_density(y, m, v))
    np.testing.assert_array_equal(heavy.predictive_mean(m, v), plain.predictive_mean(m, v))
    again = from_spec(json.loads(json.dumps(to_spec(heavy))))
    assert repr(again) == repr(heavy) == "Bernoulli(link='logit', class_weights=(0.5, 3))"


def test_targets_are_checked():
    with pytest.raises(ValueError, match=r"^y must hold class numbers 0 to 2 .*the first 3"):
        Softmax(3).check_targets(np.array([0, 1, 2, 3]))


@pytest.mark.parametrize("weights", [None, (1.0, 0.5, 2.0)])
def test_sites_at_known_latent_values_are_the_derivatives_of_the_log_likelihood(weights):
    rng = np.random.default_rng(0)
    f, y = 3.0 * rng.normal(size=(3, 20)), rng.integers(0, 3, 20)
    likelihood = Softmax(3, class_weights=weights)
    of_label = np.ones(20) if weights is None else np.asarray(weights)[y]
    value, alpha, beta = likelihood.plug_in_sites(y, f)
    with precision("float64"):
        np.testing.assert_allclose(value, of_label * likelihood.log_prob(y, f), rtol=1e-12)
        for n in range(20):

            def log_prob(one, n=n):
                return of_label[n] * likelihood.log_prob(y[n : n + 1], one[:, None])[0]

            np.testing.assert_allclose(alpha[:, n], jax.grad(log_prob)(f[:, n]), atol=1e-12)
            curvature = np.diag(jax.hessian(log_prob)(f[:, n]))
            np.testing.assert_allclose(beta[:, n], -curvature, atol=1e-12)
