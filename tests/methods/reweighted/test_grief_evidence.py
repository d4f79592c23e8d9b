"""The evidence of moving eigenfunctions equals the dense one of their kernel; its gradient, finite differences."""

from __future__ import annotations

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from vastgp._precision import precision
from vastgp.bases import GridEigenfunctionBasis
from vastgp.bases.grid_eigenfunctions import _products_over_axes
from vastgp.fitting.best_fit import log_density
from vastgp.fitting.hyperparameter_prior import HyperparameterPrior
from vastgp.fitting.lbfgs import ravel
from vastgp.fitting.run import Run
from vastgp.kernels import RBF
from vastgp.likelihoods import Gaussian
from vastgp.methods.reweighted import grief_evidence
from vastgp.methods.reweighted.grief_evidence import GriefEvidence, GriefLearning
from vastgp.options import TypeII

AXES = [np.linspace(-2.5, 2.5, 6), np.linspace(-2.0, 2.0, 5)]


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(45, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.2 * rng.normal(size=45)
    return X, y


# 40 of 30 points: eigenvalues that are rounding errors are left out, and a few of all; more rows than functions, fewer
@pytest.mark.parametrize(("count", "rows"), [(12, 45), (30, 45), (30, 20)])
def test_value_and_gradient(problem, count, rows):
    X, y = (part[:rows] for part in problem)
    evidence = GriefEvidence(X, y, AXES, count)
    kernel, noise = RBF([0.9, 1.2], 1.4), 0.08
    value, (slope, by_noise) = evidence.objective((kernel, Gaussian(noise)))
    basis = GridEigenfunctionBasis.build(kernel, AXES, count)
    with precision("float64"):
        phi = np.asarray(basis.features(jnp.asarray(X), jnp.arange(basis.num_basis)))
    K = phi @ phi.T + noise * np.eye(len(y))
    assert value == pytest.approx(multivariate_normal(np.zeros(len(y)), K).logpdf(y), abs=1e-6)

    leaves, structure = jax.tree.flatten(jax.tree.map(lambda leaf: np.asarray(leaf, float), kernel))
    for number, leaf in enumerate(leaves):
        for place in np.ndindex(leaf.shape):
            ends = []
            for step in (1e-5, -1e-5):
                moved = [entry.copy() for entry in leaves]
                moved[number][place] += step
                ends.append(
                    evidence.objective((jax.tree.unflatten(structure, moved), Gaussian(noise)))[0]
                )
            found = jax.tree.leaves(slope)[number][place]
            assert float(found) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-3, abs=1e-3)
    ends = [evidence.objective((kernel, Gaussian(noise + step)))[0] for step in (1e-6, -1e-6)]
    assert by_noise == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("count", [12, 30])
def test_the_best_amplitude_and_noise_have_no_slope(problem, count):
    X, y = (part[:25] for part in problem)  # between both
    evidence = GriefEvidence(X, y, AXES, count)
    value, kernel, noise = evidence.scaled(RBF([0.9, 1.2], 1.4), 0.5, 1e-6)
    found, (slope, by_noise) = evidence.objective((kernel, Gaussian(noise)))
    assert found == pytest.approx(value, abs=1e-8)
    assert abs(float(slope.variance) * float(kernel.variance)) < 1e-2
    assert abs(by_noise * noise) < 1e-2
    np.testing.assert_allclose(kernel.lengthscales, [0.9, 1.2])
    assert value > evidence.objective((RBF([0.9, 1.2], 1.4), Gaussian(0.5)))[0]


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_slopes_of_products_also_where_factors_are_zero(zeros):
    """By a zero factor the slope is the product of the others, where automatic differentiation is the reference."""
    rng = np.random.default_rng(1)
    functions = rng.normal(size=(3, 4, 5))
    functions[:zeros, 1, 2] = 0.0
    chosen = rng.integers(0, 4, (6, 3))
    chosen[0] = 1
    weights = rng.normal(size=(6, 5))

    def plain(functions):
        product = (
            functions[0][chosen[:, 0]] * functions[1][chosen[:, 1]] * functions[2][chosen[:, 2]]
        )
        return jnp.sum(weights * product)

    def own(functions):
        return jnp.sum(weights * _products_over_axes(functions, jnp.asarray(chosen)))

    with precision("float64"):
        functions = jnp.asarray(functions)
        expected, found = jax.grad(plain)(functions), jax.grad(own)(functions)
    assert np.any(np.asarray(expected)[:, 1, 2] != 0.0)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_led_by_one_kernel_it_is_smooth_where_it_jumps(problem):
    """Along lengthscales of which other functions lead: jumps beside ten times as small steps between."""
    evidence = GriefEvidence(*problem, AXES, 12)
    middle, noise = RBF([0.9, 1.2], 1.4), Gaussian(0.08)
    smooth = evidence.led_by(middle)
    assert smooth.objective((middle, noise))[0] == evidence.objective((middle, noise))[0]
    kernels = [RBF([length, 1.2], 1.4) for length in np.linspace(0.5, 1.6, 221)]
    same = np.array([evidence.led_by(a).leads_under(b) for a, b in pairwise(kernels)])
    steps, held = (
        np.abs(np.diff([each.objective((kernel, noise))[0] for kernel in kernels], n=2))
        for each in (evidence, smooth)
    )
    # second differences: those beside an edge, and all others
    beside = ~(same[1:] & same[:-1])
    assert 2 <= np.sum(~same) < 20
    assert steps[beside].max() > 10.0 * steps[~beside].max()
    assert held.max() < 2.0 * np.abs(steps[~beside]).max()


@pytest.mark.parametrize(("inputs", "count"), [(2, 12), (3, 6), (3, 20)])
def test_learning_ends_at_the_highest_evidence_of_its_own_functions(inputs, count):
    """Those that it returns: no slope is left, and no more is to be had from those that lead there."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, inputs))
    y = np.sign(X[:, 0]) + np.abs(X[:, 1]) + 0.1 * rng.normal(size=60)
    axes = [np.linspace(-2.5, 2.5, 5)] * inputs
    learning = GriefLearning(X, y, axes, count, 1e-4)
    how, start = TypeII(200, 1e-4), (RBF([1.0] * inputs), 0.1)
    found, basis = learning.learn([start], how, Run())
    assert found.converged and basis.num_basis <= count
    prior = HyperparameterPrior(inputs)

    def own(params):
        kernel, likelihood = params
        with precision("float64"):
            moved, every = basis.with_kernel(kernel), jnp.arange(basis.num_basis)
            phi = np.asarray(moved.features(jnp.asarray(X), every))
        K = phi @ phi.T + float(likelihood.noise_variance) * np.eye(len(y))
        return multivariate_normal(np.zeros(len(y)), K).logpdf(y) + prior(params)[0]

    best, most = found.value, found.value + how.tol * len(y)
    assert own(found.params) == pytest.approx(best, abs=1e-6)
    logs, rebuild = ravel(jax.tree.map(np.log, found.params))
    for move in 0.02 * np.vstack([np.eye(len(logs)), -np.eye(len(logs))]):
        assert own(jax.tree.map(np.exp, rebuild(logs + move))) < most
    whole = learning.evidence()
    assert best > log_density(whole, (start[0], Gaussian(start[1]))) + 1.0
    assert log_density(whole, found.params) <= most


def test_a_fit_that_others_lead_at_the_end_of_says_so(monkeypatch):
    """One climb alone, from lengthscales at which other functions lead than where it ends."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.sin(6.0 * X[:, 0]) + 0.1 * rng.normal(size=60)
    axes = [np.linspace(-2.5, 2.5, 8)] * 3
    learning = GriefLearning(X, y, axes, 8, 1e-4)
    start, how = (RBF([1.0, 0.3, 0.3]), 0.1), TypeII(200, 1e-4)
    whole, _ = learning.learn([start], how, Run())
    monkeypatch.setattr(grief_evidence, "_MOST_ROUNDS", 1)
    found, _ = learning.learn([start], how, Run())
    assert not found.converged and "do better" in found.message
    assert whole.converged and whole.value > found.value + how.tol * len(y)
