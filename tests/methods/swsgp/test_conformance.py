"""The sparse-within-sparse estimators keep the promises of every regressor and classifier."""

import pytest

from estimators.classifier_conformance import ClassifierConformance
from estimators.regressor_conformance import RegressorConformance
from vastgp import SWSGPClassifier, SWSGPRegressor
from vastgp.options import Learn, LocalSteps

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
QUICK = {"kernel": "rbf", "num_inducing": 16, "num_neighbors": 8}
STEPS = {"solver": LocalSteps(prior="neighborhoods", max_steps=300, rate=0.05)}


class TestSparse(RegressorConformance):
    resumed_with = ({}, {"hyperparameters": Learn(steps=100)})
    units_tolerance = 1e-5

    def make(self, **params):
        return SWSGPRegressor(**(QUICK | params))


class TestStochastic(RegressorConformance):
    units_tolerance = 1e-4

    def make(self, **params):
        return SWSGPRegressor(**(QUICK | STEPS | {"hyperparameters": "learn"} | params))


class TestNearest(RegressorConformance):
    units_tolerance = 1e-5

    def make(self, **params):
        return SWSGPRegressor(
            **({"kernel": "rbf", "num_neighbors": 8, "solver": "nearest"} | params)
        )


class TestSWSGPClassifier(ClassifierConformance):
    def make(self, **params):
        return SWSGPClassifier(**(QUICK | params))
