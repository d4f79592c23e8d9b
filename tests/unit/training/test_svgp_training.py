"""Fits at inducing points: steps that leave no posterior, and when a fit has converged."""

import numpy as np
import pytest

from vastgp.objectives.svgp_bound import Rows
from vastgp.training import svgp
from vastgp.training.history import History
from vastgp.training.svgp_passes import InducingOptions, padded_rows
from vastgp.training.svgp_steps import Setting

NOTHING = Rows(None, None, None)


def trainer():
    made = object.__new__(svgp._Trainer)
    made.options, made.full, made.rate, made.dtype = InducingOptions(), True, 1.0, "float32"
    made.e_steps = made.damped = 0
    made.params, made.sums, made.setting = None, "before", Setting(0.0, None, None)
    return made


def test_a_step_that_leaves_no_posterior_is_halved_and_counted(monkeypatch):
    monkeypatch.setattr(
        svgp, "e_step", lambda params, sums, rows, rate, jitter: ("after", 1.5, rate < 0.3)
    )
    made = trainer()
    assert made._e_step(NOTHING) == 1.5
    assert made.damped == 2 and made.sums == "after"


def test_when_no_length_helps_the_message_says_what_to_do(monkeypatch):
    monkeypatch.setattr(svgp, "e_step", lambda *_: ("after", np.nan, False))
    made = trainer()
    with pytest.raises(FloatingPointError, match=r"E-step gave no finite posterior.*set dtype"):
        made._e_step(NOTHING)
    assert made.sums == "before"


def test_a_fit_ends_when_the_gain_is_below_tol_or_noise():
    def ends(values, least):
        history = History()
        for k, value in enumerate(values):
            history.append(10 * (k + 1), float(k), {"objective": value})
        decision = svgp._no_gain(least)({}, history)
        return decision is not None and decision.converged

    steady = np.arange(20.0)
    assert not ends(steady, 1.0)
    assert ends(steady, 11.0)
    assert not ends(steady[:19], 11.0)
    # a gain of 0.1 in means of ten values that alternate by one either way
    noisy = 0.01 * np.arange(20) + np.tile([1.0, -1.0], 10)
    assert ends(noisy, 1e-6)


def test_padding_counts_nothing():
    rows = padded_rows(np.ones((3, 2)), np.arange(3.0), 2.5, "float32")
    assert rows.X.shape == (64, 2) and rows.y.shape == rows.weights.shape == (64,)
    np.testing.assert_array_equal(rows.weights, [2.5] * 3 + [0.0] * 61)
    assert float(rows.y[-1]) == 2.0
