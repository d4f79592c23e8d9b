"""Coordinates of a grid: how numbers, times, longitudes and labels become the inputs of a kernel."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vastgp.data.calendars import SECONDS, check_times, length_of_count, seconds_between

TIME_UNITS = tuple(SECONDS)
# How the conventions for climate files (CF 1.11, sections 4.1 and 4.2) write degrees; units are east or north of zero.
_EAST = {"degrees_east", "degree_east", "degree_E", "degrees_E", "degreeE", "degreesE"}
_NORTH = {"degrees_north", "degree_north", "degree_N", "degrees_N", "degreeN", "degreesN"}
_CIRCLE = 360.0
# A pole, with what single precision adds to it.
_POLE = 90.0 + 1e-4
# Mean radius of the Earth, kilometres (Moritz 2000, Geodetic Reference System 1980).
EARTH_RADIUS = 6371.0088
# A date as text.
_DATE = re.compile(r"\s*-?\d{4}-\d{2}(-\d{2})?([T ].*)?$")
# Longitudes go all around where no step is longer than this many usual ones.
_MOST_STEPS = 1.5
# Longitudes are one meridian where they differ by this many degrees, or by this part of a usual step.
_ROUNDED, _ROUNDED_STEP = 1e-6 * _CIRCLE, 1e-2


def chord_points(lat: Any, lon: Any, numpy: Any = np) -> Any:
    """Return points of the sphere of the Earth, kilometres from its centre.

    Parameters
    ----------
    lat, lon : array-like of shape (n,)
        Degrees north and east; longitudes by any convention.
    numpy : module, default numpy
        Or ``jax.numpy``, within a program.

    Returns
    -------
    array of shape (n, 3)
        The distance between two of them is ``2 R sin(a / 2)`` at an angle a: 1 % less than the way over the ground at
        3,100 km.
    """
    north, east = numpy.deg2rad(lat), numpy.deg2rad(lon)
    around = numpy.cos(north)
    points = [around * numpy.cos(east), around * numpy.sin(east), numpy.sin(north)]
    return EARTH_RADIUS * numpy.stack(points, axis=-1)


@dataclass(frozen=True)
class Coordinate:
    """One coordinate and how its values become numbers.

    Attributes
    ----------
    name : str
    kind : {"number", "time", "label"}
    values : ndarray
        As they came: numbers, ``datetime64``, dates of cftime, or labels.
    origin : object
        What is subtracted (numbers lose digits in single precision otherwise), see `origin_of`.
    unit : str or None
        Of times.
    extent : float or None
        Of longitudes: degrees from the first to the last, eastwards. Others come round by a circle to where they are
        nearest. None for other coordinates.
    step : float
        What one of its numbers is: of a count of times (``hours since 1850-01-01``) in the unit of lengthscales.
    """

    name: str
    kind: str
    values: np.ndarray
    origin: Any
    unit: str | None = None
    extent: float | None = None
    step: float = 1.0

    def numbers(self, values: Any) -> np.ndarray:
        """Return values of this coordinate as float64 numbers, in its own unit from its origin.

        Raises
        ------
        ValueError
            When they are of another kind, not finite, or labels that the fit has not seen.
        """
        array = np.asarray(values)
        flat = np.atleast_1d(array)
        if self.kind == "label":
            return self._positions(flat)
        if self.kind == "time":
            if _kind(flat) != "time":
                raise ValueError(
                    f"coordinate {self.name!r} holds times, received {flat.dtype} (first: {flat[:1]}). Give "
                    "datetime64 values, or dates of the calendar of the fit."
                )
            return seconds_between(flat, self.origin, self.name) / SECONDS[str(self.unit)]
        if _kind(flat) != "number":
            raise ValueError(
                f"coordinate {self.name!r} holds numbers, received {flat.dtype} (first: {flat[:1]})."
            )
        numbers = (flat.astype(np.float64) - float(self.origin)) * self.step
        _check_finite(self.name, numbers)
        return numbers if self.extent is None else _turned(numbers, self.extent)

    def meridian_twice(self) -> tuple[int, int] | None:
        """Return the positions of two longitudes a circle apart, of a field that repeats its first column; or None."""
        if self.extent is None:
            return None
        numbers = self.values.astype(np.float64)
        order, steps = _in_turn(numbers)
        for at in np.flatnonzero(steps <= _same_meridian(steps)):
            first, second = sorted((int(order[at]), int(order[(at + 1) % len(order)])))
            if abs(numbers[first] - numbers[second]) > _CIRCLE / 2.0:
                return first, second
        return None

    @property
    def closes(self) -> bool:
        """Whether these are longitudes all around, so that the last one is a neighbour of the first."""
        return self.extent is not None and _all_around(_steps_around(self.values))

    def _positions(self, labels: np.ndarray) -> np.ndarray:
        known = {label: position for position, label in enumerate(self.values.tolist())}
        unknown = [label for label in labels.tolist() if label not in known]
        if unknown:
            raise ValueError(
                f"coordinate {self.name!r} has no {unknown[0]!r}: the fit has seen "
                f"{', '.join(map(repr, list(known)[:10]))}. Nothing is known of others."
            )
        return np.array([known[label] for label in labels.tolist()], dtype=np.float64)


def make_coordinate(
    name: str,
    values: np.ndarray,
    time_unit: str,
    attrs: Mapping[Any, Any],
    *,
    on_axis: bool,
    absolute: bool = False,
) -> Coordinate:
    """Return a coordinate, checked.

    Parameters
    ----------
    name : str
    values : ndarray
    time_unit : str
    attrs : mapping
        By which longitudes are known, or else by their name.
    on_axis : bool
        Whether a dimension runs along it, so that no value may come twice.
    absolute : bool, default False
        Whether numbers count from zero and come round for their kernel alone.
    """
    kind = _kind(values)
    if kind == "label":
        labels = values.tolist()
        if not all(isinstance(label, (str, bytes)) for label in labels):
            raise ValueError(
                f"coordinate {name!r} holds {type(labels[0]).__name__} objects. Expected numbers, times, or strings "
                "that name outputs: unstack stacked dimensions (array.unstack()) or give their names one kernel "
                "(kernels={('lat', 'lon'): ...}), make times of periods (index.to_timestamp()) and of times that have "
                "a zone (index.tz_convert(None)), and numbers of objects (index.astype(float))."
            )
        if len(set(labels)) < len(labels):
            again = next(label for label in labels if labels.count(label) > 1)
            raise ValueError(
                f"coordinate {name!r} has the label {again!r} more than once. Average or drop repetitions: "
                f"array.groupby({name!r}).mean()."
            )
        _check_labels(name, labels, attrs)
        return Coordinate(name, kind, values, 0)
    if kind == "time":
        check_times(values, name)
    found = Coordinate(name, kind, values, values[0], time_unit if kind == "time" else None)
    counted = length_of_count(name, attrs) if kind == "number" else None
    if counted is not None:
        found = replace(found, step=counted / SECONDS[time_unit])
    numbers = found.numbers(values)
    if kind == "number":
        check_latitude(name, values, attrs)
    if on_axis:
        _check_distinct(name, values, numbers)
    if absolute:
        return replace(found, origin=0.0)
    if kind == "number" and is_longitude(name, attrs) and np.ptp(numbers) <= _CIRCLE + _ROUNDED:
        origin, extent = eastwards(values)
        return replace(found, origin=origin, extent=extent)
    return replace(found, origin=origin_of(kind, values, on_axis=on_axis))


def is_longitude(name: str, attrs: Mapping[Any, Any]) -> bool:
    """Return whether a coordinate is longitude in degrees: by its units or standard name, or by its name without."""
    return _is_degrees(name, attrs, _EAST, "longitude", ("lon", "longitude"))


def is_latitude(name: str, attrs: Mapping[Any, Any]) -> bool:
    """Return whether a coordinate is latitude in degrees, as `is_longitude` does."""
    return _is_degrees(name, attrs, _NORTH, "latitude", ("lat", "latitude"))


def check_latitude(name: str, values: np.ndarray, attrs: Mapping[Any, Any]) -> None:
    """Refuse latitudes beyond the poles.

    Raises
    ------
    ValueError
        With the name of the coordinate and the first such value.
    """
    if not is_latitude(name, attrs):
        return
    beyond = np.flatnonzero(np.abs(values.ravel()) > _POLE)
    if beyond.size:
        raise ValueError(
            f"coordinate {name!r} has latitude {values.ravel()[beyond[0]]} at position {beyond[0]}, beyond 90 degrees. "
            "Expected degrees north, from -90 to 90: where latitude and longitude are exchanged, rename both; rename a "
            "coordinate that is no latitude, or give it its own units."
        )


def _is_degrees(
    name: str, attrs: Mapping[Any, Any], units: set[str], standard: str, names: tuple[str, ...]
) -> bool:
    unit, by_attrs = attrs.get("units"), attrs.get("standard_name") == standard
    if unit is None:
        return by_attrs or name.lower() in names
    return unit in units or (unit in ("degrees", "degree") and (by_attrs or name.lower() in names))


def _in_turn(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the order of longitudes around the circle, and the step from each to the next."""
    around = np.mod(numbers, _CIRCLE)
    order = np.argsort(around, kind="stable")
    return order, np.diff(around[order], append=around[order[0]] + _CIRCLE)


def _same_meridian(steps: np.ndarray) -> float:
    """Return the longest step between two longitudes that are one: what single precision and the circle round."""
    return min(_ROUNDED, _ROUNDED_STEP * float(np.median(steps)))


def _meridians(values: np.ndarray) -> np.ndarray:
    """Return the different meridians of some longitudes, from 0 to 360 degrees, in ascending order."""
    around = np.unique(np.mod(values.astype(np.float64), _CIRCLE))
    _, steps = _in_turn(around)
    return around[steps > _same_meridian(steps)]


def _steps_around(values: np.ndarray) -> np.ndarray:
    """Return the steps between neighbours around the circle, of values modulo its length."""
    return _in_turn(_meridians(values))[1]


def eastwards(values: np.ndarray) -> tuple[float, float]:
    """Return the first of some longitudes and how far east of it the last one is.

    The circle is cut where the longest step is, where it is longer than that from the largest value to the least: a
    field across Greenwich is one field. Longitudes all around are left as they stand.
    """
    numbers = values.astype(np.float64)
    around, steps = _meridians(values), _steps_around(values)
    least, most = float(numbers.min()), float(numbers.max())
    longest = int(np.argmax(steps))
    if _all_around(steps) or steps[longest] <= _CIRCLE - (most - least) + _ROUNDED:
        return least, most - least
    first = around[(longest + 1) % len(around)]
    origin = float(numbers[int(np.argmin(np.abs(np.mod(numbers, _CIRCLE) - first)))])
    return origin, float(np.max(np.mod(around - first, _CIRCLE)))


def _all_around(steps: np.ndarray) -> bool:
    return len(steps) > 3 and bool(np.max(steps) <= _MOST_STEPS * np.median(steps))


def _turned(numbers: np.ndarray, extent: float) -> np.ndarray:
    """Return degrees from an origin with those outside of the extent brought round to where they are nearest to it."""
    round_east = np.mod(numbers, _CIRCLE)
    nearer_west = round_east - extent > _CIRCLE - round_east
    nearest = np.where(nearer_west, round_east - _CIRCLE, round_east)
    return np.where((numbers >= 0.0) & (numbers <= extent), numbers, nearest)


def _check_distinct(name: str, values: np.ndarray, numbers: np.ndarray) -> None:
    found = _first_repeated(numbers)
    if found is not None:
        at, again = found
        raise ValueError(
            f"coordinate {name!r} has the value {values[at]} more than once (positions {at} and {again}). Average "
            f"or drop repetitions: array.groupby({name!r}).mean()."
        )


def _first_repeated(numbers: np.ndarray) -> tuple[int, int] | None:
    """Return the positions of the least number that comes more than once; None where all are distinct."""
    order = np.argsort(numbers, kind="stable")
    repeated = np.flatnonzero(np.diff(numbers[order]) == 0)
    if not repeated.size:
        return None
    return int(order[repeated[0]]), int(order[repeated[0] + 1])


def _check_labels(name: str, labels: list[Any], attrs: Mapping[Any, Any]) -> None:
    """Refuse degrees and dates that are given as text: between labels there is no distance."""
    text = [
        label.decode(errors="replace") if isinstance(label, bytes) else label for label in labels
    ]
    if is_latitude(name, attrs) or is_longitude(name, attrs):
        raise ValueError(
            f"coordinate {name!r} is text, such as {text[0]!r}. Expected degrees as numbers: "
            f"array.assign_coords({name}=array[{name!r}].astype(float))."
        )
    if all(_DATE.match(label) for label in text):
        raise ValueError(
            f"coordinate {name!r} holds dates as text, such as {text[0]!r}, between which there is no distance. Make "
            f"times of them: array.assign_coords({name}=array[{name!r}].astype('datetime64[ns]'))."
        )


def origin_of(kind: str, values: np.ndarray, *, on_axis: bool) -> Any:
    """Return what is subtracted from a coordinate's values: the least along a dimension, whichever way it runs."""
    if kind == "label":
        return 0
    return values.min() if on_axis else values[0]


def _kind(values: np.ndarray) -> str:
    if values.dtype.kind in "fiub":
        return "number"
    if values.dtype.kind in "mM":
        return "time"
    if values.dtype == object and any(hasattr(value, "calendar") for value in values.flat):
        return "time"
    return "label"


def _check_finite(name: str, numbers: np.ndarray) -> None:
    if not np.all(np.isfinite(numbers)):
        at = int(np.argmin(np.isfinite(numbers)))
        raise ValueError(
            f"coordinate {name!r} is not finite at position {at}. Drop those positions, or give the coordinate."
        )
