"""`GPClassifier`: a table with a class to predict, and a model for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from vastgp._arguments import Flag
from vastgp.auto import candidates
from vastgp.auto.base import FrontDoor
from vastgp.auto.class_alone import likelier_alone
from vastgp.auto.class_calibration import (
    ClassCalibration,
    IdentityClasses,
    check_method,
    class_calibration_from_state,
    fit_class_calibration,
)
from vastgp.auto.class_candidates import classifiers, that_take_weights
from vastgp.auto.messages import warn_of_index
from vastgp.auto.reading_targets import classes_of
from vastgp.auto.track import Judged, Track
from vastgp.auto.trees import columns_of
from vastgp.auto.warps import Own
from vastgp.data import Rows, observations
from vastgp.data.labels import encode_as, read_labels
from vastgp.data.missing import missing_in
from vastgp.data.own_noise import OwnNoise
from vastgp.estimators.arguments import refuse_own_noise

_LEAST_PROBABILITY = 1e-12
# Levels of text have the shares of up to so many classes among their inputs.
_MOST_SHARES = 10


class GPClassifier(ClassifierMixin, FrontDoor):
    """Gaussian processes for classes in a table of any kind: encodes it, races models, calibrates the winner.

    Parameters
    ----------
    method : str, default "auto"
        "auto" races models that suit the table; the name of one (``"tsvgp"``, ``"qsgp"``, ...) fits that one.
    max_seconds : float or None, default 60.0
        Budget of `fit`: half of it is for the race (65 % up to 1500 rows), the rest for the winner on all rows. With
        less than 40 s for more than 1000 rows (of several classes, some hundred), one model has all of it: with what
        boosted trees say as an input, unless they say clearly less of some rows than a process does.
        None: until all have converged.
    max_work : int, optional
        A budget in rows instead of seconds, see `GPRegressor`.
    likelihood : str or Likelihood, default "auto"
        "auto": the method's own link.
    calibrate : {"auto", "temperature", "isotonic", None}, default "auto"
        How probabilities are corrected by held-out rows; "auto" takes what predicts them best. "isotonic" is for two
        classes.
    encoder : transformer, optional
        What makes numbers of the table; None: `vastgp.auto.TableEncoder`.
    space : (str or int, str or int) or mapping, optional
        Two columns that are a place, such as ``("lat", "lon")``: one input with one lengthscale, on the sphere where
        they are called latitude and longitude, see `vastgp.auto.TableEncoder`.
    hold_out : {"auto", "random", "last"}, default "auto"
        Which rows judge models and calibrate probabilities, see `GPRegressor`.
    random_state : int, Generator or None, default 0
    verbose : bool, default False

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        The labels, sorted.
    model_, leaderboard_, encoder_, encoding_, calibration_, importance_, support_, n_rows_dropped_, n_rows_left_out_
        As in `GPRegressor`.
    kernel_, likelihood_, converged_, stop_reason_, n_iter_, history_, fit_seconds_
        Of the winner.
    """

    classes_: np.ndarray

    # ------------------------------------------------------------ fit

    def fit(self, X: Any, y: Any = None, **others: Any) -> Any:
        """Find a model for a table, within the budget.

        Parameters
        ----------
        X : table, path or array-like of shape (n, p)
            A pandas, polars or Arrow table, the path of a Parquet or CSV file or of a folder of Parquet files, or an
            array. Columns may be numbers, booleans, categories, text, dates; values may be missing.
        y : array-like of shape (n,), or str
            The classes, or the name of their column. Rows whose class is missing are left out, and counted.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For what cannot be used; the message names the column or argument, what it held and what to do.
        TypeError
            For any other argument: ``sample_weight`` is taken by some classifiers, as the message says.
        """
        refuse_own_noise(type(self).__name__, others)
        warn_of_index(X)
        return self._fit_whole(X, y, OwnNoise(None, None))

    def _read_target(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray | None, str | None]:
        codes, self.classes_, name = classes_of(X, y)
        check_method(self.calibrate, len(self.classes_))
        count = len(self.classes_)
        if count == 2:  # means of a column's levels are those of the second class
            return codes, codes, name
        if count > _MOST_SHARES:
            return codes, None, name
        of_each = (codes[:, None] == np.arange(count)).astype(np.float64)
        of_each[np.isnan(codes)] = np.nan
        return codes, of_each, name

    @property
    def _num_functions(self) -> int:
        return columns_of(len(self.classes_))  # of a process as of trees

    def _candidates(self, rows: Rows, tied: Sequence[Sequence[int]]) -> list[candidates.Candidate]:
        if self.method != "auto" or self.likelihood != "auto":
            method = "tsvgp" if self.method == "auto" else self.method
            return [candidates.named(method, True, self.likelihood)]
        found = classifiers(
            rows.n, rows.d, len(tied) or rows.d, classes=len(self.classes_), seconds=self._seconds
        )  # fmt: skip
        return that_take_weights(found) if observations.has_exposure(rows.y) else found

    def _alone(
        self, track: Track, found: Sequence[candidates.Candidate], seconds: float
    ) -> candidates.Candidate:
        return likelier_alone(track, found, seconds)

    def _judge(self, model: Any, warp: Own, rows: Rows) -> Judged:
        proba = self._of_all(model, model.predict_proba(rows.X))
        y = np.asarray(observations.targets(rows.y), np.int64)
        weight = observations.exposures(rows.y) if observations.has_exposure(rows.y) else None
        of_label = proba[np.arange(len(y)), y]
        guess = np.argmax(proba, axis=1)
        return Judged(
            np.log(np.maximum(of_label, _LEAST_PROBABILITY)), (guess != y).astype(np.float64), proba,
            guess.astype(np.float64), np.zeros(len(y)), weight,
        )  # fmt: skip

    def _of_all(self, model: Any, proba: np.ndarray) -> np.ndarray:
        """Return probabilities of all classes, also of those that a part of the rows did not have."""
        known = model.classes_.astype(np.int64)
        if len(known) == len(self.classes_):
            return proba
        found = np.zeros((len(proba), len(self.classes_)))
        found[:, known] = proba
        return found

    def _calibration(self, judged: Judged | None, y: np.ndarray, seed: int) -> ClassCalibration:
        if judged is None or self.calibrate is None:
            return IdentityClasses()
        return fit_class_calibration(
            y.astype(np.int64), judged.scores, self.calibrate, seed, judged.weight, judged.places
        )

    def _calibration_from(self, state: Any) -> ClassCalibration:
        return class_calibration_from_state(state)

    @property
    def _classes(self) -> bool:
        return True

    def _more_header(self) -> dict[str, Any]:
        return {"classes": self.classes_.tolist(), "classes_dtype": self.classes_.dtype.str}

    def _read_more(self, header: dict[str, Any]) -> None:
        self.classes_ = np.array(header["classes"], dtype=header["classes_dtype"])

    # ------------------------------------------------------------ predict

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class.

        Parameters
        ----------
        X : table, path or array-like
            Columns are found by name, whatever others there are.

        Returns
        -------
        ndarray of shape (n, C)
            In the order of ``classes_``.
        """
        return self._proba(self._encoded(X))

    def _proba(self, rows: Rows) -> np.ndarray:
        proba = self._of_all(self.model_, self.model_.predict_proba(rows.X))
        return self.calibration_.transform(proba)

    def predict(self, X: Any, return_range: Any = False) -> Any:
        """Return the likeliest class of each row.

        Parameters
        ----------
        X : table, path or array-like
        return_range : bool, default False
            Also which rows lie outside what the training rows cover, see `outside`.

        Returns
        -------
        labels : ndarray of shape (n,)
        outside : ndarray of bool, shape (n,)
            Only with ``return_range``.
        """
        Flag()("return_range", return_range)
        rows = self._encoded(X)
        labels = self.classes_[np.argmax(self._proba(rows), axis=1)]
        return (labels, self.support_.outside(rows.X)) if return_range else labels

    def decision_function(self, X: Any) -> np.ndarray:
        """Return a score of the second class, or of each of more than two: that of the likelier class is the larger.

        Parameters
        ----------
        X : table, path or array-like

        Returns
        -------
        ndarray of shape (n,), or (n, C) for C > 2 classes
            Logarithms of `predict_proba`; with two classes their difference.
        """
        logs = np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))
        return logs[:, 1] - logs[:, 0] if len(self.classes_) == 2 else logs

    def log_predictive_density(self, X: Any, y: Any = None) -> np.ndarray:
        """Return the log probability of each row's label, in nats; its mean is the negative log loss.

        Parameters
        ----------
        X : table, path or array-like
        y : array-like of shape (n,), or str
        """
        check_is_fitted(self, "model_")
        X, numbers = self._with_numbers(X, y)
        proba = self.predict_proba(X)
        return np.log(np.maximum(proba[np.arange(len(numbers)), numbers], _LEAST_PROBABILITY))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the share of rows whose class is predicted correctly.

        Parameters
        ----------
        X, y
            As in ``fit``.
        sample_weight : array-like of shape (n,), optional
        """
        check_is_fitted(self, "model_")
        X, numbers = self._with_numbers(X, y)
        correct = self.predict(X) == self.classes_[numbers]
        return float(np.average(correct, weights=sample_weight))

    def _numbers_of(self, X: Any, y: Any) -> np.ndarray:
        labels = read_labels(X, y, estimator=type(self).__name__)
        there = ~missing_in(labels)
        numbers = encode_as(labels[there], self.classes_)
        if there.all():
            return numbers
        found = np.full(len(labels), np.nan)
        found[there] = numbers
        return found
