"""Scores of Gaussian predictions and of class probabilities. Pure NumPy and SciPy, without the rest of vastgp."""

from vastgp.metrics.classification import (
    ReliabilityCurve,
    brier_score,
    classification_report,
    error_rate,
    expected_calibration_error,
    nlpd_of_probabilities,
    reliability_curve,
)
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
    rmse,
)
from vastgp.metrics.reports import distribution_report, regression_report

__all__ = [
    "ReliabilityCurve",
    "brier_score",
    "calibration_curve",
    "calibration_error",
    "classification_report",
    "coverage",
    "crps_gaussian",
    "distribution_report",
    "error_rate",
    "expected_calibration_error",
    "interval_width",
    "mae",
    "msll",
    "nlpd",
    "nlpd_of_probabilities",
    "pit_values",
    "r2",
    "regression_report",
    "reliability_curve",
    "rmse",
]
