"""The exact posterior, against the formulas with explicit inverses."""

import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import precision
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.kernels import RBF, Matern32
from vastgp.solvers.exact_posterior import ExactPosterior

KERNEL = RBF([1.0, 2.0], 1.5) + Matern32([0.5, 0.5], 0.3)


@pytest.fixture
def case():
    rng = np.random.default_rng(0)
    X, y, X_new = rng.normal(size=(25, 2)), rng.normal(size=25), rng.normal(size=(9, 2))
    posterior, evidence = ExactPosterior.condition(KERNEL, 0.1, X, y)
    return X, y, X_new, posterior, evidence


def gram(X, Z):
    with precision("float64"):
        return np.asarray(KERNEL(jnp.asarray(X), jnp.asarray(Z)))


def test_mean_and_variance(case):
    X, y, X_new, posterior, evidence = case
    inverse = np.linalg.inv(gram(X, X) + 0.1 * np.eye(25))
    cross = gram(X_new, X)
    mean, variance = posterior.mean_and_latent_variance(X_new)
    np.testing.assert_allclose(mean, cross @ inverse @ y, rtol=1e-10)
    np.testing.assert_allclose(
        variance, np.diag(gram(X_new, X_new) - cross @ inverse @ cross.T), rtol=1e-10
    )
    np.testing.assert_array_equal(mean, posterior.mean(X_new))
    assert evidence == ExactEvidence(X, y)(KERNEL, 0.1)


def test_samples_where_the_data_leave_nothing_open(case):
    # at training rows without noise every sample passes through the data
    X, y, *_ = case
    posterior, _ = ExactPosterior.condition(KERNEL, 1e-10, X, y)
    np.testing.assert_allclose(posterior.samples(X, 4, seed=0), np.tile(y[:, None], 4), atol=1e-3)


def test_state_restores_every_bit(case):
    *_, X_new, posterior, _ = case
    again = ExactPosterior.from_state(*posterior.to_state())
    for mine, theirs in zip(
        posterior.mean_and_latent_variance(X_new),
        again.mean_and_latent_variance(X_new),
        strict=True,
    ):
        np.testing.assert_array_equal(mine, theirs)


def test_too_many_rows_for_joint_samples_are_refused(case):
    *_, posterior, _ = case
    with pytest.raises(ValueError, match=r"X has 10001 rows; joint samples .* at most 10000"):
        posterior.samples(np.zeros((10_001, 2)), 1, seed=0)


@pytest.mark.parametrize("panels", [False, True])
def test_the_scale_of_highest_evidence(case, panels):
    X, y, X_new, posterior, evidence = case
    if panels:
        posterior, found = ExactPosterior.condition_many(KERNEL, 0.1, X, y, "float64", panel_rows=8)
        evidence = found.log_evidence
    mean, variance = posterior.mean_and_latent_variance(X_new)
    scaled, scale, gain = posterior.at_best_scale()

    def at(s):
        return ExactEvidence(X, y)(KERNEL.in_units(1.0, s**0.5), 0.1 * s)

    assert abs(scale - 1.0) > 0.1  # or nothing would be seen
    np.testing.assert_allclose(evidence + gain, at(scale), rtol=1e-9)
    assert at(scale) > max(at(1.01 * scale), at(0.99 * scale), at(1.0))
    np.testing.assert_allclose(scaled.noise_variance, 0.1 * scale)
    of_scaled = scaled.mean_and_latent_variance(X_new)
    np.testing.assert_allclose(of_scaled[0], mean, rtol=1e-9)
    np.testing.assert_allclose(of_scaled[1], scale * variance, rtol=1e-8)
    fresh, _ = ExactPosterior.condition(scaled.kernel, scaled.noise_variance, X, y)
    left, expected = scaled.leave_one_out(), fresh.leave_one_out()
    np.testing.assert_allclose(left.log_density, expected.log_density, rtol=1e-8)
