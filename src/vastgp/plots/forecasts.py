"""Forecasts beside what came to pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from vastgp.metrics._vectors import FloatArray, half_width, interval_ends, same_length, vector
from vastgp.plots._style import (
    ACCENT,
    DATA,
    MODEL,
    REFERENCE,
    as_dates,
    drawable,
    given_or_new,
    legend_above,
    percent,
    plain,
    plain_text,
    readable_dates,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Of more observations a line shows where they went, points would cover each other.
_MOST_POINTS = 150


def forecast_plot(
    times: Any,
    y: ArrayLike,
    mean: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    span: ArrayLike | None = None,
    ahead: Any = None,
    time_name: str = "",
    target_name: str = "target",
    level: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Forecasts with their intervals beside what was observed, and what is forecast beyond.

    Parameters
    ----------
    times : array_like, shape (n,)
        Dates (of NumPy, pandas or Python) or numbers, in any order.
    y : array_like, shape (n,)
        What was observed.
    mean, low, high : array_like, shape (n,)
        What was forecast, and the ends of its interval; infinite ones go to the edge.
    span : array_like of int, shape (n,), optional
        Which rows were forecast together: each span has a curve of its own, and a line where it begins. All as one
        without it.
    ahead : (times, mean, low, high), optional
        What is forecast where nothing has been observed, its times of the kind of the others.
    time_name, target_name : str
        For the labels.
    level : float, default 0.95
        Probability of the intervals, for the legend.
    ax : Axes, optional
        Where to draw; a new figure without it.

    Returns
    -------
    matplotlib.axes.Axes
    """
    half_width(level)
    at = _times("times", times)
    observed = vector("y", y)
    same_length("y", observed, at)
    bands = _bands("", at, mean, low, high)
    beyond = None if ahead is None else _ahead(ahead, at)
    spans = np.zeros(len(at), np.int64) if span is None else np.asarray(span)
    same_length("span", spans, at)
    # Whatever is endless ends at one edge, beyond all that is drawn.
    drawn = [observed, *bands, *(beyond[1:] if beyond is not None else ())]
    bands[1:] = drawable(bands[1], bands[2], *drawn)
    if beyond is not None:
        beyond[2:] = drawable(beyond[2], beyond[3], *drawn)
    ax = given_or_new(ax, width=7.2)
    for number, one in enumerate(np.unique(spans)):
        rows = np.flatnonzero(spans == one)
        rows = rows[np.argsort(at[rows], kind="stable")]
        ax.axvline(at[rows[0]], color=REFERENCE, lw=0.9, ls=":")
        labels = (f"{percent(level)} interval", "forecast") if number == 0 else ("", "")
        _forecast(ax, at[rows], [band[rows] for band in bands], MODEL, labels)
    if beyond is not None:
        _forecast(ax, beyond[0], beyond[1:], ACCENT, ("", "what comes next"))
    order = np.argsort(at, kind="stable")
    line = {"marker": "o", "ls": "none"} if len(at) <= _MOST_POINTS else {"lw": 0.9}
    ax.plot(
        at[order], observed[order], color=DATA, ms=3.5, mew=0, label="observed", zorder=3, **line
    )
    ax.margins(x=0.01)
    plain(ax, title="", xlabel=plain_text(time_name), ylabel=plain_text(target_name))
    readable_dates(ax.xaxis, at)
    legend_above(ax, columns=4)
    return ax


def _forecast(
    ax: Axes, at: np.ndarray, bands: Sequence[FloatArray], colour: str, labels: tuple[str, str]
) -> None:
    """A curve in its band; of one moment, a bar."""
    centre, below, above = bands
    if len(at) == 1:
        reach = np.maximum([centre - below, above - centre], 0.0)
        ax.errorbar(at, centre, yerr=reach, fmt="_", color=colour, ms=9, label=labels[1] or None)
        return
    ax.fill_between(at, below, above, color=colour, alpha=0.2, lw=0, label=labels[0] or None)
    ax.plot(at, centre, color=colour, lw=1.8, label=labels[1] or None)


def _bands(
    of: str, at: np.ndarray, mean: ArrayLike, low: ArrayLike, high: ArrayLike
) -> list[FloatArray]:
    centre = vector(f"{of}mean", mean)
    same_length(f"{of}mean", centre, at)
    return [centre, *interval_ends(centre, low, high, (f"{of}low", f"{of}high"))]


def _ahead(ahead: Any, at: np.ndarray) -> list[Any]:
    """What is forecast beyond, in the order of its times."""
    if not isinstance(ahead, (tuple, list)) or len(ahead) != 4:
        got = f"{len(ahead)} parts" if isinstance(ahead, (tuple, list)) else repr(type(ahead))
        raise ValueError(f"ahead: expected the four parts (times, mean, low, high), got {got}")
    later = _times("ahead times", ahead[0])
    if (later.dtype.kind == "M") != (at.dtype.kind == "M"):
        kinds = ["dates" if one.dtype.kind == "M" else "numbers" for one in (at, later)]
        raise ValueError(
            f"ahead: its times are {kinds[1]} and those in times {kinds[0]}; give both as the same kind"
        )
    order = np.argsort(later, kind="stable")
    return [part[order] for part in (later, *_bands("ahead ", later, *ahead[1:]))]


def _times(name: str, times: Any) -> np.ndarray:
    """Dates or finite numbers, as matplotlib takes them."""
    at = as_dates(times)
    if at.dtype.kind != "M":
        return vector(name, at)
    if at.ndim != 1 or not at.size or np.isnat(at).any():
        raise ValueError(f"{name}: expected at least one date, in one dimension, and none missing")
    return at
