"""Gradients of kernels, compiled, against closed forms and finite differences.

Compiled, because XLA's CPU backend (jaxlib 0.10.2) compiled the value of a Matern kernel and its gradient together
into a program that gets the diagonal wrong, at some sizes only: eager evaluation does not show it. What is expected
comes from NumPy.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import precision
from vastgp.kernels import RBF, Matern12, Matern32, Matern52, RationalQuadratic
from vastgp.kernels.dense import dense_matrix

KERNELS = [RBF, Matern12, Matern32, Matern52, RationalQuadratic]


@jax.jit
def pull_back(kernel, X, cotangent):
    return jax.vjp(lambda k: k(X, X), kernel)[1](cotangent)[0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel_class", [Matern12, Matern32, Matern52])
def test_compiled_gradient_by_the_variance_is_the_kernel_over_it(kernel_class, dtype):
    rng = np.random.default_rng(0)
    with precision(dtype):
        # sizes at which the miscompiled form was wrong, by type
        for n, d in [(2, 2), (16, 5), (32, 2), (100, 5)]:
            X = jnp.asarray(rng.normal(size=(n, d)), dtype)
            cotangent = jnp.asarray(rng.normal(size=(n, n)), dtype)
            kernel = jax.tree.map(
                lambda leaf: jnp.asarray(leaf, dtype), kernel_class(1.4, 2.0).with_ard(d)
            )
            found = float(pull_back(kernel, X, cotangent).variance)
            matrix = dense_matrix(kernel_class(1.4, 2.0).with_ard(d), *[np.asarray(X, float)] * 2)
            expected = float(np.sum(np.asarray(cotangent, float) * matrix)) / 2.0
            tolerance = {"float32": 2e-4, "float64": 1e-11}[dtype] * n
            assert abs(found - expected) < tolerance, (n, d)


@pytest.mark.parametrize("kernel_class", KERNELS)
def test_compiled_gradient_by_the_lengthscales_is_that_of_finite_differences(kernel_class):
    rng, n = np.random.default_rng(1), 20
    X, cotangent = rng.normal(size=(n, 3)), rng.normal(size=(n, n))
    X[1] = X[0]  # coincident rows: every Matern has a root of zero there
    scales = np.array([0.7, 1.3, 2.9])

    def value(scales):
        return np.sum(cotangent * dense_matrix(kernel_class(scales, 1.5), X, X))

    with precision("float64"):
        found = np.asarray(pull_back(kernel_class(scales, 1.5), X, cotangent).lengthscales)
        steps = 1e-5 * np.eye(3)
        expected = [(value(scales + h) - value(scales - h)) / 2e-5 for h in steps]
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)
