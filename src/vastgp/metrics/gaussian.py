"""Scores of Gaussian predictions: accuracy, density, intervals and calibration.

Every score is a plain function of NumPy arrays of shape ``(n,)``: the observed targets ``y``, the
predictive means ``mean`` and the standard deviations ``std`` of a new *observation* (noise
included), all in the same units. Lower is better for all of them except `r2`; `coverage` should
equal its level.

Errors are reported twice: in the target's own units, and standardised by the mean and the scale of
the *training* targets, which is how the literature of large regression problems states them.
`vastgp.metrics.regression_report` gives both.
"""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from vastgp.metrics._vectors import (
    FloatArray,
    checked_units,
    extremes,
    half_width,
    positive,
    prediction_vectors,
    target_vectors,
    vector,
)

_LOG_2PI = float(np.log(2.0 * np.pi))
_INV_SQRT_PI = float(1.0 / np.sqrt(np.pi))
_INV_SQRT_2PI = float(1.0 / np.sqrt(2.0 * np.pi))


def rmse(y: ArrayLike, mean: ArrayLike) -> float:
    """Root mean squared error of the predictive mean.

    Parameters
    ----------
    y : array_like, shape (n,)
        Observed targets.
    mean : array_like, shape (n,)
        Predictive means, in the units of `y`.

    Returns
    -------
    float
        In the units of `y`. Divide by the training scale of the target for standardised units.

    Raises
    ------
    ValueError
        If an argument is not a finite vector of numbers, or the lengths differ.
    """
    y, mean = target_vectors(y, mean)
    error, unit = _in_own_unit(y - mean)
    return float(np.sqrt(np.mean(error**2)) * unit)


def mae(y: ArrayLike, mean: ArrayLike) -> float:
    """Mean absolute error of the predictive mean, which is also the predictive median.

    Parameters
    ----------
    y, mean
        As for `rmse`.

    Returns
    -------
    float
        In the units of `y`.
    """
    y, mean = target_vectors(y, mean)
    return float(np.mean(np.abs(y - mean)))


def r2(y: ArrayLike, mean: ArrayLike) -> float:
    """Coefficient of determination, one minus the residual over the total sum of squares.

    Parameters
    ----------
    y, mean
        As for `rmse`.

    Returns
    -------
    float
        1 for perfect predictions, 0 for those of the mean of `y`, negative for worse ones.

    Raises
    ------
    ValueError
        If `y` is constant: the score compares with its spread, which is then zero.
    """
    y, mean = target_vectors(y, mean)
    if np.ptp(y) == 0.0:
        raise ValueError(
            f"y: all {y.size} values are equal, so R2 is undefined; score at least two distinct "
            "targets, or use rmse"
        )
    (error, unit), (spread, scale) = (_in_own_unit(y - centre) for centre in (mean, y.mean()))
    ratio = unit / scale
    return 1.0 - float(np.sum(error**2) / np.sum(spread**2)) * ratio * ratio


@overload
def nlpd(
    y: ArrayLike, mean: ArrayLike, std: ArrayLike, *, average: Literal[True] = True
) -> float: ...
@overload
def nlpd(
    y: ArrayLike, mean: ArrayLike, std: ArrayLike, *, average: Literal[False]
) -> FloatArray: ...
def nlpd(
    y: ArrayLike, mean: ArrayLike, std: ArrayLike, *, average: bool = True
) -> float | FloatArray:
    """Negative log predictive density of Gaussian predictions, in nats for one observation.

    Parameters
    ----------
    y, mean : array_like, shape (n,)
        Observed targets and predictive means.
    std : array_like, shape (n,) or scalar
        Standard deviation of a new observation, positive.
    average : bool, default True
        Return the mean over the observations, or with False the value of each: its spread gives the
        standard error of the mean.

    Returns
    -------
    float or ndarray of shape (n,)
        A change of units from `y` to ``y / scale`` subtracts ``log(scale)``.
    """
    y, mean, std = prediction_vectors(y, mean, std)
    z = (y - mean) / std
    return _averaged(0.5 * (_LOG_2PI + z**2) + np.log(std), average)


@overload
def crps_gaussian(
    y: ArrayLike, mean: ArrayLike, std: ArrayLike, *, average: Literal[True] = True
) -> float: ...
@overload
def crps_gaussian(
    y: ArrayLike, mean: ArrayLike, std: ArrayLike, *, average: Literal[False]
) -> FloatArray: ...
def crps_gaussian(
    y: ArrayLike, mean: ArrayLike, std: ArrayLike, *, average: bool = True
) -> float | FloatArray:
    r"""Continuous ranked probability score of Gaussian predictions, in closed form.

    .. math:: \int (F(t) - 1[t \ge y])^2 dt
              = s \{ z (2 \Phi(z) - 1) + 2 \varphi(z) - 1 / \sqrt\pi \}, \quad z = (y - \mu) / s

    It rewards sharp and calibrated predictions like the log density, but in the units of `y` and
    without the heavy penalty of single outliers; for ``std -> 0`` it becomes the absolute error.

    Parameters
    ----------
    y, mean, std
        As for `nlpd`.
    average : bool, default True
        Return the mean over the observations, or with False the score of each.

    Returns
    -------
    float or ndarray of shape (n,)

    References
    ----------
    Gneiting and Raftery (2007), Strictly proper scoring rules, prediction, and estimation, eq. (21).
    """
    y, mean, std = prediction_vectors(y, mean, std)
    z = (y - mean) / std
    density = _INV_SQRT_2PI * np.exp(-0.5 * z**2)
    # In |z| both tails are exact: Phi(z) near one would round.
    score = std * (np.abs(z) * (1.0 - 2.0 * ndtr(-np.abs(z))) + 2.0 * density - _INV_SQRT_PI)
    return _averaged(score, average)


def msll(
    y: ArrayLike, mean: ArrayLike, std: ArrayLike, *, y_train_mean: Any, y_train_scale: Any
) -> float:
    """Mean standardised log loss: `nlpd` minus that of a Gaussian fitted to the training targets.

    Parameters
    ----------
    y, mean, std
        As for `nlpd`.
    y_train_mean, y_train_scale : float
        Mean and standard deviation of the training targets.

    Returns
    -------
    float
        Negative when the model beats the trivial one. Does not depend on units.

    References
    ----------
    Rasmussen and Williams (2006), Gaussian Processes for Machine Learning, section 2.5.
    """
    centre, scale = checked_units(y_train_mean, y_train_scale)
    y, mean, std = prediction_vectors(y, mean, std)
    trivial = nlpd(y, np.full_like(y, centre), scale)
    return nlpd(y, mean, std) - trivial


def coverage(y: ArrayLike, mean: ArrayLike, std: ArrayLike, level: Any = 0.95) -> float:
    """Fraction of the observations inside their central predictive interval.

    Parameters
    ----------
    y, mean, std
        As for `nlpd`.
    level : float, default 0.95
        Probability of the interval, in (0, 1).

    Returns
    -------
    float
        `level` when calibrated, with binomial standard error ``sqrt(level (1 - level) / n)``; below
        it the predictions are over-confident.
    """
    half = half_width(level)
    y, mean, std = prediction_vectors(y, mean, std)
    return float(np.mean(np.abs(y - mean) <= half * std))


def interval_width(std: ArrayLike, level: Any = 0.95) -> float:
    """Mean width of the central predictive intervals: how sharp the predictions are.

    Parameters
    ----------
    std : array_like, shape (n,)
        Standard deviation of a new observation, positive.
    level : float, default 0.95
        Probability of the interval, in (0, 1).

    Returns
    -------
    float
        In the units of `std`. Only to be compared between models whose `coverage` is right.
    """
    half = half_width(level)
    return float(2.0 * half * np.mean(positive("std", vector("std", std))))


def pit_values(y: ArrayLike, mean: ArrayLike, std: ArrayLike) -> FloatArray:
    """Probability integral transform: each observation through its predictive distribution function.

    Parameters
    ----------
    y, mean, std
        As for `nlpd`.

    Returns
    -------
    ndarray, shape (n,)
        In [0, 1], and uniform when the predictions are calibrated. A histogram with a hump says too
        wide, one with raised ends too narrow, a slope biased.
    """
    y, mean, std = prediction_vectors(y, mean, std)
    return np.asarray(ndtr((y - mean) / std), dtype=np.float64)


def calibration_curve(
    y: ArrayLike, mean: ArrayLike, std: ArrayLike, levels: ArrayLike | None = None
) -> tuple[FloatArray, FloatArray]:
    """Observed coverage of the central intervals at each nominal level.

    Parameters
    ----------
    y, mean, std
        As for `nlpd`.
    levels : array_like, shape (k,), optional
        Probabilities in (0, 1). Default: 0.01, 0.02, ..., 0.99.

    Returns
    -------
    nominal, observed : ndarray, shape (k,)
        The levels and the fraction of observations inside the interval of each.
    """
    nominal = np.arange(1, 100) / 100.0 if levels is None else vector("levels", levels)
    if not np.all((nominal > 0.0) & (nominal < 1.0)):
        raise ValueError(f"levels: expected probabilities in (0, 1), got {extremes(nominal)}")
    y, mean, std = prediction_vectors(y, mean, std)
    # The central interval of level p holds y exactly when |2 PIT - 1| <= p; |z| keeps the tails.
    smallest = np.sort(1.0 - 2.0 * ndtr(-np.abs((y - mean) / std)))
    return nominal, np.searchsorted(smallest, nominal, side="right") / y.size


def calibration_error(y: ArrayLike, mean: ArrayLike, std: ArrayLike) -> float:
    r"""Area between the distribution function of the PIT values and that of a uniform variable.

    .. math:: \int_0^1 | \hat F(u) - u | du = \int_0^1 | u_{(\lceil n q \rceil)} - q | dq

    computed exactly, without bins, from the sorted PIT values.

    Parameters
    ----------
    y, mean, std
        As for `nlpd`.

    Returns
    -------
    float
        Between 0 and 1/2. Even perfect predictions reach about ``0.313 / sqrt(n)`` by chance (the
        expected absolute area under a Brownian bridge).
    """
    u = np.sort(pit_values(y, mean, std))
    left, right = np.arange(u.size) / u.size, np.arange(1, u.size + 1) / u.size
    # On the i-th step the quantile function is u_i: integrate |u_i - q| from left to right.
    # With P(t) = t |t| / 2, an antiderivative of |t|, that is P(u - left) - P(u - right).
    area = 0.5 * ((u - left) * np.abs(u - left) - (u - right) * np.abs(u - right))
    return float(np.sum(area))


def _in_own_unit(values: FloatArray) -> tuple[FloatArray, float]:
    """Values over a power of two that is about their largest, so that their squares are numbers, and that power."""
    unit = float(np.ldexp(1.0, np.frexp(np.max(np.abs(values)))[1] - 1))
    return values / unit, unit


def _averaged(values: FloatArray, average: bool) -> float | FloatArray:
    return float(np.mean(values)) if average else values
