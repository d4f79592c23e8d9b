"""What the front door for numbers predicts, of one target or of several."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from vastgp._arguments import Flag
from vastgp.auto.calibration import Calibration
from vastgp.auto.distribution import Distribution, interval_levels
from vastgp.auto.exposures import FittedExposure, check_takes, of_counts
from vastgp.auto.heaps.distribution import HeapedDistribution
from vastgp.auto.several import averaged, for_each_target, stacked, summed
from vastgp.auto.two_parts import TwoParts
from vastgp.auto.warps import Own
from vastgp.data import Exposure, Rows, observations
from vastgp.data.exposure import exposed_rows
from vastgp.data.tables import open_frame
from vastgp.estimators.predictive import checked_probabilities


class Predictions(RegressorMixin, TwoParts):
    """Predictions of a fitted `GPRegressor`, in units of the target."""

    calibration_: Calibration
    exposure_: FittedExposure | None
    # whether the target is one of counts, without heaps
    _counts = False

    def _rows_at(self, X: Any, exposure: Any) -> Rows:
        """Return encoded rows, with their exposures where some are given."""
        check_is_fitted(self, "model_")
        X = open_frame(X)
        check_takes(exposure, self.exposure_)
        rows = self._encoded(X)
        return rows if exposure is None else exposed_rows(rows, X, exposure)

    @for_each_target(list)
    def distribution(self, X: Any, exposure: Any = None) -> Distribution | HeapedDistribution:
        """Return the distribution of a new observation at each row.

        Parameters
        ----------
        X : table, path or array-like
            Columns are found by name, whatever others there are.
        exposure : array-like of shape (n,), float or str, optional
            As in `predict`.

        Returns
        -------
        Distribution or HeapedDistribution
            With ``mean``, ``std``, ``log_density(y)`` and ``quantiles(probabilities)``, in units of the target. Of a
            target with heaps also ``values``, those of the heaps, and ``probabilities``, (n, K + 1): of each of them,
            and last of none.
        """
        return self._distribution(self._rows_at(X, exposure))

    @property
    def _seen(self) -> tuple[float, float]:
        """Between what the training targets lie; what counts of any exposure could be has no end."""
        return self.target_range_ if self.exposure_ is None else (-np.inf, np.inf)

    def _distribution(self, rows: Rows) -> Distribution | HeapedDistribution:
        of_model = self.model_.distribution(rows.X)
        if observations.has_exposure(rows.y):
            of_model = of_model.with_exposure_of(rows.y)
        found = self._in_units(of_model, self.model_, self.warp_, self.calibration_)
        return self._whole_of(found, rows.X)

    def _in_units(
        self, of_model: Any, model: Any, warp: Own, calibration: Calibration
    ) -> Distribution:
        """Return what a model says on its scale as a distribution of the target."""
        whole = self._counts and not model.likelihood_.counts
        return Distribution(of_model, warp, calibration, self._seen, whole)

    @for_each_target(stacked)
    def predict(
        self, X: Any, return_std: Any = False, return_range: Any = False, exposure: Any = None
    ) -> Any:
        """Predict the target.

        Parameters
        ----------
        X : table, path or array-like
        return_std : bool, default False
            Also the standard deviation of a new observation.
        return_range : bool, default False
            Also which rows lie outside what the training rows cover, see `outside`.
        exposure : array-like of shape (n,) or (n, k), float, str or list of k str, optional
            For a model that was fitted to counts with exposures: that of each row or of all, in the unit of the fit, or
            the name of its column. None: one, so that predictions are rates, whatever columns the table has.

        Returns
        -------
        mean : ndarray of shape (n,), or (n, k) of several targets
            In units of the target.
        std : ndarray of shape (n,), or (n, k)
            Only with ``return_std``.
        outside : ndarray of bool, shape (n,)
            Only with ``return_range``.
        """
        Flag()("return_std", return_std)
        Flag()("return_range", return_range)
        rows = self._rows_at(X, exposure)
        plain = (
            type(self.warp_) is Own and self.heap_ is None and not self.model_.likelihood_.counts
        )
        if not return_std and plain:
            found = [self.model_.predict(rows.X)]
        else:
            of_rows = self._distribution(rows)
            found = [of_rows.mean, of_rows.std] if return_std else [of_rows.mean]
        if return_range:
            found.append(self.support_.outside(rows.X))
        return found[0] if len(found) == 1 else tuple(found)

    @for_each_target(stacked)
    def predict_interval(self, X: Any, level: Any = 0.95, exposure: Any = None) -> np.ndarray:
        """Return the central interval that holds a new observation with a probability.

        Parameters
        ----------
        X : table, path or array-like
        level : float, default 0.95
        exposure : array-like of shape (n,), float or str, optional
            As in `predict`.

        Returns
        -------
        ndarray of shape (n, 2), or (n, k, 2) of k targets
            Lower and upper ends, in units of the target.
        """
        if not isinstance(level, (int, float, np.number)) or not 0.0 < level < 1.0:
            raise ValueError(
                f"level must be a number above 0 and below 1, received {level!r}; 95 % is 0.95."
            )
        return self.distribution(X, exposure).quantiles(interval_levels(float(level))).T

    @for_each_target(stacked)
    def predict_quantiles(
        self, X: Any, probabilities: Any = (0.025, 0.5, 0.975), exposure: Any = None
    ) -> np.ndarray:
        """Return quantiles of a new observation at each row.

        Parameters
        ----------
        X : table, path or array-like
        probabilities : sequence of float, default (0.025, 0.5, 0.975)
        exposure : array-like of shape (n,), float or str, optional
            As in `predict`.

        Returns
        -------
        ndarray of shape (n, number of probabilities), or (n, k, number of probabilities) of k targets
            What an observation is below with that probability, in units of the target.
        """
        wanted = checked_probabilities(probabilities)
        return self.distribution(X, exposure).quantiles(wanted).T

    @for_each_target(summed, targets=True)
    def log_predictive_density(self, X: Any, y: Any = None, exposure: Any = None) -> np.ndarray:
        """Return ``log p(y | x, training data)`` of each row, in nats; its mean is the negative NLPD.

        Of a target with heaps it is the logarithm of the probability at a heap, and of the density elsewhere.

        Parameters
        ----------
        X : table, path or array-like
        y : array-like of shape (n,) or (n, k), str, or list of str
            Of several targets the density of all together, which are independent given the inputs.
        exposure : array-like of shape (n,), float or str, optional
            As in `predict`, but counts are compared by their own: None is the column of the fit, which X must have.
        """
        check_is_fitted(self, "model_")
        X, y = self._with_numbers(X, y)
        return self.distribution(X, of_counts(exposure, self.exposure_, X)).log_density(y)

    @for_each_target(stacked)
    def sample_y(self, X: Any, n_samples: Any = 1, random_state: Any = 0) -> np.ndarray:
        """Draw samples of the function, joint over the rows, without the noise of observations.

        Of a target with heaps each row is at a heap with its probability, independently of others, and has elsewhere
        the function of the rest.

        Parameters
        ----------
        X : table, path or array-like
        n_samples : int, default 1
        random_state : int, RandomState or None, default 0

        Returns
        -------
        ndarray of shape (n, n_samples), or (n, k, n_samples) of k targets
            In units of the target.
        """
        rows = self._encoded(X)
        drawn = self.warp_.back(self.model_.sample_y(rows.X, n_samples, random_state))
        return self._with_heaps_drawn(drawn, rows.X, random_state)

    @for_each_target(averaged, targets=True)
    def score(
        self, X: Any, y: Any = None, sample_weight: Any = None, exposure: Any = None
    ) -> float:
        """Return the coefficient of determination R^2 of the predicted mean; of several targets the mean of theirs.

        Parameters
        ----------
        X, y
            As in ``fit``.
        sample_weight : array-like of shape (n,), optional
        exposure : array-like of shape (n,), float or str, optional
            As in `log_predictive_density`.
        """
        from sklearn.metrics import r2_score

        check_is_fitted(self, "model_")
        X, y = self._with_numbers(X, y)
        mean = self.predict(X, exposure=of_counts(exposure, self.exposure_, X))
        return float(r2_score(y, mean, sample_weight=sample_weight))

    def _observations(self, X: Any, y: Any, exposure: Any) -> tuple[Any, np.ndarray]:
        X, y = self._with_numbers(X, y, some=True)
        exposure = of_counts(exposure, self.exposure_, X)
        if exposure is None:
            return X, y
        given = Exposure(exposure).read_columns(X)[1]
        if np.ndim(given.exposure) == 0:
            given = Exposure(np.full(len(y), given.exposure))
        found, present = np.full((len(y), 2), np.nan), np.isfinite(y)
        found[present] = given.of_targets(y, present)
        return X, found
