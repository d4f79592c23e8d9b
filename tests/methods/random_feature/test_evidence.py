"""The evidence of a model with random features, of all of them and of the first ones."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import as_dtype, precision
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.data.tiles import array_tiles
from vastgp.kernels import RBF, Matern32
from vastgp.methods.random_feature.evidence import (
    evidence_of_first,
    feature_sums,
    slopes_of_parts,
)

KERNEL, NOISE = RBF([0.7, 1.1], 1.4) + Matern32([2.0, 0.5], 0.3), 0.3


def rows(n=90):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return X, np.sin(X[:, 0]) + 0.3 * rng.normal(size=n)


def noisy_rows():
    """Rows with noise of their own."""
    X, y = rows()
    rng = np.random.default_rng(1)
    return X, np.column_stack([y, rng.uniform(0.4, 2.0, 90), rng.choice([0.0, 0.1, 3.0], 90)])


def tiles(data=rows):
    return partial(array_tiles, *data(), 32)  # three of them, one with padding


def dense_value(kernel, noise, count, data=rows):
    X, y = data()
    variances = jnp.full(90, noise)
    if y.ndim == 2:
        y, variances = y[:, 0], noise * y[:, 1] + y[:, 2]
    basis = RandomFourierBasis(kernel, seed_key(5), count)
    pairs = jnp.arange(count // 2)
    phi = basis.features(jnp.asarray(X), pairs).reshape(len(y), -1)
    A = phi @ phi.T + jnp.diag(variances)
    logs = jnp.linalg.slogdet(2 * jnp.pi * A)[1]
    return -0.5 * (y @ jnp.linalg.solve(A, jnp.asarray(y)) + logs)


@pytest.mark.parametrize("data", [rows, noisy_rows])
@pytest.mark.parametrize("count", [24, 10])
def test_value_and_slope_are_those_of_the_dense_model(count, data):
    with precision("float64"):
        kernel = jax.tree.map(jnp.asarray, KERNEL)
        basis = RandomFourierBasis(kernel, seed_key(5), 24)
        part = evidence_of_first(feature_sums(basis, tiles(data), 90, NOISE), basis, count, NOISE)
        dense = float(dense_value(kernel, NOISE, count, data))
        assert part.value == pytest.approx(dense, rel=1e-10)
        by_kernel, by_noise = slopes_of_parts(basis, tiles(data), [part], [1.0], NOISE)
        expected = jax.grad(dense_value, argnums=(0, 1))(kernel, NOISE, count, data)
    for mine, theirs in zip(jax.tree.leaves(by_kernel), jax.tree.leaves(expected[0]), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-8)
    assert by_noise == pytest.approx(float(expected[1]), rel=1e-8)


@pytest.mark.parametrize("data", [rows, noisy_rows])
def test_slopes_of_several_parts_add_up(data):
    with precision("float64"):
        kernel = jax.tree.map(jnp.asarray, KERNEL)
        basis = RandomFourierBasis(kernel, seed_key(5), 24)
        sums = feature_sums(basis, tiles(data), 90, NOISE)
        parts = [evidence_of_first(sums, basis, count, NOISE) for count in (8, 24)]
        both, noise_of_both = slopes_of_parts(basis, tiles(data), parts, [-2.0, 3.0], NOISE)
        alone = [slopes_of_parts(basis, tiles(data), [part], [1.0], NOISE) for part in parts]
    for mine, first, second in zip(
        *map(jax.tree.leaves, (both, alone[0][0], alone[1][0])), strict=True
    ):
        np.testing.assert_allclose(mine, 3.0 * second - 2.0 * first, rtol=1e-8)
    assert noise_of_both == pytest.approx(3.0 * alone[1][1] - 2.0 * alone[0][1])


def test_little_noise_is_not_lost_in_single_precision():
    """A nearly linear function of many rows, whose amplitude is 10^7 noise variances."""
    rng = np.random.default_rng(2)
    X = rng.uniform(-1.7, 1.7, size=(6000, 3))
    y, kernel, noise = X @ [1.0, -0.5, 0.3] + 0.01 * rng.normal(size=6000), RBF(30.0, 1e3), 1e-4
    values = []
    for dtype in ("float32", "float64"):
        with precision(dtype):
            narrow, given = as_dtype(kernel, dtype), (X.astype(dtype), y.astype(dtype))
            basis = RandomFourierBasis(narrow, seed_key(5), 400)
            sums = feature_sums(basis, partial(array_tiles, *given, 2048), 6000, noise)
        values.append(evidence_of_first(sums, basis, 400, noise).value)
    assert values[1] > 6000  # a line alone has 3.2 nats a row
    assert values[0] == pytest.approx(values[1], rel=1e-2)


def test_what_cannot_be_factorised_is_said():
    with precision("float64"):
        basis = RandomFourierBasis(RBF(1e3), seed_key(5), 24)
        sums = feature_sums(basis, tiles(), 90, NOISE)
        with pytest.raises(
            np.linalg.LinAlgError, match=r"Gram matrix of 24 random features .* Raise noise_floor"
        ):
            evidence_of_first(sums, basis, 24, -1.0)
