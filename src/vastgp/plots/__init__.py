"""Plots for people: calibration, predictions, residuals, training traces and one-dimensional fits.

Every function draws on the axes it is given, or makes a figure of its own, and returns what it drew
on. None shows or saves anything: that is the caller's choice. matplotlib is imported inside the
functions, so importing this package costs nothing.
"""

from vastgp.plots.calibration import (
    calibration_plot,
    coverage_curve,
    pit_histogram,
    save_calibration_plot,
)
from vastgp.plots.effects import effect_plot, group_coverage_plot, importance_plot
from vastgp.plots.fields import field_map, series_plot
from vastgp.plots.forecasts import forecast_plot
from vastgp.plots.functions import function_plot
from vastgp.plots.predictions import observed_plot, residual_plot
from vastgp.plots.reliability import reliability_plot
from vastgp.plots.stations import station_map, variogram_plot
from vastgp.plots.svg import svg_figure
from vastgp.plots.training import training_trace

__all__ = [
    "calibration_plot",
    "coverage_curve",
    "effect_plot",
    "field_map",
    "forecast_plot",
    "function_plot",
    "group_coverage_plot",
    "importance_plot",
    "observed_plot",
    "pit_histogram",
    "reliability_plot",
    "residual_plot",
    "save_calibration_plot",
    "series_plot",
    "station_map",
    "svg_figure",
    "training_trace",
    "variogram_plot",
]
