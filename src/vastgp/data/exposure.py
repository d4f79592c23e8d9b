"""The way in of exposures: counts of rows that were looked at for unequal times, areas or numbers at risk."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, NamedTuple

import numpy as np

from vastgp.data import validate
from vastgp.data.own_noise import named_column, opened
from vastgp.data.row_labels import warn_of_other_order
from vastgp.data.rows import Rows

_WHAT = "its time, area or number at risk"


class Exposure(NamedTuple):
    """The argument ``exposure`` of a fit, as it was given, used in the way of `OwnNoise`.

    Attributes
    ----------
    exposure : object
        What was given, or the column that it named.
    name : str, optional
        Of this column, once it is read.
    """

    exposure: Any
    name: str | None = None

    def read_columns(self, X: Any) -> tuple[Any, Exposure]:
        """Return the inputs without the column that is named here, and this column read."""
        warn_of_other_order(X, self.exposure, "exposure")
        if not isinstance(self.exposure, (str, os.PathLike)):
            return X, self
        X, name = opened(X), os.fspath(self.exposure)
        column = named_column(X, name, "exposure")
        kept = [other for other in X.names if other != name]
        return dataclasses.replace(X, names=kept), Exposure(column, name)

    @property
    def _called(self) -> str:
        return "exposure" if self.name is None else f"exposure={self.name!r}"

    def counting(self, there: np.ndarray) -> np.ndarray:
        """Return which rows there is something to learn from, (n,): all that have a target, as no exposure is zero."""
        return there

    def of_targets(self, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the targets of some rows, a mask, and the logarithms of their exposures: (m, 2)."""
        given = _numbers(self.exposure, len(y))[rows]
        log_exposure = _logarithms(given, np.flatnonzero(rows), self._called)
        return np.column_stack([y[rows], log_exposure])

    def attach(self, rows: Rows) -> Rows:
        """Return rows whose counts have exposures; the rows themselves where these are one everywhere."""
        log_exposure = _logarithms(_numbers(self.exposure, rows.n), called=self._called)
        if not np.any(log_exposure):
            return rows
        y = np.column_stack([np.asarray(rows.y[:], np.float64), log_exposure])
        return dataclasses.replace(rows, y=y)


def exposed_rows(rows: Rows, X: Any, exposure: Any) -> Rows:
    """Return rows to predict, or to judge predictions by, with their exposures.

    Parameters
    ----------
    rows : Rows
        With or without counts.
    X : object
        What they were made of: a table may have the column.
    exposure : array-like of shape (n,), float or str
        Of each row or of all, or the name of the column.
    """
    called = "exposure"
    if isinstance(exposure, (str, os.PathLike)):
        called = f"exposure={os.fspath(exposure)!r}"
        exposure = named_column(opened(X), exposure, "exposure")
    found = validate.numeric_array(exposure, "exposure")
    found = np.full(rows.n, found) if found.ndim == 0 else _numbers(found, rows.n)
    counts = np.zeros(rows.n) if rows.y is None else np.asarray(rows.y[:], np.float64)
    return dataclasses.replace(rows, y=np.column_stack([counts, _logarithms(found, called=called)]))


def _numbers(values: Any, n: int) -> np.ndarray:
    """Return an argument as one number for each row."""
    found = validate.numeric_array(values, "exposure")
    if found.ndim == 0:
        raise ValueError(
            f"exposure={values!r} is a single value. Expected an array of shape (n,) = ({n},), each row's exposure "
            f"({_WHAT}). Where all rows of a fit have the same, leave it out."
        )
    if found.shape != (n,):
        raise ValueError(
            f"exposure has shape {found.shape}. Expected ({n},): one number for each row of X, {_WHAT}."
        )
    return found


def _logarithms(
    values: np.ndarray, row_numbers: np.ndarray | None = None, called: str = "exposure"
) -> np.ndarray:
    """Return logarithms of exposures; what has none is refused by the number of its row."""
    found = np.asarray(values, np.float64)
    bad = np.flatnonzero(~(np.isfinite(found) & (found > 0.0)))
    if len(bad):
        row = bad[0] if row_numbers is None else row_numbers[bad[0]]
        zero = found[bad[0]] == 0.0
        advice = (
            "A row of exposure zero was not looked at, and its count says nothing of the rate: leave it out."
            if zero
            else "Leave out rows for which it is unknown."
        )
        raise ValueError(
            f"{called} must hold finite numbers above zero, each row's exposure ({_WHAT}), received {len(bad)} other "
            f"value{'s' if len(bad) > 1 else ''}, the first {found[bad[0]]} at row {row}. {advice}"
        )
    return np.log(found)
