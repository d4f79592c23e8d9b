"""A fit of several phases: killed anywhere and run again, it is the fit that was left alone."""

import contextlib

import numpy as np
import pytest

from vastgp.fitting.checkpoint import Checkpoint
from vastgp.fitting.interrupts import Interrupts
from vastgp.fitting.lbfgs import maximise_real
from vastgp.fitting.loop import OUT_OF_TIME, Stop
from vastgp.fitting.run import Run
from vastgp.kernels import RBF
from vastgp.likelihoods import Gaussian


class Killed(Exception):
    """Stands for the end of the process: nothing after it runs."""


class Work:
    """A fit of three phases whose units of work are counted, and which dies at one of them."""

    def __init__(self, path, dies_at=None):
        file = None if path is None else Checkpoint(path, 0.0, fingerprint={"a": 1})
        if file is not None:
            file.due = lambda: True
        self.run, self.dies_at, self.done = Run(checkpoint=file), dies_at, 0

    def unit(self):
        self.done += 1
        if self.done == self.dies_at:
            raise Killed

    def fit(self):
        kernel, noise, table = self.run.once("start", self._start)
        found = maximise_real(
            self._slope, np.array([3.0, -2.0, 0.5]), max_iter=50, tol=1e-10,
            record=self.run.evaluations("ascent"),
        )  # fmt: skip
        state = {"x": found.params * float(noise.noise_variance), "seen": np.int64(0)}
        state, loop = self.run.steps("steps", self._chunk, state, max_iter=7, chunk=2)
        assert isinstance(kernel, RBF) and list(table) == ["scales"]
        return found, state, loop

    def _start(self):
        self.unit()
        kernel = RBF(np.array([1.0, 2.0]))
        return kernel, Gaussian(0.25), {"scales": (np.float32(2.0), None, "name", [1, 2.5])}

    def _slope(self, x):
        self.unit()
        value = -float(np.sum((x - 1.0) ** 4 + 0.1 * (x + 1.0) ** 2))
        return value, -4.0 * (x - 1.0) ** 3 - 0.2 * (x + 1.0)

    def _chunk(self, state, first, count):
        self.unit()
        return {"x": np.sin(state["x"] * 7.0 + first), "seen": state["seen"] + count}, {
            "objective": float(state["x"][0])
        }


def test_killed_at_any_unit_of_work_and_run_again_it_is_the_same_to_the_last_bit(tmp_path):
    alone = Work(None)
    found, state, loop = alone.fit()
    for dies_at in range(1, alone.done + 1):
        path = tmp_path / f"fit{dies_at}"
        with pytest.raises(Killed):
            Work(path, dies_at).fit()
        again = Work(path)
        other, ended, its_loop = again.fit()
        # one unit more than were left: the one that it died at
        assert again.done == alone.done - dies_at + 1
        np.testing.assert_array_equal(other.params, found.params)
        assert other.history.objective == found.history.objective
        np.testing.assert_array_equal(ended["x"], state["x"])
        assert ended["seen"] == state["seen"] == 7
        assert its_loop.history.objective == loop.history.objective
        assert its_loop.history.steps == loop.history.steps and its_loop.reason == loop.reason
        assert list(again.run.histories) == ["ascent", "steps"]


def test_the_budget_is_that_of_all_phases_and_of_all_runs(tmp_path):
    file = Checkpoint(tmp_path / "fit", 0.0, fingerprint={})
    run = Run(10.0, file, seconds=4.0)
    assert 5.0 < run.seconds_left() <= 6.0 and run.seconds_left(0.5) <= 3.0
    file.phases, file.seconds = {}, 9.5
    again = Run(10.0, file, seconds=1.0)
    assert again.out_of_time and again.seconds_left() == 0.0
    _, loop = again.steps("steps", lambda s, i, k: (s, {"a": 0.0}), {}, max_iter=5, chunk=1)
    assert loop.reason == OUT_OF_TIME and loop.num_iter == 0 and not loop.converged
    assert Run().seconds_left() is None and Run().deadline is None and not Run().out_of_time


def test_an_end_of_which_nothing_is_said_is_no_convergence():
    assert not Stop("because").converged


def test_an_interrupt_that_a_callback_swallowed_is_raised_between_two_chunks():
    def chunk(state, first, count):
        with contextlib.suppress(
            KeyboardInterrupt
        ):  # as JAX does with what is raised in its callbacks
            Interrupts.watch()._note(2, None)
        return state, {"objective": 0.0}

    with pytest.raises(KeyboardInterrupt), Interrupts.watch():
        Run().steps("steps", chunk, {}, max_iter=3, chunk=1)


def test_what_the_clock_decided_is_decided_anew_where_there_is_more_time(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("vastgp.fitting.run.now", lambda: clock[0])
    monkeypatch.setattr(Checkpoint, "elapsed", lambda file: clock[0])

    def chunk(state, first, count):
        return {"x": state["x"] + 1.0}, {"objective": 0.0}

    def fit(max_seconds, until):
        file = Checkpoint(tmp_path / "fit", 0.0, fingerprint={"a": 1})
        clock[0] = file.seconds
        run = Run(max_seconds, file)
        before = run.once("before", lambda: max_seconds)
        alone = run.afforded("alone", 9, 1.0, lambda left: int(left) // 3, alone=True)
        found = run.once("search", lambda: max_seconds, is_cut=lambda found: found is not None)
        size = run.afforded("size", 9, 1.0, lambda left: int(left) // 3)
        # of which a file has another shape where the size is another
        state, _ = run.steps("steps", chunk, {"x": np.zeros(size)}, max_iter=2, chunk=1)
        clock[0] = until
        file.write()
        assert (before, len(state["x"]), state["x"][0]) == (10.0, size, 2.0)
        return found, size, alone

    assert fit(10.0, until=6.0) == (10.0, 3, 3)
    # no larger budget; a larger one of which less is left; one of which more is
    assert fit(10.0, until=6.0) == fit(5.0, until=6.0) == (10.0, 3, 3)
    assert fit(15.0, until=6.0) == (10.0, 3, 3)
    assert fit(18.0, until=7.0) == (18.0, 4, 3)
    assert fit(60.0, until=8.0) == (60.0, 9, 3)
    assert fit(None, until=9.0) == (None, 9, 9)
    # in which no clock had a say
    assert fit(90.0, until=9.0) == (None, 9, 3)
