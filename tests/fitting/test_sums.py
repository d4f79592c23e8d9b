"""Sums of a smooth and a rough kernel in the place of one."""

from dataclasses import replace

import numpy as np
import pytest

from vastgp import (
    IterativeGPRegressor,
    QSGPRegressor,
    SVGPRegressor,
    SWSGPRegressor,
    TSVGPRegressor,
)
from vastgp.fitting import sums
from vastgp.fitting.best_fit import LOOSE_TOL, fit_evidence
from vastgp.fitting.clock import now
from vastgp.fitting.exact_evidence import ExactEvidence
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.fitting.run import Run
from vastgp.fitting.sums import evidence_of_trials, or_sum, two_parts
from vastgp.kernels import RBF, Linear, Matern12, Matern32, Matern52, Sum
from vastgp.kernels.matrices import covariance
from vastgp.likelihoods import Gaussian
from vastgp.methods.exact.learning import Search, learn_by_stages
from vastgp.options import Learn


def stepped(n, seed=0):
    """Return rows of a smooth function of two inputs, and steps in two others."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, 4))
    y = np.sin(3.0 * X[:, 0]) * np.cos(2.0 * X[:, 1]) + np.sign(X[:, 2]) + np.sign(X[:, 3] - 0.5)
    y += 0.05 * generator.normal(size=n)
    return X, (y - y.mean()) / y.std()


def likeliest(X, y, form=Matern32):
    evidence = ExactEvidence(X, y)
    begin = form(np.full(X.shape[1], 2.0), 1.0), Gaussian(0.1)
    return evidence, fit_evidence(evidence, begin, noise_floor=1e-6)


def test_functions_of_different_inputs_are_likelier_as_a_sum_and_known_from_fewer_rows():
    X, y = stepped(450)
    seen, new = slice(0, 250), slice(250, None)
    evidence, one = likeliest(X[seen], y[seen])
    both = or_sum(evidence, one, noise_floor=1e-6, tol=1e-4, max_iter=200)
    assert isinstance(both.params[0], Sum)
    assert both.value > one.value + 10.0
    assert both.converged

    def error(kernel, likelihood):
        A = covariance(kernel, X[seen], X[seen]) + likelihood.noise_variance * np.eye(250)
        return np.mean(
            (y[new] - covariance(kernel, X[new], X[seen]) @ np.linalg.solve(A, y[seen])) ** 2
        )

    assert error(*both.params) < 0.9 * error(*one.params)


def test_a_sum_that_is_no_likelier_is_not_taken():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(150, 2))
    y = np.sin(X[:, 0] + X[:, 1]) + 0.3 * generator.normal(size=150)
    evidence, one = likeliest(X, (y - y.mean()) / y.std(), RBF)
    assert or_sum(evidence, one, noise_floor=1e-6, tol=1e-3) is one
    # nor one for which there is no time
    evidence, one = likeliest(*stepped(250))
    assert or_sum(evidence, one, noise_floor=1e-6, tol=1e-3, deadline=now()) is one


class Counted(ExactEvidence):
    """The evidence, and how often it was asked for, with its slopes or without."""

    asked = 0

    def solve(self, kernel, noise_variance):
        self.asked += 1
        return super().solve(kernel, noise_variance)


def test_some_rows_say_whether_a_sum_is_looked_for_on_all():
    X, y = stepped(800)
    _, one = likeliest(X, y)
    how = {"noise_floor": 1e-6, "tol": 1e-3}
    alone, beside, some = (Counted(X, y), Counted(X, y), Counted(X[::2], y[::2]))
    both, found = or_sum(alone, one, **how), or_sum(beside, one, few=some, **how)
    assert isinstance(found.params[0], Sum)
    assert found.value > one.value + 0.95 * (both.value - one.value)
    assert beside.asked < 0.7 * alone.asked
    # where they say no, all are asked once for each beginning, which they compare
    generator = np.random.default_rng(0)
    X = generator.normal(size=(150, 2))
    y = np.sin(X[:, 0] + X[:, 1]) + 0.3 * generator.normal(size=150)
    y = (y - y.mean()) / y.std()
    _, one = likeliest(X, y, RBF)
    beside = Counted(X, y)
    assert or_sum(beside, one, few=ExactEvidence(X[::2], y[::2]), **how) is one
    assert beside.asked == len(two_parts(one.params[0], 2)) == 3


def test_many_rows_are_asked_for_the_best_of_beginnings_that_a_few_of_them_tell(monkeypatch):
    X, y = stepped(900)
    _, one = likeliest(X[::2], y[::2])
    how = {"noise_floor": 1e-6, "tol": 1e-3}
    assert evidence_of_trials(X[:800], y[:800], np.random.default_rng(0)) is None
    trials = evidence_of_trials(X, y, np.random.default_rng(0))
    assert trials.num_rows == 500
    rows = {row.tobytes() for row in np.column_stack([X, y])}
    assert {row.tobytes() for row in np.column_stack([trials.X, trials.y])} < rows
    alone, beside = Counted(X, y), Counted(X, y)
    both, found = or_sum(alone, one, **how), or_sum(beside, one, trials=trials, **how)
    assert isinstance(found.params[0], Sum)
    assert found.value > both.value - 0.02 * (both.value - one.value)
    assert beside.asked < 0.7 * alone.asked
    # a beginning that the clock ended on few rows says nothing of many
    climb = sums.fit_evidence

    def late(by, *args, **options):
        assert by is trials
        return replace(climb(by, *args, **options), message=OUT_OF_TIME)

    monkeypatch.setattr(sums, "fit_evidence", late)
    assert or_sum(alone, one, trials=trials, **how) is one


def test_a_sum_of_some_rows_that_the_clock_ended_is_not_taken_for_one_of_all(monkeypatch):
    """Half as many rows have half the evidence, which is more where it is negative."""
    X, y = stepped(200)
    evidence, one = likeliest(X, y)
    some = ExactEvidence(X[::2], y[::2])
    assert sums.log_density(some, one.params) > one.value + 10.0
    climb = sums.fit_evidence
    for ended in range(1, 5):
        climbs = []

        def late(by, *args, climbs=climbs, ended=ended, **options):
            climbs.append(by)
            found = climb(by, *args, **options)
            return replace(found, message=OUT_OF_TIME) if len(climbs) >= ended else found

        monkeypatch.setattr(sums, "fit_evidence", late)
        assert or_sum(evidence, one, few=some, noise_floor=1e-6, tol=1e-3) is one
        assert len(climbs) <= 4 and all(by is some for by in climbs)


@pytest.mark.parametrize("form", [RBF, Matern32, Matern52])
def test_it_begins_with_the_variance_and_the_columns_of_the_one(form):
    for begun in two_parts(form([1.0, 3.0], 2.0, (0, 0, 1)), 3):
        smooth, rough = begun.parts
        assert (type(smooth), type(rough)) == (RBF, Matern32)
        assert smooth.inputs == rough.inputs == (0, 0, 1)
        np.testing.assert_allclose(smooth.lengthscales[1], 3.0 * smooth.lengthscales[0])
        np.testing.assert_allclose(smooth.variance + rough.variance, 2.0)


def test_a_kernel_of_another_kind_stays_as_it_is():
    for kernel in (Matern12(1.0), RBF(1.0) + Linear(1.0)):
        assert two_parts(kernel, 1) == []


@pytest.mark.parametrize(
    "method", [IterativeGPRegressor, QSGPRegressor, SVGPRegressor, SWSGPRegressor, TSVGPRegressor]
)
def test_methods_begin_with_a_sum_where_that_is_likelier(method):
    X, y = stepped(250)
    assert isinstance(method(dtype="float64").fit(X, y).kernel_, Sum)
    assert isinstance(method("matern32", dtype="float64").fit(X, y).kernel_, Matern32)


def test_a_kernel_that_the_user_gave_keeps_its_form_and_none_may_become_a_sum():
    X, y = stepped(250)
    learn = Learn(rows=250, noise_floor=1e-6)
    found = {
        name: learn_by_stages(Search(name, learn, 1, 60, 1e-3), X, y, Run(), None)[0].params[0]
        for name in (None, "matern32")
    }
    assert isinstance(found["matern32"], Matern32)
    assert isinstance(found[None], Sum)


def test_a_sum_is_climbed_to_its_end_by_the_loosest_tol_too(monkeypatch):
    """Forty steps are most of what there is to gain; what has not converged by then goes on."""
    monkeypatch.setattr(sums, "_STEPS", 3)
    X, y = stepped(200)
    evidence, one = likeliest(X, y)
    found = or_sum(evidence, one, noise_floor=1e-6, tol=LOOSE_TOL, max_iter=200)
    assert isinstance(found.params[0], Sum) and found.converged
    names = []

    def record(name):
        names.append(name)

    monkeypatch.setattr(sums, "_STEPS", 100)
    again = or_sum(evidence, one, noise_floor=1e-6, tol=LOOSE_TOL, max_iter=200, record=record)
    assert again.converged and names[-1] == "sum"  # what has converged does not
    assert again.value == pytest.approx(found.value, abs=0.1)
