"""Targets, and what rows have of their own beside them, in one array: noise, or an exposure.

Row i has the noise variance ``sigma^2 / w_i + e_i^2``: what is learned over its weight, and what is known. Where rows
have that, their ``y`` has three columns: target, ``1 / w_i`` and ``e_i^2``. Whatever selects, scales or batches rows
carries them along, and only what computes with the noise looks inside.

Counts of unequal exposure, ``y_i ~ Poisson(e_i rate(x_i))``, have two columns in the same way: count and ``log e_i``.
So have labels of rows that count as ``w_i`` rows would: number of the class and ``log w_i``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# Largest ``1 / w_i`` and ``e_i^2``, the latter in variances of the target. A row with a noise of 10,000 standard
# deviations says nothing, and one with more would leave the range of float32.
MOST = 1e8
# Iterations of `mean_and_variance`, at most, and the relative change at which it ends.
_MOST_ITERATIONS, _SETTLED = 200, 1e-6


def has_own_noise(y: Any) -> bool:
    """Return whether targets come with noise of their own: in three columns rather than as one."""
    return y is not None and y.ndim == 2 and y.shape[-1] == 3


def has_errors(y: Any) -> bool:
    """Return whether rows have known errors of their own."""
    return has_own_noise(y) and bool(np.any(y[:, 2]))


def has_exposure(y: Any) -> bool:
    """Return whether counts come with an exposure, or labels with a weight: in two columns rather than as one."""
    return y is not None and y.ndim == 2 and y.shape[-1] == 2


def targets(y: Any) -> Any:
    """Return the targets alone."""
    return y[..., 0] if has_own_noise(y) or has_exposure(y) else y


def exposures(y: Any) -> Any:
    """Return ``e_i``, or ``w_i`` of labels; 1 where all are alike."""
    return np.exp(y[..., 1]) if has_exposure(y) else 1.0


def inverse_weights(y: Any) -> Any:
    """Return ``1 / w_i``: the derivative of the rows' noise variances by the learned one; 1 where all are alike."""
    return y[..., 1] if has_own_noise(y) else 1.0


def noise_variances(y: Any, noise_variance: Any) -> Any:
    """Return the noise variance of each row, or the one of all where they have none of their own."""
    return noise_variance * y[..., 1] + y[..., 2] if has_own_noise(y) else noise_variance


def scaled(y: np.ndarray, mean: float, scale: float, log_exposure: float = 0.0) -> np.ndarray:
    """Return standardised targets, their noise in the same units where they have some.

    Exposures are in units of one whose logarithm is given.
    """
    if has_exposure(y):
        return np.column_stack([(y[:, 0] - mean) / scale, y[:, 1] - log_exposure])
    if not has_own_noise(y):
        return (y - mean) / scale
    with np.errstate(over="ignore"):
        found = np.column_stack([(y[:, 0] - mean) / scale, y[:, 1], y[:, 2] / scale**2])
    np.minimum(found[:, 1:], MOST, out=found[:, 1:])
    return found


def mean_and_variance(y: np.ndarray) -> tuple[float, float]:
    """Return mean and variance of targets, without what their known errors add to the latter.

    Of highest likelihood under ``y_i ~ N(mean, variance / w_i + e_i^2)``, by EM, until the variance settles. One target
    that is off by its known error would otherwise set the scale of all.
    """
    target, inverse, error = y.T
    mean, variance = float(np.mean(target)), float(np.var(target))
    for _ in range(_MOST_ITERATIONS):
        if variance == 0.0:
            break
        before, own = variance, variance * inverse
        share = own / (own + error)
        precision = share / inverse
        mean = float(precision @ target / np.sum(precision))
        # E[w (y - error - mean)^2] given the target
        square = ((share * (target - mean)) ** 2 + share * error) / inverse
        variance = float(np.mean(square))
        if abs(variance - before) <= _SETTLED * before:
            break
    return mean, variance
