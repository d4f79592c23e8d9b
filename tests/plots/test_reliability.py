"""The reliability diagram draws what the scores say, and no text covers another."""

from __future__ import annotations

import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.patches import StepPatch

from vastgp import metrics, plots


@pytest.fixture(scope="module")
def two():
    rng = np.random.default_rng(0)
    p = rng.beta(0.5, 0.8, 500)
    return np.where(rng.random(500) < p, "spam", "ham"), p


@pytest.fixture(scope="module")
def several():
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.ones(4), size=200)
    return np.array([rng.choice(4, p=row) for row in p]), p


def drawn(ax):
    """Points, intervals and counts as they stand in the picture."""
    (container,) = ax.containers
    points = container.lines[0].get_data()
    (bars,) = (c for c in ax.collections if isinstance(c, LineCollection))
    (steps,) = (p for p in ax.child_axes[0].patches if isinstance(p, StepPatch))
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    return points, ends, steps.get_data()


@pytest.mark.parametrize("which", ["two", "several"])
def test_points_intervals_and_counts_are_those_of_the_curve(which, request):
    labels, p = request.getfixturevalue(which)
    (x, y), ends, (counts, edges, _) = drawn(plots.reliability_plot(labels, p, bins=8))
    curve = metrics.reliability_curve(labels, p, bins=8)
    np.testing.assert_array_equal(x, curve.confidence)
    np.testing.assert_array_equal(y, curve.frequency)
    np.testing.assert_allclose(ends, np.column_stack([curve.low, curve.high]), atol=1e-14)
    shown = p if which == "two" else p.max(axis=1)
    reference = [np.sum((a < shown) & (shown <= b)) for a, b in itertools.pairwise(edges)]
    assert counts.tolist() == reference
    assert edges.tolist() == np.linspace(0.0, 1.0, 9).tolist()


def test_the_diagonal_is_drawn_and_the_scores_are_written_out(two):
    ax = plots.reliability_plot(*two)
    diagonal = next(line for line in ax.lines if line.get_label() == "calibrated")
    assert diagonal.get_xydata().tolist() == [[0.0, 0.0], [1.0, 1.0]]
    report = metrics.classification_report(*two)
    (text,) = (text.get_text() for text in ax.texts)
    assert f"accuracy {100 * report['accuracy']:.3g} %" in text
    assert f"NLPD {report['nlpd']:.3g} nats" in text
    assert f"Brier score {report['brier']:.3g}" in text
    assert f"ECE {report['ece']:.2g}" in text
    assert ax.get_title(loc="left") == "Reliability, 500 observations"


def test_labels_say_whose_probability_it_is(two, several):
    labels, p = two
    assert plots.reliability_plot(labels, p).get_xlabel() == "predicted probability of spam"
    swapped = plots.reliability_plot(labels, 1.0 - p, ["spam", "ham"])
    assert swapped.get_xlabel() == "predicted probability of ham"
    long = plots.reliability_plot(labels == "spam", p, [False, True]).get_xlabel()
    assert long == "predicted probability of True"
    name = "a name that goes on and on and on"
    short = plots.reliability_plot(np.where(labels == "ham", "Z", name), 1 - p, ["Z", name])
    assert short.get_xlabel() == "predicted probability of a name that goes on and…"
    assert plots.reliability_plot(*several).get_xlabel() == "probability of the most probable class"


def test_it_draws_on_the_axes_it_is_given(two):
    figure, (left, right) = plt.subplots(1, 2)
    assert plots.reliability_plot(*two, ax=right) is right
    assert right.figure is figure
    assert len(figure.axes) == 2
    assert not left.has_data()


def texts(figure):
    """Every text that is seen: titles, labels, legend, scores, tick labels within the axis."""
    figure.canvas.draw()
    for ax in figure.axes:
        for part in (ax, *ax.child_axes):
            yield from (part._left_title, part.xaxis.label, part.yaxis.label, *part.texts)
            if part.get_legend():
                yield from part.get_legend().get_texts()
            for axis in (part.xaxis, part.yaxis):
                low, high = sorted(axis.get_view_interval())
                for place, text in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True):
                    if low <= place <= high:
                        yield text


@pytest.mark.parametrize("rows", [1, 30, 500, 200_000])
def test_no_text_covers_another_or_leaves_the_figure(two, several, rows):
    repeat = np.arange(rows) % 500
    labels, p = two[0][repeat], two[1][repeat]
    alone = plots.reliability_plot(labels, p, ["ham", "spam"]).figure
    pair, axes = plt.subplots(1, 2, figsize=(9.0, 5.6), layout="constrained")
    plots.reliability_plot(labels, p, ["ham", "spam"], ax=axes[0])
    plots.reliability_plot(*several, bins=20, ax=axes[1])
    for figure in (alone, pair):
        boxes = [(t.get_text(), t.get_window_extent()) for t in texts(figure) if t.get_text()]
        assert len(boxes) > 15
        for first, second in itertools.combinations(boxes, 2):
            assert not first[1].overlaps(second[1]), (first[0], second[0])
        for name, box in boxes:
            assert figure.bbox.x0 <= box.x0, name
            assert box.x1 <= figure.bbox.x1, name
            assert figure.bbox.y0 <= box.y0, name
            assert box.y1 <= figure.bbox.y1, name


BAD_INPUT = {
    "bins": (([0, 1], [0.1, 0.9]), {"bins": 0}, r"bins: expected a whole number of at least 1"),
    "sum": (([0, 1], [[0.1, 0.8], [0.5, 0.5]]), {}, r"probabilities: expected rows that sum to 1"),
    "labels": ((["a", "x"], [0.1, 0.9], ["a", "b"]), {}, r"labels: 'x' not among the classes"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_names_the_argument(case):
    args, options, message = BAD_INPUT[case]
    with pytest.raises(ValueError, match=message):
        plots.reliability_plot(*args, **options)
    assert plt.get_fignums() == []  # refused before a figure is made
