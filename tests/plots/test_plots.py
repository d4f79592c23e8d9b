"""What the plots draw equals what was given to them; the pictures themselves are looked at by people."""

from __future__ import annotations

import subprocess
import sys

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import FillBetweenPolyCollection, LineCollection
from matplotlib.patches import StepPatch
from scipy import stats

from vastgp import metrics, plots


@pytest.fixture(scope="module")
def predictions():
    rng = np.random.default_rng(0)
    mean, std = rng.gamma(2.0, 1.0, 900), np.exp(rng.uniform(-1.0, 0.3, 900))
    return mean + std * rng.standard_t(5, 900), mean, std


def line(ax, label):
    """The drawn line of this label."""
    return next(found for found in ax.lines if found.get_label().startswith(label))


def collection(ax, kind):
    return [found for found in ax.collections if isinstance(found, kind)]


def legend_texts(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def drawn_texts(fig):
    """Titles, labels, legend entries, powers of ten and those tick labels whose tick lies within the axis."""
    fig.canvas.draw()
    for ax in fig.axes:
        yield from (ax.title, ax._left_title, ax.xaxis.label, ax.yaxis.label)
        if ax.get_legend():
            yield from ax.get_legend().get_texts()
        for axis in (ax.xaxis, ax.yaxis):
            yield axis.get_offset_text()
            low, high = sorted(axis.get_view_interval())
            for place, text in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True):
                if low <= place <= high:
                    yield text


def overlapping_texts(fig):
    """Pairs of texts of a drawn figure whose boxes meet."""
    boxes = [(t.get_text(), t.get_window_extent()) for t in drawn_texts(fig) if t.get_text()]
    assert len(boxes) > 8
    return [
        (first[0], second[0])
        for i, first in enumerate(boxes)
        for second in boxes[i + 1 :]
        if first[1].overlaps(second[1])
    ]


def test_importing_plots_does_not_import_matplotlib():
    code = "import sys, vastgp.plots; sys.exit('matplotlib' in sys.modules or 'jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_pit_histogram_draws_the_density_and_the_binomial_band(predictions):
    ax = plots.pit_histogram(*predictions, bins=10, level=0.9)
    (bars,) = [patch for patch in ax.patches if isinstance(patch, StepPatch)]
    values, edges, _ = bars.get_data()
    counts, _ = np.histogram(metrics.pit_values(*predictions), bins=edges)
    np.testing.assert_allclose(values, counts / 90.0)
    assert counts.sum() == 900
    band = next(patch for patch in ax.patches if patch.get_label().startswith("90 % band"))
    # Counts of one bar are Binomial(900, 1/10): simulate them instead of asking the same quantile.
    draws = np.random.default_rng(1).multinomial(900, np.full(10, 0.1), size=4_000)[:, 0] / 90.0
    inside = np.mean((draws >= band.get_y()) & (draws <= band.get_y() + band.get_height()))
    assert (
        0.9 - 4 * 0.005 < inside < 0.93 + 4 * 0.005
    )  # discrete: at least the level, one count more


def test_coverage_curve_runs_through_the_coverage_of_each_level(predictions):
    ax = plots.coverage_curve(*predictions, level=0.8)
    nominal, observed = line(ax, "model").get_data()
    assert (nominal[0], observed[0], nominal[-1], observed[-1]) == (0.0, 0.0, 1.0, 1.0)
    assert observed[50] == metrics.coverage(*predictions, level=float(nominal[50]))
    marked = line(ax, "80 % intervals hold").get_ydata()
    assert marked[0] == metrics.coverage(*predictions, level=0.8)
    (band,) = collection(ax, FillBetweenPolyCollection)
    vertices = band.get_paths()[0].vertices
    at_half = vertices[np.isclose(vertices[:, 0], 0.5), 1]
    half = stats.norm.ppf(0.9) * np.sqrt(0.25 / 900)
    np.testing.assert_allclose(sorted({*np.round(at_half, 12)}), [0.5 - half, 0.5 + half])


def test_calibration_plot_uses_the_axes_it_is_given(predictions):
    figure, axes = plt.subplots(1, 2)
    assert plots.calibration_plot(*predictions, axes=axes) is figure
    assert all(ax.get_title(loc="left") for ax in axes)


def test_a_saved_calibration_plot_is_a_picture_and_leaves_no_figure_open(predictions, tmp_path):
    plots.save_calibration_plot(tmp_path / "plain", *predictions)
    assert plt.imread(tmp_path / "plain", format="png").shape == (630, 1500, 4)
    plots.save_calibration_plot(tmp_path / "lines", *predictions, format="svg")
    assert b"<svg" in (tmp_path / "lines").read_bytes()
    assert plt.get_fignums() == []


def test_observed_plot_draws_every_interval_of_few_rows_and_marks_those_outside(predictions):
    y, mean, std = (part[:60] for part in predictions)
    ax = plots.observed_plot(y, mean, std)
    (bars,) = collection(ax, LineCollection)
    drawn = {(round(s[0, 0], 9), round(s[0, 1], 9), round(s[1, 1], 9)) for s in bars.get_segments()}
    low, high = stats.norm.interval(0.95, loc=mean, scale=std)
    expected = {tuple(np.round(row, 9)) for row in zip(mean, low, high, strict=True)}
    assert drawn == expected
    outside = (y < low) | (y > high)
    assert 0 < outside.sum() < 20
    marked = line(ax, "outside its interval")
    assert set(marked.get_ydata()) == set(y[outside])
    assert f"({outside.sum()})" in marked.get_label()


def test_observed_plot_of_many_rows_draws_a_seeded_subset(predictions):
    first, again, other = (
        line(
            plots.observed_plot(*predictions, max_points=100, seed=seed), "observation"
        ).get_xdata()
        for seed in (0, 0, 1)
    )
    assert len(first) == 100
    assert set(first) < set(predictions[1])
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_observed_plot_without_std_draws_no_interval(predictions):
    ax = plots.observed_plot(*predictions[:2], target_name="depth")
    assert collection(ax, LineCollection) == []
    assert ax.get_xlabel() == "predicted depth"


def test_residual_plot_has_running_quantiles_of_all_rows_and_counts_the_rest(predictions):
    y, mean, std = (part.copy() for part in predictions)
    y[3] = mean[3] + 50.0 * std[3]
    ax = plots.residual_plot(y, mean, std, max_points=50)
    x, median = line(ax, "running median").get_data()
    z, order = (y - mean) / std, np.argsort(mean)
    assert x.size == 20  # 900 rows in 20 groups of 45
    assert median[0] == np.median(z[order[:45]])
    beyond = np.sum(np.abs(z) > ax.get_ylim()[1])
    assert f"({beyond} beyond the axis)" in ax.get_title(loc="left")


def test_residual_plot_of_few_rows_has_no_running_quantiles(predictions):
    ax = plots.residual_plot(*(part[:50] for part in predictions))
    assert legend_texts(ax) == ["95 % interval", "residual"]


HISTORY = {
    "steps": [10, 20, 30, 40],
    "seconds": [0.5, 1.0, 1.5, 2.5],
    "objective": [-9.0, None, -5.0, -4.0],
    "objective_se": [0.5, None, 0.25, 0.0],
    "residual": [1.0, 0.1, float("nan"), 0.01],
    "note": ["a", "b", "c", "d"],
}


def test_training_trace_draws_objective_with_error_and_residual():
    class History:
        def to_dict(self):
            return HISTORY

    left, right = plots.training_trace(History(), title="QSGP").axes
    assert line(left, "objective").get_data()[0].tolist() == [0.5, 1.5, 2.5]
    assert line(left, "objective").get_data()[1].tolist() == [-9.0, -5.0, -4.0]
    (band,) = collection(left, FillBetweenPolyCollection)
    extent = band.get_paths()[0].get_extents()
    assert (extent.y0, extent.y1) == (-10.0, -4.0)  # -9 - 2 * 0.5, and -4 without error
    assert right.lines[0].get_data()[0].tolist() == [0.5, 1.0, 2.5]
    assert right.get_yscale() == "log"
    assert left.get_title(loc="left") == "QSGP: objective"


def test_training_trace_of_an_exact_objective_has_one_panel_without_band():
    history = {
        "steps": [1, 2],
        "seconds": [0.1, 0.2],
        "objective": [-2.0, -1.0],
        "objective_se": [0, 0],
    }
    (ax,) = plots.training_trace(history, against="steps").axes
    assert collection(ax, FillBetweenPolyCollection) == []
    assert ax.get_xlabel() == "steps"


def test_function_plot_sorts_the_inputs_and_draws_both_bands():
    x = np.array([[2.0], [0.0], [1.0]])
    mean, std, latent = np.array([4.0, 0.0, 1.0]), np.array([0.5, 1.0, 2.0]), np.full(3, 0.1)
    samples = np.array([[4.1, 3.9], [0.1, -0.1], [1.1, 0.9]])
    ax = plots.function_plot(
        x, mean, std, latent_std=latent, samples=samples, x_train=[0.5], y_train=[0.7]
    )
    assert line(ax, "mean").get_data()[0].tolist() == [0.0, 1.0, 2.0]
    assert line(ax, "mean").get_data()[1].tolist() == [0.0, 1.0, 4.0]
    assert line(ax, "posterior samples").get_ydata().tolist() == [0.1, 1.1, 4.1]
    outer, inner = collection(ax, FillBetweenPolyCollection)
    half = stats.norm.ppf(0.975)
    assert outer.get_paths()[0].get_extents().y0 == pytest.approx(1.0 - 2.0 * half)
    assert inner.get_paths()[0].get_extents().y0 == pytest.approx(-0.1 * half)
    assert line(ax, "observations").get_data()[1].tolist() == [0.7]


@pytest.mark.parametrize(("rows", "unit"), [(60, 1.0), (900, 1.0), (60, 1e12), (60, 1e-12)])
def test_no_text_covers_another(predictions, rows, unit):
    part = [unit * values[:rows] for values in predictions]
    x = np.linspace(0.0, 1.0, rows)
    figures = [
        plots.calibration_plot(*part),
        plots.observed_plot(*part).figure,
        plots.residual_plot(*part).figure,
        plots.training_trace(HISTORY),
        plots.function_plot(x, part[1], part[2], samples=part[0], x_train=x, y_train=x).figure,
    ]
    for figure in figures:
        assert overlapping_texts(figure) == []


def test_a_single_place_is_seen():
    ax = plots.function_plot([2.0], [1.0], [0.5], latent_std=[0.25])
    bars = collection(ax, LineCollection)
    ends = [bar.get_segments()[0][:, 1].tolist() for bar in bars]
    half = stats.norm.ppf(0.975)
    np.testing.assert_allclose(ends, [[1 - half / 2, 1 + half / 2], [1 - half / 4, 1 + half / 4]])
    assert line(ax, "mean").get_marker() == "_"


@pytest.mark.parametrize("value", [0.0, 5.0, 5e20])
def test_equal_targets_have_an_axis(value, recwarn):
    ax = plots.observed_plot(*np.full((2, 9), value), np.full(9, 1e-3))
    ax.figure.canvas.draw()
    for low, high in (ax.get_xlim(), ax.get_ylim()):
        assert low < value < high
    assert not recwarn.list


ONES = np.ones(3)
BAD_INPUT = {
    "std": (plots.pit_histogram, (ONES, ONES, 0 * ONES), {}, r"std: expected positive"),
    "bins": (plots.pit_histogram, (ONES, ONES, ONES), {"bins": 1}, r"bins: .*at least 2.*got 1"),
    "level": (
        plots.coverage_curve,
        (ONES, ONES, ONES),
        {"level": 2.0},
        r"level: expected a probab",
    ),
    "lengths": (plots.observed_plot, (ONES, np.ones(2)), {}, r"mean: expected as many values as y"),
    "NaN": (plots.residual_plot, (ONES, ONES * np.nan, ONES), {}, r"mean: 3 of 3 values are NaN"),
    "no times": (
        plots.training_trace,
        ({"objective": [1.0]},),
        {},
        r"against: expected one of \[\]",
    ),
    "nothing recorded": (
        plots.training_trace,
        ({"seconds": [], "steps": []},),
        {},
        r"history: it holds no record",
    ),
    "no values": (
        plots.training_trace,
        ({"seconds": [1.0], "objective": [None]},),
        {},
        r"history: expected 'objective' or 'residual' with at least one number",
    ),
    "ragged": (
        plots.training_trace,
        ({"seconds": [1.0, 2.0], "objective": [1.0]},),
        {},
        r"history: expected columns of one length, got \{'seconds': 2, 'objective': 1\}",
    ),
    "two features": (
        plots.function_plot,
        (np.ones((3, 2)), ONES, ONES),
        {},
        r"x: .*one input feature, got 2",
    ),
    "samples": (
        plots.function_plot,
        (ONES, ONES, ONES),
        {"samples": np.ones((2, 3))},
        r"samples: expected shape \(3, s\), one row for each x, got \(2, 3\)",
    ),
    "bars": (
        plots.pit_histogram,
        (ONES, ONES, ONES),
        {"bins": 2.5},
        r"bins: .*at least 2, got 2.5",
    ),
    "points": (plots.observed_plot, (ONES, ONES), {"max_points": 0}, r"max_points: .*, got 0"),
    "residuals": (plots.residual_plot, (ONES,) * 3, {"max_points": 0}, r"max_points: .*, got 0"),
    "bars of points": (
        plots.observed_plot,
        (ONES, ONES, ONES),
        {"max_intervals": 0},
        r"max_intervals: expected a whole number of at least 1, got 0",
    ),
    "half of an interval": (
        plots.observed_plot,
        (ONES, ONES),
        {"low": ONES},
        r"high: expected together with the other one",
    ),
    "exchanged ends": (
        plots.observed_plot,
        (ONES, ONES),
        {"low": ONES, "high": 0 * ONES},
        r"low: .*got 1 above 0 at index 0 and in 3 of 3 rows",
    ),
    "no samples": (
        plots.function_plot,
        (ONES, ONES, ONES),
        {"samples": np.ones((3, 0))},
        r"samples: expected shape \(3, s\).*got \(3, 0\)",
    ),
    "half of the training data": (
        plots.function_plot,
        (ONES, ONES, ONES),
        {"x_train": ONES},
        r"y_train: expected together",
    ),
}


def test_bars_have_the_ends_that_are_given():
    y, mean = np.array([0.0, 1.0, 9.0]), np.array([0.5, 1.5, 2.5])
    low, high = np.array([0.0, -np.inf, 2.0]), np.array([4.0, 2.0, np.inf])
    ax = plots.observed_plot(y, mean, np.full(3, 1e-3), low=low, high=high)
    bars = np.array([bar[:, 1] for bar in ax.collections[0].get_segments()])
    bottom, top = ax.get_ylim()
    np.testing.assert_array_equal(bars[[0, 1, 2], [0, 1, 0]], [0.0, 2.0, 2.0])
    assert bars[0, 1] == 4.0 and bars[1, 0] < y.min() and bars[2, 1] > y.max()
    assert bottom < bars.min() and bars.max() < top
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert not any("outside" in label for label in labels)


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_names_the_argument(case):
    draw, args, kwargs, message = BAD_INPUT[case]
    with pytest.raises(ValueError, match=message):
        draw(*args, **kwargs)


def test_names_with_dollar_signs_are_names(predictions):
    y, mean, std = (part[:30] for part in predictions)
    odd = "cost_$ per 100_$ ^{"
    axes = [
        plots.observed_plot(y, mean, std, target_name=odd),
        plots.residual_plot(y, mean, std, target_name=odd),
        plots.function_plot([1.0, 2.0], [1.0, 2.0], [1.0, 1.0], target_name=odd, feature_name=odd),
        plots.group_coverage_plot([0.9, 0.8], [10, 20], xlabel=odd),
        plots.training_trace({"seconds": [1, 2], "residual": [0.3, 0.1]}, title=odd).axes[0],
    ]
    for ax in axes:
        ax.figure.canvas.draw()
    assert r"\$" in axes[0].get_xlabel() and r"\\$" not in axes[0].get_xlabel()
    plt.close("all")


def test_a_trace_reads_data_frames_and_refuses_what_is_no_history():
    columns = {"seconds": [1.0, 2.0], "residual": [0.3, 0.1]}
    figure = plots.training_trace(pd.DataFrame(columns, index=[7, 9]))
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_ydata(), columns["residual"])
    with pytest.raises(ValueError, match=r"history: expected the history_ of a fit.*got int"):
        plots.training_trace(3)
    plt.close("all")


@pytest.mark.parametrize(("draw", "message"), [
    (lambda: plots.importance_plot(["a", "b"], [2.0, 1.0], [1.0]), "errors: expected"),
    (lambda: plots.importance_plot(["a"], [2.0, 1.0], [1.0, 1.0]), "names: expected"),
    (lambda: plots.importance_plot(["a"], [2.0], [1.0], most=-1), "most: expected at least one"),
    (lambda: plots.importance_plot(["a"], [2.0]), "drops, errors: give both"),
    (lambda: plots.effect_plot([1, 2], [1.0], [1.0], [1.0]), "values: expected"),
    (lambda: plots.effect_plot([1], [1.0], [1.0], [1.0], level=95), "level: expected"),
    (lambda: plots.forecast_plot([1], [1.0], [1.0], [0.0], [2.0], level=95), "level: expected"),
    (lambda: plots.group_coverage_plot([0.9, 0.8], [10, 0]), "rows: expected positive"),
])  # fmt: skip
def test_what_cannot_be_drawn_is_named(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()
