"""Counts of rows that were looked at for unequal times, areas or numbers at risk, at the front door."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vastgp.data import Exposure, observations
from vastgp.data.labels import table_of
from vastgp.data.tables import open_frame


@dataclass(frozen=True)
class FittedExposure:
    """What a fit knows of the exposures of its rows.

    Attributes
    ----------
    name : str or None
        Of their column; None where they were given as an array.
    least, largest, total : float
        Of the rows with a target, in the unit that they were given in.
    counted : float
        Sum of the counts: over ``total`` it is the rate without inputs.
    """

    name: str | None
    least: float
    largest: float
    total: float
    counted: float

    @classmethod
    def of(cls, given: Exposure, targets: np.ndarray) -> FittedExposure:
        """Return what is known of counts and logarithms of exposures, (n, 2)."""
        exposure = observations.exposures(targets)
        return cls(
            given.name, float(exposure.min()), float(exposure.max()), float(exposure.sum()),
            float(observations.targets(targets).sum()),
        )  # fmt: skip

    @property
    def called(self) -> str:
        """What to call them: by the column where there is one."""
        return "exposures" if self.name is None else f"exposures {self.name!r}"

    def in_words(self) -> str:
        """Return a sentence for people."""
        return (
            f"Counts have {self.called}, from {self.least:.4g} to {self.largest:.4g}: {self.counted:,.0f} counted in "
            f"{self.total:,.4g}. A prediction is of one unit of exposure, or of what it is asked for."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return dataclasses.asdict(self)


# ---------------------------------------------------------------- what is asked for


def refuse_noise(noise_std: Any, sample_weight: Any) -> None:
    """Refuse what is of normal noise beside an exposure."""
    for argument, value in (("noise_std", noise_std), ("sample_weight", sample_weight)):
        if value is not None:
            raise ValueError(
                f"{argument} and exposure were given together: {argument} is of normal noise, which counts with an "
                f"exposure do not have. Leave {argument} out, or leave exposure out and predict a number such as the "
                "rate."
            )


def check_counts(targets: np.ndarray, rows: np.ndarray, name: str | None) -> None:
    """Refuse targets that are no counts where there are exposures.

    Parameters
    ----------
    targets : ndarray of shape (n, 2)
    rows : ndarray of int, shape (n,)
        Their numbers in the table.
    name : str or None
        Of their column.

    Raises
    ------
    ValueError
        Naming the column, how many are none, and the first of them.
    """
    y = observations.targets(targets)
    bad = np.flatnonzero((y < 0.0) | (y != np.round(y)))
    if len(bad):
        called = "The target y" if name is None else f"The target column {name!r}"
        raise ValueError(
            f"{called} has exposures, and holds {len(bad)} value{'s' if len(bad) > 1 else ''} that "
            f"{'are no counts' if len(bad) > 1 else 'is no count'}, the first {y[bad[0]]:g} in row {rows[bad[0]]} "
            "(counted from 0). Give counts, whole numbers from 0 on, and not rates: the model divides by the exposure. "
            "Or leave exposure out."
        )


def of_counts(exposure: Any, fitted: FittedExposure | None, X: Any) -> Any:
    """Return the exposures that counts are compared by: those given, or the column of the fit.

    Parameters
    ----------
    exposure : object
        As given; None for the fit's own.
    fitted : FittedExposure or None
        None for a model without exposures.
    X : table, path or array-like
        Rows with counts.

    Raises
    ------
    ValueError
        Where there is no such column: counts of unknown exposures tell nothing of rates.
    """
    check_takes(exposure, fitted)
    if exposure is not None or fitted is None:
        return exposure
    if fitted.name is not None and _has_column(X, fitted.name):
        return fitted.name
    where = "" if fitted.name is None else f", and X has no column {fitted.name!r}, that of the fit"
    raise ValueError(
        f"exposure is missing: the model was fitted to counts with exposures{where}. Give exposure as an array or the "
        "name of a column, or 1.0 where each row was counted over one unit."
    )


def check_takes(exposure: Any, fitted: FittedExposure | None) -> None:
    """Refuse exposures for a model that was fitted without them."""
    if exposure is not None and fitted is None:
        raise ValueError(
            "exposure was given, but the model was fitted without one, so that what it predicts is of no unit of "
            "exposure. Leave it out, or fit with exposure=."
        )


def _has_column(X: Any, name: str) -> bool:
    table = table_of(open_frame(X))
    return table is not None and name in table.names


# ---------------------------------------------------------------- several targets


def by_target(exposure: Any, count: int) -> list[Any]:
    """Return what each of several targets has of an argument that may have a column for each.

    Parameters
    ----------
    exposure : object
        A list of names, or an array of shape (n, k), for each target its own; anything else is of all.
    count : int
        k.
    """
    names = isinstance(exposure, Sequence) and not isinstance(exposure, str)
    if names and exposure and all(isinstance(name, str) for name in exposure):
        columns: list[Any] = list(exposure)
    elif np.ndim(exposure) == 2:
        columns = list(np.asarray(exposure).T)
    else:
        return [exposure] * count
    if len(columns) != count:
        raise ValueError(
            f"exposure has {len(columns)} columns for {count} targets. Expected one for each target, or one for all of "
            "them."
        )
    return columns


def read_by_target(X: Any, exposure: Any, count: int) -> tuple[Any, list[Exposure]]:
    """Return the table without columns of exposures, and those of each target."""
    found: dict[Any, Exposure] = {}
    keys = []
    for number, given in enumerate(by_target(exposure, count)):
        key = given if isinstance(given, str) else number
        if key not in found:
            X, found[key] = Exposure(given).read_columns(X)
        keys.append(key)
    return X, [found[key] for key in keys]
