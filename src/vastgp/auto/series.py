"""Rows that follow each other in time: what is held out of them, and kernels of what goes on beyond its end.

Where the dates of a table leave no gaps, new rows can only lie beyond them. How well a model fills gaps, which is what
rows held out at random tell, says nothing of that: of 144 monthly counts of passengers an exact process was within 7 of
such rows, and off by 82 in the two years after the last, by intervals of 46 to either side.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from vastgp.auto.columns import Column
from vastgp.auto.dates import DAY, YEAR, DateEncoding
from vastgp.auto.encoder import TableEncoder
from vastgp.auto.folds import Fold, size_out
from vastgp.auto.named_numbers import NamedNumberEncoding
from vastgp.auto.numeric import NumberEncoding
from vastgp.kernels import RBF, Kernel, Linear

# What the leaderboard says of its scores.
IN_TIME = "judged by the last rows in time, each part predicted from the rows before it"
NOT_IN_TIME = "judged by random rows; for forecasts, hold_out='last' judges by the last in time"

# So much of all moments from the first to the last, and of all rows, are moments of their own.
_WITHOUT_GAPS = 0.95
_LEAST_ROWS = 20
# Whole numbers that a column of years holds, and what it is called.
_YEARS = (1000.0, 3000.0)
_YEAR_NAME = re.compile(r"(.*[ ._-])?(years?|yr)", re.IGNORECASE)
# Held-out rows count as so many.
_STRETCHES = 24
# Steps of a day to within so much of it.
_OF_A_DAY = 0.01
# Spans that are forecast one after the other, each from all before it, up to so many rows and where there is the time;
# one is a single path, whose errors all have one sign.
_SPANS, _SHARE_OF_SPAN, _MOST_ROWS = 3, 0.15, 3000
_SECONDS_FOR_SPANS, _PER_ROWS = 12.0, 500


class Times(NamedTuple):
    """When rows were.

    Attributes
    ----------
    years : ndarray of shape (n,)
        Since the first.
    first : datetime64
        That one.
    alone : bool
        Whether the rows have no other inputs.
    """

    years: np.ndarray
    first: np.datetime64
    alone: bool = False

    @classmethod
    def of(cls, encoder: Any, encoded: np.ndarray) -> Times | None:
        """Return the times of encoded rows, by the first column of dates or years that all rows have; None without one.

        Parameters
        ----------
        encoder : transformer
            Fitted.
        encoded : ndarray of shape (n, d)
            What it made of the rows.
        """
        column = column_of_times(encoder, encoded)
        if column is None:
            return None
        how, alone = column.encoding, one_column(encoder)
        values = encoded[:, column.outputs[0]]
        if isinstance(how, DateEncoding):
            return cls(values, np.datetime64(how.first, "us"), alone)
        first = float(values.min())
        return cls(values - first, np.datetime64(f"{first:.0f}-01-01", "us"), alone)

    @property
    def are_series(self) -> bool:
        """Whether rows are of moments without gaps between them, one of each: a series, which only time continues."""
        moments = np.unique(self.years)
        n = len(self.years)
        if n < _LEAST_ROWS or len(moments) < _WITHOUT_GAPS * n:
            return False
        steps = np.diff(moments)
        step = float(np.median(steps))
        # months and years are not all as long
        every = float(np.sum(np.maximum(np.round(steps / step), 1.0))) + 1.0
        if abs(step * YEAR / DAY - 1.0) < _OF_A_DAY:
            days = self.first.astype("datetime64[D]") + np.round(moments * YEAR / DAY).astype(int)
            if np.all(np.is_busday(days)):  # weekends are no gaps where no row is of one
                every = float(np.busday_count(days[0], days[-1])) + 1.0
        return bool(len(moments) >= _WITHOUT_GAPS * every)


def column_of_times(encoder: Any, encoded: np.ndarray) -> Column | None:
    """Return the first column of dates or years that all rows have, whose first output is the time; None without one.

    Parameters
    ----------
    encoder : transformer
        Fitted.
    encoded : ndarray of shape (n, d)
        What it made of the rows.
    """
    for column in encoder.columns_ if isinstance(encoder, TableEncoder) else ():
        how = column.encoding
        if isinstance(how, DateEncoding) and how.trend and not how.gaps:
            return column
        how = how.number if isinstance(how, NamedNumberEncoding) else how
        plain = isinstance(how, NumberEncoding) and how.value and not how.gaps
        if plain and _are_years(column.name, encoded[:, column.outputs[0]]):
            return column
    return None


def one_column(encoder: TableEncoder) -> bool:
    """Whether a single column of the table is an input."""
    return sum(column.kept for column in encoder.columns_) == 1


def _are_years(name: str, values: np.ndarray) -> bool:
    """Whether a column of numbers is one of calendar years, by its name and by what it holds."""
    low, high = _YEARS
    able = np.all((values == np.rint(values)) & (low <= values) & (values < high))
    return bool(able) and _YEAR_NAME.fullmatch(name) is not None


def to_go_on_from(times: Times | None, hold_out: str) -> Times | None:
    """Return the times of rows where the last of them are to be held out; None where random ones are.

    Parameters
    ----------
    times : Times or None
    hold_out : {"auto", "random", "last"}
        As in `vastgp.GPRegressor`.

    Raises
    ------
    ValueError
        Where the last are asked for and there are no dates.
    """
    if hold_out == "last" and times is None:
        raise ValueError(
            "hold_out='last' was asked for, and no column of X holds dates in every row, which the default encoder "
            "finds. Make dates of the column that says when rows were (pandas.to_datetime), or leave hold_out out."
        )
    if times is None or hold_out == "random" or not (hold_out == "last" or times.are_series):
        return None
    return times


def folds_in_time(times: np.ndarray, seconds: float | None) -> list[Fold]:
    """Return rows that are held out because they come last, and for each such part all rows before it.

    Parameters
    ----------
    times : ndarray of shape (n,)
        Rows of one moment are held out together.
    seconds : float or None
        Of the budget.
    """
    n = len(times)
    enough = seconds is None or seconds >= _SECONDS_FOR_SPANS * n / _PER_ROWS
    if n <= _MOST_ROWS and enough:
        ends = [1.0 - _SHARE_OF_SPAN * k for k in range(_SPANS, -1, -1)]
    else:
        ends = [1.0 - size_out(n, seconds) / n, 1.0]
    ordered = np.sort(times)
    limits = [ordered[min(round(end * n), n - 1)] for end in ends[:-1]] + [np.inf]
    found = [
        Fold(np.flatnonzero(times < low), np.flatnonzero((times >= low) & (times < high)))
        for low, high in itertools.pairwise(limits)
    ]
    return [fold for fold in found if len(fold.training) and len(fold.held_out)]


def stretches(times: np.ndarray, folds: Sequence[Fold]) -> np.ndarray:
    """Return the number of the stretch of time of each held-out row, whose rows count as one together.

    A forecast that is off stays off for a while: rows of one path tell as much as a few, and a map of levels that
    follows each of them has learned the path (a random walk, NLPD 3.8 with rows that count alone).

    Parameters
    ----------
    times : ndarray of shape (n,)
    folds : sequence of Fold
        From `folds_in_time`.
    """
    found = np.arange(len(times)) + _STRETCHES
    each, first = _STRETCHES // len(folds), 0
    for fold in folds:
        moments, place = np.unique(times[fold.held_out], return_inverse=True)
        found[fold.held_out] = first + place * each // len(moments)
        first += each
    return found


def kernel_of_series(rough: type, tied: Sequence[Sequence[int]]) -> Kernel:
    """Return the kernel of a trend, what is smooth, and what is rough, in standardised units.

    A stationary kernel goes back to the mean beyond the data; with a line of its own the mean goes on, and as far as
    its slope is uncertain the deviation grows. Ten series, the last fifth forecast by what has the highest evidence
    without the line and with it: NLPD of airline passengers 6.96 and 5.62 (of logarithms 5.79 and 4.96, with a rough
    Matern-1/2 4.48), of CO2 4.04 and 3.06, of a random walk 5.33 and 2.59, of steps 3.20 and 3.56.

    Parameters
    ----------
    rough : type
        `Matern32`, or for a walk, whose steps are independent, `Matern12`.
    tied : sequence of sequences of int
        Columns that are one input, each column once.
    """
    groups = np.zeros(sum(map(len, tied)), dtype=np.int64)
    for number, columns in enumerate(tied):
        groups[list(columns)] = number
    inputs, one = tuple(groups.tolist()), np.ones(len(tied))
    line = Linear(np.full(len(groups), 0.3))
    kernel: Kernel = line + RBF(one, 0.5, inputs=inputs) + rough(3.0 * one, 0.5, inputs=inputs)
    return kernel
