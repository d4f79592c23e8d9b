"""The training loop: when it stops, what it records, and that a resumed run equals an uninterrupted one."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vastgp.data import processes
from vastgp.fitting import loop
from vastgp.fitting.checkpoint import Checkpoint
from vastgp.fitting.early_stopping import first_of, no_progress
from vastgp.fitting.history import History
from vastgp.fitting.interrupts import Interrupts
from vastgp.fitting.loop import STEPS_DONE, Stop, run_chunks


@jax.jit
def one_step(state):
    noise = jax.random.normal(jax.random.fold_in(state["key"], state["step"]), (3,))
    return state | {"x": 0.9 * state["x"] + noise, "step": state["step"] + 1}


def start():
    return {"x": jnp.zeros(3), "step": jnp.int32(0), "key": jax.random.key(5)}


class Chunks:
    """Runs the steps and notes which were asked for."""

    def __init__(self, before=lambda first: None):
        self.asked, self.before = [], before

    def __call__(self, state, first_iter, num_iters):
        self.before(first_iter)
        self.asked.append((first_iter, num_iters))
        for _ in range(num_iters):
            state = one_step(state)
        return state, {"objective": state["x"][0]}


def interrupt_at(step):
    def before(first):
        if first >= step:
            raise KeyboardInterrupt

    return before


def checkpoint(path, **changes):
    fingerprint = {"seed": 1, "params": {"kernel": "rbf", "rows": [1, 2]}} | changes
    return Checkpoint(path, every_seconds=0.0, fingerprint=fingerprint).phase("fit")


def same(a, b):
    return all(
        np.array_equal(jax.random.key_data(a[k]) if k == "key" else a[k],
                       jax.random.key_data(b[k]) if k == "key" else b[k])
        for k in a
    )  # fmt: skip


def test_steps_are_done_once_in_order_and_recorded():
    chunks = Chunks()
    state, result = run_chunks(chunks, start(), max_iter=25, chunk=10)
    assert chunks.asked == [(0, 10), (10, 10), (20, 5)]
    assert int(state["step"]) == result.num_iter == 25
    assert result.history.steps == [10, 20, 25]
    assert result.history.objective[-1] == float(state["x"][0])
    assert not result.converged and result.reason == "stopped after max_iter = 25 steps"
    assert result.resumed_at == 0 and result.seconds >= result.history.seconds[-1]


def test_a_rule_decides_when_it_has_converged():
    def rule(diagnostics, history):
        assert diagnostics["objective"] == history.objective[-1]
        return Stop("small enough", True) if len(history) == 3 else None

    _, result = run_chunks(Chunks(), start(), max_iter=100, chunk=5, should_stop=rule)
    assert result.converged and result.reason == "small enough" and result.num_iter == 15


def test_time_is_checked_between_chunks():
    chunks = Chunks(lambda first: time.sleep(0.05))
    _, result = run_chunks(chunks, start(), max_iter=None, chunk=1, max_seconds=0.12)
    assert not result.converged and result.reason == "stopped when max_seconds was used up"
    *before, last = [0.0, *result.history.seconds]
    assert before[-1] < 0.12 <= last <= result.seconds


def test_a_chunk_may_end_between_two_steps():
    chunks = Chunks()

    def two_at_most(state, first, count):
        state, found = chunks(state, first, min(count, 2))
        return state, {**found, STEPS_DONE: min(count, 2)}

    state, result = run_chunks(two_at_most, start(), max_iter=7, chunk=3)
    assert chunks.asked == [(0, 2), (2, 2), (4, 2), (6, 1)]
    assert result.history.steps == [2, 4, 6, 7] and result.num_iter == int(state["step"]) == 7
    assert STEPS_DONE not in result.history.values


def test_something_must_end_the_loop():
    with pytest.raises(ValueError, match="set max_iter or max_seconds"):
        run_chunks(Chunks(), start(), max_iter=None, chunk=1)


# ---------------------------------------------------------------- resuming


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    alone, whole = run_chunks(Chunks(), start(), max_iter=45, chunk=10)
    path = tmp_path / "fit.checkpoint"
    with pytest.raises(KeyboardInterrupt):
        run_chunks(
            Chunks(interrupt_at(30)), start(), max_iter=45, chunk=10, checkpoint=checkpoint(path)
        )
    assert path.exists()
    chunks = Chunks()
    state, result = run_chunks(chunks, start(), max_iter=45, chunk=10, checkpoint=checkpoint(path))
    assert chunks.asked == [(30, 10), (40, 5)] and result.resumed_at == 30
    assert same(state, alone)
    assert result.history.objective == whole.history.objective
    assert result.history.steps == whole.history.steps
    assert np.all(np.diff(result.history.seconds) >= 0)


def test_out_of_time_keeps_the_file_for_a_larger_budget(tmp_path):
    alone, _ = run_chunks(Chunks(), start(), max_iter=20, chunk=5)
    path = tmp_path / "fit.checkpoint"
    options = {"max_iter": 20, "chunk": 5}
    _, first = run_chunks(
        Chunks(lambda _: time.sleep(0.02)), start(), max_seconds=0.01, checkpoint=checkpoint(path), **options
    )  # fmt: skip
    assert path.exists() and first.num_iter == 5
    _, nothing = run_chunks(
        Chunks(), start(), max_seconds=0.01, checkpoint=checkpoint(path), **options
    )
    assert nothing.num_iter == 5  # the budget is that of the whole fit
    state, _ = run_chunks(Chunks(), start(), checkpoint=checkpoint(path), **options)
    assert same(state, alone)


def test_control_c_finishes_the_chunk_saves_and_raises(tmp_path):
    alone, _ = run_chunks(Chunks(), start(), max_iter=20, chunk=5)
    path = tmp_path / "fit.checkpoint"
    slow = Checkpoint(path, every_seconds=1e6, fingerprint={}).phase("fit")
    chunks = Chunks(lambda first: os.kill(os.getpid(), signal.SIGINT) if first == 5 else None)
    with pytest.raises(KeyboardInterrupt):
        run_chunks(chunks, start(), max_iter=20, chunk=5, checkpoint=slow)
    assert chunks.asked[-1] == (5, 5)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    again = Checkpoint(path, fingerprint={}).phase("fit")
    state, result = run_chunks(Chunks(), start(), max_iter=20, chunk=5, checkpoint=again)
    assert result.resumed_at == 10 and same(state, alone)


def test_a_second_control_c_stops_at_once(tmp_path):
    def twice(first):
        if first == 5:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            pytest.fail("the chunk went on")

    with pytest.raises(KeyboardInterrupt):
        run_chunks(
            Chunks(twice), start(), max_iter=20, chunk=5, checkpoint=checkpoint(tmp_path / "f")
        )
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_control_c_at_any_time_is_obeyed(tmp_path, monkeypatch):
    told = []

    def late(array):
        found = processes.gathered(array)
        if len(told) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        told.append(found)
        return found

    monkeypatch.setattr(loop, "gathered", late)
    saved = checkpoint(tmp_path / "f")
    with pytest.raises(KeyboardInterrupt):
        run_chunks(Chunks(), start(), max_iter=20, chunk=5, checkpoint=saved)
    assert checkpoint(tmp_path / "f").saved.num_iter == 10


def test_control_c_is_no_longer_held_back_where_a_chunk_failed(tmp_path):
    def fail(first):
        raise ValueError("no answer")

    with Interrupts.watch() as interrupts:
        with pytest.raises(ValueError, match="no answer"):
            run_chunks(
                Chunks(fail), start(), max_iter=9, chunk=3, checkpoint=checkpoint(tmp_path / "f")
            )
        assert not interrupts.holding
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_fit_in_a_thread_outlives_the_one_that_hears_control_c():
    ended, handlers = threading.Event(), []

    def in_thread():
        waits = Chunks(lambda first: ended.wait(60.0) if first else None)
        handlers.append(run_chunks(waits, start(), max_iter=2, chunk=1)[1].num_iter)

    other = threading.Thread(target=in_thread)
    with Interrupts.watch():
        other.start()
        run_chunks(Chunks(lambda first: time.sleep(0.1)), start(), max_iter=2, chunk=1)
    handlers.append(signal.getsignal(signal.SIGINT))
    ended.set()
    other.join()
    assert handlers == [signal.default_int_handler, 2]


def test_a_donated_state_is_not_saved(tmp_path):
    path = tmp_path / "fit.checkpoint"
    slow = Checkpoint(path, every_seconds=1e6, fingerprint={}).phase("fit")
    donating = jax.jit(lambda x: x + 1.0, donate_argnums=0)

    def chunk(state, first_iter, num_iters):
        donating(state)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_chunks(chunk, jnp.zeros(3), max_iter=3, chunk=1, checkpoint=slow)
    assert not path.exists()


KILLED = """
    import sys, time
    sys.path.insert(0, {tests!r})
    from test_loop_states import chunk_with_pause, start
    from vastgp.fitting.checkpoint import Checkpoint
    from vastgp.fitting.loop import run_chunks
    checkpoint = Checkpoint({path!r}, every_seconds=0.0, fingerprint={{}}).phase("fit")
    run_chunks(chunk_with_pause, start(), max_iter=100000, chunk=3, checkpoint=checkpoint)
"""


def test_a_killed_run_leaves_a_whole_file_or_none_and_resumes(tmp_path):
    # a program of its own that saves as often as it may, killed at three moments
    path = tmp_path / "fit.checkpoint"
    (tmp_path / "test_loop_states.py").write_text(
        textwrap.dedent("""
        import jax, jax.numpy as jnp

        @jax.jit
        def one_step(state):
            noise = jax.random.normal(jax.random.fold_in(state["key"], state["step"]), (200_000,))
            return state | {"x": 0.9 * state["x"] + noise, "step": state["step"] + 1}

        def start():
            return {"x": jnp.zeros(200_000), "step": jnp.int32(0), "key": jax.random.key(5)}

        def chunk_with_pause(state, first_iter, num_iters):
            for _ in range(num_iters):
                state = one_step(state)
            return state, {"objective": state["x"][0]}
        """)
    )
    program = textwrap.dedent(KILLED.format(tests=str(tmp_path), path=str(path)))
    reached = []
    for pause in (0.05, 0.31, 0.13):
        known = path.stat().st_mtime_ns if path.exists() else 0
        with subprocess.Popen([sys.executable, "-c", program]) as process:
            try:
                deadline = time.monotonic() + 300.0
                while not path.exists() or path.stat().st_mtime_ns == known:  # it runs and saves
                    assert process.poll() is None
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
                time.sleep(pause)
            finally:
                process.kill()  # SIGKILL
        sys.path.insert(0, str(tmp_path))
        try:
            import test_loop_states as states
        finally:
            sys.path.pop(0)
        state, found = Checkpoint(path, fingerprint={}).phase("fit").load(states.start())
        reached.append(found.num_iter)
    assert reached == sorted(reached) and reached[0] < reached[-1]
    # what the thrice killed run holds is what a run left alone has there
    expected = states.start()
    for _ in range(found.num_iter):
        expected = states.one_step(expected)
    np.testing.assert_array_equal(state["x"], expected["x"])


# ---------------------------------------------------------------- early stopping


def records_at_the_end(rule, name, values):
    """How many records the rule let pass, and what it then said."""
    history = History()
    for step, value in enumerate(values, start=1):
        history.append(step, step, {name: value})
        decision = rule({}, history)
        if decision is not None:
            return step, decision
    return None, None


def test_no_progress_compares_means_and_not_the_luckiest_record():
    """Noise of a fiftieth on what falls by a hundredth a record: the best of the records so far misled the rule."""
    rng = np.random.default_rng(0)
    rule = no_progress("residual", patience=40, min_change=1e-3)
    falling = np.maximum(4.0 - 0.01 * np.arange(600), 1.0) * (1 + 0.02 * rng.standard_normal(600))
    falling[30] = 0.0  # by chance: nothing beats it
    step, decision = records_at_the_end(rule, "residual", falling)
    assert 300 < step < 400 and decision.converged
    assert decision.reason.startswith("residual no longer improves: by ")
    assert records_at_the_end(rule, "residual", np.linspace(4.0, 1.0, 600))[0] is None
    # what rises has not converged; rows held out say that it is enough
    rising = np.linspace(1.0, 2.0, 80)
    assert records_at_the_end(rule, "residual", rising)[0] is None
    held_out = no_progress("rmse", patience=40, min_change=1e-3, held_out=True)
    assert records_at_the_end(held_out, "rmse", rising)[0] == 40


def test_what_is_beyond_all_numbers_has_not_converged():
    rule = no_progress("residual", patience=4, min_change=1e-3)
    for values in ([1.0, 1e30] + [np.inf] * 20, [np.inf] * 20):
        assert records_at_the_end(rule, "residual", values)[0] is None


def test_larger_may_be_better_and_the_first_rule_decides():
    history = History()
    for step, value in enumerate([1.0, 1.0, np.nan, 2.0, 2.0]):
        history.append(step, step, {} if np.isnan(value) else {"objective": value})
    flat = no_progress("objective", patience=4, min_change=0.1, larger_is_better=True)
    assert flat({}, history) is None  # from 1 to 2
    for step in (5, 6):
        history.append(step, step, {"objective": 2.0})
    never = no_progress("other", patience=1, min_change=0.1)
    assert never({}, history) is None
    assert first_of(never, flat)({}, history).reason.startswith("objective no longer improves")
    assert first_of(never)({}, history) is None
