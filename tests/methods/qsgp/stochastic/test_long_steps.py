"""Steps and passes that take seconds: how many are between two looks at the clock, and what the end of a fit needs."""

import numpy as np
import pytest

from vastgp import QSGPRegressor
from vastgp.fitting.run import OutOfTime, Run
from vastgp.methods.qsgp.stochastic import fit as module
from vastgp.methods.qsgp.stochastic.finish import operations_of_the_end
from vastgp.methods.qsgp.stochastic.options import Stochastic
from vastgp.methods.qsgp.stochastic.state import StochasticPlan
from vastgp.methods.qsgp.stochastic.step import OBJECTIVE_EVERY

pytestmark = pytest.mark.little_work


def plan_of(num_basis, basis_batch=10_000, row_batch=500, **changes):
    options = {
        "num_pairs": num_basis // 2, "row_batch": row_batch, "pair_batch": basis_batch // 2, "support_rows": 1000,
        "dense_columns": 0, "column_batch": 0, "control": "interpolation", "optimizer": "preconditioned",
        "learn": True, "target_control": False, "gaussian": False, "strict": False,
    }  # fmt: skip
    return StochasticPlan(**(options | changes))


def test_chunks_of_long_steps_are_short():
    assert module._steps_of_a_chunk(plan_of(100_000), 8, Run()) == 50
    images = module._steps_of_a_chunk(plan_of(1_000_000, 20_000, 100), 784, Run())
    assert images == OBJECTIVE_EVERY


def test_chunks_of_a_short_budget_are_a_part_of_it():
    short, long = (
        module._steps_of_a_chunk(plan_of(100_000), 8, Run(max_seconds=seconds))
        for seconds in (15.0, 300.0)
    )
    assert OBJECTIVE_EVERY < short < 30 and short % OBJECTIVE_EVERY == 0 and long == 50


def test_the_end_takes_fewer_rows_where_functions_are_very_many():
    few, many, most = (plan_of(m) for m in (20_000, 1_000_000, 100_000_000))
    assert few.rows_of_a_pass(20, 2048) == 2048
    assert 64 < many.rows_of_a_pass(784, 2048) < 256
    assert most.rows_of_a_pass(8, 2048) == 64
    assert few.draws_of_a_report(8, 16) == 16
    assert plan_of(1_000_000, 200_000).draws_of_a_report(784, 16) == 4
    # a pass over all functions costs what drawing them does, however few its rows are
    assert most.operations_of_pass(1, 8) > 0.9 * most.operations_of_pass(0, 8) > 0.0
    assert operations_of_the_end(many, 784) > 3.0 * many.operations_of_pass(64, 784)


def test_steps_that_would_leave_no_time_for_the_end_are_not_begun(monkeypatch):
    plan, run = plan_of(1_000_000), Run(max_seconds=20.0)
    end = operations_of_the_end(plan, 8)
    monkeypatch.setattr(module, "operations_where_arrays_lie", lambda: end / 4.0)
    assert module._seconds_of_the_end(plan, 8, run) == pytest.approx(8.0)  # twice the count
    run.needs = 5.0
    monkeypatch.setattr(module, "operations_where_arrays_lie", lambda: end / 9.0)
    with pytest.raises(OutOfTime, match="too little of max_seconds was left"):
        module._seconds_of_the_end(plan, 8, run)
    assert module._seconds_of_the_end(plan, 8, Run()) == 0.0


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_another_answer_stands_where_a_step_takes_longer_than_there_is(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (600, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=600)
    model = QSGPRegressor(
        "rbf", num_basis=400, max_seconds=60,
        solver=Stochastic(row_batch=50, basis_batch=100, control_rank=50, max_steps=20),
    )  # fmt: skip
    monkeypatch.setattr(module, "operations_where_arrays_lie", lambda: 1e5)
    model.fit(X, y)
    assert model.answer_ == "subset" and "stochastic" not in model.history_.spent
    assert "too little of max_seconds was left" in model.stop_reason_
