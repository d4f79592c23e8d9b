"""All scores of one test set of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vastgp.metrics._vectors import (
    FloatArray,
    checked_units,
    half_width,
    interval_ends,
    prediction_vectors,
    same_length,
    target_vectors,
    vector,
)
from vastgp.metrics.gaussian import calibration_error, crps_gaussian, mae, nlpd, r2, rmse


def regression_report(
    y: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    *,
    y_train_mean: Any,
    y_train_scale: Any,
    level: Any = 0.95,
) -> dict[str, Any]:
    """All scores of one test set, in standardised units and in the target's own.

    Parameters
    ----------
    y, mean, std
        As for `nlpd`, in the target's own units.
    y_train_mean, y_train_scale : float
        Mean and standard deviation of the *training* targets, which define the standardised units.
    level : float, default 0.95
        Probability of the intervals.

    Returns
    -------
    dict
        ``rows``, ``level``; ``standardised`` and ``target``, each a dict of ``rmse``, ``mae``,
        ``nlpd``, ``crps`` and ``interval_width``; and what depends on no units: ``coverage`` and
        its binomial standard error ``coverage_se`` (of a calibrated model), ``calibration_error``,
        ``msll``, and ``r2`` (None when `y` is constant).

    Raises
    ------
    ValueError
        If an argument is not finite, lengths differ, or `std` or `y_train_scale` is not positive.
    """
    y, mean, std = prediction_vectors(y, mean, std)
    half = half_width(level) * std
    report = distribution_report(
        y,
        mean,
        log_density=-nlpd(y, mean, std, average=False),
        normal_scores=(y - mean) / std,
        interval=(mean - half, mean + half),
        training_units=(y_train_mean, y_train_scale),
        level=level,
    )
    crps = crps_gaussian(y, mean, std)
    report["target"]["crps"] = crps
    report["standardised"]["crps"] = crps / float(y_train_scale)
    return report


def distribution_report(
    y: ArrayLike,
    mean: ArrayLike,
    *,
    log_density: ArrayLike,
    normal_scores: ArrayLike,
    interval: Any,
    training_units: Any = None,
    level: Any = 0.95,
) -> dict[str, Any]:
    """Scores of predictions that need not be Gaussian: of counts, of noise with heavy tails.

    Parameters
    ----------
    y, mean : array_like, shape (n,)
        Observed targets and predictive means, in the target's own units.
    log_density : array_like, shape (n,)
        Logarithm of the predictive density, or of the probability of a count, at each target.
    normal_scores : array_like, shape (n,)
        The targets as variables that are standard normal when the predictions are right.
    interval : (array_like of shape (n,), array_like of shape (n,))
        Ends of the central predictive intervals.
    training_units : (float, float), optional
        Mean and standard deviation of the training targets; None where they define no units, as for counts.
    level : float, default 0.95
        Probability of the intervals.

    Returns
    -------
    dict
        As that of `regression_report`, without ``crps``; ``standardised`` and ``msll`` are None without units.
    """
    half_width(level)  # refuses a level outside (0, 1)
    y, mean = target_vectors(y, mean)
    log_density, scores = (
        _beside(y, name, value)
        for name, value in (("log_density", log_density), ("normal_scores", normal_scores))
    )
    low, high = _ends(y, interval)
    own = {
        "rmse": rmse(y, mean),
        "mae": mae(y, mean),
        "nlpd": -float(np.mean(log_density)),
        "interval_width": float(np.mean(high - low)),
    }
    standardised = trivial = None
    if training_units is not None:
        centre, scale = checked_units(*training_units)
        standardised = {name: value / scale for name, value in own.items()}
        standardised["nlpd"] = own["nlpd"] - float(np.log(scale))  # a density, not a length
        trivial = nlpd(y, np.full_like(y, centre), scale)
    return {
        "rows": int(y.size),
        "level": float(level),
        "standardised": standardised,
        "target": own,
        "coverage": float(np.mean((low <= y) & (y <= high))),
        "coverage_se": float(np.sqrt(level * (1.0 - level) / y.size)),
        "calibration_error": calibration_error(scores, np.zeros_like(y), 1.0),
        "msll": None if trivial is None else own["nlpd"] - trivial,
        "r2": r2(y, mean) if np.ptp(y) > 0.0 else None,
    }


def _beside(y: FloatArray, name: str, value: ArrayLike) -> FloatArray:
    """`value` as a vector of as many values as the targets."""
    found = vector(name, value)
    same_length(name, found, y)
    return found


def _ends(y: FloatArray, interval: Any) -> tuple[FloatArray, FloatArray]:
    """The lower and the upper ends of intervals, one for each target."""
    if not isinstance(interval, (tuple, list, np.ndarray)) or len(interval) != 2:
        raise ValueError("interval: expected the lower and the upper ends, (low, high)")
    return interval_ends(y, interval[0], interval[1], ("interval[0]", "interval[1]"))
