"""Units of coordinates and covariates, where attributes say them: new values in those of the fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

# Of each quantity the units that grids come in, as how many of its first one. Symbols as they are, words by small
# letters and without the s of more than one.
_QUANTITIES: tuple[dict[str, float], ...] = (
    {"m": 1.0, "metre": 1.0, "meter": 1.0, "km": 1e3, "kilometre": 1e3, "kilometer": 1e3, "dm": 0.1, "cm": 1e-2,
     "centimetre": 1e-2, "centimeter": 1e-2, "mm": 1e-3, "millimetre": 1e-3, "millimeter": 1e-3, "um": 1e-6,
     "µm": 1e-6, "nm": 1e-9, "ft": 0.3048, "foot": 0.3048, "feet": 0.3048},
    {"Pa": 1.0, "pascal": 1.0, "hPa": 1e2, "hectopascal": 1e2, "kPa": 1e3, "mb": 1e2, "mbar": 1e2, "millibar": 1e2,
     "dbar": 1e4, "decibar": 1e4, "bar": 1e5},
    {"degree": 1.0, "deg": 1.0, "°": 1.0, "degree_north": 1.0, "degree_east": 1.0, "degree_n": 1.0, "degree_e": 1.0,
     "degreen": 1.0, "degreee": 1.0, "radian": 180.0 / np.pi, "rad": 180.0 / np.pi},
    {"K": 1.0, "kelvin": 1.0, "degk": 1.0},
    {"degc": 1.0, "°C": 1.0, "celsius": 1.0, "degree_celsius": 1.0, "deg_c": 1.0, "degree_c": 1.0},
    {"1": 1.0, "": 1.0, "dimensionless": 1.0, "%": 1e-2, "percent": 1e-2},
)  # fmt: skip


def in_units_of_fit(
    values: np.ndarray, attrs: Mapping[Any, Any], fitted: Mapping[Any, Any], name: str
) -> np.ndarray:
    """Return numbers in the units of the fit: 2 ``km`` are 2000 ``m``.

    Counts of time since a date are those of `vastgp.data.calendars.recounted`, and stay as they are here.

    Parameters
    ----------
    values : ndarray
    attrs, fitted : mapping
        Attributes that came with the values, and those of the fit. Values without units have those of the fit.
    name : str

    Raises
    ------
    ValueError
        For units that are not those of the fit and cannot be converted to them.
    """
    theirs, ours = (one.get("units") for one in (attrs, fitted))
    if not isinstance(theirs, str) or not isinstance(ours, str) or _plain(theirs) == _plain(ours):
        return values
    if " since " in theirs and " since " in ours:
        return values
    both = (_plain(theirs), _plain(ours))
    for quantity in _QUANTITIES:
        each = [_size(unit, quantity) for unit in both]
        if each[0] is not None and each[1] is not None:
            return values if each[0] == each[1] else values * (each[0] / each[1])
    raise ValueError(
        f"{name!r} has the units {theirs!r}, and that of the fit {ours!r}. Give it in {ours!r}; where both mean the "
        "same, write them alike: the attribute 'units' of the new values."
    )


def _size(unit: str, quantity: Mapping[str, float]) -> float | None:
    """Return how many of a quantity's first unit one is; None of a unit of another quantity, or one not known."""
    word = unit.lower()
    # symbols are what they are: Mm is not mm, ms not m, and s no unit of a number
    written = [unit, word, word.removesuffix("s")] if len(unit) > 2 else [unit]
    return next((quantity[one] for one in written if one in quantity), None)


def _plain(unit: str) -> str:
    """Return a unit without what is written in more ways than one: its spaces, and the plural of degrees."""
    return "_".join(unit.split()).replace("degrees", "degree").replace("Degrees", "degree")
