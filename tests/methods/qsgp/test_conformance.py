"""`QSGPRegressor` keeps the promises of every regressor, with either solver."""

import pytest

from estimators.regressor_conformance import RegressorConformance, small_data
from vastgp import QSGPRegressor
from vastgp.options import Block, Stochastic

pytestmark = [
    pytest.mark.little_work,
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


class TestBlock(RegressorConformance):
    num_independent_samples = 64
    units_tolerance = 1e-4  # float32
    resumed_with = ({}, {"hyperparameters": "learn"})

    def make(self, **params):
        return QSGPRegressor(**({"kernel": "rbf", "num_basis": 400, "solver": Block(64)} | params))


class TestStochastic(RegressorConformance):
    units_tolerance = 1e-3  # float32, and rounding grows over the steps
    resumed_with = ({}, {"hyperparameters": "learn"})

    @pytest.fixture(scope="class")
    @classmethod
    def data(cls):
        """Of fewer rows weights that are independent give way to the average: they are surer than the process."""
        return small_data(n=520)

    def make(self, **params):
        quick = {
            "kernel": "rbf",
            "num_basis": 400,
            "solver": Stochastic(max_steps=100, row_batch=60, basis_batch=200, control_rank=60),
        }
        return QSGPRegressor(**(quick | params))
