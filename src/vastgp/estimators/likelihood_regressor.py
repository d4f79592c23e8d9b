"""What regressors with a choice of likelihoods share, however they are fitted."""

from __future__ import annotations

from typing import Any

import numpy as np

from vastgp.data import Rows
from vastgp.estimators.first_hyperparameters import check_all_targets, regression_likelihood
from vastgp.estimators.likelihood_arguments import check_likelihood
from vastgp.estimators.regressor import BaseGPRegressor
from vastgp.likelihoods import Likelihood


class LikelihoodRegressor(BaseGPRegressor):
    """A regressor with the argument ``likelihood``; it comes before the class that fits."""

    likelihood: Any

    def _scales_target(self) -> bool:
        return check_likelihood(self).scales_target

    def _first_likelihood(self, y: np.ndarray) -> Likelihood:
        return regression_likelihood(self, y)

    def _open_training(self, X: Any, y: Any) -> Rows:
        return check_all_targets(super()._open_training(X, y), check_likelihood(self))
