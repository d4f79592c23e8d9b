"""The report of a fit as one HTML file: what it holds (`data`), how parts are computed (`explain`), the page."""

from vastgp.auto.report.data import ReportData
from vastgp.auto.report.explain import effects, permutation_importance, surprises
from vastgp.auto.report.next_steps import advice, calibration_in_words
from vastgp.auto.report.write import report_html, write_report

__all__ = [
    "ReportData",
    "advice",
    "calibration_in_words",
    "effects",
    "permutation_importance",
    "report_html",
    "surprises",
    "write_report",
]
