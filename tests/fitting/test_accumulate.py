"""Moments of tiles are the dense products, wherever they are made."""

from __future__ import annotations

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
