"""Does the stated uncertainty hold? PIT histogram and coverage of the central intervals."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from vastgp.metrics import calibration_curve, calibration_error, coverage, pit_values
from vastgp.metrics._vectors import half_width, whole_number
from vastgp.plots._style import ACCENT, MODEL, REFERENCE, given_or_new, new_axes, percent, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def calibration_plot(
    y: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    *,
    bins: Any = 20,
    level: float = 0.95,
    axes: Sequence[Axes] | None = None,
) -> Figure:
    """PIT histogram and coverage curve side by side.

    Parameters
    ----------
    y, mean : array_like, shape (n,)
        Observed targets and predictive means, in the same units.
    std : array_like, shape (n,)
        Standard deviation of a new observation.
    bins : int, default 20
        Bars of the histogram.
    level : float, default 0.95
        Interval whose coverage is marked, and level of the bands of chance.
    axes : two Axes, optional
        Where to draw; a new figure without them.

    Returns
    -------
    matplotlib.figure.Figure
    """
    left, right = new_axes(2, width=5.0) if axes is None else axes
    pit_histogram(y, mean, std, bins=bins, level=level, ax=left)
    coverage_curve(y, mean, std, level=level, ax=right)
    return right.get_figure(root=True)  # type: ignore[return-value]


def save_calibration_plot(
    file: str | os.PathLike[str],
    y: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    *,
    format: str = "png",
) -> None:
    """Write `calibration_plot` to a file, for programs: no window system and no pyplot state is touched.

    Parameters
    ----------
    file : path
        Where to write; replaced if it is there.
    y, mean, std : array_like, shape (n,)
        Observed targets, predictive means and standard deviations of a new observation.
    format : str, default "png"
        Picture format, as matplotlib names it.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 4.2), layout="constrained")
    calibration_plot(y, mean, std, axes=figure.subplots(1, 2))
    figure.savefig(file, format=format, dpi=150)


def pit_histogram(
    y: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    *,
    bins: Any = 20,
    level: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Histogram of the PIT values, flat up to chance when the predictions are calibrated.

    Parameters
    ----------
    y, mean, std : array_like, shape (n,)
        Observed targets, predictive means and standard deviations of a new observation.
    bins : int, default 20
        Number of bars.
    level : float, default 0.95
        Probability of the band in which each bar of a calibrated model falls (binomial).
    ax : Axes, optional
        Where to draw; a new figure without it.

    Returns
    -------
    matplotlib.axes.Axes
    """
    from scipy.stats import binom

    whole_number("bins", bins, 2)
    half_width(level)  # refuses a level outside (0, 1)
    pit = pit_values(y, mean, std)
    counts, edges = np.histogram(pit, bins=bins, range=(0.0, 1.0))
    expected = pit.size / bins
    low, high = np.asarray(binom.interval(level, pit.size, 1.0 / bins)) / expected

    ax = given_or_new(ax)
    ax.stairs(counts / expected, edges, fill=True, color=MODEL, alpha=0.75)
    ax.axhspan(
        low,
        high,
        color=REFERENCE,
        alpha=0.28,
        lw=0,
        label=f"{percent(level)} band of a calibrated model",
    )
    ax.axhline(1.0, color=REFERENCE, lw=1.2)
    ax.set_xlim(0.0, 1.0)
    ax.set_ylim(0.0, 1.25 * max(float(counts.max()) / expected, float(high)))
    plain(
        ax,
        title=f"PIT histogram, {pit.size:,} observations",
        xlabel="predictive distribution function at the observation",
        ylabel="density (calibrated: 1)",
    )
    ax.legend(loc="upper right", frameon=False)
    return ax


def coverage_curve(
    y: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    *,
    level: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Observed against nominal coverage of the central intervals.

    Parameters
    ----------
    y, mean, std : array_like, shape (n,)
        Observed targets, predictive means and standard deviations of a new observation.
    level : float, default 0.95
        Interval that is marked and written out; also the probability of the band of chance.
    ax : Axes, optional
        Where to draw; a new figure without it.

    Returns
    -------
    matplotlib.axes.Axes
        Above the diagonal the intervals are too wide, below it too narrow.
    """
    marked = coverage(y, mean, std, level)
    nominal, observed = calibration_curve(y, mean, std)
    ends = np.concatenate([[0.0], nominal, [1.0]])
    band = half_width(level) * np.sqrt(ends * (1.0 - ends) / np.size(np.asarray(y)))

    ax = given_or_new(ax, width=4.6)
    ax.fill_between(
        ends,
        np.maximum(ends - band, 0.0),
        np.minimum(ends + band, 1.0),
        color=REFERENCE,
        alpha=0.28,
        lw=0,
        label=f"{percent(level)} band if calibrated",
    )
    ax.plot([0.0, 1.0], [0.0, 1.0], color=REFERENCE, lw=1.2)
    # Closed at both ends: an interval of probability 0 holds nothing, one of probability 1 all.
    ax.plot(ends, np.concatenate([[0.0], observed, [1.0]]), color=MODEL, lw=2.0, label="model")
    ax.plot(
        level,
        marked,
        "o",
        color=ACCENT,
        ms=7,
        label=f"{percent(level)} intervals hold {percent(marked)}",
        clip_on=False,
        zorder=5,
    )
    ax.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0), aspect="equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda value, _: percent(value))
    plain(
        ax,
        title=f"Coverage, calibration error {calibration_error(y, mean, std):.3f}",
        xlabel="nominal level of the central interval",
        ylabel="observations inside",
    )
    # In the half of the square that the curve leaves empty.
    wide = float(np.mean(observed - nominal)) > 0.0
    ax.legend(loc="lower right" if wide else "upper left", frameon=False)
    return ax
