"""Several processes that fit one model go one way: as process 0 decides, and together."""

import numpy as np
import pytest

from several_processes import in_threads
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.data import Standardizer, as_rows, processes
from vastgp.data.shared_rows import as_shared_rows
from vastgp.estimators.serialise import fit_fingerprint
from vastgp.estimators.statistics import gather
from vastgp.fitting import loop
from vastgp.fitting.checkpoint import Checkpoint
from vastgp.fitting.interrupts import Interrupts
from vastgp.fitting.lbfgs import maximise
from vastgp.fitting.loop import Stop, run_chunks
from vastgp.fitting.run import Run
from vastgp.kernels import RBF


def test_a_loop_ends_for_all_where_process_0_ends_it(monkeypatch):
    def work(number):
        def step_chunk(state, first, steps):
            # rounding of its own: alone each would end elsewhere
            return state + 1, {"residual": 1.0 - 0.1 * first * (1.0 + number)}

        def should_stop(now, history):
            return Stop("small", True) if now["residual"] < 0.45 else None

        return run_chunks(step_chunk, np.int64(0), max_iter=50, chunk=1, should_stop=should_stop)

    for state, result in in_threads(monkeypatch, 3, work):
        assert state == 7 and result.num_iter == 7
        assert result.history["residual"][-1] == pytest.approx(0.4)


@pytest.mark.parametrize("late", [False, True])  # while it awaits what the others tell of a chunk
def test_an_interruption_of_one_ends_all_and_is_saved(monkeypatch, tmp_path, late):
    interrupts = [Interrupts(), Interrupts()]
    # each process has its own: looked up when asked, since a patch is seen by both threads
    monkeypatch.setattr(
        Interrupts, "watch", classmethod(lambda cls: interrupts[processes.number()])
    )

    told = processes.gathered

    def late_told(array):
        found = told(array)
        if late and processes.number() == 1 and found[0][0] == 3.0:
            interrupts[1].seen = True
        return found

    monkeypatch.setattr(loop, "gathered", late_told)

    def work(number):
        def step_chunk(state, first, steps):
            if not late and number == 1 and first == 4:
                interrupts[number].seen = True  # as its handler notes
            return state + 1, {"objective": float(first)}

        file = Checkpoint(tmp_path / "fit", 0.0, fingerprint={"seed": 1})
        return run_chunks(
            step_chunk, np.int64(0), max_iter=50, chunk=1, checkpoint=file.phase("steps")
        )

    assert [type(found) for found in in_threads(monkeypatch, 2, work)] == [KeyboardInterrupt] * 2
    saved = Checkpoint(tmp_path / "fit", fingerprint={"seed": 1}).phases["steps"]
    assert saved.num_iter == 5


def test_a_search_of_each_is_that_of_process_0(monkeypatch):
    points = {}

    def work(number):
        asked = points.setdefault(number, [])

        def value_and_gradient(x):
            asked.append(float(x))
            # a slope that is wrong in the others
            return -((np.log(x) - 1.0) ** 2), -2.0 * (np.log(x) - 1.0) / x * (1.0 + 0.3 * number)

        return maximise(
            value_and_gradient, np.array(9.0), lower=np.array(1e-3), upper=np.array(1e3),
            max_iter=50, tol=1e-6,
        )  # fmt: skip

    one, other = in_threads(monkeypatch, 2, work)
    assert points[0] == points[1] and one.params == other.params
    assert float(one.params) == pytest.approx(np.e, rel=1e-4)


@pytest.mark.parametrize("count", [2, 3])
def test_a_fingerprint_is_that_of_all_rows_together(monkeypatch, count):
    X = np.random.default_rng(0).normal(size=(40_000, 2))
    y = X[:, 0] + 1.0

    def work(number):
        mine = slice(number * len(X) // count, (number + 1) * len(X) // count)
        rows = as_shared_rows(X[mine], y[mine], min_rows=2)
        return fit_fingerprint("QSGPRegressor", {}, rows, 0)

    whole = fit_fingerprint("QSGPRegressor", {}, as_rows(X, y), 0)
    assert in_threads(monkeypatch, count, work) == [whole] * count


def test_process_0_writes_and_tells_the_others_what_it_reads(monkeypatch, tmp_path):
    def begin(number):
        # the folder of the others may be another
        folder = tmp_path if number == 0 else tmp_path / "elsewhere"
        run = Run(checkpoint=Checkpoint(folder / "fit", 0.0, fingerprint={"seed": 1}))
        return run.once("kernel", lambda: [RBF(1.0 + number), np.arange(3.0)]), run

    for number, (found, _) in enumerate(in_threads(monkeypatch, 2, begin)):
        assert float(found[0].lengthscales) == 1.0 + number
    assert [each.name for each in tmp_path.iterdir()] == ["fit"]
    for found, run in in_threads(monkeypatch, 3, begin):
        assert run.checkpoint.resumed
        assert float(found[0].lengthscales) == 1.0
        np.testing.assert_array_equal(found[1], np.arange(3.0))

    def other(number):
        return Checkpoint(tmp_path / "fit", fingerprint={"seed": 2})

    for error in in_threads(monkeypatch, 2, other):
        assert isinstance(error, ValueError) and "was written by another fit: seed" in str(error)


def test_what_process_0_cannot_read_all_refuse(monkeypatch, tmp_path):
    (tmp_path / "fit").write_bytes(b"no archive")
    first, second = in_threads(
        monkeypatch, 2, lambda number: Checkpoint(tmp_path / "fit", fingerprint={})
    )
    assert "in process 0 of 2" in first.__notes__[0]
    assert "process 0 of 2: ValueError" in str(second)


def test_sums_of_all_are_saved_once_and_serve_any_number(monkeypatch, tmp_path):
    X = np.random.default_rng(0).normal(size=(2 * processes.BLOCK_ROWS, 2))
    y = np.sin(X[:, 0])
    scaling = Standardizer().fit(as_rows(X, y))
    basis = RandomFourierBasis(RBF([1.0, 1.0]), seed_key(0), 8)
    whole = gather(as_rows(X, y), scaling, basis, "float64", Run())

    def work(number):
        mine = slice(number * processes.BLOCK_ROWS, (number + 1) * processes.BLOCK_ROWS)
        rows = as_shared_rows(X[mine], y[mine], min_rows=2)
        run = Run(checkpoint=Checkpoint(tmp_path / "fit", 0.0, fingerprint={}))
        return gather(rows, scaling, basis, "float64", run)

    for found in in_threads(monkeypatch, 2, work):
        np.testing.assert_array_equal(found.moments, whole.moments)
    # one process goes on from that, and reads no row
    run = Run(checkpoint=Checkpoint(tmp_path / "fit", fingerprint={}))
    nothing = as_rows(np.zeros_like(X), np.zeros(len(X)))
    again = gather(nothing, scaling, basis, "float64", run)
    np.testing.assert_array_equal(again.moments, whole.moments)
    assert again.num_rows == len(X)
