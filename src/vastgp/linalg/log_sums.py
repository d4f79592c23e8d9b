"""Logarithms of sums whose terms are known by their logarithms."""

from __future__ import annotations

import numpy as np


def log_sum(logs: np.ndarray, weights: np.ndarray | None = None, axis: int = 0) -> np.ndarray:
    """Return ``log(sum_k w_k exp(l_k))`` along an axis, ``-inf`` where nothing is summed.

    What `scipy.special.logsumexp` returns for real numbers, but for rounding. That one takes arrays of any library: for
    four parts of 20 rows 72 microseconds, here 12. Quantiles of mixtures ask for few numbers thousands of times.

    Parameters
    ----------
    logs : ndarray
    weights : ndarray, optional
        Not negative, of a shape that broadcasts with the logarithms; None: ones.
    axis : int, default 0
    """
    if weights is not None:
        # a part without weight must not decide what the others are compared with
        logs = np.where(weights > 0.0, logs, -np.inf)
    most = np.max(logs, axis=axis, keepdims=True)
    most = np.where(np.isfinite(most), most, 0.0)
    terms = np.exp(logs - most)
    if weights is not None:
        terms = weights * terms
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.sum(terms, axis=axis)) + np.squeeze(most, axis))
