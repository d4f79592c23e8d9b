"""The noise that a fit leaves: of highest expected log likelihood for means and variances as they are."""

from __future__ import annotations

import math

import numpy as np

from vastgp.data import observations
from vastgp.linalg.least_near import least_near

# Noise variances tried, and the precision of the logarithm of the best one.
_TRIED, _SETTLED = 33, 1e-8


def noise_left(y: np.ndarray, mean: np.ndarray, variance: np.ndarray, noise_floor: float) -> float:
    """Return the noise variance ``sigma^2`` of highest ``sum_i E[log N(y_i | f_i, sigma^2 / w_i + e_i^2)]``.

    With ``q_i = E[(y_i - f_i)^2]`` that is the least ``sum_i log v_i + q_i / v_i``, ``v_i = sigma^2 / w_i + e_i^2``:
    the mean of ``w_i q_i`` where no error is known. A row's own term is least at ``sigma^2 = w_i (q_i - e_i^2)`` and
    rises from there on either side, so that the least sum lies between the least and the largest of these.

    Parameters
    ----------
    y : ndarray of shape (n,) or (n, 3)
        See `vastgp.data.observations`.
    mean, variance : ndarray of shape (n,)
        Of the function at the rows.
    noise_floor : float
        Least noise variance.
    """
    square = (observations.targets(y) - mean) ** 2 + variance
    if not observations.has_own_noise(y):
        return max(noise_floor, float(np.mean(square)))
    inverse, error = y[:, 1], y[:, 2]
    alone = (square - error) / inverse
    if not np.any(error):
        return max(noise_floor, float(np.mean(alone)))

    def negative(log_noise: float) -> float:
        variances = observations.noise_variances(y, math.exp(log_noise))
        return float(np.mean(np.log(variances) + square / variances))

    least = max(noise_floor, float(np.min(alone)))
    most = max(least, float(np.max(alone)))
    if least == most:
        return least
    tried = np.linspace(math.log(least), math.log(most), _TRIED)
    return math.exp(least_near(negative, tried, _SETTLED))
