"""Traces of fits whose residuals a logarithmic axis has no place for."""

from __future__ import annotations

import numpy as np
import pytest

from vastgp import plots

TIMES = {"seconds": [1.0, 2.0, 3.0, 4.0], "steps": [1, 2, 3, 4]}


def test_residuals_of_zero_are_shown_below_the_others():
    figure = plots.training_trace(TIMES | {"residual": [1.0, 0.1, 0.0, np.nan]})
    (ax,) = figure.axes
    trace, below = ax.lines
    assert ax.get_yscale() == "log" and trace.get_xdata().tolist() == [1.0, 2.0, 3.0]
    np.testing.assert_allclose(trace.get_ydata(), [1.0, 0.1, 0.01])
    assert below.get_xydata().tolist() == pytest.approx(np.array([[3.0, 0.01]]))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "residual",
        "zero or below",
    ]
    assert ax.get_ylim()[0] < 0.01


@pytest.mark.parametrize("values", [[0.0, 0.0, 0.0, 0.0], [-1.0, -0.5, 0.0, np.nan]])
def test_residuals_without_a_logarithm_have_a_plain_axis(values):
    (ax,) = plots.training_trace(TIMES | {"residual": values}).axes
    finite = np.isfinite(values)
    assert ax.get_yscale() == "linear"
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), np.array(values)[finite])
