"""Damped updates: they arrive wherever a step overshoots, and what they could not raise has not converged."""

import numpy as np
import pytest

from vastgp.fitting.damped_updates import SETTLED, STUCK, DampedUpdates, Found, decide, next_rate


def ascended(bound, better, start=0.0, most=1.0, steps=200):
    def evaluate(x):
        with np.errstate(all="ignore"):
            return Found(x, bound(x), better(x))

    updates = DampedUpdates(evaluate, most=most, least_gain=1e-10)
    return updates.run(updates.start(np.float64(start)), steps)


def test_newton_steps_of_a_count_far_above_its_rate_arrive():
    """``y x - exp(x)`` at ``y = 10^4`` from ``x = 0``: a whole step overshoots a thousandfold."""
    state = ascended(lambda x: 1e4 * x - np.exp(x), lambda x: x + (1e4 - np.exp(x)) / np.exp(x))
    assert state.end == SETTLED and state.shortened > 0
    assert float(state.found.sites) == pytest.approx(np.log(1e4), abs=1e-6)
    assert decide(float(state.end), state.found.bound).converged


def test_a_direction_three_times_too_long_is_shortened_once():
    state = ascended(lambda x: -((x - 3.0) ** 2), lambda x: x + 3.0 * (3.0 - x))
    assert state.end == SETTLED
    assert float(state.found.sites) == pytest.approx(3.0, abs=1e-4)


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_no_finite_bound_is_no_end(value):
    state = ascended(lambda x: value, lambda x: x + 1.0)
    stop = decide(float(state.end), state.found.bound)
    assert state.end == STUCK and float(state.found.sites) == 0.0
    assert not stop.converged and f"the bound of the evidence is {value:g}" in stop.reason


def test_steps_that_only_lower_the_bound_have_not_converged():
    state = ascended(lambda x: -x, lambda x: x + 1.0)
    stop = decide(float(state.end), state.found.bound)
    assert state.end == STUCK and not stop.converged
    assert "no step of the sites raises the bound" in stop.reason
    assert decide(0, 1.0) is None


def test_small_steps_of_a_long_way_are_no_end():
    """Each step gains 0.98 of what the one before did: fifty times the last gain is left where that is ``least``."""
    state = ascended(lambda x: -(x**2), lambda x: 0.99 * x, start=1.0, steps=3000)
    assert state.end == SETTLED
    gained_by_one = float(state.found.sites) ** 2 * (1.0 - 0.99**2)
    assert gained_by_one / (1.0 - 0.99**2) <= 1.01e-10


def test_a_step_that_was_too_long_is_not_tried_again_at_once():
    """Directions of 2.9 times the way to 0: steps of 0.35 to 0.69 are good, and one in three is longer."""
    state = ascended(lambda x: -(x**2), lambda x: x - 2.9 * x, start=1.0, steps=30)
    assert state.end == SETTLED
    assert float(state.found.sites) == pytest.approx(0.0, abs=1e-4)
    good_ones, rate = [], np.float64(1.0)
    for _ in range(30):
        good = rate < 0.69
        good_ones.append(good)
        rate = next_rate(rate, good, 1.0)
    assert np.mean(good_ones) >= 0.6
