"""Scores of forecasts that have quantiles, and perhaps a density: without JAX, for peers as well."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import log_ndtr
from sklearn.metrics import mean_pinball_loss, root_mean_squared_error

# Midpoints of twenty equal parts of (0, 1): their mean pinball loss is half the CRPS by the midpoint rule, and the
# outermost two are the ends of the central 95 % interval.
LEVELS = (np.arange(20) + 0.5) / 20


def forecast_scores(
    y: np.ndarray,
    mean: np.ndarray,
    quantiles: np.ndarray,
    unit: float,
    *,
    density: np.ndarray | None = None,
    dense: np.ndarray | None = None,
    crps: float | None = None,
) -> dict[str, Any]:
    """Return scores in units of the training target's standard deviation, and under ``own`` in the target's own.

    Parameters
    ----------
    y, mean : ndarray of shape (n,)
    quantiles : ndarray of shape (20, n)
        At `LEVELS`.
    unit : float
        Standard deviation of the training target.
    density : ndarray of shape (n,), optional
        Logarithms of the predictive densities; without them there is no NLPD.
    dense : ndarray of bool, shape (n,), optional
        Which targets these are densities at: at the others, those of a heap, they are log masses, which have no unit.
    crps : float, optional
        In closed form; otherwise it is what the quantiles say, ``CRPS = 2 int_0^1 pinball_q dq`` (Gneiting and Raftery
        2007, section 4.2).
    """
    # rearranged where curves cross (Chernozhukov et al. 2010)
    quantiles = np.sort(quantiles, axis=0)
    low, high = quantiles[0], quantiles[-1]
    losses = [mean_pinball_loss(y, q, alpha=a) for q, a in zip(quantiles, LEVELS, strict=True)]
    pinball = float(np.mean(losses))
    own = {
        "rmse": float(root_mean_squared_error(y, mean)),
        "pinball": pinball,
        "crps": 2.0 * pinball if crps is None else float(crps),
        "width": float(np.mean(high - low)),
    }
    standardised = {name: value / unit for name, value in own.items()}
    if density is not None:
        own["nlpd"] = -float(np.mean(density))
        share = 1.0 if dense is None else float(np.mean(dense))
        standardised["nlpd"] = own["nlpd"] - share * float(np.log(unit))
    return standardised | {"coverage": float(np.mean((low <= y) & (y <= high))), "own": own}


def rounded_to(y: np.ndarray) -> float:
    """Return the largest power of ten that targets are multiples of, but for the rounding of floating point."""
    powers = 10.0 ** np.arange(9, -9, -1.0)
    able = [w for w in powers if w <= np.max(np.abs(y))]
    return float(next((w for w in able if np.allclose(y / w, np.rint(y / w), 1e-12, 1e-9)), 1e-9))


def rounded_normal(y: np.ndarray, mean: np.ndarray, std: np.ndarray, width: float) -> float:
    """Return the mean of ``-log P(|Y - y| <= width / 2)`` of normal forecasts, in nats.

    Of ``F(b) - F(a)``, with the tail taken that keeps its digits: ``log F(b) + log(1 - F(a) / F(b))`` below the mean.
    """
    low, high = (y - 0.5 * width - mean) / std, (y + 0.5 * width - mean) / std
    low, high = np.where(low + high > 0.0, -high, low), np.where(low + high > 0.0, -low, high)
    upper, lower = log_ndtr(high), log_ndtr(low)
    return -float(np.mean(upper + np.log1p(-np.exp(lower - upper))))
