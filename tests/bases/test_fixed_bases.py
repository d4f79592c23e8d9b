"""Bases that stay fixed: sines on a box, re-weighted random waves, kernel columns."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

from vastgp._precision import precision
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.bases.kernel_columns import KernelColumnBasis
from vastgp.bases.laplace_eigenfunctions import LaplaceEigenfunctionBasis
from vastgp.fitting.sufficient_statistics import feature_matrix
from vastgp.kernels import RBF, Matern12, Matern32, Matern52
from vastgp.kernels.matrices import kernel_matrix
from vastgp.kernels.spectral import log_spectral_density
from vastgp.linalg.cholesky import FactorizationError

FORMS = [RBF, Matern12, Matern32, Matern52]


@pytest.mark.parametrize("form", FORMS)
def test_a_spectral_density_is_the_kernels_fourier_transform(form):
    kernel = form(0.7, 1.8)
    correlation = jax.jit(lambda squares: kernel.correlation(squares))
    with precision("float64"):
        for omega in (0.0, 0.9, 3.0):
            found = float(np.exp(log_spectral_density(kernel, jnp.asarray([[omega]])))[0])
            expected, _ = quad(
                lambda x, w=omega: 2.0 * np.cos(w * x) * float(correlation((x / 0.7) ** 2)) * 1.8,
                0.0, 30.0, limit=200, epsabs=1e-7,
            )  # fmt: skip
            assert found == pytest.approx(expected, rel=1e-4)


def test_densities_of_several_inputs_integrate_to_the_variance():
    kernel, step = Matern52([0.9, 1.4], 1.3), 0.15
    axis = np.arange(-60.0, 60.0, step)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    with precision("float64"):
        each = jax.jit(log_spectral_density)(kernel, grid)
        total = float(np.sum(np.exp(np.asarray(each))))
    assert total * step**2 / (2.0 * np.pi) ** 2 == pytest.approx(1.3, rel=1e-3)


@pytest.mark.parametrize("form", [RBF, Matern52])
def test_sines_on_a_box_approach_the_kernel(form):
    kernel = form([0.8, 1.1], 1.5)
    X = np.random.default_rng(0).uniform([2.0, -1.0], [4.0, 1.0], size=(8, 2))
    errors = []
    for count in (50, 600):
        basis = LaplaceEigenfunctionBasis.build(
            kernel, np.array([3.0, 0.0]), np.array([4.0, 4.0]), count
        )
        with precision("float64"):
            phi = np.asarray(feature_matrix(basis, jnp.asarray(X)))
            K = np.asarray(kernel_matrix(kernel, X, X))
        errors.append(np.max(np.abs(phi @ phi.T - K)))
    assert errors[1] < 0.2 * errors[0]
    assert errors[1] < (1e-3 if form is RBF else 2e-2)


def test_sines_vanish_at_the_walls_and_are_orthonormal():
    basis = LaplaceEigenfunctionBasis.build(RBF(0.5), np.zeros(1), np.array([2.0]), 6)
    axis = np.linspace(-2.0, 2.0, 2001)[:, None]
    with precision("float64"):
        phi = np.asarray(feature_matrix(basis, jnp.asarray(axis)))
    plain = phi / np.exp(0.5 * basis.log_density)
    np.testing.assert_allclose(plain[[0, -1]], 0.0, atol=1e-12)
    gram = np.trapezoid(plain[:, :, None] * plain[:, None, :], axis[:, 0], axis=0)
    np.testing.assert_allclose(gram, np.eye(6), atol=1e-5)


def test_as_many_sines_as_are_asked_for_of_one_input():
    """A wave of 300 half waves across the box is one of 320 functions."""
    basis = LaplaceEigenfunctionBasis.build(RBF(0.01), np.zeros(1), np.ones(1), 320)
    np.testing.assert_allclose(basis.frequencies[:, 0], 0.5 * np.pi * np.arange(1, 321))


def test_a_box_without_width_is_refused():
    with pytest.raises(ValueError, match="half_width must be positive"):
        LaplaceEigenfunctionBasis.build(RBF(0.5), np.zeros(1), np.zeros(1), 6)


@pytest.mark.parametrize("form", [RBF, Matern32])
def test_importance_weights_turn_waves_of_one_kernel_into_another(form):
    """Theorem 5.1: unbiased in standard errors over 200 bases of 100 waves."""
    first, second = form([0.6, 0.8], 1.0), form([0.75, 0.9], 2.0)
    X = np.random.default_rng(0).normal(size=(4, 2))
    estimates, naive = [], []
    with precision("float64"):
        K = np.asarray(kernel_matrix(second, X, X))

        @jax.jit
        def matrices(key):
            basis = RandomFourierBasis(first, key, 200)
            waves, _ = basis.spectrum(jnp.arange(100), 2, jnp.float64)
            ratio = log_spectral_density(second, waves) - log_spectral_density(first, waves)
            phi = feature_matrix(basis, jnp.asarray(X))
            return (phi * jnp.repeat(jnp.exp(ratio), 2)) @ phi.T, phi @ phi.T

        for seed in range(200):
            weighted, plain = map(np.asarray, matrices(jnp.asarray(seed_key(seed))))
            estimates.append(weighted)
            naive.append(plain)
    error = np.mean(estimates, axis=0) - K
    spread = np.std(estimates, axis=0) / 200**0.5
    assert np.all(np.abs(error) < 4.0 * spread + 1e-9)
    # without the weights it is the first kernel, and the test would see it
    assert np.any(np.abs(np.mean(naive, axis=0) - K) > 10.0 * spread)


def test_kernel_columns_have_the_kernels_variance_on_average():
    Z = np.random.default_rng(1).normal(size=(12, 2))
    kernel = RBF([1.0, 1.0], 1.7)
    basis = KernelColumnBasis.relevance(kernel, Z)
    with precision("float64"):
        phi = np.asarray(feature_matrix(basis, jnp.asarray(Z)))
        K = np.asarray(kernel_matrix(kernel, Z, Z))
    assert np.mean(np.sum(phi**2, axis=1)) == pytest.approx(1.7)
    np.testing.assert_allclose(phi / phi[0, 0] * 1.7, K, rtol=1e-10)


def test_points_that_coincide_cannot_interpolate():
    # jitter of a millionth of the variance is what is tried; below it lies only what is not finite
    with pytest.raises(FactorizationError, match="kernel matrix of the interpolation points"):
        KernelColumnBasis.interpolation(RBF(1.0), np.array([[0.0], [np.nan]]))
