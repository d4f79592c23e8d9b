"""Values of a table's column for people: as cells, as groups of rows, and as places at which to show an effect."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import numpy as np

from vastgp.auto.categories import categories_of
from vastgp.auto.columns import Column
from vastgp.auto.dates import DAY, DateEncoding, TimeEncoding, clock_time
from vastgp.auto.numeric import NumberEncoding
from vastgp.auto.report.html import shortened
from vastgp.auto.space import FORM, PlaceEncoding, quarter
from vastgp.auto.values import Values, dates_of, level_text, numbers_of
from vastgp.auto.written import read_form

_CURVE, _POINTS = 25, 10
_LOW, _HIGH = 0.02, 0.98  # quantiles at which curves begin and end
_LONG = 60  # of a text, in letters
_MISSING = "(missing)"
_HOUR = 3600.0


def cell(values: Values, row: int) -> Any:
    """Return one value as a page shows it: a number, a text, or None where there is none."""
    value = values.data[row]
    if values.form == FORM:
        return f"{value[0]:g}, {value[1]:g}"
    if values.form == "text":
        level = None if value < 0 else str(values.levels[int(value)])
        return None if level is None else shortened(level, _LONG)
    if value != value:
        return None
    if values.form == "dates":
        return _day(value)
    if values.form == "times":
        return clock_time(float(value))
    if values.form == "durations":
        return _duration(float(value))
    return str(bool(value)) if values.form == "booleans" else float(value)


def grouping(values: Values) -> np.ndarray:
    """Return a column as `calibration_record` groups rows by it: numbers, or labels with None for gaps."""
    if values.form == "text":
        levels = np.array([*values.levels, None], dtype=object)
        return levels[values.data]
    if values.form == FORM:
        return quarter(values.data)
    if values.form != "dates":
        return values.data.astype(object)
    there = values.data[~np.isnat(values.data)]
    # by the finest unit that leaves few groups
    units = ("D", "M", "Y")
    unit = next((u for u in units if len(np.unique(there.astype(f"M8[{u}]"))) <= _POINTS), "Y")
    shown = values.data.astype(f"M8[{unit}]")
    return np.array([None if np.isnat(one) else str(one) for one in shown], dtype=object)


def grouped(columns: Mapping[str, Values]) -> tuple[np.ndarray | None, list[str] | None]:
    """Return columns as a table for `calibration_record`, and their names; nothing of no columns."""
    if not columns:
        return None, None
    found = [grouping(values) for values in columns.values()]
    table = np.empty((len(found[0]), len(found)), dtype=object)
    for j, column in enumerate(found):
        table[:, j] = column
    return table, list(columns)


def places_of(column: Column, values: Values) -> tuple[str, list[Any], np.ndarray] | None:
    """Return where to show the effect of a column: what its axis is called, values for people, and encoded.

    Parameters
    ----------
    column : Column
        Of the fitted encoder.
    values : Values
        Rows of it as they are.

    Returns
    -------
    tuple of (str, list, ndarray of shape (k, columns)), or None
        Numbers make a curve from quantile to quantile; of dates, times and levels there are at most ten, and one more
        for missing values where the encoding has an input for these. None where there is nothing to compare.
    """
    encoding = column.encoding
    assert encoding is not None
    if isinstance(encoding, PlaceEncoding):
        return None  # an effect is along one axis
    name = column.name
    labels: list[Any] = []
    if isinstance(encoding, NumberEncoding) and not encoding.order:
        at = _quantiles(_finite(numbers_of(values, encoding.form)), _CURVE)
        wanted = Values(read_form(encoding.form), at)
        unit, word = _unit(encoding.form, at)
        name += word
        labels = (at / unit).tolist()
        if encoding.form == "booleans":
            labels = [str(bool(v)) for v in at]
        elif len(at) <= _POINTS:  # points, whose labels are text
            labels = [_short(value) for value in labels]
        gaps = encoding.gaps
    elif isinstance(encoding, DateEncoding):
        dates = dates_of(values, encoding.form)
        at = _quantiles(dates[~np.isnat(dates)].astype(np.int64), _POINTS).astype(np.int64)
        wanted = Values("dates", at.view("datetime64[us]"))
        labels, gaps = _days(wanted.data), encoding.gaps
    elif isinstance(encoding, TimeEncoding):
        at = _quantiles(_finite(numbers_of(values, "times")), _POINTS)
        wanted, labels, gaps = Values("times", at), [clock_time(one) for one in at], encoding.gaps
    else:
        levels = list(encoding.order) if isinstance(encoding, NumberEncoding) else _usual(values)
        if len(levels) > _POINTS:
            levels = [
                levels[j] for j in np.linspace(0, len(levels) - 1, _POINTS).round().astype(int)
            ]
        wanted, labels = Values("text", np.arange(len(levels)), levels), list(levels)
        gaps = getattr(encoding, "gap", False) or getattr(encoding, "gaps", False)
    if gaps and len(labels) <= _POINTS:
        wanted, labels = _with_gap(wanted), [*labels, _MISSING]
    if len(labels) < 2:
        return None
    return name, labels, encoding.encode(wanted)[0]


def _short(value: float) -> str:
    return level_text(value if value == round(value) else float(f"{value:.4g}"))


def _with_gap(values: Values) -> Values:
    gap: Any = -1 if values.form == "text" else np.nan
    if values.form == "dates":
        gap = np.datetime64("NaT", "us")
    return Values(values.form, np.append(values.data, gap), values.levels)


def _finite(values: np.ndarray) -> np.ndarray:
    return values[~np.isnan(values)]


def _quantiles(values: np.ndarray, most: int) -> np.ndarray:
    """Return all distinct values of at most ten, otherwise quantiles among them."""
    distinct = np.unique(values)
    if len(distinct) <= _POINTS:
        return distinct
    return np.unique(np.quantile(values, np.linspace(_LOW, _HIGH, most), method="nearest"))


def _usual(values: Values) -> list[str]:
    """Return the ten most frequent levels, in the order of the alphabet, or of the numbers that name things."""
    codes, levels = categories_of(values)
    count = np.bincount(codes[codes >= 0], minlength=len(levels))
    often = np.argsort(-count, kind="stable")[:_POINTS]
    shown = (str(levels[j]) for j in often if count[j])
    return sorted(shown, key=float) if values.form == "numbers" else sorted(shown)


def _unit(form: str, seconds: np.ndarray) -> tuple[float, str]:
    if form != "durations" or not len(seconds):
        return 1.0, ""
    longest = float(np.max(np.abs(seconds)))
    if longest > 2 * DAY:
        return DAY, " (days)"
    return (_HOUR, " (hours)") if longest > 2 * _HOUR else (1.0, " (seconds)")


def _days(dates: np.ndarray) -> list[str]:
    """Return dates with times as fine as tells them apart: minutes, or seconds and their parts."""
    for unit in ("m", "s", "us"):
        found = [_day(one, unit) for one in dates]
        if len(set(found)) == len(found):
            break
    return found


def _day(date: Any, unit: str = "m") -> str:
    """Return a date, with its time where it has one."""
    day, rest = date.astype("datetime64[D]"), date.astype(f"datetime64[{unit}]")
    return str(day) if day == date else str(rest).replace("T", " ")


def _duration(seconds: float) -> str:
    try:
        return str(datetime.timedelta(seconds=round(seconds)))
    except OverflowError:  # from a million years on
        return f"{seconds / DAY:.3g} days"
