"""What regressors with a choice of likelihoods share, however they are fitted."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from vastgp.data import Rows, observations
from vastgp.estimators.first_hyperparameters import (
    check_all_targets,
    check_given_model,
    first_counts,
    starting_likelihood,
)
from vastgp.estimators.likelihood_arguments import chosen_likelihood
from vastgp.estimators.regressor import BaseGPRegressor
from vastgp.estimators.searches import Fixed
from vastgp.likelihoods import Exposed, Likelihood, Poisson


class LikelihoodRegressor(BaseGPRegressor):
    """A regressor with the argument ``likelihood``; it comes before the class that fits."""

    # whether a likelihood may have more than one function
    several_functions: ClassVar[bool] = False

    kernel: Any
    likelihood: Any
    hyperparameters: Any

    def _chosen_likelihood(self) -> Likelihood:
        """Return the likelihood by its name or as given; raise ValueError for one that cannot work."""
        return chosen_likelihood(self.likelihood, type(self).__name__, self.several_functions)

    def _check_given(self, search: Any) -> None:
        """Raise ValueError unless what is given of kernel, noise and likelihood fits together."""
        check_given_model(search, self.kernel, self.likelihood, self._chosen_likelihood())

    def _scales_target(self) -> bool:
        return self._chosen_likelihood().scales_target

    def _first_likelihood(self, y: np.ndarray) -> Likelihood:
        """Return where the likelihood's hyperparameters start, or those that are fixed, in standardised units."""
        given = self.hyperparameters
        return starting_likelihood(
            self._chosen_likelihood(),
            isinstance(self.likelihood, str),
            given.noise_std if isinstance(given, Fixed) else None,
            self.standardizer_,
            y,
        )

    def _simple_likelihood(self, y: np.ndarray) -> Likelihood:
        if self._chosen_likelihood().counts:
            found = first_counts(Poisson(), y)
            return Exposed(found) if observations.has_exposure(y) else found
        return super()._simple_likelihood(y)

    def _open_training(self, X: Any, y: Any) -> Rows:
        return check_all_targets(super()._open_training(X, y), self._chosen_likelihood())
