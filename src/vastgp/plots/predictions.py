"""Predictions beside observations: how far off, and how far off for the stated uncertainty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from vastgp.metrics import rmse
from vastgp.metrics._vectors import (
    FloatArray,
    half_width,
    interval_ends,
    prediction_vectors,
    target_vectors,
    whole_number,
)
from vastgp.plots._style import (
    ACCENT,
    DATA,
    MODEL,
    REFERENCE,
    drawable,
    given_or_new,
    legend_above,
    padded,
    percent,
    plain,
    plain_text,
    subset,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def observed_plot(
    y: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike | None = None,
    *,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
    level: float = 0.95,
    max_points: Any = 3000,
    max_intervals: Any = 100,
    target_name: str = "target",
    seed: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """Observed targets against their predictions, with intervals for a random few.

    The prediction is on the horizontal axis: around the diagonal the observations then scatter
    evenly when the mean is right (on the other axis a right model tilts, by regression to the mean).

    Parameters
    ----------
    y, mean : array_like, shape (n,)
        Observed targets and predictive means, in the same units.
    std : array_like, shape (n,), optional
        Standard deviation of a new observation, for intervals of a normal distribution. Without it, and without
        `low` and `high`, no intervals are drawn.
    low, high : array_like, shape (n,), optional
        Ends of the intervals in place of normal ones, as of ``predict_interval``; infinite ones go to the edge.
    level : float, default 0.95
        Probability of the intervals.
    max_points : int, default 3000
        Observations drawn, a random subset of the rows.
    max_intervals : int, default 100
        Intervals drawn, for a random subset of the drawn observations.
    target_name : str, default "target"
        For the labels.
    seed : int, default 0
        Of the subsets.
    ax : Axes, optional
        Where to draw; a new figure without it.

    Returns
    -------
    matplotlib.axes.Axes
    """
    observed, centre = target_vectors(y, mean)
    shown = subset(observed.size, whole_number("max_points", max_points, 1), seed)
    most = whole_number("max_intervals", max_intervals, 1)
    ends = _ends(observed, centre, std, low, high, level)

    ax = given_or_new(ax, width=5.4, height=4.9)
    if ends is not None:
        few = shown[subset(shown.size, most, seed + 1)]
        below, above = (end[few] for end in ends)
        bars = drawable(below, above, observed[shown], centre[shown])
        ax.vlines(
            centre[few],
            *bars,
            color=MODEL,
            alpha=0.45,
            lw=1.2,
            label=f"{percent(level)} interval"
            + (f" ({few.size} drawn)" if few.size < observed.size else ""),
        )
        outside = few[(observed[few] < below) | (observed[few] > above)]
    else:
        outside, bars = shown[:0], None
    _cloud(ax, centre[shown], observed[shown], "observation")
    if outside.size:
        ax.plot(
            centre[outside],
            observed[outside],
            "o",
            color=ACCENT,
            ms=5,
            label=f"outside its interval ({outside.size})",
        )
    limits = padded(observed[shown], centre[shown], *(bars or ()))
    ax.plot(limits, limits, color=REFERENCE, lw=1.2, zorder=1)
    ax.set(xlim=padded(centre[shown]), ylim=limits)
    plain(
        ax,
        title=f"Observed and predicted, RMSE {rmse(observed, centre):.4g}",
        xlabel=f"predicted {plain_text(target_name, 20)}",
        ylabel=f"observed {plain_text(target_name, 20)}",
    )
    legend_above(ax, columns=2)
    return ax


def _ends(
    y: FloatArray, mean: FloatArray, std: Any, low: Any, high: Any, level: float
) -> tuple[FloatArray, FloatArray] | None:
    """Ends of intervals, of the deviation where they are not given; None without either."""
    half = half_width(level)
    if (low is None) != (high is None):
        missing = "low" if low is None else "high"
        raise ValueError(f"{missing}: expected together with the other one of low and high")
    if low is not None:
        return interval_ends(y, low, high)
    if std is None:
        return None
    spread = half * prediction_vectors(y, mean, std)[2]
    return mean - spread, mean + spread


def residual_plot(
    y: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    *,
    level: float = 0.95,
    max_points: Any = 3000,
    target_name: str = "target",
    seed: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """Residuals over their stated standard deviation, against the prediction.

    Calibrated predictions give a cloud without trend whose central `level` lies between the two
    lines everywhere. Running quantiles of *all* rows (equal counts) show where it does not.

    Parameters
    ----------
    y, mean, std : array_like, shape (n,)
        Observed targets, predictive means and standard deviations of a new observation.
    level : float, default 0.95
        Probability of the interval marked by lines and by the outer running quantiles.
    max_points : int, default 3000
        Residuals drawn, a random subset of the rows.
    target_name : str, default "target"
        For the labels.
    seed : int, default 0
        Of the subset.
    ax : Axes, optional
        Where to draw; a new figure without it.

    Returns
    -------
    matplotlib.axes.Axes
    """
    observed, centre, spread = prediction_vectors(y, mean, std)
    z, half = (observed - centre) / spread, half_width(level)
    shown = subset(z.size, whole_number("max_points", max_points, 1), seed)

    ax = given_or_new(ax)
    ax.axhspan(-half, half, color=REFERENCE, alpha=0.18, lw=0, label=f"{percent(level)} interval")
    ax.axhline(0.0, color=REFERENCE, lw=1.2)
    _cloud(ax, centre[shown], z[shown], "residual")
    where, quantiles = _running_quantiles(centre, z, (0.5 - level / 2, 0.5, 0.5 + level / 2))
    if where.size:
        ax.plot(where, quantiles[:, 1], color=MODEL, lw=2.2, label="running median")
        ax.plot(
            where, quantiles[:, 0], color=ACCENT, lw=1.8, label=f"running {percent(level)} range"
        )
        ax.plot(where, quantiles[:, 2], color=ACCENT, lw=1.8)
    # Far outliers would flatten everything else; they are counted instead.
    limit = max(1.5 * half, min(float(np.abs(z).max()) * 1.05, 3.0 * half))
    beyond = int(np.sum(np.abs(z) > limit))
    ax.set(xlim=padded(centre[shown]), ylim=(-limit, limit))
    plain(
        ax,
        title="Standardised residuals" + (f" ({beyond} beyond the axis)" if beyond else ""),
        xlabel=f"predicted {plain_text(target_name, 20)}",
        ylabel="(observed - predicted) / std",
    )
    legend_above(ax, columns=2)
    return ax


def _running_quantiles(
    x: FloatArray, values: FloatArray, quantiles: tuple[float, ...]
) -> tuple[FloatArray, FloatArray]:
    """Quantiles of `values` in up to 20 groups of neighbours in `x`, each of at least 40 rows."""
    groups = min(20, x.size // 40)
    if groups < 2:
        return np.empty(0), np.empty((0, len(quantiles)))
    parts = np.array_split(np.argsort(x, kind="stable"), groups)
    where = np.array([np.median(x[part]) for part in parts])
    return where, np.array([np.quantile(values[part], quantiles) for part in parts])


def _cloud(ax: Axes, x: FloatArray, y: FloatArray, label: str) -> None:
    """Points, fainter where they are many."""
    few = x.size <= 300
    size, alpha = (7.0, 0.8) if few else (4.5, 0.35)
    ax.plot(x, y, ".", color=DATA, ms=size, alpha=alpha, mew=0, label=label)
