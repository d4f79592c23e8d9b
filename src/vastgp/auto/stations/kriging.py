"""Regression kriging: a stationary process and a linear trend in covariates, whose coefficients are learned with it.

``y = c + f(x) + h^T b + e`` with ``f ~ GP(0, k)``, noise ``e`` of covariance ``N`` and a flat prior of ``b``. With
``A = K + N`` and ``H`` the covariates at the readings, the coefficients are those of generalised least squares,

    b = (H^T A^-1 H)^-1 H^T A^-1 (y - c),    cov(b) = V = (H^T A^-1 H)^-1,

and at a new place, with ``r = h* - H^T A^-1 k*``, what of its covariates the process has not explained already,

    mean = c + k*^T A^-1 (y - c) + r^T b,    var = k(x*, x*) - k*^T A^-1 k* + r^T V r

(Rasmussen & Williams 2006, eq. 2.41 and 2.42, with a flat prior; Cressie 1993, section 3.4: universal kriging).

All of it needs products with ``A^-1`` alone, and every method whose mean is linear in the targets has these: its mean
at the training rows is ``m = K A^-1 y = y - N A^-1 y``, so that ``A^-1 y = N^-1 (y - m)``. So each covariate is given
to the method as if it was a target, with the same kernel and noise, and ``H^T A^-1 k*`` is what it then predicts.
Methods that approximate (SWSGP, QSGP) have a covariance ``K`` of their own, of which the formulas are as exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from vastgp.auto.stations.process import conditioned

# Covariates whose information matrix has a smaller reciprocal condition than this say the same.
_SAME = 1e-10


@dataclass(frozen=True)
class Kriging:
    """A process and a trend, given readings.

    Attributes
    ----------
    model : estimator
        Given the values, without the trend.
    smoothers : tuple of estimators
        Given each covariate, scaled.
    shift, scale : ndarray of shape (p,)
        Covariates are ``(h - shift) / scale``.
    coefficients : ndarray of shape (p,)
        In units of the target for each scaled covariate.
    covariance : ndarray of shape (p, p)
        Of the coefficients.
    """

    model: Any
    smoothers: tuple[Any, ...]
    shift: np.ndarray
    scale: np.ndarray
    coefficients: np.ndarray
    covariance: np.ndarray

    @property
    def noise_variance(self) -> float:
        """Of the learned noise, in squared units of the target."""
        return float(self.model.likelihood_.noise_variance)

    def trend(self) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients and their standard errors, in units of the target over those of the covariate."""
        return self.coefficients / self.scale, np.sqrt(np.diag(self.covariance)) / self.scale

    def moments(
        self, X: np.ndarray, H: np.ndarray, with_std: bool = True
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return mean and variance of the function at places.

        Parameters
        ----------
        X : ndarray of shape (m, d)
            Encoded places and times.
        H : ndarray of shape (m, p)
            Covariates.
        with_std : bool, default True
        """
        found = self.model.predict(X, return_std="latent" if with_std else False)
        mean, std = found if with_std else (found, None)
        if not self.smoothers:
            return mean, None if std is None else std**2
        left = (H - self.shift) / self.scale
        left = left - np.column_stack([one.predict(X) for one in self.smoothers])
        mean = mean + left @ self.coefficients
        if std is None:
            return mean, None
        return mean, std**2 + np.einsum("ij,jk,ik->i", left, self.covariance, left)


def kriging(
    prototype: Any,
    tied: Sequence[Sequence[int]],
    X: np.ndarray,
    y: np.ndarray,
    H: np.ndarray,
    noise: np.ndarray | None,
    names: Sequence[str],
) -> Kriging:
    """Condition process and trend on readings, at the hyperparameters of a fitted estimator.

    Parameters
    ----------
    prototype : estimator
        Fitted to the same inputs.
    tied : sequence of sequences of int
        Columns that are one input.
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,)
    H : ndarray of shape (n, p)
    noise : ndarray of shape (n,), or None
        Known standard deviations, beside the noise that was learned.
    names : sequence of str
        Of the covariates.

    Notes
    -----
    No budget ends it: half of a solution is none, and its deviations would be wrong without a word.
    """

    def given(targets: np.ndarray) -> Any:
        return conditioned(prototype, tied, X, targets, noise)

    p = H.shape[1]
    model = given(y)
    if not p:
        empty = np.zeros(0)
        return Kriging(model, (), empty, empty, empty, np.zeros((0, 0)))
    scaled, shift, scale = scaled_covariates(H, names)
    smoothers = tuple(given(scaled[:, j]) for j in range(p))
    variance = float(model.likelihood_.noise_variance) + (0.0 if noise is None else noise**2)
    # what an estimator takes for the level of its targets is no part of what it is linear in
    centre = np.array([one.standardizer_.y_mean for one in smoothers])
    solved = np.column_stack(
        [scaled[:, j] - one.predict(X) for j, one in enumerate(smoothers)]
    ) / np.reshape(variance, (-1, 1))
    right = (scaled - centre).T @ ((y - model.predict(X)) / variance)
    information = (scaled - centre).T @ solved
    information = 0.5 * (information + information.T)
    covariance = inverse_information(information, names)
    return Kriging(model, smoothers, shift, scale, covariance @ right, covariance)


def scaled_covariates(
    H: np.ndarray, names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ``(H - shift) / scale``, and shift and scale: mean and deviation of each covariate."""
    scale = np.std(H, axis=0)
    if np.any(scale == 0.0):
        name = names[int(np.argmin(scale))]
        raise ValueError(
            f"the covariate {name!r} is the same at all of these readings; leave it out."
        )
    shift = np.mean(H, axis=0)
    return (H - shift) / scale, shift, scale


def inverse_information(information: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Return the covariance of coefficients; refuse covariates of which some say the same."""
    root = np.sqrt(np.maximum(np.diag(information), 0.0))
    try:
        if np.any(root == 0.0):
            raise LinAlgError
        relative = information / np.outer(root, root)
        if np.linalg.cond(relative) > 1.0 / _SAME:
            raise LinAlgError
        inverse = cho_solve(cho_factor(relative), np.eye(len(root)))
    except LinAlgError:
        raise ValueError(
            f"the covariates {', '.join(map(repr, names))} say the same of these readings, or what place and time say "
            "already, so that no trend in each can be told. Leave some of them out."
        ) from None
    return inverse / np.outer(root, root)
