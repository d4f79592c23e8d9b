"""How many rows simple answers have: as many as there is time for."""

import numpy as np
import pytest

import vastgp
from vastgp.data import Rows, Standardizer
from vastgp.estimators import simple_answers
from vastgp.estimators.simple_answers import simple_answer, subset_answer
from vastgp.fitting.run import Run
from vastgp.likelihoods import Bernoulli, Softmax


@pytest.fixture
def model():
    rng = np.random.default_rng(2)
    X = rng.uniform(-1.0, 1.0, (2600, 2))
    made = vastgp.TSVGPClassifier()
    rows = Rows(X, np.floor(rng.uniform(0.0, 3.0, 2600)))
    made.standardizer_ = Standardizer(False, None).fit(Rows(X, None))
    return made, rows


def rows_of(model, likelihood, seconds, own=None):
    made, rows = model
    run = Run(seconds)
    run.first = vastgp.RBF([1.0, 1.0], 1.0), likelihood
    if isinstance(likelihood, Bernoulli):
        rows = Rows(rows.X, np.where(rows.y > 1.0, 1.0, -1.0))
    found = subset_answer(made, rows, run, own)
    return len(found.posterior().parts[0].X)


def test_several_functions_have_fewer_rows_by_the_cube_root(model):
    other = simple_answer(vastgp.RBF([1.0, 1.0], 1.0), Bernoulli(), None)  # of the method itself
    assert rows_of(model, Softmax(3), None, own=other) == int(1000 / 3 ** (1 / 3))
    assert rows_of(model, Bernoulli(), None, own=other) == 1000


@pytest.mark.parametrize(("rate", "rows"), [(1e3, 1000), (1e20, 2000)])
def test_without_an_answer_of_the_method_there_are_as_many_as_time_allows(
    model, rate, rows, monkeypatch
):
    monkeypatch.setattr(simple_answers, "operations_a_second", lambda: rate)
    assert rows_of(model, Bernoulli(), 1000.0) == rows


def test_eight_times_as_long_finds_sites_of_twice_the_rows(monkeypatch):
    monkeypatch.setattr(simple_answers, "operations_a_second", lambda: 1e11)
    found = simple_answers._rows_solved_in
    assert found(8.0, 3) == pytest.approx(2 * found(1.0, 3), abs=2)
    assert found(8.0, 3) == pytest.approx(found(8.0 / 3.0, 1), abs=1)  # three functions share it
    # 30 updates of 4 n^3 / 3 operations, at half of the rate of float32
    assert found(1.0, 1) == pytest.approx((1e11 / (2 * 30 * 4 / 3)) ** (1 / 3), abs=1)
