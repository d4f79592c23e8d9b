"""Effects, importances and coverage by group are drawn as given, and figures become parts of a page."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from vastgp import plots
from vastgp.plots._style import plain_names, plain_text


def test_curves_and_levels_are_where_they_belong():
    x, mean = np.linspace(0, 1, 20), np.linspace(2, 3, 20)
    curve = plots.effect_plot(x, mean, mean - 1, mean + 2)
    np.testing.assert_array_equal(curve.lines[0].get_xydata(), np.column_stack([x, mean]))
    levels = plots.effect_plot(["a", "b$c$"], [1.0, 2.0], [0.0, 1.5], [4.0, 2.5])
    (bars,) = levels.containers
    np.testing.assert_array_equal(bars.lines[0].get_ydata(), [1.0, 2.0])
    ends = [segment[:, 1].tolist() for segment in bars.lines[2][0].get_segments()]
    assert ends == [[0.0, 4.0], [1.5, 2.5]]
    with pytest.raises(ValueError, match="low: expected as many values as y, 2, got 1"):
        plots.effect_plot(["a", "b"], [1.0, 2.0], [0.0], [4.0, 2.5])


def test_importances_stand_in_order_from_the_top():
    ax = plots.importance_plot(["a", "b", "c"], [3.0, 2.0, -0.1], [0.1, 0.1, 0.1], most=2)
    assert [bar.get_width() for bar in ax.patches] == [3.0, 2.0]
    heights = [bar.get_y() for bar in ax.patches]
    assert heights[0] > heights[1]


def test_importances_of_a_model_are_drawn_as_they_are_also_where_it_has_none():
    given = [("a", 3.0, 0.1), ("b", 2.0, 0.2)]
    ax = plots.importance_plot(given)
    assert [bar.get_width() for bar in ax.patches] == [3.0, 2.0]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["a", "b"]
    alone = plots.importance_plot([("a", 3.0, np.inf)])
    assert [bar.get_width() for bar in alone.patches] == [3.0]
    none = plots.importance_plot([])
    assert not none.patches and "no time was left" in none.texts[-1].get_text()


def test_names_that_begin_alike_are_told_apart():
    names = [f"sensor_reading_channel_{i:02d}" for i in range(12)]
    ax = plots.importance_plot([*names, "short"], np.arange(13.0)[::-1], np.zeros(13))
    labels = [text.get_text() for text in ax.get_yticklabels()]
    assert len(set(labels)) == 13 and max(map(len, labels)) <= 18
    assert all(label.endswith(name[-2:]) for label, name in zip(labels, names, strict=False))
    assert plain_names(["a" * 30, "b" * 30], 10) == ["a" * 9 + "…", "b" * 9 + "…"]
    moments = [f"2024-01-{day:02d} {hour:02d}:00" for day in (1, 2) for hour in (5, 6)]
    assert len(set(plain_names(moments, 11))) == 4


@pytest.mark.parametrize("values", [[1e-5, 1e-4 / 3, 2e-4 / 3], [1234567.1, 1234567.2], [1e15, 3]])
def test_numbers_at_points_keep_their_size(values):
    ones = np.ones(len(values))
    ax = plots.effect_plot(np.array(values), ones, ones, ones)
    written = [float(text.get_text()) for text in ax.get_xticklabels()]
    np.testing.assert_allclose(written, values, rtol=1e-4)
    assert len(set(written)) == len(values)


DATES = {
    "days": lambda days: days,
    "nanoseconds": lambda days: days.astype("M8[ns]"),
    "Python": lambda days: days.tolist(),
    "pandas": lambda days: pd.Series(days.astype("M8[us]")),
    "with a zone": lambda days: pd.Series(days.astype("M8[us]")).dt.tz_localize("Europe/Oslo"),
    "moments": lambda days: list(pd.DatetimeIndex(days).tz_localize("America/New_York")),
}


@pytest.mark.parametrize("kind", DATES)
def test_many_dates_are_a_curve_and_few_are_points_with_their_dates(kind):
    days = np.arange("2024-01-01", "2024-02-01", dtype="M8[D]")
    ax = plots.effect_plot(DATES[kind](days), *np.ones((3, len(days))))
    np.testing.assert_array_equal(ax.lines[0].get_xdata().astype("M8[D]"), days)
    assert len(days) > len(ax.get_xticks())
    ax = plots.effect_plot(DATES[kind](days[:3]), *np.ones((3, 3)))
    labels = [text.get_text() for text in ax.get_xticklabels()]
    assert labels == ["2024-01-01", "2024-01-02", "2024-01-03"]


def test_few_moments_are_points_with_their_times():
    hours = np.array(["2024-01-01T05", "2024-01-01T06", "NaT"], dtype="M8[ns]")
    ax = plots.effect_plot(hours, *np.ones((3, 3)))
    labels = [text.get_text() for text in ax.get_xticklabels()]
    assert labels == ["2024-01-01 05:00", "2024-01-01 06:00", "missing"]
    ax = plots.effect_plot(np.array([0, 90], "m8[m]").astype("m8[ns]"), *np.ones((3, 2)))
    assert [text.get_text() for text in ax.get_xticklabels()] == ["0:00:00", "1:30:00"]


def test_groups_beyond_three_standard_errors_are_marked():
    # the error of 100 rows at 90 % is 3 %: 0.8 is beyond 0.81
    ax = plots.group_coverage_plot([0.9, 0.8, 0.82], [100, 100, 100])
    far = next(line for line in ax.lines if line.get_label() == "more than chance")
    assert far.get_xydata().tolist() == [[2.0, 0.8]]


def test_a_figure_in_a_page_has_its_text_and_nothing_else():
    def draw(ax):
        ax.plot([0, 1], [0, 1], color="#0072B2")
        ax.set_title("a < b & $c$ is text")

    svg = plots.svg_figure(draw, alt='says "so" & <so>', name="one")
    element = ElementTree.fromstring(svg.replace("xlink:href", "href"))
    assert element.get("aria-label") == 'says "so" & <so>'
    assert "var(--model, #0072B2)" in svg and "var(--ink, #000000)" in svg
    assert "http" not in svg and "<!--" not in svg and "metadata" not in svg
    assert all(name.startswith("one-") for name in re.findall(r'\bid="([^"]*)"', svg))
    assert svg == plots.svg_figure(draw, alt='says "so" & <so>', name="one")
    assert plt.get_fignums() == []
    assert "0.4" in "".join(element.itertext())


def test_names_of_users_are_no_formulas():
    svg = plots.svg_figure(
        lambda ax: ax.set_title(plain_text("cost $x^$ in $")), alt="a", name="two"
    )
    assert "cost $x^$ in $" in "".join(ElementTree.fromstring(svg.replace("xlink:", "")).itertext())
    assert plain_text("a\n b" * 30) == ("a ba ba ba ba ba ba ba ba ba" + "…")[:27] + "…"
