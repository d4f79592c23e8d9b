"""Quantiles of predictions, from their distribution functions. NumPy and SciPy, in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import ndtri

from vastgp.likelihoods.base import Likelihood

_MOST_STEPS = 100
_DOUBLINGS = 200  # of the interval that holds a quantile: any finite number is reached
_ERROR = 1e-7  # of a quantile, in units of the standardised target
_COUNT_ERROR = 0.01  # of the root between counts; where the nearest count is no farther, its probability decides
_LEAST = 1e-16  # of a probability
_REACH = 7.5  # standard deviations on either side: what is left out is below 1e-13


def quantiles(
    likelihood: Likelihood,
    probability: Any,
    mean: Any,
    latent_variance: Any,
    near: tuple[np.ndarray, np.ndarray],
) -> np.ndarray:
    """Return what a new observation is below with a probability, for ``f ~ N(mean, latent_variance)``.

    Parameters
    ----------
    likelihood : Likelihood
        With `Likelihood.distribution`.
    probability : array-like of shape (k,), or (k, n) for each row its own
        Each above 0 and below 1.
    mean, latent_variance : array-like of shape (n,), or (C, n) for C latent functions
    near : (ndarray of shape (n,), ndarray of shape (n,))
        Mean and standard deviation of the observation: where the search starts, whatever they are.

    Returns
    -------
    ndarray of shape (k, n)
        For counts the least one with at least that probability at or below it.
    """
    latent = np.atleast_2d(mean).astype(np.float64), np.atleast_2d(latent_variance)
    wanted = by_row(probability)
    count = len(latent[0])

    def above(y: np.ndarray, p: np.ndarray, *moments: np.ndarray) -> np.ndarray:
        mean, variance = np.stack(moments[:count]), np.stack(moments[count:])
        if count == 1:
            mean, variance = mean[0], variance[0]
        # in normal scores the function is nearly straight, which takes half the steps
        reached = np.clip(likelihood.distribution(y, mean, variance), _LEAST, 1.0 - _LEAST)
        return ndtri(reached) - ndtri(p)

    shape = (len(wanted), latent[0].shape[1])
    args = [np.broadcast_to(values, shape).ravel() for values in (wanted, *latent[0], *latent[1])]
    centre, step = (
        np.broadcast_to(np.nan_to_num(part, posinf=1.0), shape).ravel() for part in near
    )
    error = _COUNT_ERROR if likelihood.counts else _ERROR
    y = rising_roots(above, centre, np.clip(step, 1e-6, 1e6), args, error)
    if likelihood.counts:
        whole = np.rint(y)
        unclear = np.abs(y - whole) <= 2.0 * error
        least = np.ceil(y)
        of_these = above(whole[unclear], *(part[unclear] for part in args))
        least[unclear] = whole[unclear] + (of_these < 0.0)
        y = np.maximum(least, 0.0)
    return y.reshape(shape)


def by_row(probabilities: Any) -> np.ndarray:
    """Return probabilities, (k,) for all rows or (k, n) for each its own, as (k, 1) or (k, n) in float64."""
    found = np.asarray(probabilities, dtype=np.float64)
    return found[:, None] if found.ndim == 1 else found


def rising_roots(
    function: Any, centre: np.ndarray, step: np.ndarray, args: list[np.ndarray], error: float
) -> np.ndarray:
    """Return where a rising function is zero, elementwise: an interval around it, then regula falsi (Illinois).

    Parameters
    ----------
    function : callable
        ``function(y, *args)`` gives its values at some places, for the arguments of these.
    centre, step : ndarray of shape (n,)
        The root is looked for within ``step`` of ``centre`` first, and farther away where it is not there.
    args : list of ndarray of shape (n,)
    error : float
        Of the root.
    """

    def value(y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return function(y, *(part[rows] for part in args))

    rows = np.arange(centre.size)
    ends = np.stack([centre - step, centre + step])
    values = np.stack([value(end, rows) for end in ends])
    for _ in range(_DOUBLINGS):
        rows = np.flatnonzero((values[0] > 0.0) | (values[1] < 0.0))
        if not rows.size:
            break
        # the end that the root lies beyond becomes the other end of an interval of twice the length
        beyond = (values[1, rows] < 0.0).astype(int)
        ends[1 - beyond, rows], values[1 - beyond, rows] = ends[beyond, rows], values[beyond, rows]
        step = 2.0 * step
        ends[beyond, rows] += np.where(beyond, step[rows], -step[rows])
        values[beyond, rows] = value(ends[beyond, rows], rows)
    found, rows = ends[0].copy(), np.arange(centre.size)
    last = np.full(centre.size, -1)
    for _ in range(_MOST_STEPS):
        low, high = ends
        slope = values[1] - values[0]
        y = high - values[1] * (high - low) / np.where(slope > 0.0, slope, 1.0)
        done = (np.abs(y - found[rows]) <= error) | (high - low <= error)
        found[rows] = y
        rows, ends, values, y = rows[~done], ends[:, ~done], values[:, ~done], y[~done]
        if not rows.size:
            break
        new = value(y, rows)
        side = (new > 0.0).astype(int)
        here = np.arange(rows.size)
        # an end that stays twice gets half its value, so that the next point falls beyond the root
        values[1 - side, here] *= np.where(side == last[~done], 0.5, 1.0)
        ends[side, here], values[side, here], last = y, new, side
    return found


def normal_nodes(centre: Any, width: Any, points: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield nodes of averages over a standard normal variable, closest together at a centre, and their weights.

    The trapezoid rule in ``u`` with ``z = centre + width sinh(u)``, see `vastgp.likelihoods.quadrature`.
    """
    first, last = (np.arcsinh((end - centre) / width) for end in (-_REACH, _REACH))

    def unscaled() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for k in range(points):
            u = first + (last - first) * k / (points - 1)
            z = centre + width * np.sinh(u)
            yield z, np.exp(-0.5 * z**2) * np.cosh(u)

    # twice over, as all nodes of many rows are many numbers
    total = sum(weight for _, weight in unscaled())
    for z, weight in unscaled():
        yield z, weight / total
