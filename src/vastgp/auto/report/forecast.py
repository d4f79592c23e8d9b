"""What was forecast of the last rows in time, and what is beyond them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vastgp.auto.columns import Column
from vastgp.auto.dates import DateEncoding
from vastgp.auto.distribution import SHOWN_LEVEL, interval_levels
from vastgp.auto.report.rows import About
from vastgp.auto.series import column_of_times, one_column
from vastgp.auto.values import Values, dates_of, numbers_of
from vastgp.data import Rows

# Of all rows, how many are forecast beyond the last where there is nothing but time, and at most.
_AHEAD, _MOST_AHEAD = 0.15, 500
_DAYS = "M8[D]"


@dataclass(frozen=True)
class Forecast:
    """Held-out rows in time.

    Attributes
    ----------
    name : str
        Of the column of dates or years.
    times, y, mean, low, high : ndarray of shape (n,)
        Held-out rows, and the ends of their intervals of 95 %.
    span : ndarray of int, shape (n,), or None
        Which of them were forecast together.
    ahead : tuple of four ndarrays of shape (k,), or None
        Times beyond the last row, and mean and interval there; None where rows have inputs other than their time.
    """

    name: str
    times: np.ndarray
    y: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    span: np.ndarray | None
    ahead: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None


def forecast_of(model: Any, about: About) -> Forecast | None:
    """Return what a model that was judged in time says of rows; None of other models.

    Parameters
    ----------
    model : GPRegressor
    about : About
        The rows that the fit held out, or others, of which nothing beyond is forecast.
    """
    held = about.span is not None
    if not model._in_time or not len(about.y) or (about.called == "held-out" and not held):
        return None
    if about.low is None or about.high is None:
        return None
    column = column_of_times(model.encoder_, about.encoded)
    if column is None or column.name not in about.columns:
        return None
    times = _times_of(column, about.columns[column.name])
    return Forecast(
        column.name, times, about.y, about.mean, about.low, about.high, about.span,
        _ahead(model, column, times) if held and one_column(model.encoder_) else None,
    )  # fmt: skip


def _times_of(column: Column, values: Values) -> np.ndarray:
    how: Any = column.encoding
    return (dates_of if isinstance(how, DateEncoding) else numbers_of)(values, how.form)


def _ahead(
    model: Any, column: Column, times: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
    """Return what is forecast beyond the last row."""
    most = min(max(round(_AHEAD * (model.kept_.rows or 0)), 1), _MOST_AHEAD)
    later = times_after(np.unique(times), most)
    dates = later.dtype.kind == "M"
    encoded = column.encode(Values("dates" if dates else "numbers", later))[0]
    found = model._distribution(Rows(encoded, checked=True))
    low, high = found.quantiles(interval_levels(SHOWN_LEVEL))
    return later, found.mean, low, high


def times_after(times: np.ndarray, most: int) -> np.ndarray:
    """Return moments that go on as these do, by working days or months where those are their steps.

    Parameters
    ----------
    times : ndarray of shape (n,)
        Distinct and ascending; dates or numbers.
    most : int
        So many follow.
    """
    steps = np.arange(1, most + 1)
    if times.dtype.kind != "M":
        return times[-1] + steps * float(np.median(np.diff(times)))
    days = times.astype(_DAYS)
    if np.all(days == times):
        found = _months_after(days, steps)
        if found is None and np.all(np.is_busday(days)) and _usual_step(days) == 1:
            found = np.busday_offset(days[-1], steps)
        if found is not None:
            return found.astype("M8[us]")
    return times[-1] + steps * np.timedelta64(_usual_step(times), "us")


def _usual_step(times: np.ndarray) -> int:
    return int(np.median(np.diff(times).astype(np.int64)))


def _months_after(days: np.ndarray, steps: np.ndarray) -> np.ndarray | None:
    """Return days of later months, where all are the same day of theirs, or the last one."""
    months = days.astype("M8[M]")
    every, of_month = _usual_step(months), days - months
    if np.any(np.diff(months).astype(np.int64) == 0):
        return None
    later = months[-1] + every * steps
    if np.all(of_month == of_month[0]):
        return later.astype(_DAYS) + of_month[0]
    if np.all((days + 1).astype("M8[M]") > months):
        return (later + 1).astype(_DAYS) - 1
    return None
