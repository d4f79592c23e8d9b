"""Weights of a mixture by the log density of rows that none of its parts has seen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vastgp.auto.calibration import exceeds, folds
from vastgp.data import Places
from vastgp.linalg.log_sums import log_sum

# A part that gains less, in nats a row, is left out, and no more than so many are kept: each costs a fit and a
# prediction.
_LEAST_GAIN, _MOST_PARTS = 0.01, 3
_MOST_STEPS, _ERROR = 2000, 1e-7


def stacking_weights(log_density: np.ndarray, share: np.ndarray | None = None) -> np.ndarray:
    """Return the weights of largest mean log density (Yao et al. 2018, equation 4).

    Parameters
    ----------
    log_density : ndarray of shape (n, K)
        Of each row by each part. Rows that all parts find impossible say nothing.
    share : ndarray of shape (n,), optional
        What each row counts; None: all alike.

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
    share = np.ones(rows) if share is None else share
    share = share[known] / np.sum(share[known])
    # max_w  1/n sum_i log sum_k w_k p_ik  is concave; its fixed point w_k = w_k 1/n sum_i p_ik / sum_j w_j p_ij is that
    # of expectation and maximisation, of which each step raises it, and which stays on the simplex
    for _ in range(_MOST_STEPS):
        gradient = share @ (density / (density @ weights)[:, None])
        # by duality the optimum is no farther away than the largest slope is above one
        if np.max(gradient) - 1.0 < _ERROR:
            break
        weights = weights * gradient
    return weights / weights.sum()


def mixed_log_density(log_density: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return ``log sum_k w_k p_k`` of each row, (n,); weights are (K,), or (n, K) for each row its own."""
    return log_sum(log_density, weights, axis=1)


def parts_to_keep(
    log_density: np.ndarray,
    score: Callable[[np.ndarray], np.ndarray],
    places: Places | None = None,
) -> np.ndarray:
    """Return the numbers of the parts that a stack needs, the best alone first.

    Each next one is that which raises the mean log density most, where it does so by more than it costs and by more
    than one standard error. Weights of all of them at once do not tell: one that is right where the others are far off
    can have a twentieth of the weight and most of the gain.

    Parameters
    ----------
    log_density : ndarray of shape (n, K)
    score : callable
        ``score(numbers)`` gives the log density of each row, (n,), by a stack of some of the parts.
    places : Places, optional
        Which rows are of one place, and count as one.
    """
    places = places or Places(np.arange(len(log_density)))
    kept = [int(np.argmax([np.mean(places.means(part)) for part in log_density.T]))]
    best = log_density[:, kept[0]]
    while len(kept) < min(_MOST_PARTS, log_density.shape[1]):
        others = [k for k in range(log_density.shape[1]) if k not in kept]
        found = [score(np.array([*kept, other])) for other in others]
        number = int(np.argmax([np.mean(places.means(one)) for one in found]))
        gain = places.means(found[number] - best)
        if not np.mean(gain) > _LEAST_GAIN or not exceeds(gain):
            break
        kept.append(others[number])
        best = found[number]
    return np.array(kept)


def left_out_log_density(
    log_density: np.ndarray,
    seed: int,
    weights: Callable[[np.ndarray, np.ndarray], np.ndarray],
    places: Places | None = None,
) -> np.ndarray:
    """Return the log density of each row by a stack whose weights the other rows gave, (n,).

    Parameters
    ----------
    log_density : ndarray of shape (n, K)
    seed : int
        Of the folds.
    weights : callable
        ``weights(others, here)`` finds weights by some rows, for some others; both are masks.
    places : Places, optional
        Rows of one place are left out together.
    """
    places = places or Places(np.arange(len(log_density)))
    fold, found = folds(places, seed), np.empty(len(log_density))
    for number in np.unique(fold):
        here = fold == number
        found[here] = mixed_log_density(log_density[here], weights(~here, here))
    return found
