"""The way in of weights and known errors: rows with noise of their own."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, NamedTuple

import numpy as np

from vastgp.data import validate
from vastgp.data.labels import table_of
from vastgp.data.observations import MOST
from vastgp.data.row_labels import warn_of_other_order
from vastgp.data.rows import Rows
from vastgp.data.split import without
from vastgp.data.tables import Table, open_frame

_BLOCK_ROWS = 65_536
# Errors whose squares do not exist in float64 say as little as this one.
MOST_ERROR = 1e150
_WHAT = {
    "noise_std": "known standard deviation of its target, in units of the target",
    "sample_weight": "weight",
    "exposure": "exposure (its time, area or number at risk)",
}


class OwnNoise(NamedTuple):
    """The arguments ``noise_std`` and ``sample_weight`` of a fit, as they were given."""

    noise_std: Any
    sample_weight: Any

    def read_columns(self, X: Any) -> tuple[Any, OwnNoise]:
        """Return the inputs without the columns that are named here, and these columns read."""
        for argument, given in zip(self._fields, self, strict=True):
            warn_of_other_order(X, given, argument)
        if not any(isinstance(given, (str, os.PathLike)) for given in self):
            return X, self
        X = opened(X)
        found = [
            named_column(X, given, argument) if isinstance(given, (str, os.PathLike)) else given
            for argument, given in zip(self._fields, self, strict=True)
        ]
        names = {os.fspath(given) for given in self if isinstance(given, (str, os.PathLike))}
        kept = [name for name in X.names if name not in names]
        return dataclasses.replace(X, names=kept), OwnNoise(*found)

    def counting(self, there: np.ndarray) -> np.ndarray:
        """Return which rows have a weight above zero, (n,), of those that have a target, a mask."""
        weight = _numbers(self.sample_weight, "sample_weight", there)
        if weight is not None and not np.any(weight[there]):
            raise ValueError(
                "sample_weight is zero for all rows, so that none is left to fit. Expected a positive weight for each "
                "row that counts, or sample_weight=None where all count alike."
            )
        return there if weight is None else there & (weight > 0.0)

    def of_targets(self, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the targets of some rows, a mask, with their noise beside them where they have some."""
        parts = (
            _numbers(self.noise_std, "noise_std", rows),
            _numbers(self.sample_weight, "sample_weight", rows),
        )
        of_rows = OwnNoise(*(None if part is None else part[rows] for part in parts))
        found = y[rows]
        return np.asarray(of_rows.attach(Rows(np.zeros((len(found), 1)), found, checked=True)).y)

    def attach(self, rows: Rows) -> Rows:
        """Return rows whose observations have noise of their own; the rows themselves where all are alike.

        Rows of weight zero are left out; the weights of the others are divided by their mean.
        """
        n, there = rows.n, np.ones(rows.n, dtype=bool)
        weight = _numbers(self.sample_weight, "sample_weight", there)
        error = _numbers(self.noise_std, "noise_std", there)
        weight = np.ones(n) if weight is None else weight
        error = np.zeros(n) if error is None else error
        dropped = np.flatnonzero(~self.counting(there))
        if len(dropped):
            rows = without(rows, dropped)
            weight, error = weight[weight > 0.0], error[weight > 0.0]
        if np.all(weight == weight[0]) and not np.any(error):
            return rows
        # divided by the largest first: sums and quotients of any numbers are finite then
        weight = weight / np.max(weight)
        weight = np.maximum(weight / np.mean(weight), 1.0 / MOST)
        y = np.column_stack(
            [np.asarray(rows.y[:], np.float64), 1.0 / weight, np.minimum(error, MOST_ERROR) ** 2]
        )
        return dataclasses.replace(rows, y=y)


def opened(X: Any) -> Any:
    """Return a table where the inputs are one, in memory or in a file."""
    X = open_frame(X)
    table = table_of(X)
    return X if table is None else table


def named_column(table: Any, given: str | os.PathLike[str], argument: str) -> np.ndarray:
    """Return a column of a table by the name that an argument gives."""
    name = os.fspath(given)
    if not isinstance(table, Table):
        raise ValueError(
            f"{argument}={name!r} is a string, and X is not a table with a column of that name. Expected an array of "
            f"shape (n,), each row's {_WHAT[argument]}."
        )
    if name not in table.names:
        raise ValueError(
            f"{argument}={name!r} is no column of {table.where}. Its columns are: "
            f"{validate.listed(table.names, at_most=30)}. Give one of them, or an array of shape (n,)."
        )
    if name in table.not_numeric:
        raise ValueError(
            f"The column {argument}={name!r} of {table.where} holds {table.not_numeric[name]}. Expected numbers, each "
            f"row's {_WHAT[argument]}: choose another column, or convert this one."
        )
    parts = [vectors[0] for vectors in table.blocks([name], _BLOCK_ROWS)]
    return np.concatenate(parts) if parts else np.zeros(0)


def _numbers(values: Any, argument: str, there: np.ndarray) -> np.ndarray | None:
    """Return an argument as one number for each row, finite and not negative for those of a mask."""
    if values is None:
        return None
    n = len(there)
    found = validate.numeric_array(values, argument)
    if found.ndim == 0:
        advice = {
            "noise_std": "The noise that all rows have in common is learned; to hold it, set "
            "hyperparameters=Fixed(noise_std=...) where the estimator has that argument.",
            "sample_weight": "Where all rows count alike, leave it out.",
        }
        raise ValueError(
            f"{argument}={values!r} is a single value. Expected an array of shape (n,) = ({n},), each row's "
            f"{_WHAT[argument]}. {advice[argument]}"
        )
    if found.shape != (n,):
        raise ValueError(
            f"{argument} has shape {found.shape}. Expected ({n},): one number for each row of X, its {_WHAT[argument]}."
        )
    found = found.astype(np.float64)
    bad = np.flatnonzero(there & ~(np.isfinite(found) & (found >= 0.0)))
    if len(bad):
        unknown = (
            "0 where it is known exactly" if argument == "noise_std" else "0 to leave the row out"
        )
        raise ValueError(
            f"{argument} must hold finite numbers that are not negative, received {len(bad)} other value"
            f"{'s' if len(bad) > 1 else ''}, the first {found[bad[0]]} at row {bad[0]}. Expected each row's "
            f"{_WHAT[argument]} ({unknown}); drop rows for which it is unknown."
        )
    return found
