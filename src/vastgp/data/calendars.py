"""Times of any calendar: spans between dates of NumPy and of cftime, and numbers that count spans since a date."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

# Seconds in every unit that lengthscales along times may have.
SECONDS = {
    "seconds": 1.0,
    "minutes": 60.0,
    "hours": 3600.0,
    "days": 86400.0,
    "years": 365.25 * 86400.0,
}
# How files write the unit of a count of time (UDUNITS, as xarray and cftime read it).
_SPANS = {
    1e-6: ("microsecond", "microseconds", "microsec", "microsecs"),
    1e-3: ("millisecond", "milliseconds", "millisec", "millisecs", "msec", "msecs", "ms"),
    1.0: ("second", "seconds", "sec", "secs", "s"),
    60.0: ("minute", "minutes", "min", "mins"),
    3600.0: ("hour", "hours", "hr", "hrs", "h"),
    86400.0: ("day", "days", "d"),
}
_LENGTHS = {name: seconds for seconds, names in _SPANS.items() for name in names}
_MONTHS, _COMMON_YEARS = ("month", "months"), ("common_year", "common_years")
# Calendars in which a date after the reform of 1582 is the same day as in NumPy's.
_REAL = ("standard", "gregorian", "proleptic_gregorian")
_REFORM = np.datetime64("1582-10-15")
_MEETING = (2000, 1, 1)
_MEETING_DAY = np.datetime64("{:04d}-{:02d}-{:02d}".format(*_MEETING))
_SYNONYMS = {"gregorian": "standard", "365_day": "noleap", "366_day": "all_leap"}
_SECOND = np.timedelta64(1, "s")


def length_of_count(name: str, attrs: Mapping[Any, Any]) -> float | None:
    """Return the seconds in one unit of a coordinate of numbers such as ``days since 1850-01-01``; None of others.

    Raises
    ------
    ValueError
        For units that are not of one length in the calendar: months and years.
    """
    units = attrs.get("units")
    found = re.match(r"\s*(\S+)\s+since\s+\S", units) if isinstance(units, str) else None
    if found is None:
        return None
    unit, calendar = found[1].lower(), str(attrs.get("calendar", "standard")).lower()
    if unit in _LENGTHS:
        return _LENGTHS[unit]
    if unit in _MONTHS and calendar == "360_day":
        return 30.0 * 86400.0
    if unit in _COMMON_YEARS and calendar in ("noleap", "365_day"):
        return 365.0 * 86400.0
    long = "are not all of one length" if unit in (*_MONTHS, "year", "years") else "are unknown"
    raise ValueError(
        f"coordinate {name!r} counts {units!r}, and {found[1]} {long} in the calendar {calendar!r}, so they are no "
        "spans of time. Give dates, such as xarray.date_range(start, periods=..., freq='MS', calendar=..., "
        "use_cftime=True), or numbers in days, hours, minutes or seconds since a date."
    )


def recounted(
    values: np.ndarray, attrs: Mapping[Any, Any], fitted: Mapping[Any, Any], name: str
) -> np.ndarray:
    """Return a count of time as that of a fit: 48 ``hours since 2000-01-01`` are 2 ``days since 2000-01-01``.

    Parameters
    ----------
    values : ndarray
    attrs, fitted : mapping
        Attributes that came with the values, and of the coordinate of the fit. Values without units have those of the
        fit.
    name : str

    Raises
    ------
    ValueError
        For units that are no count, and for dates of another calendar than the fit's.
    """
    theirs, ours = (_Count.of(one) for one in (attrs, fitted))
    if theirs is None or ours is None or theirs == ours:
        return values
    each = [length_of_count(name, one) for one in (attrs, fitted)]
    if each[1] is None:
        return values
    if each[0] is None:
        raise ValueError(
            f"coordinate {name!r} has the units {theirs.units!r}, and that of the fit counts {ours.units!r}. Give it "
            "in units of time since a date."
        )
    from_meeting = [one.seconds_to_reference(name) for one in (theirs, ours)]
    seconds = each[0] * values.astype(np.float64)
    both_real = theirs.calendar in _REAL and ours.calendar in _REAL
    real = both_real and np.all(seconds + from_meeting[0] >= (_REFORM - _MEETING_DAY) / _SECOND)
    if theirs.calendar != ours.calendar and not real:
        raise ValueError(
            f"coordinate {name!r} counts {theirs.units!r} in the calendar {theirs.calendar!r}, and that of the fit "
            f"{ours.units!r} in {ours.calendar!r}, between which there is no span. Give dates of the calendar of the "
            "fit."
        )
    return np.asarray((seconds + (from_meeting[0] - from_meeting[1])) / each[1])


@dataclass(frozen=True)
class _Count:
    """What a coordinate of numbers counts, as its attributes say."""

    units: str
    calendar: str

    @classmethod
    def of(cls, attrs: Mapping[Any, Any]) -> _Count | None:
        """Return what attributes say; None where they have no units."""
        if "units" not in attrs:
            return None
        calendar = str(attrs.get("calendar", "standard")).lower()
        return cls(str(attrs["units"]), _SYNONYMS.get(calendar, calendar))

    def seconds_to_reference(self, name: str) -> float:
        """Return the seconds from a day that the calendars have in common to the date that is counted from."""
        try:
            import cftime
        except ImportError as error:
            raise ImportError(
                f"{error} Times in other units than those of the fit need pip install 'vastgp[grid]'."
            ) from error

        reference = re.split(r"\s+since\s+", self.units.strip(), maxsplit=1)[1]
        try:
            date = cftime.num2date(0, f"seconds since {reference}", calendar=self.calendar)
        except ValueError as error:
            raise ValueError(
                f"coordinate {name!r} counts {self.units!r} in the calendar {self.calendar!r}: {error}. Give units "
                "such as 'days since 1850-01-01'."
            ) from error
        meeting = cftime.datetime(*_MEETING, calendar=self.calendar)
        return float((date - meeting).total_seconds())


def calendar_of(values: np.ndarray, name: str) -> str | None:
    """Return the calendar of dates of cftime, which all have; None for times of NumPy.

    Raises
    ------
    ValueError
        For missing dates and for dates of two calendars.
    """
    if values.dtype.kind in "mM":
        return None
    calendars = [getattr(value, "calendar", None) for value in values.ravel()]
    if None in calendars:
        raise ValueError(
            f"coordinate {name!r} has a missing date at position {calendars.index(None)}. Drop those positions."
        )
    if len(set(calendars)) > 1:
        first, other = list(dict.fromkeys(calendars))[:2]
        raise ValueError(
            f"coordinate {name!r} has dates of the calendars {first!r} and {other!r}, between which there is no span."
        )
    return calendars[0]


def check_times(values: np.ndarray, name: str) -> None:
    """Refuse times of which some are missing, or of several calendars.

    Raises
    ------
    ValueError
        With the name of the coordinate and the first position.
    """
    if calendar_of(values, name) is None and np.isnat(values).any():
        at = int(np.argmax(np.isnat(values.ravel())))
        raise ValueError(
            f"coordinate {name!r} has missing times (NaT), the first at position {at}. Drop those positions."
        )


def seconds_between(values: np.ndarray, origin: Any, name: str) -> np.ndarray:
    """Return the seconds from an origin to times, in days of their calendar.

    Dates of NumPy and of the calendars ``standard`` and ``proleptic_gregorian`` are one another's from 1582-10-15 on.

    Raises
    ------
    ValueError
        For missing times, and for times of another calendar than the origin's.
    """
    check_times(values, name)
    ours, theirs = _kind_of_origin(origin), calendar_of(values, name)
    kinds = {"m": "spans of time", "M": "dates"}
    if theirs is None and ours is None:
        there, here = np.asarray(origin).dtype.kind, values.dtype.kind
        if there != here:
            raise ValueError(
                f"coordinate {name!r} holds {kinds[there]} ({np.asarray(origin).dtype}), received {kinds[here]} "
                f"({values.dtype})."
            )
        return _of_numpy(values, origin)
    if theirs == ours:
        return _of_cftime(values, origin)
    if not (_is_real(values, theirs) and _is_real(np.asarray(origin), ours)):
        raise ValueError(
            f"coordinate {name!r} holds {_called(ours, origin)}, received {_called(theirs, values.flat[0])} (first: "
            f"{values.flat[0]}). Give dates of the calendar of the fit."
        )
    return _to_meeting(values, theirs) - _to_meeting(np.asarray(origin), ours)


def _kind_of_origin(origin: Any) -> str | None:
    return None if isinstance(origin, (np.datetime64, np.timedelta64)) else str(origin.calendar)


def _called(calendar: str | None, value: Any) -> str:
    if calendar is not None:
        return f"dates of the calendar {calendar!r}"
    kind = np.asarray(value).dtype
    return f"dates of NumPy ({kind})" if kind.kind == "M" else f"spans of time ({kind})"


def _of_numpy(values: np.ndarray, origin: Any) -> np.ndarray:
    """Return the seconds from an origin to times of NumPy of any units.

    Whole seconds apart from the rest: a difference in nanoseconds comes round silently beyond 292 years.
    """
    second = f"{values.dtype.kind}8[s]"
    whole, first = values.astype(second), np.asarray(origin).astype(second)
    parts = (values - whole) - (origin - first)
    return np.asarray((whole - first) / _SECOND + parts / _SECOND, np.float64)


def _of_cftime(values: np.ndarray, origin: Any) -> np.ndarray:
    return np.array([(value - origin).total_seconds() for value in values.ravel()], np.float64)


def _is_real(values: np.ndarray, calendar: str | None) -> bool:
    """Return whether dates are the same days in NumPy's calendar."""
    if calendar is None:
        # days: nanoseconds do not go back to the reform
        return values.dtype.kind == "M" and bool(np.all(values.astype("datetime64[D]") >= _REFORM))
    if calendar not in _REAL:
        return False
    return all((one.year, one.month, one.day) >= (1582, 10, 15) for one in values.ravel())


def _to_meeting(values: np.ndarray, calendar: str | None) -> np.ndarray:
    """Return the seconds from a day that the calendars have in common."""
    if calendar is None:
        return _of_numpy(values, _MEETING_DAY)
    import cftime

    found = _of_cftime(values, cftime.datetime(*_MEETING, calendar=calendar))
    return found.reshape(values.shape)
