"""Latent values of labels: random steps and their opposites leave the law of the values as it is."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import ks_2samp, kstest, truncnorm

from vastgp._precision import precision
from vastgp.methods.reweighted.latent_values import (
    Counts,
    Largest,
    Signs,
    opposite_normal,
    signed_normal,
)


def _key(number=0):
    return jax.random.key(number, impl="threefry2x32")


@pytest.mark.parametrize("mean", [-2.0, 0.3, 6.0])
def test_signed_normals_have_the_law_of_a_truncated_normal(mean):
    with precision("float64"):
        means, signs = jnp.full(20_000, mean), jnp.full(20_000, -1.0)
        z = signed_normal(_key(3), means, signs)
        opposite = opposite_normal(z, means, signs)
    for values in (z, opposite):
        assert kstest(np.asarray(values), truncnorm(-np.inf, -mean, loc=mean).cdf).pvalue > 1e-3
    # what is far below the median is far above it then
    np.testing.assert_array_equal(np.argsort(z), np.argsort(opposite)[::-1])


def test_the_opposite_of_the_opposite_is_the_value():
    for sign in (-1.0, 1.0):
        with precision("float64"):
            mean = jnp.asarray([-50.0, -31.0, -5.0, -1.0, 0.0, 0.7, 3.0, 40.0])
            signs = jnp.full(len(mean), sign)
            z = signed_normal(_key(), mean, signs)
            again = opposite_normal(opposite_normal(z, mean, signs), mean, signs)
        np.testing.assert_allclose(again, z, rtol=1e-6, atol=1e-9)


def test_signed_normals_of_the_far_tail_are_finite_and_keep_their_sign():
    with precision("float64"):
        mean = jnp.asarray([-80.0, -31.0, -29.0, 29.0, 1e5, 0.0])
        sign = jnp.asarray([1.0, 1.0, 1.0, -1.0, -1.0, 1.0])
        z = signed_normal(_key(), mean, sign)
        both = np.asarray(z), np.asarray(opposite_normal(z, mean, sign))
    for values in both:
        assert np.all(np.isfinite(values)) and np.all(np.asarray(sign) * values >= 0.0)
        # above a the excess is about 1 / a
        assert np.all(np.abs(values[:5]) < 1.0)


@pytest.mark.parametrize("f", [(0.0, 0.0, 0.0), (1.5, -1.0, 0.4), (-2.0, 0.0, 1.0)])
@pytest.mark.parametrize("move", ["renewed", "opposite"])
def test_steps_of_several_classes_leave_the_law_as_it_is(f, move):
    # draws by rejection, of values whose largest is the first
    rng = np.random.default_rng(0)
    z = rng.normal(size=(400_000, 3)) + f
    z = z[np.argmax(z, axis=1) == 0][:8000].T
    latent, labels = Largest(3), jnp.zeros(z.shape[1])
    with precision("float64"):
        functions = jnp.broadcast_to(jnp.asarray(f)[:, None], z.shape)
        found = jnp.asarray(z)
        for number in range(2):
            if move == "renewed":
                found = latent.renewed(_key(number), functions, found, labels, 1.0)
            else:
                found = latent.opposite(_key(number), functions, found, labels, 1.0)
    found = np.asarray(found)
    assert np.all(np.argmax(found, axis=0) == 0) and np.mean(found == z) < 0.01
    for number in range(3):
        assert ks_2samp(found[number], z[number]).pvalue > 1e-3
    # and what the values have to do with each other: the lead over the second
    leads = [np.diff(np.sort(values, axis=0)[-2:], axis=0)[0] for values in (found, z)]
    assert ks_2samp(*leads).pvalue > 1e-3
    np.testing.assert_allclose(np.corrcoef(found), np.corrcoef(z), atol=0.06)


@pytest.mark.parametrize(("y", "f", "noise"), [(0, 1.0, 0.5), (3, -1.0, 0.02), (500, 6.0, 2.0)])
@pytest.mark.parametrize("move", ["renewed", "opposite"])
def test_steps_of_counts_leave_the_law_as_it_is(y, f, noise, move):
    # p(z | f, y) by its distribution function on a fine grid
    grid = np.linspace(f - 9.0 * noise**0.5 - 8.0, f + 9.0 * noise**0.5, 200_001)
    logs = y * grid - 2.0 * np.exp(grid) - 0.5 * (grid - f) ** 2 / noise
    below = np.cumsum(np.exp(logs - logs.max()))
    below /= below[-1]
    z = np.interp(np.random.default_rng(0).uniform(size=20_000), below, grid)[None]
    latent = Counts(2.0)
    with precision("float64"):
        given = jnp.full(z.shape, f), jnp.asarray(z), jnp.full(z.shape[1], float(y)), noise
        found = np.asarray(getattr(latent, move)(_key(), *given))
    assert kstest(found[0], lambda value: np.interp(value, grid, below)).pvalue > 1e-3
    # most proposals are taken, and the opposite ones lie on the other side
    assert np.mean(found != z) > 0.75
    if move == "opposite":
        assert np.corrcoef(found, z)[0, 1] < -0.5


def test_first_values_of_counts_are_their_logarithms():
    z = Counts(2.0).first(np.array([0.0, 9.5]))
    np.testing.assert_allclose(z, np.log([[0.25, 5.0]]))


@pytest.mark.parametrize(("latent", "count"), [(Signs(), 1), (Largest(4), 4)])
def test_first_values_agree_with_the_labels(latent, count):
    labels = np.array([-1.0, 1.0, 1.0]) if count == 1 else np.array([3.0, 0.0, 2.0])
    z = latent.first(labels)
    assert z.shape == (count, 3)
    right = np.sign(z[0]) if count == 1 else np.argmax(z, axis=0)
    np.testing.assert_array_equal(right, labels)
