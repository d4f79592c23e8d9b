"""Weights of a mixture by the log density of rows that none of its parts has seen."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from vastgp.auto.calibration import folds

# A part of less weight is left out, and no more parts than so many are kept: each costs a fit and a prediction.
_LEAST_WEIGHT, _MOST_PARTS = 0.1, 3
_MOST_STEPS, _ERROR = 2000, 1e-7


def stacking_weights(log_density: np.ndarray) -> np.ndarray:
    """Return the weights of largest mean log density (Yao et al. 2018, equation 4).

    Parameters
    ----------
    log_density : ndarray of shape (n, K)
        Of each row by each part. Rows that all parts find impossible say nothing.

    Returns
    -------
    ndarray of shape (K,)
        Not negative, with a sum of one.
    """
    rows, parts = log_density.shape
    most = np.max(log_density, axis=1, keepdims=True, initial=-np.inf)
    known = np.isfinite(most[:, 0])
    density = np.exp(log_density[known] - most[known])
    weights = np.full(parts, 1.0 / parts)
    if not rows or not known.any():
        return weights
    # max_w  1/n sum_i log sum_k w_k p_ik  is concave; its fixed point w_k = w_k 1/n sum_i p_ik / sum_j w_j p_ij is that
    # of expectation and maximisation, of which each step raises it, and which stays on the simplex
    for _ in range(_MOST_STEPS):
        gradient = np.mean(density / (density @ weights)[:, None], axis=0)
        # by duality the optimum is no farther away than the largest slope is above one
        if np.max(gradient) - 1.0 < _ERROR:
            break
        weights = weights * gradient
    return weights / weights.sum()


def mixed_log_density(log_density: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return ``log sum_k w_k p_k`` of each row, (n,)."""
    return np.asarray(logsumexp(log_density, b=weights, axis=1))


def parts_to_keep(log_density: np.ndarray) -> np.ndarray:
    """Return the numbers of the parts that a stack needs, those of most weight first."""
    weights = stacking_weights(log_density)
    order = np.argsort(-weights, kind="stable")[:_MOST_PARTS]
    kept = order[weights[order] >= _LEAST_WEIGHT]
    return kept if len(kept) else order[:1]


def left_out_log_density(log_density: np.ndarray, seed: int) -> np.ndarray:
    """Return the log density of each row by a stack whose weights the other rows gave, (n,)."""
    fold, found = folds(len(log_density), seed), np.empty(len(log_density))
    for number in np.unique(fold):
        here = fold == number
        weights = stacking_weights(log_density[~here])
        found[here] = mixed_log_density(log_density[here], weights)
    return found
