"""What a report is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vastgp.auto.calibration_record import CalibrationRecord
from vastgp.auto.report.forecast import Forecast


@dataclass(frozen=True)
class ReportData:
    """Plain values of a fit, for `write_report`. Parts that are empty are left out of the page.

    Attributes
    ----------
    title : str
    target : str
        Name of what is predicted.
    rows : int
        That the model was fitted to.
    columns : sequence of (str, str, str)
        Name of each column, its kind, and what was done with it in words.
    model : sequence of str
        Paragraphs that say what the model is.
    leaderboard, baselines : sequence of dict
        A row for each method that was tried, under ``method``, ``rows``, ``seconds``, ``nlpd``, ``nlpd_error``,
        ``rmse`` (of classes ``wrong``, a share), ``coverage``, ``note`` and ``kept``; what is missing stays empty.
    calibration : CalibrationRecord, optional
    calibrated : str
        What was done to the levels, in words.
    y, mean, std, u : array-like of shape (n,), optional
        Held-out targets, predictions, and calibrated PIT values.
    low, high : array-like of shape (n,), optional
        Ends of their intervals of 95 %; of normal ones without.
    labels, probabilities, classes : array-like, optional
        Of a classifier in their place: held-out labels (n,), probabilities (n, C) and the classes of their columns.
    about : str
        What to call the rows that scores, calibration and surprises are of, such as "held-out".
    scores : sequence of (str, str)
        Of these rows, in words: name and value.
    effect_of : str
        What the effects are on; the target without.
    importance : sequence of (str, float, float, float or None)
        Input, loss of held-out log density without it in nats a row, its standard error, and lengthscale.
    effects : sequence of (str, values, mean, low, high)
        Of the strongest inputs, see `vastgp.auto.report.effects`.
    forecast : Forecast, optional
        The last rows in time, where they were held out.
    surprises : sequence of (int, y, mean, std, dict)
        Row number, target, prediction and inputs of the largest, see `vastgp.auto.report.surprises`. Of classes the
        prediction is text, and its deviation None.
    advice : sequence of str
        What to try next.
    phases : sequence of (str, float)
        Seconds of the fit.
    notes : sequence of str
        Of the data: rows left out, for example.
    versions : dict
        Of the packages.
    seed : int or None
    """

    title: str
    target: str
    rows: int
    columns: Sequence[tuple[str, str, str]] = ()
    model: Sequence[str] = ()
    leaderboard: Sequence[Mapping[str, Any]] = ()
    baselines: Sequence[Mapping[str, Any]] = ()
    calibration: CalibrationRecord | None = None
    calibrated: str = ""
    y: Any = None
    mean: Any = None
    std: Any = None
    u: Any = None
    low: Any = None
    high: Any = None
    labels: Any = None
    probabilities: Any = None
    classes: Any = None
    about: str = "held-out"
    scores: Sequence[tuple[str, str]] = ()
    effect_of: str = ""
    importance: Sequence[tuple[Any, ...]] = ()
    effects: Sequence[tuple[Any, ...]] = ()
    forecast: Forecast | None = None
    surprises: Sequence[tuple[Any, ...]] = ()
    advice: Sequence[str] = ()
    phases: Sequence[tuple[str, float]] = ()
    notes: Sequence[str] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    seed: Any = None
