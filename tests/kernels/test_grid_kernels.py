"""Kernels of grids: periods, matrices between outputs, and products over groups of inputs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import precision
from vastgp.kernels import (
    RBF,
    Coregionalisation,
    GridKernel,
    Matern32,
    Periodic,
    from_spec,
    to_spec,
)
from vastgp.methods.grid.start import bounds

B = np.array([[1.0, 0.5, -0.2], [0.5, 2.0, 0.1], [-0.2, 0.1, 1.0]])


def matrix(kernel, X, Z=None):
    with precision("float64"):
        return np.asarray(kernel(jnp.asarray(X), jnp.asarray(X if Z is None else Z)))


def test_the_periodic_kernel_is_the_rbf_of_points_on_a_circle():
    x = np.random.default_rng(0).uniform(0.0, 30.0, size=(9, 1))
    angle = 2 * np.pi * x / 7.0
    circle = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
    # |z(x) - z(x')|^2 = 4 sin^2(pi (x - x') / period)
    np.testing.assert_allclose(
        matrix(Periodic(7.0, 0.8, 2.0), x), matrix(RBF(0.8, 2.0), circle), rtol=1e-12
    )
    np.testing.assert_allclose(matrix(Periodic(7.0), x, x + 21.0), matrix(Periodic(7.0), x))


def test_the_period_is_no_hyperparameter_and_follows_the_units():
    kernel = Periodic(7.0, 0.8, 2.0)
    assert len(jax.tree.leaves(kernel)) == 2
    scaled = kernel.in_units(24.0, 3.0)
    assert (scaled.period, float(scaled.variance)) == (168.0, 18.0)
    assert repr(kernel) == "Periodic(lengthscales=0.8, variance=2, period=7)"
    with pytest.raises(ValueError, match=r"one period for all inputs, and these have scales \[1"):
        kernel.in_units([1.0, 2.0], 1.0)
    with pytest.raises(ValueError, match=r"spectrum of lines, not a density.*GridGP or ExactGP"):
        kernel.spectral_terms()
    with pytest.raises(ValueError, match="period must be positive"):
        Periodic(0.0)
    with pytest.raises(ValueError, match="kernel has 2 lengthscales but the data have 1 features"):
        Periodic(1.0, [1.0, 2.0]).with_ard(1)


def test_any_covariance_matrix_can_be_learned_by_logarithms():
    kernel = Coregionalisation(matrix=B)
    np.testing.assert_allclose(kernel.to_numpy(), B, atol=1e-14)
    index = np.array([[2.0], [0.0], [1.0], [2.0]])
    order = index[:, 0].astype(int)
    np.testing.assert_allclose(matrix(kernel, index), B[np.ix_(order, order)], atol=1e-14)
    with precision("float64"):
        np.testing.assert_allclose(kernel.diag(jnp.asarray(index)), np.diagonal(B)[order])
    assert float(kernel.total_variance()) == pytest.approx(np.trace(B) / 3)
    np.testing.assert_allclose(kernel.in_units(1.0, 3.0).to_numpy(), 9.0 * B, rtol=1e-12)
    # every leaf is positive, whatever the signs of the matrix
    assert all(np.all(np.asarray(leaf) > 0) for leaf in jax.tree.leaves(kernel))
    np.testing.assert_array_equal(Coregionalisation(2).to_numpy(), np.eye(2))
    for bad, message in (
        ({"num_outputs": 0}, "num_outputs must be a positive integer, received 0"),
        ({}, "or give matrix"),
        ({"matrix": np.ones((2, 3))}, r"matrix must be square.*received \(2, 3\)"),
        ({"matrix": np.ones((0, 0))}, r"matrix must be square.*received \(0, 0\)"),
        ({"matrix": np.diag([1.0, np.inf])}, "must be symmetric and positive definite"),
        ({"matrix": np.diag([1.0, np.nan])}, "must be symmetric and positive definite"),
        ({"matrix": -np.eye(2)}, "must be symmetric and positive definite"),
        ({"matrix": [[1.0, 0.3], [0.0, 1.0]]}, "must be symmetric and positive definite"),
    ):
        with pytest.raises(ValueError, match=message):
            Coregionalisation(**bad)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e3, 1e6, 1e60])
def test_a_matrix_between_outputs_may_have_any_unit(scale):
    """Exponentials of entries of its root overflow from 710 on, and with them the square root of a variance of 1e6."""
    for shape in (B, [[1.0, 0.9], [0.9, 1.0]], [[1.0, -0.9999999], [-0.9999999, 1.0]]):
        shape = np.array(shape)
        kernel = Coregionalisation(matrix=scale**2 * shape)
        again = from_spec(*to_spec(kernel))
        for made in (kernel, again, Coregionalisation(matrix=shape).in_units(1.0, scale)):
            np.testing.assert_allclose(made.to_numpy(), scale**2 * shape, rtol=1e-12)
            assert float(made.total_variance()) == pytest.approx(
                scale**2 * np.mean(shape.diagonal())
            )
            rows = np.arange(len(shape), dtype=float)[:, None]
            np.testing.assert_allclose(matrix(made, rows), scale**2 * shape, rtol=1e-12)
        # learning sees the same numbers, whatever the unit
        assert np.max(np.abs(np.log(kernel.below))) < 2.0
    # files of before there were units
    spec, arrays = to_spec(Coregionalisation(matrix=B))
    spec["hyperparameters"].remove("unit")
    np.testing.assert_allclose(from_spec(spec, arrays).to_numpy(), B, rtol=1e-12)


def test_learning_between_outputs_has_bounds_in_the_same_unit():
    kernel = GridKernel((Coregionalisation(matrix=1e6 * B),), (("output",),))
    low, high = bounds(kernel, [np.arange(3.0)[:, None]])
    assert jax.tree.structure(low) == jax.tree.structure(kernel) == jax.tree.structure(high)
    for least, leaf, most in zip(*map(jax.tree.leaves, (low, kernel, high)), strict=True):
        assert np.all(least <= leaf) and np.all(leaf <= most)


def test_files_and_texts_hold_every_part():
    kernel = GridKernel(
        (Periodic(12.0) * RBF(40.0), Matern32([1.0, 2.0]), Coregionalisation(matrix=B)),
        (("month",), ("lat", "lon"), ("output",)),
        3.0,
    )
    again = from_spec(*to_spec(kernel))
    assert repr(again) == repr(kernel)
    assert repr(kernel).startswith("GridKernel(month: Periodic(")
    assert "lat, lon: Matern32(" in repr(kernel) and repr(kernel).endswith("variance=3)")
    X = np.random.default_rng(0).uniform(0, 2, size=(5, 4))
    X[:, 3] = [0, 1, 2, 1, 0]
    np.testing.assert_array_equal(matrix(again, X), matrix(kernel, X))
    np.testing.assert_allclose(
        matrix(kernel, X),
        3.0
        * matrix(Periodic(12.0) * RBF(40.0), X[:, :1])
        * matrix(Matern32([1.0, 2.0]), X[:, 1:3])
        * matrix(Coregionalisation(matrix=B), X[:, 3:])
        / (np.trace(B) / 3),
        rtol=1e-12,
    )
    with pytest.raises(
        ValueError, match="parts and groups must be of one length, received 1 and 2"
    ):
        GridKernel((RBF(),), (("a",), ("b",)))
