"""The figures of a report."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from vastgp import plots
from vastgp.auto.calibration import normal_scores
from vastgp.auto.report.data import ReportData
from vastgp.auto.report.html import figure, number, percent

_WIDE = 6.3  # inches: its letters can be read on a phone, too
_FURTHEST = 8.2  # normal score of the last PIT value before one; beyond it plots show nothing


def calibration_figures(data: ReportData) -> list[str]:
    """PIT histogram, coverage curve, coverage by stated deviation, and observed beside predicted."""
    drawn = []
    if data.u is not None:
        # whatever the distributions are: the scores are standard normal if they are right
        z = np.clip(normal_scores(data.u), -_FURTHEST, _FURTHEST)
        scores = z, np.zeros(len(z)), np.ones(len(z))
        drawn.append(
            _drawn(
                partial(_coverage, *scores),
                "coverage",
                f"Fraction of {data.about} rows inside the intervals, against the nominal level",
                "On the diagonal (grey: within chance) intervals hold as often as they say; "
                "below it they are too narrow. The dot marks 95 %.",
            )
        )
        drawn.append(
            _drawn(
                partial(plots.pit_histogram, *scores),
                "pit",
                "Histogram of the probabilities that the model gave to values below the true one",
                "Flat within the band when predictions are right; high ends mean intervals too narrow.",
            )
        )
    record = data.calibration
    if record is not None and len(record.by_std) > 1:
        held, rows = [one.coverage for one in record.by_std], [one.rows for one in record.by_std]
        drawn.append(
            _drawn(
                partial(plots.group_coverage_plot, held, rows, level=record.by_std[0].level),
                "groups",
                "Coverage of 90 % intervals in groups of rows by stated deviation: "
                + ", ".join(percent(one) for one in held),
                "From the rows that the model is surest of (1) to those it is least sure of.",
            )
        )
    return drawn + _prediction_figures(data)


def _prediction_figures(data: ReportData) -> list[str]:
    drawn = []
    if data.y is not None:
        drawn.append(
            _drawn(
                partial(_observed, data),
                "observed",
                f"Observed targets of {data.about} rows against their predictions",
                f"{data.about.capitalize()} rows around the diagonal. "
                "Bars are the intervals of 95 % of some of them; those in orange miss.",
            )
        )
    if data.labels is not None:
        drawn.append(
            _drawn(
                partial(plots.reliability_plot, data.labels, data.probabilities, data.classes),
                "reliability",
                f"Observed frequency against predicted probability of {data.about} rows",
                "On the diagonal, what is predicted with a probability happens as often.",
                height=5.4,
            )
        )
    return drawn


def _coverage(y: Any, mean: Any, std: Any, ax: Any) -> None:
    plots.coverage_curve(y, mean, std, ax=ax)
    ax.get_legend().remove()


def _observed(data: ReportData, ax: Any) -> None:
    plots.observed_plot(
        data.y,
        data.mean,
        data.std,
        low=data.low,
        high=data.high,
        max_points=800,
        max_intervals=60,
        target_name=data.target,
        ax=ax,
    )
    ax.get_legend().remove()  # the words below the figure say it, and leave room to the points
    ax.set_title("Observed and predicted", fontsize=11, loc="left", pad=8)
    ax.locator_params(axis="x", nbins=5)


def forecast_figure(data: ReportData) -> str:
    """The last rows in time beside what was forecast of them."""
    shown = data.forecast
    assert shown is not None
    inside = float(np.mean((shown.low <= shown.y) & (shown.y <= shown.high)))
    rows = f"{len(shown.y):,} {data.about} rows"
    held = f"{percent(inside)} of {rows} are within their intervals of 95 %."
    return _drawn(
        partial(
            plots.forecast_plot, shown.times, shown.y, shown.mean, shown.low, shown.high,
            span=shown.span, ahead=shown.ahead, target_name=data.target,
        ),
        "forecast",
        f"{data.target} over {shown.name}: {data.about} rows and their forecasts. {held}",
        held,
        wide=True,
    )  # fmt: skip


def importance_figure(data: ReportData) -> list[str]:
    """What is lost without each input."""
    if not data.importance:
        return []
    return [
        _drawn(
            partial(plots.importance_plot, data.importance),
            "importance",
            f"Loss of log density of {data.about} rows when each input is shuffled",
            "Of two inputs that tell the same, each can be done without.",
            height=1.3 + 0.26 * min(len(data.importance), 15),
        )
    ]


def effect_figures(data: ReportData) -> list[str]:
    """One curve for each of the strongest six inputs."""
    drawn, scale = [], _common_scale(data.effects[:6])
    for k, (name, values, *bands) in enumerate(data.effects[:6]):
        mean, low, high = (np.asarray(band, dtype=np.float64) for band in bands)
        ends = f"{number(np.min(mean), 3)} to {number(np.max(mean), 3)}"
        drawn.append(
            _drawn(
                partial(
                    _effect, (values, mean, low, high), name, data.effect_of or data.target, scale
                ),
                f"effect{k}",
                f"Effect of {name}: the average prediction goes from {ends}",
                f"Average prediction over {name}: {ends}.",
                height=3.0,
            )
        )
    return drawn


def _common_scale(effects: Any) -> tuple[float, float]:
    """The ends of a scale on which all effects can be compared."""
    bands = [np.asarray(band, dtype=np.float64) for one in effects for band in one[2:]]
    ends = np.concatenate(bands or [np.zeros(1)])
    low, high = float(np.min(ends)), float(np.max(ends))
    room = 0.05 * (high - low) or 1.0
    return low - room, high + room


def _effect(shown: Any, name: str, target: str, scale: tuple[float, float], ax: Any) -> None:
    plots.effect_plot(*shown, name=name, target_name=target, ax=ax)
    ax.set_ylim(*scale)


def _drawn(
    draw: Any, name: str, alt: str, caption: str, height: float = 3.6, *, wide: bool = False
) -> str:
    size = {"height": height, "width": _WIDE} if wide else {"height": height}
    svg = plots.svg_figure(lambda ax: draw(ax=ax), alt=alt, name=name, **size)
    return figure(svg, caption, "wide" if wide else "")
