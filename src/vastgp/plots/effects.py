"""What a model of many inputs has learned: which of them matter, how each acts, where intervals hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from vastgp.metrics._vectors import half_width, positive, same_length, vector
from vastgp.plots._style import (
    ACCENT,
    MODEL,
    REFERENCE,
    as_dates,
    date_labels,
    given_or_new,
    number_labels,
    percent,
    plain,
    plain_names,
    plain_text,
    readable_dates,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHUFFLED = "Loss when an input is shuffled"


def effect_plot(
    values: Any,
    mean: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    name: str = "input",
    target_name: str = "target",
    level: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Prediction over one input, averaged over the others, with its interval.

    Parameters
    ----------
    values : sequence of shape (k,)
        Numbers and dates make a curve; labels, or at most ten numbers or dates, points with bars.
    mean, low, high : array_like, shape (k,)
        Average prediction at each value, and the ends of its interval; equal ones where there is none.
    name, target_name : str
        For the labels.
    level : float, default 0.95
        Probability of the interval, for the legend.
    ax : Axes, optional
        Where to draw; a new figure without it.

    Returns
    -------
    matplotlib.axes.Axes
    """
    half_width(level)
    centre, below, above = vector("mean", mean), vector("low", low), vector("high", high)
    numbers = as_dates(values)
    for part, value in (("low", below), ("high", above), ("values", numbers)):
        same_length(part, value, centre)
    certain = bool(np.all(below == centre) and np.all(above == centre))
    curve = numbers.dtype.kind in "fiuM" and len(numbers) > 10
    ax = given_or_new(ax, width=5.6 if curve else max(5.6, 0.25 * len(numbers)))
    if curve:
        ax.fill_between(numbers, below, above, color=MODEL, alpha=0.2, lw=0)
        ax.plot(numbers, centre, color=MODEL, lw=2.0)
        readable_dates(ax.xaxis, numbers)
        if numbers.dtype.kind != "M":
            ax.locator_params(axis="x", nbins=6)
    else:
        at = np.arange(len(centre))
        reach = np.maximum([centre - below, above - centre], 0.0)
        if certain:
            ax.plot(at, centre, "o", color=MODEL, ms=6)
        else:
            ax.errorbar(
                at, centre, yerr=reach, fmt="o", color=MODEL, ms=6, elinewidth=1.6, capsize=4
            )
        labels = _labels(numbers)
        turned = sum(map(len, labels)) > 32
        ax.set_xticks(at, labels, rotation=40 if turned else 0, ha="right" if turned else "center")
        ax.set_xlim(-0.6, len(at) - 0.4)
    plain(
        ax,
        title=plain_text(name),
        xlabel="",
        ylabel=plain_text(target_name, 26)
        if certain
        else f"{plain_text(target_name, 18)} ({percent(level)})",
    )
    return ax


def _labels(values: np.ndarray) -> list[str]:
    if values.dtype.kind in "fiu":
        return number_labels(values)
    if values.dtype.kind == "M":
        return date_labels(values)
    if values.dtype.kind == "m":  # of nanoseconds a list is one of numbers
        values = values.astype("m8[us]")
    return plain_names(values.tolist(), 11)


def importance_plot(
    names: Sequence[str] | Sequence[tuple[Any, ...]],
    drops: ArrayLike | None = None,
    errors: ArrayLike | None = None,
    *,
    most: int = 15,
    ax: Axes | None = None,
) -> Axes:
    """How much worse a model predicts when one input is shuffled, the most important on top.

    Parameters
    ----------
    names : sequence of str, or of (str, float, float)
        Of the inputs, in decreasing order; or all that is drawn of each, as ``importance_`` of the front doors. That is
        empty where a budget left no time for it: the plot then says so. An infinite error there has no bar.
    drops : array_like, shape (k,), optional
        Loss of held-out log density without the input, in nats a row.
    errors : array_like, shape (k,), optional
        Standard errors; the bars are two on either side.
    most : int, default 15
        Inputs drawn.
    ax : Axes, optional
        Where to draw; a new figure without it.

    Returns
    -------
    matplotlib.axes.Axes
    """
    if most < 1:
        raise ValueError(f"most: expected at least one input to draw, got {most}")
    if drops is None or errors is None:
        if drops is not None or errors is not None:
            raise ValueError("drops, errors: give both, or neither and names with both of each.")
        parts: list[Any] = [*names]
        if not parts:
            return _without_importances(given_or_new(ax))
        names, drops, errors = ([part[k] for part in parts] for k in range(3))
        # of a single row there is none
        errors = np.nan_to_num(errors, posinf=0.0)
    drop, error = vector("drops", drops), vector("errors", errors)
    for part, each in (("errors", error), ("names", np.asarray(names, dtype=object))):
        same_length(part, each, drop)
    drop, error = drop[:most], error[:most]
    ax = given_or_new(ax, height=max(4.2, 0.9 + 0.22 * len(drop)))
    at = np.arange(len(drop))[::-1]
    ax.barh(at, drop, color=MODEL, alpha=0.75, height=0.6)
    ax.errorbar(drop, at, xerr=2.0 * error, fmt="none", ecolor=ACCENT, elinewidth=1.6, capsize=3)
    ax.axvline(0.0, color=REFERENCE, lw=1.2)
    ax.set_yticks(at, plain_names(list(names)[:most], 18))
    plain(ax, title=_SHUFFLED, xlabel="nats a row, ± 2 standard errors", ylabel="")
    return ax


def _without_importances(ax: Axes) -> Axes:
    said = "no time was left to shuffle inputs"
    ax.text(0.5, 0.5, said, transform=ax.transAxes, ha="center", color=REFERENCE)
    plain(ax, title=_SHUFFLED, xlabel="", ylabel="")
    ax.set_axis_off()
    return ax


def group_coverage_plot(
    coverage: ArrayLike,
    rows: ArrayLike,
    *,
    level: float = 0.9,
    xlabel: str = "tenths of the rows by stated deviation",
    ax: Axes | None = None,
) -> Axes:
    """Coverage of an interval in groups of rows, with the band of three standard errors around its level.

    Parameters
    ----------
    coverage : array_like, shape (k,)
        Fraction inside, in each group.
    rows : array_like, shape (k,)
        Rows of each group.
    level : float, default 0.9
        Nominal coverage.
    xlabel : str
        What the groups are.
    ax : Axes, optional
        Where to draw; a new figure without it.

    Returns
    -------
    matplotlib.axes.Axes
    """
    half_width(level)
    held, count = vector("coverage", coverage), positive("rows", vector("rows", rows))
    same_length("rows", count, held)
    band = 3.0 * np.sqrt(level * (1.0 - level) / count)
    at = np.arange(1, len(held) + 1)
    far = np.abs(held - level) > band
    ax = given_or_new(ax)
    edges = np.concatenate([at - 0.5, at[-1:] + 0.5])
    ax.stairs(
        np.minimum(level + band, 1.0),
        edges,
        baseline=np.maximum(level - band, 0.0),
        fill=True,
        color=REFERENCE,
        alpha=0.28,
        label="three standard errors",
    )
    ax.axhline(level, color=REFERENCE, lw=1.2)
    ax.plot(at, held, "-", color=MODEL, lw=1.2, alpha=0.6)
    ax.plot(at[~far], held[~far], "o", color=MODEL, ms=6, label=f"{percent(level)} intervals hold")
    if far.any():
        ax.plot(at[far], held[far], "s", color=ACCENT, ms=7, label="more than chance")
    lowest = min(float(held.min()), level - float(band.max()))
    ax.set_ylim(lowest - 0.35 * (1.0 - lowest), 1.02)  # the legend has room below
    ax.set_xticks(at[:: -(-len(at) // 20)])
    ax.yaxis.set_major_formatter(lambda value, _: percent(value))
    plain(
        ax, title="Coverage by group", xlabel=plain_text(xlabel, 60), ylabel="observations inside"
    )
    ax.legend(frameon=False, loc="lower left", fontsize=9)
    return ax
