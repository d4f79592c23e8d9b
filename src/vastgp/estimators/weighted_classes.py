"""What classifiers with a link and class weights share, however they are fitted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from vastgp.data import Rows
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

    def _answers(self, rows: Rows, run: Run) -> Iterator[Answer]:
        classes = self._classes
        if classes.link == "probit" and len(self.classes_) > 2:
            raise ValueError(
                f"likelihood='probit' is for two classes, and y holds {len(self.classes_)}: set 'logit', whose "
                "generalisation is the softmax."
            )
        assert rows.y is not None
        self._class_weights = weights_by_class(classes.class_weight, self.classes_, rows.y)
        try:
            # those of the class which fits, the next in line
            yield from super()._answers(rows, run)
        finally:
            del self._class_weights
