"""Fits at inducing inputs in several processes, each with a part of the rows, beside those of one."""

import numpy as np
import pytest
from sklearn.base import clone

from several_processes import in_threads
from vastgp import (
    RBF,
    SVGPClassifier,
    SVGPRegressor,
    SWSGPRegressor,
)
from vastgp.data import Standardizer, as_rows
from vastgp.data.shared_rows import as_shared_rows
from vastgp.fitting.checkpoint import Checkpoint
from vastgp.fitting.history import History
from vastgp.fitting.loop import LoopResult
from vastgp.fitting.minibatch_runner import MinibatchRunner
from vastgp.likelihoods import Poisson
from vastgp.methods.swsgp import solution
from vastgp.methods.swsgp.options import SwsgpOptions
from vastgp.methods.swsgp.sparse import SparseFit, given_means
from vastgp.methods.swsgp.sparse_system import build_sparse
from vastgp.options import Adam, Fixed, Learn, LocalSteps, Natural, Sparse

KERNEL, FIXED, LEARN = RBF([0.4, 0.6], variance=1.5), Fixed(noise_std=None), Learn(rows=60)
NOISE = 0.2
# where each of three has its rows from; the first has none
ENDS = np.array([0, 0, 190, 300])


def data(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    return X, np.sin(3.0 * X[:, 0]) + X[:, 1], rng


X, F, RNG = data()
NEW = data(30, seed=1)[0]
Y = F + NOISE * RNG.normal(size=len(F))
LABELS = np.where(Y > 0.0, "above", "below")
COUNTS = RNG.poisson(2.0 * np.exp(F)).astype(float)

TIGHT = Sparse(tol=1e-12)
# name: targets, model, how close
MODELS = {
    "SVGP, natural gradients": (
        Y, SVGPRegressor(KERNEL, 12, solver=Natural(row_batch=50, max_steps=12), hyperparameters=LEARN), 1e-9,
    ),
    "SVGP, Adam in single precision": (
        Y, SVGPRegressor(KERNEL, 12, solver=Adam(row_batch=50, max_steps=12), hyperparameters=LEARN, dtype="float32"),
        1e-3 * NOISE,
    ),
    "SVGP, classes by passes": (LABELS, SVGPClassifier(KERNEL, 12, hyperparameters=FIXED), 1e-9),
    "SWSGP, one sparse system": (
        Y, SWSGPRegressor(KERNEL, 90, 8, hyperparameters=Fixed(noise_std=NOISE), solver=TIGHT), 1e-9,
    ),
    "SWSGP, steps in single precision": (
        Y, SWSGPRegressor(
            KERNEL, 60, 8, hyperparameters=LEARN, solver=LocalSteps(row_batch=50, max_steps=50), dtype="float32"
        ), 1e-3,  # Adam divides slopes by their size, also where rounding is all of them
    ),
    "SWSGP, counts": (
        COUNTS, SWSGPRegressor(KERNEL, 60, 8, hyperparameters=FIXED, likelihood=Poisson(2.0), solver=TIGHT), 1e-9,
    ),
}  # fmt: skip


def predicted(model):
    if hasattr(model, "classes_"):
        return model.predict_proba(NEW)
    return np.stack(model.predict(NEW, return_std=True))


@pytest.mark.filterwarnings("ignore:.*did not converge", "ignore:.*The exact posterior of some")
@pytest.mark.parametrize("name", MODELS)
def test_a_fit_of_several_is_that_of_one(monkeypatch, name):
    y, model, close = MODELS[name]
    one = clone(model).fit(X, y)

    def work(number):
        some = slice(ENDS[number], ENDS[number + 1])
        fitted = clone(model).fit(X[some], y[some])
        # the method's own numbers, where another answer predicts better
        bound = fitted.diagnosis_.get("bound", fitted.diagnosis_.get("objective"))
        return predicted(fitted), fitted.history_.steps, bound

    for found, steps, bound in in_threads(monkeypatch, 3, work):
        np.testing.assert_allclose(found, predicted(one), rtol=close, atol=close)
        assert steps == one.history_.steps
        assert bound == pytest.approx(
            one.diagnosis_.get("bound", one.diagnosis_.get("objective")), rel=close, nan_ok=True
        )


def system_of(rows):
    scaling = Standardizer().fit(as_rows(X, Y))
    # many small patches, after few iterations with the diagonal
    Z = scaling.transform_X(X[::3])
    return build_sparse(rows, scaling, RBF([0.8, 0.8]), Z, SwsgpOptions(8))


def test_patches_and_noise_of_several_are_those_of_one(monkeypatch):
    """What takes over from the diagonal, and what a fit that was stopped has for noise and variances."""
    beta, right = np.full(len(X), 20.0), np.linspace(-1.0, 1.0, len(X))

    def found(rows, some):
        system = system_of(rows)
        width = len(system.v)
        m, residual = solution.solution(
            system, beta[some], right[some], np.full(width, 50.0), np.zeros(width), 1e-12, np.inf
        )  # fmt: skip
        column = 0.5 * m[:, None]
        ended = LoopResult(1, 0.0, False, "stopped", History())
        stopped, noise = given_means(
            system, SparseFit(column, np.ones_like(column), 0.0, residual, ended), 1e-3
        )
        return m, residual, stopped.variances, stopped.bound, float(noise.noise_variance)

    monkeypatch.setattr(solution, "_PLAIN", 3)
    one = found(as_rows(X, Y), slice(None))
    assert one[1] < 1e-11

    def work(number):
        some = slice(ENDS[number], ENDS[number + 1])
        return found(as_shared_rows(X[some], Y[some], min_rows=2), some)

    for each in in_threads(monkeypatch, 3, work):
        for mine, alone in zip(each, one, strict=True):
            np.testing.assert_allclose(mine, alone, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore:.*did not converge", "ignore:.*The exact posterior of some")
@pytest.mark.parametrize("count", [1, 3])
def test_what_died_in_two_processes_goes_on_in_any_number(monkeypatch, tmp_path, count):
    """Steps of SVGP that end without a word in the third chunk: the state of the second is gone on from."""
    y, model, _ = MODELS["SVGP, natural gradients"]
    whole = clone(model).set_params(solver=Natural(row_batch=50, max_steps=50)).fit(X, y)
    model = clone(whole).set_params(checkpoint=tmp_path / "fit")
    done, steps = [], MinibatchRunner.__call__

    def dies(self, state, first, number):
        if first == 20:
            raise MemoryError
        return steps(self, state, first, number)

    def counted(self, state, first, number):
        done.append(first)
        return steps(self, state, first, number)

    def fitted(number, of):
        some = slice(number * len(X) // of, (number + 1) * len(X) // of)
        return clone(model).fit(X[some], y[some])

    # however long it takes to write
    monkeypatch.setattr(Checkpoint, "due", lambda file: True)
    monkeypatch.setattr(MinibatchRunner, "__call__", dies)
    with monkeypatch.context() as patch:
        ended = in_threads(patch, 2, lambda number: fitted(number, 2))
    assert [type(each) for each in ended] == [MemoryError] * 2
    monkeypatch.setattr(MinibatchRunner, "__call__", counted)
    with monkeypatch.context() as patch:
        found = in_threads(patch, count, lambda number: predicted(fitted(number, count)))
    assert sorted(done) == sorted([20, 30, 40] * count)
    for each in found:
        np.testing.assert_allclose(each, predicted(whole), rtol=1e-9, atol=1e-9)
