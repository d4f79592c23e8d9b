"""What all classifiers share: labels of any type, class probabilities, scores."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from vastgp._precision import precision
from vastgp.data import Rows
from vastgp.data.labels import encode_as, read_labels
from vastgp.data.shared_rows import SharedArray, as_shared_labelled
from vastgp.data.tables import open_frame
from vastgp.estimators.base import BaseGP
from vastgp.likelihoods import Bernoulli, Likelihood, Softmax
from vastgp.likelihoods.rowwise import by_rows


class BaseGPClassifier(ClassifierMixin, BaseGP, abc.ABC):
    """Base of the classifiers, see `BaseGP`.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        The labels, sorted. With two of them there is one function, that of the second one: it is likely where the
        function is large. With more there is one function for each.
    """

    _compiling_seconds: ClassVar[float] = 4.0

    def _scales_target(self) -> bool:
        return False

    def _open_training(self, X: Any, y: Any) -> Rows:
        rows, classes = as_shared_labelled(
            X, y, min_rows=self._least_rows(), estimator=type(self).__name__
        )
        self.classes_ = classes
        shared = isinstance(rows.y, SharedArray)
        rows.y = rows.y.of_each(self._coded) if shared else self._coded(rows.y)
        return rows

    def _coded(self, numbers: Any) -> np.ndarray:
        """Return the numbers of classes as the likelihood wants them: -1 and 1, or as they are for more than two."""
        return 2.0 * numbers - 1.0 if len(self.classes_) == 2 else np.asarray(numbers, np.float64)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return a score of the second class, or of each of more than two: that of the likelier class is the larger.

        Parameters
        ----------
        X : array-like of shape (n, d), data frame, or path

        Returns
        -------
        ndarray of shape (n,), or (n, C) for C > 2 classes
            With two classes the posterior mean of the function, above 0 where the second one is the likelier. With more
            the logarithms of `predict_proba`: functions of different variances do not order the classes by their means.
        """
        check_is_fitted(self, "posterior_")
        if len(self.classes_) == 2:
            return self._by_tiles(self._open(X), False)[0]
        return np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))

    def predict(self, X: Any) -> np.ndarray:
        """Return the likeliest class of each row.

        Parameters
        ----------
        X : array-like of shape (n, d), data frame, or path
            Anything that ``fit`` takes; read and predicted by tiles of rows.

        Returns
        -------
        ndarray of shape (n,)
            Labels of ``classes_``: those of the largest `predict_proba`.
        """
        check_is_fitted(self, "posterior_")
        if len(self.classes_) == 2:
            # the probability, E[g(f)] with a symmetric g, is above a half just where the mean is above zero
            return self.classes_[(self.decision_function(X) > 0.0).astype(np.int64)]
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    def predict_proba(self, X: Any, method: Any = "mean") -> np.ndarray:
        """Return the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n, d), data frame, or path
        method : {"mean", "median"}, default "mean"
            ``"mean"`` averages over the posterior of the function: less certain where little is known. ``"median"`` is
            the probability at the function's mean, the median of the posterior of the probability: what Evans and Nair
            (2020) report, as their mean-field variance is too large.

        Returns
        -------
        ndarray of shape (n, C)
            In the order of ``classes_``.
        """
        check_is_fitted(self, "posterior_")
        if method not in ("mean", "median"):
            raise ValueError(f"method must be 'mean' or 'median', received {method!r}.")
        rows = self._open(X)
        with precision("float64"):
            if method == "mean":
                found = self._reader("_probabilities")(rows)
            else:
                found = by_rows(self.likelihood_, "median", self._by_tiles(rows, False)[0])
        return np.stack([1.0 - found, found], axis=1) if found.ndim == 1 else found.T

    def latent(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return posterior mean and standard deviation of the function at the rows of ``X``, (n,) or (n, C)."""
        check_is_fitted(self, "posterior_")
        mean, variance = self._by_tiles(self._open(X), True)
        return mean.T, np.sqrt(variance).T

    def log_predictive_density(self, X: Any, y: Any = None) -> np.ndarray:
        """Return the log probability of each row's label, in nats; its mean is the negative NLPD.

        Parameters
        ----------
        X : array-like of shape (n, d), data frame, or path
        y : array-like of shape (n,) or str
            Labels, or the name of their column.
        """
        check_is_fitted(self, "posterior_")
        X = open_frame(X)
        labels = self._coded(self._numbers(X, y))
        with precision("float64"):
            return self._reader("_log_probabilities")(self._open(X), labels)

    def _log_densities(self, rows: Rows) -> np.ndarray:
        with precision("float64"):
            return self._reader("_log_probabilities")(rows, np.asarray(rows.y))

    def _simple_likelihood(self, y: np.ndarray) -> Likelihood:
        del y
        if len(self.classes_) == 2:
            return Bernoulli()
        return Softmax(len(self.classes_))

    @property
    def _simple_reader(self) -> type[BaseGP]:
        return BaseGPClassifier

    def _probabilities(self, rows: Rows) -> np.ndarray:
        """Return the probability of the second class, (n,), or of each of more than two, (C, n)."""
        return by_rows(self.likelihood_, "predictive_mean", *self._by_tiles(rows, True))

    def _log_probabilities(self, rows: Rows, labels: np.ndarray) -> np.ndarray:
        """Return the log probability of each row's label."""
        return by_rows(self.likelihood_, "log_density", labels, *self._by_tiles(rows, True))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the share of rows whose class is predicted correctly.

        Parameters
        ----------
        X, y
            As in ``fit``.
        sample_weight : array-like of shape (n,), optional
        """
        check_is_fitted(self, "posterior_")
        X = open_frame(X)
        correct = self.predict(X) == self.classes_[self._numbers(X, y)]
        return float(np.average(correct, weights=sample_weight))

    def _more_header(self) -> dict[str, Any]:
        return {"classes": self.classes_.tolist(), "classes_dtype": self.classes_.dtype.str}

    @classmethod
    def _from_file(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
        model = super()._from_file(header, arrays)
        model.classes_ = np.array(header["classes"], dtype=header["classes_dtype"])
        return model

    def _numbers(self, X: Any, y: Any) -> np.ndarray:
        return encode_as(read_labels(X, y, estimator=type(self).__name__), self.classes_)
