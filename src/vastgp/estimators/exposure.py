"""Fits of counts with exposures, and predictions at others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vastgp.data import Exposure, Rows, observations
from vastgp.data.exposure import exposed_rows
from vastgp.estimators.likelihood_regressor import LikelihoodRegressor
from vastgp.estimators.own_noise import FitsOwnNoise
from vastgp.estimators.predictive import Predictive
from vastgp.fitting.run import Answer
from vastgp.likelihoods import Exposed
from vastgp.likelihoods.exposed import of_exposure


class FitsExposure(FitsOwnNoise, LikelihoodRegressor):
    """A regressor with likelihoods of counts whose ``fit`` takes exposures; it comes before the class that fits."""

    def _check_counts(self, likelihood: Any) -> None:
        """Refuse exposures where the likelihood has no use for them."""
        if not likelihood.counts:
            raise ValueError(
                f"exposure multiplies the rate of counts, and likelihood is {type(likelihood).__name__}. Set "
                "likelihood='poisson', 'poisson-log-normal' or 'negative-binomial', or leave exposure out."
            )

    # ------------------------------------------------------------ fit

    def fit(  # type: ignore[override]
        self,
        X: Any,
        y: Any = None,
        noise_std: Any = None,
        sample_weight: Any = None,
        exposure: Any = None,
    ) -> Any:
        """Fit the model.

        With a Gaussian likelihood row i is observed with noise of variance ``sigma^2 / sample_weight[i] +
        noise_std[i]^2``, where ``sigma`` is learned (``likelihood_.noise_std``). Predictions with ``return_std=True``
        are of a new observation with ``sigma`` alone. Counts have the rate ``exposure[i] * rate * exp(f(x_i))``
        (``likelihood_.rate`` is that of an exposure of one), and predictions are of one unit of exposure, or of what
        they are asked for. Targets and what rows have of their own are held in memory, up to 24 bytes a row, wherever
        the inputs lie.

        Parameters
        ----------
        X : array-like of shape (n, d), data frame, or path
            Inputs: array, pandas or polars data frame, Arrow table, or the path of a ``.npy``, ``.npz``, ``.csv`` or
            Parquet file or a folder of Parquet files. Files are read by blocks, so they may be larger than memory where
            the method allows it.
        y : array-like of shape (n,) or str
            Target, or the name of its column in ``X``. May be left out only for an ``.npz`` file with an array ``y``.
        noise_std : array-like of shape (n,) or str, optional
            Known standard deviation of each row's own error, in units of the target; or the name of its column where
            ``X`` is a table, which then is no input. None: no row has one. A noise that all rows have in common is set
            by ``hyperparameters=Fixed(noise_std=...)``.
        sample_weight : array-like of shape (n,) or str, optional
            Weight of each row, or the name of its column: the learned noise of a row has the variance ``sigma^2 /
            weight``, so that a mean of k observations has the weight k. Divided by their mean first, so that ``sigma``
            is the noise of a row of mean weight. Rows of weight zero are left out. None: all count alike.
        exposure : array-like of shape (n,) or str, optional
            For counts (``"poisson"``, ``"poisson-log-normal"``, ``"negative-binomial"``): how long, how much or how
            many each row's count was taken of, in any unit, above zero; or the name of its column, which then is no
            input. None: one everywhere.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For bad data or constructor arguments; the message names the argument, what it received and what to do.
        """
        if exposure is None:
            return super().fit(X, y, noise_std, sample_weight)

        def open_rows(work: FitsExposure) -> Rows:
            work._check_counts(work._chosen_likelihood())
            for name, given in (("noise_std", noise_std), ("sample_weight", sample_weight)):
                if given is not None:
                    work._check_own_noise(name)
            return work._open_rows(X, y, Exposure(exposure))

        return self._fit_whole(open_rows)

    def _open_rows(self, X: Any, y: Any, own_noise: Any = None) -> Rows:
        rows = super()._open_rows(X, y, own_noise)
        if observations.has_exposure(rows.y):
            # in units of a typical one, as the bounds of the rate are for counts: nothing depends on whether exposures
            # were given in years or in seconds
            assert rows.y is not None
            self.standardizer_.log_exposure = float(np.median(np.asarray(rows.y[:])[:, 1]))
        return rows

    def _take(self, answer: Answer) -> None:
        likelihood = answer.likelihood
        if isinstance(likelihood, Exposed):
            of_unit = float(np.exp(-self.standardizer_.log_exposure))
            answer = replace(answer, likelihood=of_exposure(likelihood.of_one, of_unit))
        super()._take(answer)

    # ------------------------------------------------------------ predict

    def _exposed(self, X: Any, exposure: Any, y: Any = None, require_y: bool = False) -> Rows:
        """Open rows with their exposures, and their counts where these are wanted."""
        check_is_fitted(self, "posterior_")
        self._check_counts(self.likelihood_)
        return exposed_rows(self._open(X, y, require_y), X, exposure)

    def predict(self, X: Any, return_std: Any = False, exposure: Any = None) -> Any:
        """Predict the target.

        Parameters
        ----------
        X : array-like of shape (n, d), data frame, or path
            Anything that ``fit`` takes. It is read and predicted by tiles of rows: memory is bounded whatever n is.
            Files and tables may have more columns, the inputs are found by name.
        return_std : bool or "latent", default False
            With True, also the standard deviation of a new *observation*: function and noise. With ``"latent"``, that
            of the function alone (for counts: of the logarithm of their rate).
        exposure : array-like of shape (n,), float or str, optional
            For counts: exposure of each row or of all, in the unit of the fit, or the name of its column. None: one.

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
        return super().predict(X if exposure is None else self._exposed(X, exposure), return_std)

    def distribution(self, X: Any, exposure: Any = None) -> Predictive:
        """Return the distribution of a new observation at each row.

        Parameters
        ----------
        X : array-like of shape (n, d), data frame, or path
        exposure : array-like of shape (n,), float or str, optional
            As in `predict`.

        Returns
        -------
        Predictive
            With ``mean``, ``std``, ``log_density(y)`` and ``quantiles(probabilities)``, in units of the target.
        """
        return super().distribution(X if exposure is None else self._exposed(X, exposure))

    def predict_quantiles(
        self, X: Any, probabilities: Any = (0.025, 0.5, 0.975), exposure: Any = None
    ) -> np.ndarray:
        """Return quantiles of a new observation at each row, by its own distribution: counts for counts.

        Parameters
        ----------
        X : array-like of shape (n, d), data frame, or path
        probabilities : sequence of k float, default (0.025, 0.5, 0.975)
            Each above 0 and below 1. The default is the 95 % interval and the median.
        exposure : array-like of shape (n,), float or str, optional
            As in `predict`.

        Returns
        -------
        ndarray of shape (n, k)
            What an observation is below with that probability, in units of the target.
        """
        if exposure is not None:
            X = self._exposed(X, exposure)
        return super().predict_quantiles(X, probabilities)

    def log_predictive_density(self, X: Any, y: Any = None, exposure: Any = None) -> np.ndarray:
        """Return ``log p(y | x, training data)`` of each row.

        Parameters
        ----------
        X : array-like of shape (n, d), data frame, or path
        y : array-like of shape (n,) or str
            Observed targets, or the name of their column.
        exposure : array-like of shape (n,), float or str, optional
            As in `predict`.

        Returns
        -------
        ndarray of shape (n,)
            In nats; a density per unit of the target. The mean over rows is the negative NLPD.
        """
        if exposure is None:
            return super().log_predictive_density(X, y)
        return super().log_predictive_density(self._exposed(X, exposure, y, require_y=True))
