"""The estimators with inducing points keep the promises of every regressor and classifier."""

import pytest

from estimators.classifier_conformance import ClassifierConformance
from estimators.regressor_conformance import RegressorConformance
from vastgp import SVGPRegressor, TSVGPClassifier, TSVGPRegressor
from vastgp.options import Adam, Natural

pytestmark = [
    pytest.mark.little_work,
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]
QUICK = {"kernel": "rbf", "num_inducing": 16, "solver": Natural(max_steps=30)}


class TestTSVGP(RegressorConformance):
    resumed_with = ({}, {"solver": Natural(max_steps=20, sites="full")})
    units_tolerance = 1e-5

    def make(self, **params):
        return TSVGPRegressor(**(QUICK | params))


class TestSVGP(RegressorConformance):
    resumed_with = ({}, {"solver": Adam(max_steps=20, row_batch=32)})
    units_tolerance = 1e-5

    def make(self, **params):
        return SVGPRegressor(**(QUICK | {"solver": Natural(max_steps=30, row_batch=32)} | params))


class TestTSVGPClassifier(ClassifierConformance):
    def make(self, **params):
        return TSVGPClassifier(**(QUICK | params))
