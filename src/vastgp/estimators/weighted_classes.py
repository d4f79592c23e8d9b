"""What classifiers with a link and class weights share, however they are fitted."""

from __future__ import annotations

from typing import Any

import numpy as np

from vastgp.data import Rows, observations
from vastgp.estimators.arguments import check_fixed_model, refuse_given
from vastgp.estimators.class_weight import weights_by_class
from vastgp.estimators.classes import CLASSES, Classes
from vastgp.estimators.classifier import BaseGPClassifier
from vastgp.estimators.searches import SEARCHES
from vastgp.fitting.run import Answer, Run
from vastgp.likelihoods import Bernoulli, Likelihood, Softmax


class WeightedClassifier(BaseGPClassifier):
    """A classifier whose likelihood knows the weights of the classes; it comes before the class that fits.

    A subclass has the constructor argument ``likelihood``.
    """

    hyperparameters: Any
    kernel: Any
    likelihood: Any

    @property
    def _classes(self) -> Classes:
        return CLASSES.resolve("likelihood", self.likelihood)

    def _check_classes(self) -> None:
        search = SEARCHES.resolve("hyperparameters", self.hyperparameters)
        check_fixed_model(search, self.kernel, needs_noise=False)
        refuse_given("hyperparameters", search, noise_floor=None)
        assert self._classes

    def _first_likelihood(self, y: np.ndarray) -> Likelihood:
        """Return the likelihood of the second of two classes, or of all."""
        del y
        if len(self.classes_) == 2:
            return Bernoulli(self._classes.link, class_weights=self._class_weights)
        return Softmax(len(self.classes_), class_weights=self._class_weights)

    def _simple_likelihood(self, y: np.ndarray) -> Likelihood:
        return self._first_likelihood(y)

    def _log_densities(self, rows: Rows) -> np.ndarray:
        """Return log probabilities, each as often as its class counts in the fit."""
        found = super()._log_densities(rows)
        if self._class_weights is None:
            return found
        assert rows.y is not None
        numbers = (rows.y > 0.0) if len(self.classes_) == 2 else rows.y
        weights = np.asarray(self._class_weights)[numbers.astype(np.int64)]
        return found * weights / np.mean(weights)

    def _settle(self, rows: Rows, run: Run) -> Answer:
        classes = self._classes
        if classes.link == "probit" and len(self.classes_) > 2:
            raise ValueError(
                f"likelihood='probit' is for two classes, and y holds {len(self.classes_)}: set 'logit', whose "
                "generalisation is the softmax."
            )
        assert rows.y is not None
        self._class_weights = weights_by_class(
            classes.class_weight, self.classes_, observations.targets(rows.y[:])
        )
        try:
            return super()._settle(rows, run)
        finally:
            del self._class_weights
