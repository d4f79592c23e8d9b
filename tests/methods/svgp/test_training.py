"""Fits at inducing points: steps that leave no posterior, when a fit has converged, resumed fits."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import precision
from vastgp.data import Standardizer, as_rows
from vastgp.fitting.history import History
from vastgp.fitting.loop import LoopResult
from vastgp.fitting.no_gain import no_gain
from vastgp.fitting.run import Run
from vastgp.kernels import RBF
from vastgp.likelihoods import Bernoulli, Gaussian, Poisson, Softmax, StudentT
from vastgp.methods.svgp import training as svgp
from vastgp.methods.svgp.bound import Rows, SiteSums, held
from vastgp.methods.svgp.fit import Inputs, fit_svgp
from vastgp.methods.svgp.iteration import FAILED, Record, State, _tried
from vastgp.methods.svgp.options import SVGPOptions
from vastgp.methods.svgp.passes import run_passes
from vastgp.methods.svgp.steps import Params, e_step, m_step

QUICK = SVGPOptions(row_batch=32, max_steps=20)


def rows_of(n=80, likelihood=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    f = np.sin(2.0 * X[:, 0]) + X[:, 1]
    y = f + 0.3 * rng.normal(size=n)
    if isinstance(likelihood, Poisson):
        y = rng.poisson(np.exp(f)).astype(float)
    if isinstance(likelihood, Bernoulli):
        y = np.where(f > 0.2, 1.0, -1.0)
    if isinstance(likelihood, Softmax):
        y = np.digitize(f, [-0.7, 0.7]).astype(float)
    rows = as_rows(X, y)
    scaling = Standardizer().fit(dataclasses.replace(rows, y=None))
    return rows, scaling


def fitted(likelihood, options=QUICK, dtype="float64", kernel=None, Z=None, **budget):
    rows, scaling = rows_of(likelihood=likelihood)
    if Z is None:
        Z = scaling.transform_X(rows.take(np.arange(12))[0])
    first = kernel or RBF(np.ones(2), 1.0), likelihood
    return fit_svgp(rows, scaling, first, Inputs(Z, "given", len(Z)), options, Run(**budget), dtype)


# ------------------------------------------------------------ damped steps


def tried(good_below):
    """Return state and record after a step that leaves a posterior where it is shorter than some length."""
    nothing = State(None, None, jnp.zeros(1), None, None, jnp.int32(0), jnp.int32(0))

    def attempt(state, share):
        return (
            state._replace(q=state.q + share, e_steps=state.e_steps + 1),
            1.5 * share,
            share < good_below,
        )

    record = Record(jnp.full((), jnp.nan), jnp.zeros((), jnp.int32))
    return jax.jit(lambda: _tried(attempt, nothing, record, 2))()


def test_a_step_that_leaves_no_posterior_is_halved_and_counted():
    state, record = tried(0.3)
    assert float(record.objective) == 1.5 / 4 and float(state.q[0]) == 1 / 4
    assert int(state.damped) == 2 and int(state.e_steps) == 1 and int(record.failed) == 0
    _, record = tried(0.0)
    assert FAILED[int(record.failed)] == "an M-step"


def test_when_no_length_helps_the_message_says_what_to_do():
    made = svgp.Trainer(*rows_of(), Gaussian(0.1), QUICK, 0, "float32")
    with pytest.raises(FloatingPointError, match=r"E-step gave no finite posterior.*set dtype"):
        made._summary(State(*[None] * 7), Record(np.array([1.0, np.nan]), np.array([0, 1])), 2)


def test_a_step_of_adam_too_long_for_the_kernel_is_shortened():
    # one step multiplies the variance by exp(200): beyond float32
    options = dataclasses.replace(QUICK, learning_rate=200.0, row_batch=80, max_steps=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            svgp, "bounds_of", lambda params, floor: (_times(params, 0), _times(params, np.inf))
        )
        fit = fitted(Gaussian(0.1), options, dtype="float32")
    assert fit.damped > 0 and np.isfinite(fit.bound)


def _times(params, value):
    return jax.tree.map(lambda leaf: np.full(np.shape(leaf), value), params)


# ------------------------------------------------------------ one minibatch for both steps


@pytest.mark.parametrize(
    ("likelihood", "hold"), [(Poisson(1.0), "whitened"), (Softmax(3), "sites")], ids=str
)
def test_a_shared_step_is_both_steps_from_the_same_place(likelihood, hold):
    """The E-step of `e_step` and the M-step of `m_step` alone, the new sites then taken to the new hyperparameters."""
    rows, scaling = rows_of(likelihood=likelihood)
    options = dataclasses.replace(QUICK, hold=hold)
    with precision("float64"):
        made = svgp.Trainer(rows, scaling, likelihood, options, 0, "float64")
        Z = scaling.transform_X(rows.take(np.arange(9))[0])
        state = made.start(RBF(np.ones(2), 1.3), likelihood, Z)
        with made.runner(30) as runner:
            for first in range(0, 30, 10):
                state, _ = runner(state, first, 10)
        X, y = rows.take(np.arange(40, 72))
        batch = Rows(scaling.transform_X(X), scaling.transform_y(y), np.full(32, 2.5))
        here = state.params, state.here, state.q
        given, setting = {"hold": hold, "move": True}, made.constants.setting
        shared = m_step(*here, state.optimizer, batch, 0.3, 0.02, setting, **given)
        sums, bound, _ = e_step(*here, batch, 0.3)
        alone = m_step(*here, state.optimizer, batch, None, 0.02, setting, **given)
        expected = held(hold, sums, state.here, alone[1])
    assert float(shared[4]) == pytest.approx(float(bound), rel=1e-12)
    for found, right in zip(
        jax.tree.leaves((shared[0], shared[2])), jax.tree.leaves((alone[0], expected)), strict=True
    ):
        np.testing.assert_allclose(found, right, rtol=1e-8, atol=1e-8)
    assert not np.allclose(expected.linear, alone[2].linear, atol=1e-3)


# ------------------------------------------------------------ the end


def decision(values, tol=1e-4, rows=1000, row_batch=1000, max_steps=10**6):
    history = History()
    for k, value in enumerate(values):
        history.append(10 * (k + 1), float(k), {"objective": value})
    rule = no_gain(tol, rows, row_batch, chunk=10, max_steps=max_steps)
    return rule({"objective": values[-1]}, history)


def test_without_noise_a_fit_ends_when_100_steps_gain_less_than_tol():
    # ten records are a hundred steps: 0.05 or 0.2 nats in them, and tol allows 0.1
    assert decision(0.005 * np.arange(20.0)).converged
    assert decision(0.005 * np.arange(19.0)) is None
    assert decision(0.02 * np.arange(20.0)) is None


def test_a_bound_that_falls_has_not_converged():
    noise = np.random.default_rng(0).normal(size=100)
    assert decision(-0.02 * np.arange(20.0)) is None
    assert decision(noise - 5.0 * np.arange(100.0), row_batch=50) is None
    with pytest.raises(FloatingPointError, match=r"the bound became nan after 30 steps\. Lower"):
        decision([-1.0, -2.0, np.nan])


def first_end(values, **given):
    ends = (k for k in range(1, len(values) + 1) if decision(values[:k], **given) is not None)
    return next(ends, None)


def test_noise_ends_no_fit_before_ten_epochs():
    noise = np.random.default_rng(0).normal(size=150)
    # batches of 50: two records are an epoch of 1000 rows; 40 records are 400 steps and twenty epochs
    assert 40 <= first_end(noise, row_batch=50) < 60
    # batches of 10: ten records are an epoch
    assert 100 <= first_end(noise, row_batch=10) < 150
    # of many rows 100,000 are enough: 20 records of 500 rows each step
    assert 40 <= first_end(noise, row_batch=500, rows=10**6) < 60


def test_noise_ends_no_fit_while_it_hides_more_than_100_tol_for_each_row():
    noise = np.random.default_rng(0).normal(size=150)
    # 100 tol for each of 1000 rows are 10 nats; the standard error of a gain is 40 (2 / window)^1/2: 32 records
    ended = first_end(40.0 * noise, row_batch=50)
    assert ended is not None and ended >= 3 * 32 * 0.8
    # a gain beyond its standard error goes on
    assert first_end(noise + 0.2 * np.arange(150), row_batch=50) is None


def test_the_standard_error_is_that_of_independent_records():
    # how often a fit without any gain goes on at the first record that may end it: P(z > 1) + P(z < -2) = 0.182
    rng = np.random.default_rng(1)
    given = {"tol": 1e-3, "row_batch": 50, "rows": 1000}
    goes_on = [decision(20.0 * rng.normal(size=40), **given) is None for _ in range(400)]
    assert abs(np.mean(goes_on) - 0.182) < 4.0 * (0.182 * 0.818 / 400) ** 0.5


def test_the_last_step_is_not_convergence():
    last = decision(np.arange(5.0), max_steps=50)
    assert not last.converged and "max_steps = 50" in last.reason


# ------------------------------------------------------------ whole fits

LIKELIHOODS = [Gaussian(0.1), StudentT(0.3, 4.0), Poisson(1.0), Bernoulli("logit"), Softmax(3)]


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda each: each.name)
def test_fits_of_every_likelihood_gain_and_settle(likelihood):
    start = fitted(likelihood, dataclasses.replace(QUICK, learn=False, move=False, passes=100))
    assert start.loop.converged and start.num_passes >= 1
    fit = fitted(likelihood, dataclasses.replace(QUICK, max_steps=60))
    assert fit.bound > start.bound and fit.damped == 0
    # at the optimum of the sites nothing common to the classes is left
    if isinstance(likelihood, Softmax):
        total = np.linalg.solve(np.eye(12) + fit.sums.precision, fit.sums.linear[:, :, None])
        np.testing.assert_allclose(total.sum(axis=0), 0.0, atol=1e-10)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("variance", [1e-4, 1e4])
def test_extreme_variances_and_repeated_points_train(variance, dtype):
    rows, scaling = rows_of()
    Z = scaling.transform_X(rows.take(np.arange(8))[0])
    Z = np.concatenate([Z, Z, Z + 1e-7])
    fit = fitted(Gaussian(0.1), dtype=dtype, kernel=RBF(np.ones(2), variance), Z=Z)
    assert np.isfinite(fit.bound)
    assert np.all(np.isfinite(fit.Z))


def test_without_a_finite_bound_passes_do_not_settle():
    """A prior under which averages of ``exp(f)`` overflow: no sites are better than none."""
    alone = dataclasses.replace(QUICK, learn=False, move=False, passes=100)
    fit = fitted(Poisson(1.0), alone, kernel=RBF(np.full(2, 0.1), 5000.0))
    assert not fit.loop.converged
    assert "the bound of the evidence is nan, however short a step" in fit.loop.reason


def test_passes_recover_from_steps_that_diverged():
    """Sites with a mean of hundreds: the passes begin at none, and end where they do from sound ones."""
    rows, scaling = rows_of(likelihood=Poisson(1.0))
    Z = scaling.transform_X(rows.take(np.arange(12))[0])
    params = Params(*jax.tree.map(np.log, (RBF(np.ones(2), 1.0), Poisson(1.0))), Z)
    ends = []
    for linear in (0.0, 1e4):
        sums = SiteSums(np.full((1, 12), linear), np.zeros((1, 12, 12)))
        loop = LoopResult(0, 0.0, True, "converged", History())
        ends.append(
            run_passes(
                rows, scaling, params, sums, dataclasses.replace(QUICK, tol=1e-6), loop, 0, Run()
            )
        )
    assert ends[1].loop.converged and ends[1].damped == 1
    assert ends[1].bound == pytest.approx(ends[0].bound, abs=1e-6)


# ------------------------------------------------------------ the time for passes


@pytest.mark.parametrize(
    ("seconds", "share", "passes"),
    [
        # two passes and some more, or a fifth, of ten seconds; and none where they would take most of them
        (0.1, 0.8, True),
        (1.5, 1.0 - 1.3 * 3.0 / 10.0, True),
        (4.0, 1.0, False),
    ],
)
def test_passes_have_the_time_that_they_take_or_none(monkeypatch, seconds, share, passes):
    """Of ten classes a pass took 4 s more than the budget, for a bound that moved nothing."""
    kinds, shares = [], []

    def of_a_pass(rows, standardizer, params, *rest):
        kinds.append(jax.tree.structure(params.likelihood))
        return seconds

    class Told(Run):
        def seconds_left(self, share=1.0):
            # time stands still: what ends the steps is their number
            return 10.0 * share

        def steps(self, name, *given, share=1.0, **more):
            shares.append(share)
            return super().steps(name, *given, share=share, **more)

    monkeypatch.setattr(svgp, "seconds_of_a_pass", of_a_pass)
    if not passes:
        # left after steps that had all of the time
        monkeypatch.setattr(
            Told, "seconds_left", lambda self, share=1.0: 10.0 if not shares else 0.5
        )
    likelihood = Softmax(3)
    rows, scaling = rows_of(likelihood=likelihood)
    Z = scaling.transform_X(rows.take(np.arange(12))[0])
    first = RBF(np.ones(2), 1.0), likelihood
    fit = fit_svgp(rows, scaling, first, Inputs(Z, "given", 12), QUICK, Told(max_seconds=600.0))
    # with the likelihood of the passes, not the rougher one of the steps
    assert kinds == [jax.tree.structure(likelihood)]
    assert shares[0] == pytest.approx(share)
    assert (fit.num_passes > 0) == passes == np.isfinite(fit.bound)
