"""Chains draw what quadrature integrates; what did not mix is said."""

from __future__ import annotations

import dataclasses
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import precision
from vastgp.fitting.checkpoint import Checkpoint
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.fitting.run import Run
from vastgp.fitting.sufficient_statistics import SufficientStatistics
from vastgp.methods.reweighted import chains as module
from vastgp.methods.reweighted.chain_steps import CHUNK
from vastgp.methods.reweighted.chains import (
    ChainSteps,
    HyperPosterior,
    Window,
    run_chains,
    windows_of,
)
from vastgp.methods.reweighted.diagnosis import diagnose, import_blackjax, problems_of
from vastgp.methods.reweighted.evidence import prepare
from vastgp.methods.reweighted.inference import draw_hyperparameters, maximise_hyperparameters
from vastgp.methods.reweighted.options import MALA, NUTS
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
        row = jax.jit(jax.vmap(jax.vmap(target, in_axes=0), in_axes=0))
        grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
        logs = np.asarray(row(jnp.asarray(grid)))
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = np.tensordot(weights, grid, axes=2)
    return mean, np.sqrt(np.tensordot(weights, (grid - mean) ** 2, axes=2))


def _drawn(target, plan, seed=0, **run):
    mode = maximise_hyperparameters(
        target, target.prior.start(), noise_floor=1e-6, with_prior=True, max_iter=200, tol=1e-4
    )
    return draw_hyperparameters(target, mode.params, plan, Run(seed=seed, **run))


@pytest.mark.parametrize(
    ("kind", "plan"),
    [
        (ScalePrior, NUTS(4, 300, 1000, 1)),
        (ScalePrior, MALA(4, 500, 8000, 4)),
        (DiagonalPrior, NUTS(4, 300, 1000, 1)),
    ],
)
def test_draws_of_two_hyperparameters_agree_with_quadrature(kind, plan):
    target = _target(kind)
    chains = _drawn(target, plan)
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
    plan = NUTS(2, 100, 100)
    first = _drawn(target, plan, 3)
    again = _drawn(target, plan, 3)
    np.testing.assert_array_equal(first.theta, again.theta)
    assert np.max(first.r_hat) < 1.15
    assert np.all(first.step_size < 1.0)
    assert 0.5 < np.mean(first.acceptance) <= 1.0
    other = _drawn(target, plan, 4)
    assert not np.array_equal(first.theta, other.theta)


def test_the_mode_is_where_the_slope_is_zero():
    target = _target(ScalePrior)
    found = maximise_hyperparameters(
        target, target.prior.start(), noise_floor=1e-6, with_prior=True, max_iter=100, tol=1e-8
    )
    with precision("float64"):
        slope = np.asarray(jax.grad(lambda theta: target(theta))(jnp.asarray(found.params)))
        assert found.value == pytest.approx(float(target(jnp.asarray(found.params))))
    np.testing.assert_allclose(slope, 0.0, atol=1e-3)
    assert found.converged


def test_windows_leave_the_first_and_the_last_part_out_and_their_lengths_double():
    assert windows_of(0) == windows_of(2 * CHUNK) == []
    windows = windows_of(40 * CHUNK)
    assert windows[0][0] == 4 * CHUNK and windows[-1][1] == 36 * CHUNK
    assert [end for _, end in windows[:-1]] == [begin for begin, _ in windows[1:]]
    lengths = np.diff(windows, axis=1).ravel()
    assert np.all(lengths[1:-1] == 2 * lengths[:-2])


def test_a_window_has_the_spread_of_each_chain_around_its_own_mean():
    theta = np.random.default_rng(0).normal([[3.0]], [[0.2, 5.0]], (2, 60, 2))
    theta[1] += 100.0
    window = Window.empty((2, 2))
    for part in np.split(theta, [7, 32], axis=1):
        window = window.plus(part)
    before, count = np.array([2.0, 3.0]), 120
    expected = np.var(theta, axis=1).mean(axis=0) * count + module._SHRINKAGE * before**2
    found = window.scale(before)
    np.testing.assert_allclose(found, np.sqrt(expected / (count + module._SHRINKAGE)), rtol=1e-12)


def test_a_window_holds_nothing_of_what_was_before_it():
    """Far from where it settles a chain runs through many scales: they are not those of the posterior."""
    target, plan = _target(ScalePrior), MALA(2, 300, 25, 1)
    with precision("float64"):
        steps = ChainSteps(target, plan, 0)
        state = steps.start(np.tile(target.prior.start() + 8.0, (2, 1)), np.full(2, 0.5))
        first, stop = steps.windows[0]
        for number in range(0, first, CHUNK):
            state, _ = steps.warm_up(state, number, CHUNK)
        assert state.window.count == 0.0
        begun = np.asarray(state.theta)
        state, _ = steps.warm_up(state, first, CHUNK - 1)
        assert state.window.count == CHUNK - 1 and state.scale.tolist() == [0.5, 0.5]
        assert np.all(
            np.abs(state.window.mean - begun) < np.abs(begun - target.prior.start() - 8.0)
        )
        state, _ = steps.warm_up(state, first + CHUNK - 1, stop - first - CHUNK + 1)
    assert state.window.count == 0.0 and np.all(state.scale != 0.5)


def test_what_time_is_left_for_is_done_and_at_least_one_draw():
    target, plan = _target(ScalePrior), MALA(2, 200, 200, 4)
    scale = target.prior.scale(target.data)
    starts = np.tile(target.prior.start(), (2, 1))
    with precision("float64"):
        steps = ChainSteps(target, plan, 0)
    chains = run_chains(steps, starts, scale, Run(1e-9))
    assert chains.theta.shape == (2, 1, 2) and chains.reason == OUT_OF_TIME


def test_a_call_is_short_where_a_step_is_long():
    """A second's worth of factorisations, counted: time that is up is noticed after it."""
    data = _target(ScalePrior).data
    sizes = {}
    for rank, basis in ((6, 6), (300, 1000)):
        some = dataclasses.replace(data, gram=np.zeros((basis, basis)), values=np.ones(rank))
        for name, prior in {
            "diagonal": DiagonalPrior.make(basis, 0.1),
            "orthogonal": OrthogonalPrior.make(rank, 0.1),
        }.items():
            for plan in (NUTS(), MALA()):
                sizes[rank, name, plan.name] = ChainSteps(
                    HyperPosterior(prior, some), plan, 0
                ).chunk
    assert sizes[300, "diagonal", "nuts"] == 1 and sizes[300, "diagonal", "mala"] < 5
    del sizes[300, "diagonal", "nuts"], sizes[300, "diagonal", "mala"]
    assert set(sizes.values()) == {CHUNK}


class Killed(Exception):
    """Stands for the end of the process."""


def test_killed_at_any_record_and_resumed_the_draws_are_the_same(tmp_path, monkeypatch):
    target, plan = _target(ScalePrior), MALA(2, 100, 40, 3)
    scale = target.prior.scale(target.data)
    starts = np.tile(target.prior.start(), (2, 1))
    with precision("float64"):
        steps = ChainSteps(target, plan, 0)
    whole = run_chains(steps, starts, scale, Run())
    writes, write = [], Checkpoint.write

    def dying(self):
        write(self)
        writes.append(1)
        if len(writes) == dies_at:
            raise Killed

    monkeypatch.setattr(Checkpoint, "due", lambda self: True)
    monkeypatch.setattr(Checkpoint, "write", dying)
    for dies_at in range(1, 7):
        path = tmp_path / f"fit{dies_at}"
        writes.clear()
        with pytest.raises(Killed):
            run_chains(steps, starts, scale, Run(None, Checkpoint(path, fingerprint={})))
        again = run_chains(steps, starts, scale, Run(None, Checkpoint(path, fingerprint={})))
        for name in ("theta", "log_density", "acceptance", "diverging", "step_size"):
            np.testing.assert_array_equal(getattr(again, name), getattr(whole, name))
        assert again.history.objective == whole.history.objective


def test_chains_apart_are_warned_of():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(4, 100, 3))
    r_hat, ess = diagnose(theta)
    assert np.all(r_hat < 1.05) and np.all(ess > 150)
    theta[0, :, 1] += 5.0
    r_hat, ess = diagnose(theta)
    assert r_hat[1] > 1.3
    target = _target(ScalePrior)
    plan = MALA(2, 25, 25, 1)
    chains = _drawn(target, plan, 0)
    (problem,) = problems_of(chains, 1e3, 1e6)
    assert re.match(r"the smallest effective sample size is \d+ \(should", problem)
    assert np.all(np.isnan(diagnose(theta[:, :4])[0]))


def test_one_chain_is_judged_by_its_halves():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(1, 400, 2))
    theta[0, 200:, 1] += 3.0
    r_hat, ess = diagnose(theta)
    assert r_hat[0] < 1.05 and r_hat[1] > 1.3 and ess[0] > 200 > ess[1]


def test_a_transition_is_compiled_once(monkeypatch):
    traced = []
    one = module._advance_chain

    def counted(*given):
        traced.append(1)
        return one(*given)

    monkeypatch.setattr(module, "_advance_chain", counted)
    target = _target(ScalePrior)
    plan = NUTS(3, 200, 50)  # as many chains as nothing else has: not compiled yet
    _drawn(target, plan, 0)
    assert len(traced) == 1


def test_without_blackjax_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "blackjax", None)
    with pytest.raises(ImportError, match=r"pip install vastgp\[mcmc\]"):
        import_blackjax()
