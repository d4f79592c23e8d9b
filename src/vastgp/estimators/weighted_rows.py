"""Classifiers whose fit takes weights of rows."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from vastgp.data import Rows, RowWeights, observations
from vastgp.estimators.weighted_classes import WeightedClassifier
from vastgp.fitting.run import Answer
from vastgp.likelihoods import Likelihood, Weighted


class FitsRowWeights(WeightedClassifier):
    """A classifier whose ``fit`` takes weights of rows; it comes before the class that fits."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, **others: Any) -> Any:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n, d), data frame, or path
            Inputs: array, pandas or polars data frame, Arrow table, or the path of a ``.npy``, ``.npz``, ``.csv`` or
            Parquet file or a folder of Parquet files. Files are read by blocks, so they may be larger than memory where
            the method allows it.
        y : array-like of shape (n,) or str
            Labels, or the name of their column in ``X``. May be left out only for an ``.npz`` file with an array ``y``.
        sample_weight : array-like of shape (n,) or str, optional
            Weight of each row, or the name of its column, which then is no input: how often its log probability is
            taken. As in regression they are divided by their mean first, so that only their ratios matter, and what
            the rows say together is what so many rows say. Rows of weight zero are left out. None: all count alike.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For bad data or constructor arguments; the message names the argument, what it received and what to do.
        TypeError
            For any other argument.
        """
        if sample_weight is None or others:
            return super().fit(X, y, **others)
        return self._fit_whole(lambda work: work._open_rows(X, y, RowWeights(sample_weight)))

    def _open_rows(self, X: Any, y: Any, own_noise: Any = None) -> Rows:
        rows = super()._open_rows(X, y, own_noise)
        if own_noise is not None:
            there = np.unique(observations.targets(rows.y))
            known = self._coded(np.arange(len(self.classes_)))
            gone = self.classes_[~np.isin(known, there)]
            if len(gone):
                raise ValueError(
                    f"sample_weight is zero for all rows of the class {gone.tolist()[0]!r}, so that none is left to "
                    "learn it from. Leave these rows out of X and y, or give some of them a weight."
                )
        return rows

    def _first_likelihood(self, y: np.ndarray) -> Likelihood:
        found = super()._first_likelihood(y)
        return Weighted(found) if observations.has_exposure(y) else found

    def _take(self, answer: Answer) -> None:
        if isinstance(answer.likelihood, Weighted):
            answer = dataclasses.replace(answer, likelihood=answer.likelihood.of_one)
        super()._take(answer)

    def _log_densities(self, rows: Rows) -> np.ndarray:
        """Return log probabilities, each as often as its row counts in the fit."""
        weights = observations.exposures(rows.y)
        plain = dataclasses.replace(rows, y=observations.targets(rows.y))
        return super()._log_densities(plain) * weights / np.mean(weights)
