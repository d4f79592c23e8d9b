"""`IterativeGPRegressor` and `RandomFeatureGPRegressor` keep the promises of every regressor."""

import pytest

from estimators.regressor_conformance import RegressorConformance
from vastgp import IterativeGPRegressor, RandomFeatureGPRegressor
from vastgp.options import Learn

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


class TestIterative(RegressorConformance):
    num_independent_samples = 64
    units_tolerance = 1e-4  # float32

    def make(self, **params):
        quick = {"kernel": "rbf", "hyperparameters": Learn(40, steps=2), "tol": 0.01}
        return IterativeGPRegressor(**(quick | params))


class TestRandomFeatures(RegressorConformance):
    units_tolerance = 1e-4  # float32

    def make(self, **params):
        return RandomFeatureGPRegressor(
            **({"kernel": "rbf", "num_basis": 200, "hyperparameters": Learn(steps=2)} | params)
        )
