"""What a fitted front door tells of rows and of itself, whatever its target."""

from __future__ import annotations

import abc
import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vastgp.auto.inputs import EncodedRows, encode_new
from vastgp.auto.saved import SavedFrontDoor
from vastgp.auto.stacking import leading
from vastgp.auto.trees import OnTrees
from vastgp.data import Rows, column_names
from vastgp.data.tables import Table, open_frame
from vastgp.kernels.metric import falls_with_distance, metric_lengthscales


class FittedFrontDoor(SavedFrontDoor):
    """Base of `vastgp.auto.base.FrontDoor`, which fits: inputs of new rows, where they lie, and the report."""

    def _lengthscales(self) -> np.ndarray | None:
        if self.model_.kernel_ is None:
            return None
        model = leading(self.model_)
        if isinstance(model, OnTrees):
            return model.metric_lengthscales()
        return metric_lengthscales(model.kernel_, model.n_features_in_)

    def _told_lengthscales(self) -> np.ndarray | None:
        kernel = self.model_.kernel_
        told = kernel is not None and falls_with_distance(kernel)
        return self._lengthscales() if told else None

    # ------------------------------------------------------------ predict

    def _encoded(self, X: Any) -> Rows:
        check_is_fitted(self, "model_")
        own = X.y if isinstance(X, EncodedRows) else None
        return Rows(encode_new(self, X), own, checked=True)

    def outside(self, X: Any) -> np.ndarray:
        """Return which rows lie outside what the training rows cover, (n,) booleans.

        A row does where an input is out of its range, or where it is farther from every training row, in the kernel's
        own distance, than 99 % of these are from each other's nearest.

        Parameters
        ----------
        X : table, path or array-like
        """
        return self.support_.outside(self._encoded(X).X)

    def drift(self, X: Any) -> list[str]:
        """Return in words which inputs of a whole table are distributed otherwise than in training.

        Parameters
        ----------
        X : table, path or array-like
        """
        return self.support_.drift(self._encoded(X).X)

    # ------------------------------------------------------------ what the model knows of itself

    def report(self, path: Any, X: Any = None, y: Any = None) -> Path:
        """Write a page for people: the data, what was tried, calibration, inputs, surprises, what to try next.

        One HTML file that needs no network and runs no script. Without ``X`` it is about the rows that the fit held
        out; their values, at most 2000 rows, are part of the model and of its file.

        Parameters
        ----------
        path : str or path
            The file to write; one that is there is replaced.
        X : table, path or array-like, optional
            Rows that the page is to be about: others than those of the fit. Of more than 20,000 a random part is used.
        y : array-like of shape (n,), or str, optional
            Their targets, or the name of the column; that of the fit by default. Rows without one are left out.

        Returns
        -------
        Path
            Of the file.

        Raises
        ------
        ValueError
            For rows without targets, and as `predict`.
        OSError
            When ``path`` is a folder, or in none.
        """
        from vastgp.auto.report.of_model import write_report_of

        check_is_fitted(self, "model_")
        return write_report_of(self, path, X, y)

    def _with_numbers(self, X: Any, y: Any, *, some: bool = False) -> tuple[Any, np.ndarray]:
        """Return rows, opened, and their targets as numbers; of a table those of the fit's column by default.

        All must have one, or else ``some``, and the others NaN.
        """
        X = open_frame(X)
        if y is None and isinstance(X, (Table, str, os.PathLike)):
            y = self.target_name_
        inputs = list(getattr(self, "feature_names_in_", ()))
        if isinstance(y, str) and y in inputs:
            names = X.names if isinstance(X, Table) else inputs
            raise column_names.input_as_target_error(y, names, inputs, type(self).__name__)
        found = self._numbers_of(X, y)
        missing = np.flatnonzero(np.isnan(found))
        if len(missing) and not some:
            raise ValueError(
                f"y has no target in {len(missing)} of {len(found)} rows, the first in row {missing[0]} (counted from "
                "0). Predictions are compared with targets that are known: leave these rows out."
            )
        return X, found

    def _observations(self, X: Any, y: Any, exposure: Any) -> tuple[Any, np.ndarray]:
        """Return rows, opened, and their targets with what a model is judged by beside them."""
        del exposure
        return self._with_numbers(X, y, some=True)

    @abc.abstractmethod
    def _numbers_of(self, X: Any, y: Any) -> np.ndarray:
        """Return targets as numbers, NaN where there is none: of classes their places in ``classes_``."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.target_tags.required = True
        return tags
