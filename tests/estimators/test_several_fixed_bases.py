"""Classes with features that stay fixed, in several processes with a part of the rows each, beside those of one."""

import numpy as np
import pytest
from sklearn.base import clone

from several_processes import in_threads
from vastgp import DirectClassifier, ReweightedBasisClassifier
from vastgp.options import MALA, MeanField, Subset

RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (300, 2))
F = np.sin(3.0 * X[:, 0]) + X[:, 1] + 0.2 * RNG.normal(size=300)
TWO = np.where(F > 0.0, "above", "below")
NEW = RNG.uniform(-1.0, 1.0, (30, 2))
# where each of three has its rows from; the first has none
ENDS = np.array([0, 0, 190, 300])

FEW = Subset(rows=60)
# the bound has maxima side by side, and rounding tells on which of them a long ascent ends
BEGUN = MeanField(logistic_bound="exponential", max_iter=8)
SHORT = MALA(num_warmup=50, num_steps=50, num_chains=2)
# name: labels, model, how close
MODELS = {
    "quadratic bounds": (TWO, DirectClassifier("rbf", 20, hyperparameters=FEW, dtype="float64"), 1e-9),
    "the exponential bound": (
        TWO, DirectClassifier("rbf", 20, hyperparameters=FEW, family=BEGUN), 1e-6,
    ),
    # chains take rounding further, step by step
    "chains": (TWO, ReweightedBasisClassifier("rbf", 12, inference=SHORT, hyperparameters=FEW), 1e-7),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*did not converge", "ignore:.*The exact posterior of some")
@pytest.mark.parametrize("name", MODELS)
def test_a_fit_of_several_is_that_of_one(monkeypatch, name):
    y, model, close = MODELS[name]
    one = clone(model).fit(X, y)

    def work(number):
        some = slice(ENDS[number], ENDS[number + 1])
        fitted = clone(model).fit(X[some], y[some])
        return fitted.predict_proba(NEW), fitted.history_.objective[-1]

    for found, last in in_threads(monkeypatch, 3, work):
        np.testing.assert_allclose(found, one.predict_proba(NEW), atol=close)
        assert last == pytest.approx(one.history_.objective[-1], rel=close)
