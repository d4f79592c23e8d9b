"""The data layer alone makes an estimator that scikit-learn's own checks accept."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted

from vastgp.data import Standardizer, as_rows


class LeastSquares(RegressorMixin, BaseEstimator):
    """All validation is that of `as_rows`; the rest is two lines of linear algebra."""

    def fit(self, X: Any, y: Any) -> LeastSquares:
        rows = as_rows(X, y, require_y=True, min_rows=2, estimator="LeastSquares")
        self.n_features_in_ = rows.d
        if rows.feature_names is not None:
            self.feature_names_in_ = np.array(rows.feature_names, dtype=object)
        self.scaling_ = Standardizer().fit(rows)
        X, y = next(rows.batches(rows.n))
        self.weights_ = np.linalg.lstsq(self.scaling_.transform_X(X), self.scaling_.transform_y(y))[
            0
        ]
        return self

    def predict(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        rows = as_rows(
            X, feature_names=names, n_features=self.n_features_in_, estimator="LeastSquares"
        )
        (X, _), *_ = rows.batches(rows.n)
        return self.scaling_.inverse_mean(self.scaling_.transform_X(X) @ self.weights_)


@parametrize_with_checks([LeastSquares()])
def test_conformance(estimator: LeastSquares, check: Any) -> None:
    check(estimator)
