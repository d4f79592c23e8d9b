"""Fits of rows with noise of their own: known errors and weights."""

from __future__ import annotations

from typing import Any

from vastgp.data import OwnNoise, Rows
from vastgp.estimators.regressor import BaseGPRegressor
from vastgp.likelihoods import Gaussian


class FitsOwnNoise(BaseGPRegressor):
    """A regressor whose ``fit`` takes known errors and weights of rows; it comes before the class that fits."""

    def _check_own_noise(self, given: str) -> None:
        """Refuse noise of the rows' own where the arguments have no use for it; ``given`` names what came."""
        chosen = getattr(self, "_chosen_likelihood", None)
        if chosen is not None and not isinstance(chosen(), Gaussian):
            raise ValueError(
                f"{given} is of normal noise, and likelihood is {type(chosen()).__name__}. Set likelihood='gaussian', "
                f"or leave {given} out."
            )

    def fit(  # type: ignore[override]
        self, X: Any, y: Any = None, noise_std: Any = None, sample_weight: Any = None
    ) -> Any:
        """Fit the model.

        Row i is observed with noise of variance ``sigma^2 / sample_weight[i] + noise_std[i]^2``, where ``sigma`` is
        learned (``likelihood_.noise_std``). Predictions with ``return_std=True`` are of a new observation with
        ``sigma`` alone. Targets and noise are held in memory, 24 bytes a row, wherever the inputs lie.

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

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For bad data or constructor arguments; the message names the argument, what it received and what to do.
        """
        if noise_std is None and sample_weight is None:
            return super().fit(X, y)
        own_noise = OwnNoise(noise_std, sample_weight)

        def open_rows(work: FitsOwnNoise) -> Rows:
            work._check_own_noise("sample_weight" if noise_std is None else "noise_std")
            return work._open_rows(X, y, own_noise)

        return self._fit_whole(open_rows)
