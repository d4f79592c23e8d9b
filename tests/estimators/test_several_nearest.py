"""Predictions from the nearest rows in several processes, each with a part of the rows, beside those of one."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from several_processes import in_threads
from vastgp import RBF, SWSGPRegressor
from vastgp.data import joint_programs, processes, shared_neighbours
from vastgp.estimators import first_hyperparameters
from vastgp.fitting.run import First
from vastgp.likelihoods import Gaussian
from vastgp.methods.swsgp import (
    local_scale,
    near_rows,
    nearest,
    nearest_learning,
    neighbour_evidence,
)
from vastgp.options import Fixed, Subset

RNG = np.random.default_rng(0)
N = 900
X = RNG.uniform(-1.0, 1.0, (N, 2))
# rows that repeat others: of equally near ones the earlier count
X[500:560], X[600:660] = X[:60], X[:60]
NOISE = 0.2 * np.exp(3.0 * X[:, 0])
Y = np.sin(3.0 * X[:, 0]) + X[:, 1] + NOISE * RNG.normal(size=N)
NEW = np.concatenate([RNG.uniform(-1.0, 1.0, (40, 2)), X[:10], X[600:610]])
KERNEL = RBF([0.4, 0.6], variance=1.5)
# where each has its rows from, and the inputs that it predicts: the first of three has no row
ENDS = {
    2: ([0, 500, N], [0, 23, 60]),
    3: ([0, 0, 610, N], [0, 1, 20, 60]),
}
MODELS = {
    "given": SWSGPRegressor(KERNEL, 800, 9, hyperparameters=Fixed(noise_std=0.2), solver="nearest"),
    "learned": SWSGPRegressor("rbf", hyperparameters=Subset(rows=60), solver="nearest"),
    "on their own scale": SWSGPRegressor(
        "rbf", hyperparameters=Subset(rows=60), solver="nearest", likelihood="heteroskedastic"
    ),
}  # fmt: skip


FIRST = First(RBF([0.8, 1.0], 2.0), Gaussian(0.1))


def small(monkeypatch):
    """Few rows to learn by and few neighbours, so that what is near to them is not most of the rows."""
    monkeypatch.setattr(near_rows, "_LEARNERS", 90)
    monkeypatch.setattr(near_rows, "_JUDGES", 40)
    monkeypatch.setattr(near_rows, "NEAR", 6)
    monkeypatch.setattr(nearest_learning, "STEPS", 4)
    monkeypatch.setattr(nearest_learning, "ROUNDS", 2)
    monkeypatch.setattr(neighbour_evidence, "_TILE_ROWS", 16)
    monkeypatch.setattr(shared_neighbours, "_MOST_ROWS", 8)
    monkeypatch.setattr(first_hyperparameters, "_CHECKED_FIXED", 60)
    for module in (near_rows, nearest, nearest_learning):
        monkeypatch.setattr(module, "LADDER", (5, 10))
    for module in (local_scale, nearest):
        monkeypatch.setattr(module, "LEAST_ROWS", 60)


def fitted(name, some):
    model = clone(MODELS[name])
    # a search may end elsewhere by as much as its tolerance, where rows are scaled to other last digits
    model._known_firsts = (FIRST,)
    return model.fit(X[some], Y[some])


def noted(monkeypatch):
    """Return a list that gets the bytes of whatever a process is told."""
    told, gathered, passed_on = [], processes.gathered, joint_programs.passed_on

    def all_parts(own):
        parts = gathered(own)
        told.append(sum(part.nbytes for part in parts))
        return parts

    def of_one(own):
        told.append(own.nbytes)
        return passed_on(own)

    monkeypatch.setattr(processes, "gathered", all_parts)
    monkeypatch.setattr(shared_neighbours, "passed_on", of_one)
    return told


@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.parametrize(("name", "of"), [("given", 3), ("learned", 3), ("on their own scale", 2)])
def test_a_fit_of_several_is_that_of_one(monkeypatch, name, of):
    small(monkeypatch)
    ends, asked = ENDS[of]
    one = fitted(name, slice(None))
    expected = np.stack(one.predict(NEW, return_std=True))
    if name == "on their own scale":
        assert one.diagnosis_["noise_varies"]

    def work(number):
        model = fitted(name, slice(*ends[number : number + 2]))
        mine = NEW[slice(*asked[number : number + 2])]
        with pytest.raises(ValueError, match=r"each of .* processes has a part"):
            pickle.dumps(model)
        return np.stack(model.predict(mine, return_std=True)), model

    small(monkeypatch)
    told = noted(monkeypatch)
    found = in_threads(monkeypatch, of, work)
    # the law of scales is a search of its own, whose tolerance is far above rounding
    close = 1e-5 if name == "on their own scale" else 1e-9
    for number, (moments, model) in enumerate(found):
        assert model.answer_ == one.answer_ == "own"
        mine = slice(*asked[number : number + 2])
        np.testing.assert_allclose(moments, expected[:, mine], rtol=close, atol=close)
        assert model.diagnosis_["objective"] == pytest.approx(
            one.diagnosis_["objective"], rel=close
        )
        assert model.n_iter_ == one.n_iter_
        assert len(model.posterior_.Z) <= ends[number + 1] - ends[number]
    if name == "given":
        # nothing that a process is told is as long as the rows are many, not even one number of each
        assert max(told) < 8 * N
    # each keeps its own, and all together what one keeps
    points = np.concatenate([model.inducing_points_ for _, model in found])
    np.testing.assert_allclose(points, one.inducing_points_, rtol=1e-12, atol=1e-12)
