"""Scores of Gaussian predictions. Pure NumPy and SciPy: nothing else of vastgp is imported here."""

from vastgp.metrics.gaussian import (
    calibration_curve,
    calibration_error,
    coverage,
    crps_gaussian,
    interval_width,
    mae,
    msll,
    nlpd,
    pit_values,
    r2,
    regression_report,
    rmse,
)

__all__ = [
    "calibration_curve",
    "calibration_error",
    "coverage",
    "crps_gaussian",
    "interval_width",
    "mae",
    "msll",
    "nlpd",
    "pit_values",
    "r2",
    "regression_report",
    "rmse",
]
