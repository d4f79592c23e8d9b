"""The runner of minibatch steps: the same as one step after the other, one program, rows read ahead."""

import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compiled_programs import count_programs
from vastgp.data.minibatch import generator
from vastgp.fitting.loop import run_chunks
from vastgp.fitting.minibatch_runner import MinibatchRunner, mean_and_error


def walk(plan, constants, state, batch, number):
    """A step with everything in it: constants, rows, and numbers drawn for this step."""
    noise = jax.random.normal(jax.random.fold_in(constants["key"], number))
    state = plan * state + constants["rate"] * jnp.sum(batch) + 0.1 * noise
    return state, {"objective": state}


def rows_of(seed):
    """Batches of three rows, those of a step by (seed, step) alone."""
    return lambda first, count: np.stack(
        [generator(seed, t, 9).normal(size=3).astype(np.float32) for t in range(first, first + count)]
    )  # fmt: skip


def constants(seed=0, rate=0.5):
    return {"key": jax.random.key(seed), "rate": jnp.float32(rate)}


def one_by_one(steps, seed=0, rate=0.5):
    state, draw = jnp.float32(1.0), rows_of(seed)
    for t in range(steps):
        state, _ = walk(0.5, constants(seed, rate), state, draw(t, 1)[0], t)
    return float(state)


def test_chunks_are_the_steps_one_after_the_other_and_one_program_for_all_lengths_and_numbers():
    made = []
    for chunk_last, seed, rate in ((7, 0, 0.5), (8, 3, 0.1), (3, 4, 0.2)):
        with (
            count_programs() as programs,
            MinibatchRunner(
                walk, 0.5, constants(seed, rate), chunk=3, draw=rows_of(seed), last=chunk_last
            ) as runner,
        ):
            runner.compile(jnp.float32(0.0), np.zeros(3, np.float32))
            state, loop = run_chunks(runner, jnp.float32(1.0), max_iter=chunk_last, chunk=3)
            made.append(programs())
        np.testing.assert_allclose(state, one_by_one(chunk_last, seed, rate), rtol=1e-5)
        assert loop.num_iter == chunk_last
    # the last record is the mean over the steps that were done
    assert loop.history.last("objective") == pytest.approx(
        np.mean([one_by_one(t, seed, rate) for t in (1, 2, 3)]), rel=1e-5
    )
    assert made[0] >= 1 and made[1:] == [0, 0]


def test_a_run_that_begins_in_the_middle_goes_on_as_the_whole_one_does():
    runner = MinibatchRunner(walk, 0.5, constants(), chunk=4, draw=rows_of(0))
    whole, _ = runner(jnp.float32(1.0), 0, 4)
    whole, _ = runner(whole, 4, 2)
    part, _ = runner(jnp.float32(1.0), 0, 1)
    for first, count in ((1, 3), (4, 1), (5, 1)):
        part, _ = runner(part, first, count)
    assert float(part) == float(whole)
    with pytest.raises(ValueError, match="num_iters=5: expected 1 to chunk=4 steps"):
        runner(part, 6, 5)


def test_rows_of_the_next_chunk_are_read_while_this_one_is_at_work():
    read, calls = threading.Event(), []

    def draw(first, count):
        calls.append((first, count, threading.current_thread() is threading.main_thread()))
        if first == 4:
            read.set()
        return rows_of(0)(first, count)

    def wait(batches):
        assert read.wait(20.0)
        return batches

    with MinibatchRunner(
        walk, 0.5, constants(), chunk=4, draw=draw, complete=wait, last=6
    ) as runner:
        state, _ = runner(jnp.float32(1.0), 0, 4)
        state, _ = runner(state, 4, 2)
    assert calls == [(0, 4, True), (4, 2, False)]  # and nothing beyond the last step


def test_rows_that_cannot_be_read_are_an_error_of_the_chunk_that_asks_for_them():
    def draw(first, count):
        if first >= 4:
            raise ValueError("row 17 is NaN")
        return rows_of(0)(first, count)

    with MinibatchRunner(walk, 0.5, constants(), chunk=4, draw=draw) as runner:
        state, _ = runner(jnp.float32(1.0), 0, 4)
        with pytest.raises(ValueError, match="row 17 is NaN"):
            runner(state, 4, 4)


@pytest.mark.parametrize("begun", [False, True])
def test_ctrl_c_while_the_reader_begins_is_what_the_caller_sees_and_no_rows_are_read_later(
    monkeypatch, begun
):
    """Whether its thread runs by then or not yet; one that runs is waited for."""
    start, reading, calls, readers = threading.Thread.start, threading.Event(), [], []

    def draw(first, count):
        if first:
            reading.set()
            time.sleep(0.05)
        calls.append(first)
        return rows_of(0)(first, count)

    def interrupted(self):
        readers.append(self)
        if begun:
            start(self)
            assert reading.wait(20.0)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with (
        pytest.raises(KeyboardInterrupt),
        MinibatchRunner(walk, 0.5, constants(), chunk=4, draw=draw) as runner,
    ):
        runner(jnp.float32(1.0), 0, 4)
    assert calls == ([0, 4] if begun else [0])
    if not begun:  # the thread that was asked for comes at last
        start(readers[0])
    readers[0].join(20.0)
    assert calls == ([0, 4] if begun else [0])


def test_ctrl_c_while_rows_are_waited_for_leaves_no_reader(monkeypatch):
    calls, waited = [], threading.Event()

    def draw(first, count):
        if first:
            assert waited.wait(20.0)
            time.sleep(0.05)
        calls.append(first)
        return rows_of(0)(first, count)

    def interrupted(self, timeout=None):
        waited.set()
        raise KeyboardInterrupt

    with MinibatchRunner(walk, 0.5, constants(), chunk=4, draw=draw) as runner:
        state, _ = runner(jnp.float32(1.0), 0, 4)
        monkeypatch.setattr(threading.Thread, "join", interrupted)
        with pytest.raises(KeyboardInterrupt):
            runner(state, 4, 4)
    assert calls == [0, 4]


def alone(plan, rate, state, batch, number):
    return state + rate, {"objective": state}


def test_steps_without_rows_and_an_own_summary():
    runner = MinibatchRunner(
        alone, None, jnp.float32(2.0), chunk=3, summarise=lambda state, records, done:
        mean_and_error(records["objective"]) | {"done": done},
    )  # fmt: skip
    state, found = runner(jnp.float32(0.0), 0, 3)
    assert float(state) == 6.0
    assert found == {"objective": 2.0, "objective_se": pytest.approx(2.0 / 3**0.5), "done": 3}
    assert np.isnan(mean_and_error([1.0])["objective_se"])
