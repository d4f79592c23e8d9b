"""Forecasts are drawn in the order of time, span by span, beside what came to pass."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.dates import date2num

from vastgp import plots

_DAYS = np.datetime64("2024-01-01", "us") + np.arange(6).astype("m8[D]")


def _curves(ax: plt.Axes) -> list[np.ndarray]:
    """The x and y of forecasts: solid lines that are neither observed nor where a span begins."""
    return [line.get_xydata() for line in ax.lines if line.get_ls() == "-" and line.get_lw() > 1.0]


def test_each_span_is_a_curve_from_where_it_was_forecast():
    y = np.arange(6.0)
    order = np.array([3, 1, 5, 0, 4, 2])  # rows of a table that is not sorted
    ax = plots.forecast_plot(
        _DAYS[order], y[order], y[order] + 0.5, y[order] - 1.0, y[order] + 2.0,
        span=(np.arange(6) >= 4)[order],
    )  # fmt: skip
    at = date2num(_DAYS)
    first, second = _curves(ax)
    np.testing.assert_allclose(first, np.column_stack([at, y + 0.5])[:4])
    np.testing.assert_allclose(second, np.column_stack([at, y + 0.5])[4:])
    begins = [line.get_xdata()[0] for line in ax.lines if line.get_ls() == ":"]
    assert begins == [_DAYS[0], _DAYS[4]]
    bands = [band.get_paths()[0].vertices for band in ax.collections]
    assert [(band[:, 1].min(), band[:, 1].max()) for band in bands] == [(-1.0, 5.0), (3.0, 7.0)]
    observed = next(line for line in ax.lines if line.get_label() == "observed")
    np.testing.assert_allclose(observed.get_xydata(), np.column_stack([at, y]))
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["95 % interval", "forecast", "observed"]


def test_what_comes_next_has_its_own_colour_and_one_row_is_a_bar():
    ahead = ([3.0, 2.0], [30.0, 20.0], [29.0, 19.0], [31.0, 21.0])
    ax = plots.forecast_plot(
        [0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [-1.0, 0.0], [1.0, 2.0], ahead=ahead
    )
    past, later = _curves(ax)
    np.testing.assert_array_equal(later, [[2.0, 20.0], [3.0, 30.0]])
    colours = [
        line.get_color() for line in ax.lines if line.get_label() in ("forecast", "what comes next")
    ]
    assert len(set(colours)) == 2 and len(past) == 2
    one = plots.forecast_plot([5.0], [1.0], [2.0], [0.0], [5.0])
    (bar,) = one.containers
    assert bar.lines[2][0].get_segments()[0][:, 1].tolist() == [0.0, 5.0]


def test_ends_without_an_end_go_beyond_the_rest():
    ax = plots.forecast_plot([0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [-np.inf, 0.0], [1.0, 2.0])
    (band,) = (one.get_paths()[0].vertices[:, 1] for one in ax.collections)
    assert band.min() < 0.0 and np.all(np.isfinite(band)) and band.max() == 2.0


def test_ends_without_an_end_share_one_edge():
    x = np.arange(6.0)
    ax = plots.forecast_plot(
        x, 10.0 * x, 10.0 * x, np.full(6, -np.inf), 10.0 * x + 1.0, span=x >= 3.0,
        ahead=([6.0, 7.0], [0.0, 0.0], [-np.inf, -np.inf], [1.0, 1.0]),
    )  # fmt: skip
    edges = {one.get_paths()[0].vertices[:, 1].min() for one in ax.collections}
    assert len(ax.collections) == 3 and len(edges) == 1 and edges.pop() < 0.0


@pytest.mark.parametrize(
    ("ahead", "words"),
    [
        (([2.0], [1.0], [0.0]), r"ahead: expected the four parts .*got 3 parts"),
        ((_DAYS[:1], [1.0], [0.0], [2.0]), "ahead: its times are dates and those in times numbers"),
        (([2.0], [1.0], [0.0], [np.nan]), "ahead high: 1 of 1 values are NaN"),
        (([2.0], [1.0], [2.0], [0.0]), "ahead low: .*got 2 above 0"),
    ],
)
def test_what_comes_next_is_refused_by_name(ahead, words):
    with pytest.raises(ValueError, match=words):
        plots.forecast_plot([0.0, 1.0], [1.0, 2.0], [1.0, 2.0], [0.0, 0.0], [3.0, 3.0], ahead=ahead)


@pytest.mark.parametrize(
    ("times", "low", "words"),
    [
        ([np.datetime64("NaT"), np.datetime64("2024-01-01")], [0.0, 0.0], "times: .*none missing"),
        ([0.0, np.nan], [0.0, 0.0], "times: 1 of 2 values are NaN"),
        ([0.0, 1.0, 2.0], [0.0, 0.0], "y: expected as many values"),
        ([0.0, 1.0], [0.0], "low: expected as many values"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(times, low, words):
    with pytest.raises(ValueError, match=words):
        plots.forecast_plot(np.asarray(times), [1.0, 2.0], [1.0, 2.0], low, [3.0, 3.0])


def test_dates_of_python_and_pandas_are_those_of_numpy():
    expected = _curves(plots.forecast_plot(_DAYS, *np.ones((4, 6))))
    zone = pd.Series(_DAYS).dt.tz_localize("Europe/Oslo")
    for days in (
        _DAYS.tolist(),
        _DAYS.astype("M8[D]").tolist(),
        list(pd.DatetimeIndex(_DAYS)),
        zone,
    ):
        found = _curves(plots.forecast_plot(days, *np.ones((4, 6))))
        np.testing.assert_array_equal(found, expected)
