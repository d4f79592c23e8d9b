"""Do predicted probabilities come true as often as they say? Reliability diagram of a classifier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vastgp.metrics import classification_report, reliability_curve
from vastgp.metrics._probabilities import check_probabilities
from vastgp.metrics.classification import bin_numbers, predicted_events
from vastgp.plots._style import (
    MODEL,
    REFERENCE,
    given_or_new,
    legend_above,
    percent,
    plain,
    plain_text,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEVEL = 0.95
_LINE = 15.5  # points: one line of text above the axes
_ROOM = 0.32  # of the histogram, in units of the diagram


def reliability_plot(
    labels: ArrayLike,
    probabilities: ArrayLike,
    classes: Any = None,
    *,
    bins: Any = 10,
    ax: Axes | None = None,
) -> Axes:
    """Reliability diagram: observed frequency against predicted probability, with the counts below.

    With two classes the probability is that of the second; with more it is that of the most
    probable class, which is observed or not. The bars are 95 % intervals (Clopper and Pearson) of
    the frequency in each bin: calibrated predictions have the diagonal in at least about 95 % of them.
    Accuracy, NLPD in nats, Brier score and expected calibration error stand above.

    Parameters
    ----------
    labels : array_like, shape (n,)
        Observed classes.
    probabilities : array_like, shape (n, K) or (n,)
        Predicted probabilities of the classes, or of the second of two.
    classes : array_like, shape (K,), optional
        The class of each column. Default: the sorted distinct labels.
    bins : int, default 10
        Bins of equal width, of the diagram, the histogram and the calibration error.
    ax : Axes, optional
        Where to draw; a new figure without it. The histogram lies within it, below zero.

    Returns
    -------
    matplotlib.axes.Axes
        Of the diagram; the histogram is its ``child_axes[0]``. Below the diagonal the predictions
        come true less often than they say.

    Raises
    ------
    ValueError
        If labels or probabilities are not valid, see `vastgp.metrics`, or `bins` is not positive.
    """
    checked = check_probabilities(labels, probabilities, classes)
    curve = reliability_curve(labels, probabilities, classes, bins=bins, level=_LEVEL)
    scores = classification_report(labels, probabilities, classes, bins=bins)
    number = bin_numbers(predicted_events(checked)[0], bins, "uniform")

    ax = given_or_new(ax, width=4.8, height=6.0)
    ax.plot([0.0, 1.0], [0.0, 1.0], color=REFERENCE, lw=1.2, label="calibrated")
    ax.errorbar(
        curve.confidence,
        curve.frequency,
        # Rounding must not make a length negative where the frequency is 0 or 1.
        yerr=np.maximum([curve.frequency - curve.low, curve.high - curve.frequency], 0.0),
        fmt="o-",
        color=MODEL,
        ms=5.5,
        lw=1.8,
        elinewidth=1.2,
        capsize=3,
        clip_on=False,
        zorder=3,
        label=f"model, {percent(_LEVEL)} intervals",
    )
    two = len(checked.classes) == 2
    plain(
        ax,
        title=f"Reliability, {checked.column.size:,} observations",
        xlabel=f"predicted probability of {plain_text(checked.classes[1], 24)}"
        if two
        else "probability of the most probable class",
        ylabel="observed frequency" if two else "fraction of correct predictions",
    )
    # Room for the histogram below zero, within the axes, so that any layout keeps it clear.
    ax.set(xlim=(0.0, 1.0), ylim=(-_ROOM, 1.0), aspect="equal", yticks=np.linspace(0.0, 1.0, 6))
    ax.spines["left"].set_bounds(0.0, 1.0)
    ax.axhline(0.0, color=ax.spines["left"].get_edgecolor(), lw=ax.spines["left"].get_linewidth())
    ax.yaxis.label.set_y((_ROOM + 0.5) / (_ROOM + 1.0))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda value, _: percent(value))
    _counts_below(ax, np.bincount(number, minlength=bins))
    legend_above(ax, columns=2)
    ax.annotate(
        f"accuracy {percent(scores['accuracy'])},  NLPD {scores['nlpd']:.3g} nats\n"
        f"Brier score {scores['brier']:.3g},  ECE {scores['ece']:.2g}",
        (0.0, 1.0),
        xycoords="axes fraction",
        xytext=(2.0, 6.0 + _LINE),
        textcoords="offset points",
        va="bottom",
        fontsize=9.5,
        linespacing=1.3,
    )
    ax.set_title(ax.get_title(loc="left"), fontsize=11, loc="left", pad=7.0 + 3.0 * _LINE)
    return ax


def _counts_below(ax: Axes, counts: NDArray[np.int64]) -> None:
    """Histogram of the predictions in the room below the diagram."""
    below = ax.inset_axes((0.0, -_ROOM, 1.0, 0.8 * _ROOM), transform=ax.transData)
    edges = np.linspace(0.0, 1.0, counts.size + 1)
    below.stairs(counts, edges, fill=True, color=MODEL, alpha=0.75)
    plain(below, title="", xlabel="", ylabel="count")
    below.set(xlim=(0.0, 1.0), ylim=(0.0, 1.05 * counts.max()), xticks=[])
    below.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    below.locator_params(axis="y", nbins=3, integer=True)
