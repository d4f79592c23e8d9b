"""The estimators with inducing points keep the promises of every regressor and classifier."""

import pytest

from estimators.classifier_conformance import ClassifierConformance
from estimators.regressor_conformance import RegressorConformance
from vastgp import SVGPRegressor, TSVGPClassifier, TSVGPRegressor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
QUICK = {"kernel": "rbf", "num_inducing": 16, "max_iter": 30}


class TestTSVGP(RegressorConformance):
    units_tolerance = 1e-5

    def make(self, **params):
        return TSVGPRegressor(**(QUICK | params))


class TestSVGP(RegressorConformance):
    units_tolerance = 1e-5

    def make(self, **params):
        return SVGPRegressor(**(QUICK | {"row_batch": 32} | params))


class TestTSVGPClassifier(ClassifierConformance):
    def make(self, **params):
        return TSVGPClassifier(**(QUICK | params))
