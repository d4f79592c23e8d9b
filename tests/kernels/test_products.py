"""Products with kernel matrices that are never formed, against the matrices themselves."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import as_dtype, precision
from vastgp.kernels import RBF, Matern12, Matern32
from vastgp.kernels.matrices import kernel_matrix
from vastgp.kernels.products import (
    KernelMatrix,
    _ends,
    bilinear_slope,
    cross_product,
    kernel_product,
)

KERNEL = Matern32([0.8, 1.5], 1.3) + RBF(0.5, 0.4)


def problem(n, columns=3, dtype="float64"):
    rng = np.random.default_rng(n)
    X, U, V = rng.normal(size=(n, 2)), rng.normal(size=(columns, n)), rng.normal(size=(columns, n))
    return as_dtype(KERNEL, dtype), *(jnp.asarray(part, dtype) for part in (X, U, V))


@pytest.mark.parametrize(("n", "of"), [(1, 2), (700, 2), (700, 5), (700, 9)])
def test_shares_of_the_tiles_add_up_to_products_and_slopes(n, of):
    with precision("float64"):
        kernel, X, U, V = problem(n)
        signs = jnp.asarray([1.0, -0.5, 2.0])
        shares = [(np.int32(number), np.int32(of)) for number in range(of)]
        products = [kernel_product(kernel, X, V, share) for share in shares]
        slopes = [bilinear_slope(kernel, X, U, V, signs, share) for share in shares]
        np.testing.assert_allclose(sum(products), kernel_product(kernel, X, V), atol=1e-11)
        whole = jax.tree.leaves(bilinear_slope(kernel, X, U, V, signs))
        for found, expected in zip(jax.tree.leaves(_sum(slopes)), whole, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_shares_of_very_many_tiles_are_all_of_them():
    """Three hundred devices, a million rows: products of the numbers would not fit into 32 bits."""
    pieces, of = 7_630_000, np.int32(300)
    with np.errstate(over="raise"):
        ends = [_ends((np.int32(number), of), pieces) for number in range(of)]
    assert ends[0][0] == 0 and ends[-1][1] == pieces
    assert all(one[1] == other[0] for one, other in pairwise(ends))
    assert {int(last - first) for first, last in ends} <= {pieces // 300, pieces // 300 + 1}


def test_each_of_the_shares_has_some_of_the_work():
    with precision("float64"):
        kernel, X, _, _ = problem(700)  # six tiles
        ones = jnp.ones((1, 700))
        parts = [kernel_product(kernel, X, ones, (np.int32(k), np.int32(2))) for k in range(2)]
    first, second = (float(np.sum(part)) for part in parts)
    assert 0.3 < first / (first + second) < 0.7


def _sum(trees):
    return jax.tree.map(lambda *leaves: sum(leaves), *trees)


@pytest.mark.parametrize("n", [1, 700])  # one tile, several, both with padding
def test_tiles_make_the_product_and_its_slope(n):
    with precision("float64"):
        kernel, X, U, V = problem(n)
        K = kernel_matrix(kernel, X, X)
        np.testing.assert_allclose(kernel_product(kernel, X, V), V @ K, atol=1e-11)
        some = X[: n // 2 + 1]
        np.testing.assert_allclose(
            cross_product(kernel, some, X, V), V @ K[: n // 2 + 1].T, atol=1e-11
        )
        signs = jnp.asarray([1.0, -0.5, 2.0])
        found = bilinear_slope(kernel, X, U, V, signs)
        dense = jax.grad(lambda k: jnp.sum(signs * jnp.sum(U * (V @ k(X, X)), axis=1)))
        expected = jax.jit(dense)(kernel)
        for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9)


def test_slopes_are_finite_differences():
    with precision("float64"):
        kernel, X, U, V = problem(45)
        form = lambda k: float(jnp.sum(U * kernel_product(k, X, V)))  # noqa: E731
        slope = bilinear_slope(kernel, X, U, V, jnp.ones(3))
        leaves, tree = jax.tree.flatten(kernel)
        for number, leaf in enumerate(leaves):
            step = 1e-6 * jnp.ones_like(leaf)
            up, down = (
                form(jax.tree.unflatten(tree, [*leaves[:number], leaf + s, *leaves[number + 1 :]]))
                for s in (step, -step)
            )
            expected = float(jnp.sum(jax.tree.leaves(slope)[number]))
            assert (up - down) / 2e-6 == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_the_operator_is_symmetric_to_the_last_bit_in_float32():
    with precision("float32"):
        kernel, X, _, _ = problem(700, dtype="float32")
        unit = jnp.eye(700, dtype=jnp.float32)
        K = np.asarray(kernel_product(kernel, X, unit))
    np.testing.assert_array_equal(K, K.T)


def test_the_diagonal_is_exact_where_distances_are_not():
    # float32 leaves 1e-3 of distance between a row and itself, which an exponential kernel shows
    with precision("float32"):
        X = jnp.asarray(100.0 + np.random.default_rng(0).normal(size=(300, 4)), jnp.float32)
        K = kernel_product(as_dtype(Matern12(0.3, 2.0), jnp.float32), X, jnp.eye(300))
    np.testing.assert_array_equal(np.diagonal(K), np.float32(2.0))


def test_float64_vectors_keep_their_digits_over_float32_entries():
    with precision("float64"):
        _, X, _, V = problem(700)
        narrow = as_dtype(KERNEL, jnp.float32)
        X32 = X.astype(jnp.float32)
        operator = KernelMatrix(KERNEL, 0.1, X32, jnp.ones(700, jnp.float32))
        found = operator.product(V)
        entries = np.asarray(kernel_product(narrow, X32, jnp.eye(700)), np.float64)
        assert found.dtype == jnp.float64
    expected = np.asarray(V, np.float64) @ entries + 0.1 * np.asarray(V, np.float64)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_weights_stand_on_both_sides():
    with precision("float64"):
        kernel, X, U, V = problem(45)
        scale = jnp.asarray(np.random.default_rng(0).uniform(1.0, 2.0, 45))
        operator = KernelMatrix(kernel, 0.3, X, scale)
        A = scale[:, None] * kernel_matrix(kernel, X, X) * scale + 0.3 * jnp.eye(45)
        np.testing.assert_allclose(operator.product(V), V @ A, atol=1e-11)
        by_kernel, by_noise = operator.slope(U, V, jnp.ones(3))
        assert float(by_noise) == pytest.approx(float(jnp.sum(U * V)))
        dense = jax.grad(lambda k: jnp.sum((U * scale) * ((V * scale) @ k(X, X))))
        expected = jax.jit(dense)(kernel)
        for mine, theirs in zip(jax.tree.leaves(by_kernel), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9)
