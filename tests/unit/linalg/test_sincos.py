"""The shared sine and cosine against NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import precision
from vastgp.linalg.sincos import sincos


@pytest.mark.parametrize(
    ("largest", "tolerance"),
    [(15.0, 1.2e-7), (200.0, 1.2e-7), (8000.0, 1.2e-7), (1e5, 1.2e-7), (1e7, 1.2e-7)],
)
def test_error_over_a_wide_range(largest, tolerance):
    x = np.random.default_rng(0).uniform(-largest, largest, 200_000).astype(np.float32)
    sine, cosine = jax.jit(sincos)(jnp.asarray(x))
    assert np.max(np.abs(sine - np.sin(x.astype(np.float64)))) <= tolerance
    assert np.max(np.abs(cosine - np.cos(x.astype(np.float64)))) <= tolerance


def test_quadrant_borders_and_zero():
    x = (np.arange(-40, 41) * np.pi / 4).astype(np.float32)
    sine, cosine = sincos(jnp.asarray(x))
    np.testing.assert_allclose(sine, np.sin(x.astype(np.float64)), atol=1.2e-7)
    np.testing.assert_allclose(cosine, np.cos(x.astype(np.float64)), atol=1.2e-7)
    assert float(sincos(jnp.zeros(1))[0][0]) == 0.0


def test_float64_is_the_library_call():
    with precision("float64"):
        x = jnp.linspace(-50.0, 50.0, 1001)
        sine, cosine = sincos(x)
        np.testing.assert_allclose(sine, np.sin(x), atol=1e-15)
        np.testing.assert_allclose(cosine, np.cos(x), atol=1e-15)


def test_derivatives_reuse_the_other_half():
    x = jnp.asarray([0.3, -2.0, 7.0], dtype=jnp.float32)
    by_sine = jax.vmap(jax.grad(lambda v: sincos(v)[0]))(x)
    by_cosine = jax.vmap(jax.grad(lambda v: sincos(v)[1]))(x)
    np.testing.assert_allclose(by_sine, np.cos(x), atol=2e-7)
    np.testing.assert_allclose(by_cosine, -np.sin(x), atol=2e-7)


def test_nothing_of_nothing():
    sine, cosine = sincos(jnp.zeros((0, 3)))
    assert sine.shape == cosine.shape == (0, 3)
