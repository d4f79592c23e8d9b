"""What all regressors share: predictions of a target with their standard deviations."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from vastgp._precision import precision
from vastgp.data import Rows
from vastgp.estimators.base import BaseGP
from vastgp.likelihoods import Likelihood
from vastgp.likelihoods.rowwise import by_rows


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
        rows = self._open(X)
        scaling, likelihood = self.standardizer_, self._standardised_likelihood()
        # only where observations are centred on the function is its mean theirs
        latent, variance = self._by_tiles(
            rows, return_std is not False or not likelihood.scales_target
        )
        with precision("float64"):
            mean = scaling.inverse_mean(by_rows(likelihood, "predictive_mean", latent, variance))
            if return_std is False:
                return mean
            if return_std is True:
                variance = by_rows(likelihood, "predictive_variance", latent, variance)
            else:
                variance = likelihood.location(variance)
        return mean, scaling.inverse_std(np.sqrt(variance))

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
        mean, variance = self._by_tiles(rows, True)
        scaling, likelihood = self.standardizer_, self._standardised_likelihood()
        target = scaling.transform_y(_targets(rows))
        likelihood.check_targets(target)
        with precision("float64"):
            # a density of y is that of (y - mean) / scale divided by the scale
            density = by_rows(likelihood, "log_density", target, mean, variance)
        return density - np.log(scaling.y_scale)

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

    def _sample_latent(self, X: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
        found = super()._sample_latent(X, num_samples, seed)
        if self.likelihood_.num_latent == 1:
            return found
        return np.asarray(self.likelihood_.location(np.moveaxis(found, 1, 0)))

    def _standardised_likelihood(self) -> Likelihood:
        """Return the likelihood of the standardised target."""
        return self.likelihood_.in_units(1.0 / self.standardizer_.y_scale)


def _targets(rows: Rows) -> np.ndarray:
    assert rows.y is not None
    return np.asarray(rows.y, dtype=np.float64)
