"""Moments of tiles are the dense products, wherever they are made."""

from __future__ import annotations

from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import precision
from vastgp.data.tiles import array_tiles
from vastgp.fitting import accumulate as module
from vastgp.fitting.accumulate import Moments, accumulate

RNG = np.random.default_rng(0)
PHI, Y, WEIGHT = RNG.normal(size=(53, 7)), RNG.normal(size=53), RNG.uniform(size=53)


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-12), ("float32", 1e-5)])
def test_moments_are_dense_products_on_either_device(dtype, rtol, elsewhere, monkeypatch):
    monkeypatch.setattr(module, "_elsewhere", lambda array: elsewhere)
    seen = []
    with precision(dtype):
        tiles = array_tiles(PHI.astype(dtype), Y, 16)
        found = accumulate(jnp.sin, tiles, 7, dtype=dtype, on_tile=seen.append)
    phi = np.sin(PHI)
    assert found.num_rows == 53 and seen == [16, 16, 16, 5]
    np.testing.assert_allclose(found.gram, phi.T @ phi, rtol=rtol, atol=50 * rtol)
    np.testing.assert_allclose(found.target, phi.T @ Y, rtol=rtol, atol=50 * rtol)
    np.testing.assert_allclose(found.feature_sum, phi.sum(axis=0), rtol=rtol, atol=50 * rtol)
    # what misfits are taken from keeps its digits
    assert found.square == pytest.approx(Y @ Y, rel=1e-14)
    assert found.target_sum == pytest.approx(Y.sum(), rel=1e-12)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_row_counts_by_its_weight(elsewhere, monkeypatch):
    monkeypatch.setattr(module, "_elsewhere", lambda array: elsewhere)
    found = Moments(7)
    with precision("float64"):
        found.add(jnp.asarray(PHI), Y[:50], WEIGHT[:50])
    wide = np.column_stack([PHI, Y, np.ones(53)])[:50]
    np.testing.assert_allclose(found.moments, wide.T @ (WEIGHT[:50, None] * wide), rtol=1e-12)
    assert found.num_rows == 50


def test_sums_on_an_accelerator_have_twice_the_digits_too(monkeypatch):
    """Of products that need no rounding sums are exact, of tiles of both kinds, and where one is asked for between."""
    monkeypatch.setattr(module, "_elsewhere", lambda array: True)
    rng = np.random.default_rng(1)
    exact, found = np.zeros((4, 4), object), Moments(2)
    for number in range(200):
        # of 2^-20 to 2^40: more digits than a sum of float64 has
        unit = 2.0 ** rng.integers(-10, 20)
        wide = np.column_stack([rng.integers(-500, 500, (4, 3)) * unit, np.ones(4)])
        phi, y = wide[:, :2], wide[:, 2]
        with precision("float64"):
            found.add(jnp.asarray(phi) if number % 3 else phi, y)
        whole = np.array([[Fraction(value) for value in row] for row in wide])
        exact = exact + whole.T @ whole
        if number == 100:
            np.testing.assert_allclose(found.moments, exact.astype(float), rtol=1e-15)
    twice = np.vectorize(Fraction)(found.moments) + np.vectorize(Fraction)(found.rest)
    assert np.all(abs(twice - exact) <= np.max(exact) * Fraction(2) ** -98)
    assert np.any(found.rest != 0.0)
