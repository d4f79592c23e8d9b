"""The evidence in tiles, as an accelerator makes it, is that of one matrix; the host stands for the device."""

import jax
import numpy as np
import pytest

from vastgp._precision import precision
from vastgp.fitting.device_evidence import DeviceEvidence
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.kernels import RBF, Linear, Matern12, Matern32, Matern52, Periodic, RationalQuadratic


def rows(n=45, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X[7] = X[3]  # rows that are the same have no slope between them
    return X, np.sin(X[:, 0]) + 0.3 * rng.normal(size=n)


def assert_same(found, expected):
    (value, slope), (exact, exact_slope) = found, expected
    assert value == pytest.approx(exact, rel=1e-11)
    for a, b in zip(jax.tree.leaves(slope), jax.tree.leaves(exact_slope), strict=True):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)


KERNELS = [
    RBF([0.7, 1.0, 1.5], 1.3),
    Matern12(1.2, 0.8),
    Matern32([0.9, 1.0, 1.4]),
    RBF(1.0) + Matern52([2.0, 1.0, 0.7], 0.5),
    RationalQuadratic(1.1, 1.0, 0.6) * Linear([0.5, 1.0, 0.3]) + RBF([1.0, 2.0], 0.4, [0, 1, 1]),
    Periodic(2.0, [1.3, 0.9, 1.1]) * Matern32(2.0),  # no closed form
]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
@pytest.mark.parametrize("tile", [16, 45])
def test_evidence_and_slopes_are_those_of_one_matrix(kernel, tile):
    X, y = rows()
    with precision("float64"):
        expected = ExactEvidence(X, y).value_and_gradient(kernel, 0.07)
    assert_same(DeviceEvidence(X, y, tile).value_and_gradient(kernel, 0.07), expected)


def test_rows_with_noise_of_their_own():
    X, y = rows()
    rng = np.random.default_rng(1)
    observed = np.column_stack([y, rng.uniform(0.5, 2.0, len(y)), rng.uniform(0.0, 0.2, len(y))])
    kernel = Matern32([0.9, 1.0, 1.4])
    expected = ExactEvidence(X, observed).value_and_gradient(kernel, 0.07)
    assert_same(DeviceEvidence(X, observed, 16).value_and_gradient(kernel, 0.07), expected)
