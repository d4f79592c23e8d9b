"""What a fit may still begin, and where its time went."""

import time

import jax
import jax.numpy as jnp
import pytest

from vastgp.fitting.compilation import compile_seconds
from vastgp.fitting.run import OutOfTime, Run


def test_a_method_begins_only_with_the_time_that_it_needs():
    run = Run(10.0, seconds=6.0)
    run.check_time()  # no other answer stands
    run.needs = 3.5
    run.check_time()
    assert run.too_late(0.5)
    run.needs = 4.5
    with pytest.raises(OutOfTime, match=r"too little of max_seconds .* \(4\.0 s"):
        run.check_time()
    unlimited = Run()
    unlimited.needs = 1e9
    unlimited.check_time()


def test_some_of_a_budget_is_held_back_for_the_end_and_a_fifth_at_most():
    for budget, asked, left in ((10.0, 1.0, 9.0), (2.0, 1.0, 1.6)):
        run = Run(budget)
        run.hold_back(asked)
        assert run.max_seconds == pytest.approx(left)
    run = Run()
    run.hold_back(1.0)
    assert run.seconds_left() is None


def test_seconds_are_counted_by_phase():
    run = Run()
    for _ in range(2):
        with run.timed("one"):
            time.sleep(0.02)
    run.once("two", lambda: time.sleep(0.03))
    assert run.spent["one"] >= 0.04
    assert run.spent["two"] >= 0.03


def test_compilation_is_counted_where_it_happens():
    def function(x):
        return jnp.sin(x) @ jnp.cos(x).T

    compiled = jax.jit(function)
    with compile_seconds() as first:
        compiled(jnp.ones((3, 4)))
    with compile_seconds() as again:
        compiled(jnp.ones((3, 4)))
    before = first()
    compiled(jnp.ones((5, 4)))  # outside of the blocks
    assert first() == before > 0.0
    assert again() == 0.0
