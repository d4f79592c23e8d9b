"""Weights of neighbours: LAPACK of the host finds what the compiled program does."""

import jax
import numpy as np
import pytest

from vastgp import RBF, Matern32
from vastgp._precision import precision
from vastgp.solvers import neighbour_weights as module
from vastgp.solvers.neighbour_weights import row_halves, row_weights

KERNEL = RBF([0.7, 1.5], 1.3) + Matern32([2.0, 0.9], 0.4)


def rows(n=70, h=12, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, 2))
    Z = X[:, None] + 0.5 * generator.normal(size=(n, h, 2))
    return X, Z, generator


def both_ways(function, *given, monkeypatch):
    with precision("float64"):
        assert module.solved_on_host(1)
        found = function(KERNEL, *given, devices=1)
        assert all(type(part) is np.ndarray for part in found)
        monkeypatch.setattr(module, "solved_on_host", lambda devices: False)
        compiled = function(KERNEL, *given, devices=1)
        assert all(isinstance(part, jax.Array) for part in compiled)
    for mine, other in zip(found, compiled, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-12)
    return found


@pytest.mark.parametrize("fades", [False, True])
def test_weights_and_what_they_leave_of_the_variance(fades, monkeypatch):
    X, Z, generator = rows()
    present = generator.uniform(size=Z.shape[:2]) < 0.8
    border = X + 3.0 if fades else None
    a, conditional = both_ways(row_weights, X, Z, present, border, 1e-3, monkeypatch=monkeypatch)
    assert np.all(a[~present] == 0.0)
    assert np.all((conditional >= 0.0) & (conditional <= KERNEL.total_variance()))


def test_halves_give_mean_and_variance(monkeypatch):
    X, Z, generator = rows()
    noise, targets = generator.uniform(0.01, 0.1, Z.shape[:2]), generator.normal(size=Z.shape[:2])
    given = X, Z, np.ones(Z.shape[:2], bool), noise, targets
    w, half, prior = both_ways(row_halves, *given, monkeypatch=monkeypatch)
    with precision("float64"):
        found = row_weights(KERNEL, X, Z, given[2], None, noise, devices=1)
        a, conditional = map(np.asarray, found)
    np.testing.assert_allclose(
        np.sum(half * w, axis=1), np.sum(a * targets, axis=1), rtol=1e-8, atol=1e-10
    )
    np.testing.assert_allclose(
        np.maximum(prior - np.sum(half**2, axis=1), 0.0), conditional, rtol=1e-8, atol=1e-10
    )
