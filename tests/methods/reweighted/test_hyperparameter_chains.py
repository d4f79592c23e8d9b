"""Chains draw what quadrature integrates; what did not mix is said."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from vastgp._precision import precision
from vastgp.fitting.sufficient_statistics import SufficientStatistics
from vastgp.methods.reweighted import hyperparameter_chains, training
from vastgp.methods.reweighted.chain_diagnosis import diagnose, import_blackjax, warn_of_chains
from vastgp.methods.reweighted.evidence import prepare
from vastgp.methods.reweighted.hyperparameter_chains import (
    CHUNK,
    ChainPlan,
    HyperPosterior,
    _schedule,
    run_chains,
)
from vastgp.methods.reweighted.training import draw_hyperparameters, maximise_hyperparameters
from vastgp.methods.reweighted.weight_priors import DiagonalPrior, OrthogonalPrior, ScalePrior


def _target(kind, n=30, seed=0):
    rng = np.random.default_rng(seed)
    m = 1 if kind is DiagonalPrior else 6
    phi = rng.normal(size=(n, m))
    y = phi @ rng.normal(size=m) + 0.4 * rng.normal(size=n)
    with precision("float64"):
        data = prepare(SufficientStatistics.of(phi, y))
    prior = DiagonalPrior.make(1, 0.2) if kind is DiagonalPrior else ScalePrior.make(0.2)
    return HyperPosterior(prior, data)


def _by_quadrature(target, around, width):
    """Return means and standard deviations of both hyperparameters, on a grid of 200 x 200 points."""
    axes = [np.linspace(a - 8 * w, a + 8 * w, 200) for a, w in zip(around, width, strict=True)]
    with precision("float64"):
        import jax

        row = jax.jit(jax.vmap(jax.vmap(target, in_axes=0), in_axes=0))
        grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
        logs = np.asarray(row(jnp.asarray(grid)))
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = np.tensordot(weights, grid, axes=2)
    return mean, np.sqrt(np.tensordot(weights, (grid - mean) ** 2, axes=2))


@pytest.mark.parametrize(
    ("kind", "plan"),
    [
        (ScalePrior, ChainPlan("nuts", 4, 300, 1000, 1)),
        (ScalePrior, ChainPlan("mala", 4, 500, 8000, 4)),
        (DiagonalPrior, ChainPlan("nuts", 4, 300, 1000, 1)),
    ],
)
def test_draws_of_two_hyperparameters_agree_with_quadrature(kind, plan):
    target = _target(kind)
    start = target.prior.start()
    chains = draw_hyperparameters(target, start, plan, noise_floor=1e-6, seed=0)
    assert np.all(chains.r_hat < 1.01)
    assert np.all(chains.ess > 400)
    mean, spread = _by_quadrature(
        target, chains.theta.mean(axis=(0, 1)), chains.theta.std(axis=(0, 1))
    )
    error = chains.theta.mean(axis=(0, 1)) - mean
    assert np.all(np.abs(error) < 4.0 * spread / chains.ess**0.5)
    # the standard error of a standard deviation of nearly normal draws, with room for heavier tails
    gap = chains.theta.std(axis=(0, 1)) / spread - 1.0
    assert np.all(np.abs(gap) < 6.0 / (2.0 * chains.ess) ** 0.5)
    assert not chains.diverging.any() and chains.reason == "all steps were done"
    assert chains.num_steps == plan.num_steps
    assert chains.theta.shape == (4, plan.num_steps // plan.thin, 2)


def test_many_weights_mix_and_the_same_seed_repeats_them():
    rng = np.random.default_rng(1)
    phi = rng.normal(size=(60, 40))
    y = phi[:, :5] @ rng.normal(size=5) + 0.3 * rng.normal(size=60)
    with precision("float64"):
        data = prepare(SufficientStatistics.of(phi, y))
    target = HyperPosterior(OrthogonalPrior.make(data.rank, 0.1), data)
    plan = ChainPlan("nuts", 2, 100, 100, 1)
    first = draw_hyperparameters(target, target.prior.start(), plan, noise_floor=1e-6, seed=3)
    again = draw_hyperparameters(target, target.prior.start(), plan, noise_floor=1e-6, seed=3)
    np.testing.assert_array_equal(first.theta, again.theta)
    assert np.max(first.r_hat) < 1.15
    assert np.all(first.step_size < 1.0)
    assert 0.5 < np.mean(first.acceptance) <= 1.0
    other = draw_hyperparameters(target, target.prior.start(), plan, noise_floor=1e-6, seed=4)
    assert not np.array_equal(first.theta, other.theta)


def test_the_mode_is_where_the_slope_is_zero():
    target = _target(ScalePrior)
    found = maximise_hyperparameters(
        target, target.prior.start(), noise_floor=1e-6, with_prior=True, max_iter=100, tol=1e-8
    )
    with precision("float64"):
        import jax

        slope = np.asarray(jax.grad(lambda theta: target(theta))(jnp.asarray(found.params)))
        assert found.value == pytest.approx(float(target(jnp.asarray(found.params))))
    np.testing.assert_allclose(slope, 0.0, atol=1e-3)
    assert found.converged


def test_a_window_ends_before_the_last_part_and_lengths_double():
    for chunks in (1, 2, 4, 16, 40):
        ends = _schedule(chunks)
        assert len(ends) == chunks
    ends = np.flatnonzero(_schedule(40)) + 1
    lengths = np.diff([4, *ends])
    assert np.all(lengths[1:] >= lengths[:-1]) and ends[-1] == 36


def test_a_budget_that_is_gone_leaves_one_chunk_of_draws():
    target = _target(ScalePrior)
    plan = ChainPlan("mala", 2, 200, 200, 1)
    with precision("float64"):
        starts = np.tile(target.prior.start(), (2, 1))
        chains = run_chains(
            target, starts, target.prior.scale(target.data), plan, seed=0, max_seconds=0.0
        )
    assert chains.theta.shape == (2, CHUNK, 2) and "max_seconds" in chains.reason


def test_chains_get_what_the_search_of_the_mode_left(monkeypatch):
    target, clock, given = _target(ScalePrior), iter([100.0, 101.5]), []
    monkeypatch.setattr(training, "time", SimpleNamespace(perf_counter=lambda: next(clock)))

    def run(*args, max_seconds, **named):
        given.append(max_seconds)
        return run_chains(*args, max_seconds=0.0, **named)

    monkeypatch.setattr(training, "run_chains", run)
    plan = ChainPlan("mala", 2, 25, 25, 1)
    draw_hyperparameters(
        target, target.prior.start(), plan, noise_floor=1e-6, seed=0, max_seconds=10.0
    )
    assert given == [8.5]


def test_chains_apart_are_warned_of():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(4, 100, 3))
    r_hat, ess = diagnose(theta)
    assert np.all(r_hat < 1.05) and np.all(ess > 150)
    theta[0, :, 1] += 5.0
    r_hat, ess = diagnose(theta)
    assert r_hat[1] > 1.3
    target = _target(ScalePrior)
    plan = ChainPlan("mala", 2, 25, 25, 1)
    chains = draw_hyperparameters(target, target.prior.start(), plan, noise_floor=1e-6, seed=0)
    with pytest.warns(ConvergenceWarning, match=r"smallest effective sample size is \d+ \(should"):
        assert not warn_of_chains(chains, "Model", 1.05, 1e6)
    assert np.all(np.isnan(diagnose(theta[:, :4])[0]))


def test_one_chain_is_judged_by_its_halves():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(1, 400, 2))
    theta[0, 200:, 1] += 3.0
    r_hat, ess = diagnose(theta)
    assert r_hat[0] < 1.05 and r_hat[1] > 1.3 and ess[0] > 200 > ess[1]


def test_a_transition_is_compiled_once(monkeypatch):
    traced = []
    one = hyperparameter_chains._advance_chain

    def counted(*given):
        traced.append(1)
        return one(*given)

    monkeypatch.setattr(hyperparameter_chains, "_advance_chain", counted)
    target = _target(ScalePrior)
    plan = ChainPlan("nuts", 3, 200, 50, 1)  # as many chains as nothing else has: not compiled yet
    draw_hyperparameters(target, target.prior.start(), plan, noise_floor=1e-6, seed=0)
    assert len(traced) == 1


def test_without_blackjax_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "blackjax", None)
    with pytest.raises(ImportError, match=r"pip install vastgp\[mcmc\]"):
        import_blackjax()
