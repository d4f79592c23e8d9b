"""The shared sine and cosine against NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import precision
from vastgp.linalg.sincos import LARGEST_ARGUMENT, sincos, sincos_of_moderate

both = pytest.mark.parametrize("pair", [sincos, sincos_of_moderate])


@pytest.mark.parametrize(
    ("pair", "largest"),
    [(sincos_of_moderate, size) for size in (15.0, 200.0, 8000.0, LARGEST_ARGUMENT)]
    + [(sincos, 15.0), (sincos, 1e7)],
)
def test_error_over_a_wide_range(pair, largest):
    x = np.random.default_rng(0).uniform(-largest, largest, 200_000).astype(np.float32)
    sine, cosine = jax.jit(pair)(jnp.asarray(x))
    assert np.max(np.abs(sine - np.sin(x.astype(np.float64)))) <= 1.2e-7
    assert np.max(np.abs(cosine - np.cos(x.astype(np.float64)))) <= 1.2e-7


@both
def test_quadrant_borders_and_zero(pair):
    x = (np.arange(-40, 41) * np.pi / 4).astype(np.float32)
    sine, cosine = pair(jnp.asarray(x))
    np.testing.assert_allclose(sine, np.sin(x.astype(np.float64)), atol=1.2e-7)
    np.testing.assert_allclose(cosine, np.cos(x.astype(np.float64)), atol=1.2e-7)
    assert float(pair(jnp.zeros(1))[0][0]) == 0.0


@both
def test_float64_is_the_library_call(pair):
    with precision("float64"):
        x = jnp.linspace(-50.0, 50.0, 1001)
        sine, cosine = pair(x)
        np.testing.assert_allclose(sine, np.sin(x), atol=1e-15)
        np.testing.assert_allclose(cosine, np.cos(x), atol=1e-15)


@both
def test_derivatives_reuse_the_other_half(pair):
    x = jnp.asarray([0.3, -2.0, 7.0], dtype=jnp.float32)
    by_sine = jax.vmap(jax.grad(lambda v: pair(v)[0]))(x)
    by_cosine = jax.vmap(jax.grad(lambda v: pair(v)[1]))(x)
    np.testing.assert_allclose(by_sine, np.cos(x), atol=2e-7)
    np.testing.assert_allclose(by_cosine, -np.sin(x), atol=2e-7)


@both
def test_nothing_of_nothing(pair):
    sine, cosine = pair(jnp.zeros((0, 3)))
    assert sine.shape == cosine.shape == (0, 3)
