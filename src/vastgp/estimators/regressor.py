"""What all regressors share: predictions of a target with their standard deviations."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from vastgp.data import Rows, observations
from vastgp.estimators.base import BaseGP
from vastgp.estimators.mixed_predictive import MixedPredictive
from vastgp.estimators.predictive import Predictive, checked_probabilities
from vastgp.solvers.averaged_posterior import AveragedPosterior


class BaseGPRegressor(RegressorMixin, BaseGP, abc.ABC):
    """Base of the regressors, see `BaseGP`."""

    def predict(self, X: Any, return_std: Any = False) -> Any:
        """Predict the target.

        Parameters
        ----------
        X : array-like of shape (n, d), data frame, or path
            Anything that ``fit`` takes. It is read and predicted by tiles of rows: memory is bounded whatever n is.
            Files and tables may have more columns, the inputs are found by name.
        return_std : bool or "latent", default False
            With True, also the standard deviation of a new *observation*: function and noise. With ``"latent"``, that
            of the function alone (for counts: of the logarithm of their rate).

        Returns
        -------
        mean : ndarray of shape (n,)
            Of a new observation, in the units of the target.
        std : ndarray of shape (n,)
            Only with ``return_std``.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        ValueError
            For data that do not match those of the fit.
        """
        check_is_fitted(self, "posterior_")
        if not (return_std is True or return_std is False or return_std == "latent"):
            raise ValueError(
                f"return_std must be False, True (observations) or 'latent' (the function), received {return_std!r}."
            )
        # only where observations are centred on the function is its mean theirs
        needed = return_std is not False or not self.likelihood_.scales_target
        found = self._reader("_predictive")(self._open(X), needed)
        if return_std is False:
            return found.mean
        if return_std is True:
            return found.mean, found.std
        variance = found.likelihood.location(found.latent_variance)
        return found.mean, self.standardizer_.inverse_std(np.sqrt(variance))

    def distribution(self, X: Any) -> Predictive:
        """Return the distribution of a new observation at each row.

        Parameters
        ----------
        X : array-like of shape (n, d), data frame, or path

        Returns
        -------
        Predictive
            With ``mean``, ``std``, ``log_density(y)`` and ``quantiles(probabilities)``, in units of the target.
        """
        check_is_fitted(self, "posterior_")
        return self._reader("_predictive")(self._open(X))

    def predict_quantiles(self, X: Any, probabilities: Any = (0.025, 0.5, 0.975)) -> np.ndarray:
        """Return quantiles of a new observation at each row, by its own distribution: counts for counts.

        Parameters
        ----------
        X : array-like of shape (n, d), data frame, or path
        probabilities : sequence of k float, default (0.025, 0.5, 0.975)
            Each above 0 and below 1. The default is the 95 % interval and the median.

        Returns
        -------
        ndarray of shape (n, k)
            What an observation is below with that probability, in units of the target.
        """
        wanted = checked_probabilities(probabilities)
        return self.distribution(X).quantiles(wanted).T

    def _predictive(self, rows: Rows, with_variance: bool = True) -> Predictive:
        average = self.posterior_
        if with_variance and isinstance(average, AveragedPosterior):
            moments = self._by_tiles(
                rows, True, lambda X, _: average.of_parts(X), len(average.parts)
            )
            noises, weights = average.noise_variances, average.weights
            return MixedPredictive.of(*moments, noises, weights, self.standardizer_)
        likelihood = self.likelihood_.in_units(1.0 / self.standardizer_.y_scale)
        found = Predictive(likelihood, *self._by_tiles(rows, with_variance), self.standardizer_)
        return found.with_exposure_of(rows.y) if observations.has_exposure(rows.y) else found

    def log_predictive_density(self, X: Any, y: Any = None) -> np.ndarray:
        """Return ``log p(y | x, training data)`` of each row.

        Parameters
        ----------
        X : array-like of shape (n, d), data frame, or path
        y : array-like of shape (n,) or str
            Observed targets, or the name of their column.

        Returns
        -------
        ndarray of shape (n,)
            In nats; a density per unit of the target. The mean over rows is the negative NLPD.
        """
        check_is_fitted(self, "posterior_")
        rows = self._open(X, y, require_y=True)
        return self._reader("_predictive")(rows).log_density(_targets(rows))

    def _log_densities(self, rows: Rows) -> np.ndarray:
        found = self._reader("_predictive")(rows)
        if observations.has_own_noise(rows.y):
            found = found.with_noise_of(rows.y)
        return found.log_density(_targets(rows)) + np.log(self.standardizer_.y_scale)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the coefficient of determination R^2 of the predicted mean: 1 is perfect, 0 is the mean's.

        Parameters
        ----------
        X, y
            As in ``fit``.
        sample_weight : array-like of shape (n,), optional
        """
        from sklearn.metrics import r2_score  # a tenth of the time of importing all else

        check_is_fitted(self, "posterior_")
        rows = self._open(X, y, require_y=True)
        return float(r2_score(_targets(rows), self.predict(rows), sample_weight=sample_weight))

    def _as_samples(self, latent: np.ndarray) -> np.ndarray:
        if self.likelihood_.num_latent == 1:
            return latent
        return np.asarray(self.likelihood_.location(np.moveaxis(latent, 1, 0)))

    @property
    def _simple_reader(self) -> type[BaseGP]:
        return BaseGPRegressor


def _targets(rows: Rows) -> np.ndarray:
    assert rows.y is not None
    return np.asarray(observations.targets(rows.y), dtype=np.float64)
