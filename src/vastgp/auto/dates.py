"""Dates and times of day: what a column of them spans, and the trend, season, weekday and time of day that become
inputs.

All of it is the wall clock of the column's time zone: people's weekdays and hours are. New moments that say where they
are read, as another zone or as text with an offset, are what that clock shows then. Text and Python objects have a zone
where all that say one say the same; where they say several (an offset for summer and one for winter), each is read by
its own clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from vastgp.auto import gaps
from vastgp.auto.numeric import NumberFacts, Sample
from vastgp.auto.values import Values, dates_of, dates_of_numbers, numbers_of
from vastgp.auto.written import AS_NUMBERS, DAY_FIRST, MONTH_FIRST, zone_written
from vastgp.auto.zones import SEVERAL, common_zone

DAY = 86_400.0  # seconds
YEAR = 365.2425 * DAY  # the mean year of the calendar
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

# Where there is less of it, a cycle cannot be told from the trend.
_SEASON_SPAN = 1.2 * YEAR
_WEEK_SPAN = 21 * DAY
_DAY_SPAN = 2 * DAY
# Dates within so small a part of the year, once a year, have no season.
_SEASON_PART = 1 / 24

# What is said of text that others read otherwise.
_READ_AS = {
    DAY_FIRST: "; read with the day first",
    MONTH_FIRST: "; read with the month first",
    AS_NUMBERS: "; numbers read as year, month and day",
}
# So many numbers are not all dates by chance: of those with eight digits one in thirty is.
_LEAST_NUMBERS = 10

_MICRO = np.timedelta64(1, "us")


def seconds_since(first: np.datetime64, dates: Any) -> Any:
    """Return seconds since a first moment."""
    return (dates - first) / _MICRO / 1e6


def part_of_year(dates: np.ndarray) -> np.ndarray:
    """Return how much of the calendar year has passed, from 0 to less than 1."""
    year = dates.astype("datetime64[Y]")
    start = year.astype("datetime64[us]")
    end = (year + np.timedelta64(1, "Y")).astype("datetime64[us]")
    return (dates - start) / (end - start)


def weekday(dates: np.ndarray) -> np.ndarray:
    """Return the day of the week, Monday is 0."""
    # day 0, the first of 1970, was a Thursday
    return (dates.astype("datetime64[D]").astype(np.int64) + 3) % 7


def seconds_of_day(dates: np.ndarray) -> np.ndarray:
    """Return seconds since midnight."""
    return (dates - dates.astype("datetime64[D]")) / _MICRO / 1e6


def circle(part: np.ndarray) -> np.ndarray:
    """Return sine and cosine of parts of a cycle: neighbours stay neighbours across its end."""
    angle = 2 * np.pi * part
    return np.stack([np.sin(angle), np.cos(angle)], axis=1)


class DateFacts:
    """What the rows so far say of a column of dates."""

    def __init__(self, form: str = "dates") -> None:
        self.form = form
        self.present = self.missing = 0
        self.first = self.last = np.datetime64("NaT", "us")
        self.weekdays: set[int] = set()
        self.clock = [np.inf, -np.inf]
        self.season = [np.inf, -np.inf]
        self.zone: str | None = None
        self.sample = Sample()

    def update(self, first: int, values: Values) -> None:
        """Take in a block."""
        levels = values.levels if values.form == "text" else ()
        self.update_zone([values.zone, *map(zone_written, levels)])
        self.update_dates(first, dates_of(values, self.form))

    def update_zone(self, zones: Iterable[str | None]) -> None:
        """Take in the zones that moments say they are read in, of which there may be none."""
        self.zone = common_zone([self.zone, *zones])

    def update_dates(self, first: int, dates: np.ndarray) -> None:
        """Take in dates."""
        there = np.flatnonzero(~np.isnat(dates))
        self.missing += len(dates) - len(there)
        self.present += len(there)
        if not len(there):
            return
        found = dates[there]
        self.first = np.fmin(self.first, found.min())
        self.last = np.fmax(self.last, found.max())
        self.weekdays |= set(np.unique(weekday(found)).tolist())
        for limits, part in ((self.clock, seconds_of_day), (self.season, part_of_year)):
            values = part(found)
            limits[0] = min(limits[0], float(values.min()))
            limits[1] = max(limits[1], float(values.max()))
        self.sample.add(found.astype(np.int64), first + there)

    @classmethod
    def among(cls, numbers: NumberFacts) -> DateFacts | None:
        """Return the facts of dates where all of many numbers are such as 20241231; None where they are not."""
        ends = np.array([numbers.low, numbers.high])
        if numbers.form != "numbers" or np.isnat(dates_of_numbers(ends)).any():
            return None
        values = numbers.sample.values()
        dates = dates_of_numbers(np.append(values, ends))
        if len(values) < _LEAST_NUMBERS or np.isnat(dates).any():
            return None
        found = cls(AS_NUMBERS)
        found.update_dates(0, dates)
        found.present, found.missing = numbers.present, numbers.missing
        return found

    @property
    def constant(self) -> bool:
        """Whether all dates are the same."""
        return bool(self.first == self.last)

    def only_firsts(self) -> bool:
        """Return whether all dates are the first of a month, in the rows of the sample."""
        return _are_firsts(_days(self.sample.values()))

    def encoding(self) -> DateEncoding:
        """Return how the column becomes inputs."""
        span = float(seconds_since(self.first, self.last))
        values = self.sample.values()
        # the first or the last day of each
        of_months = _are_firsts(_days(values)) or _are_firsts(_days(values) + 1)
        return DateEncoding(
            first=int(self.first.astype(np.int64)),
            last=int(self.last.astype(np.int64)),
            middle=int(values[len(values) // 2]),
            trend=not self.constant,
            season=span >= _SEASON_SPAN and self.season[1] - self.season[0] > _SEASON_PART,
            # that the first of a month is a Monday says nothing of the month
            week=span >= _WEEK_SPAN and len(self.weekdays) >= 3 and not of_months,
            clock=span >= _DAY_SPAN and self.clock[1] > self.clock[0],
            gaps=self.missing > 0,
            zone=None if self.zone == SEVERAL else self.zone,
            form=self.form,
        )


def _days(moments: np.ndarray) -> np.ndarray:
    """Return the days of microseconds since 1970."""
    return moments.astype("datetime64[us]").astype("datetime64[D]")


def _are_firsts(days: np.ndarray) -> bool:
    """Whether all days are the first of a month."""
    return bool(np.all(days == days.astype("datetime64[M]")))


@dataclass(frozen=True)
class DateEncoding:
    """A date as years since the first one and the cycles that the training rows have enough of.

    A gap has the median's trend and the middle of each cycle, as far from all of its phases: (0, 0) on a circle, 1/7
    of each weekday.

    Attributes
    ----------
    first, last, middle : int
        First, last and median date in training, microseconds since 1970.
    trend, season, week, clock, gaps : bool
        What there is.
    zone : str, optional
        Time zone whose wall clock it is.
    form : str
        How text writes them, see `vastgp.auto.written`.
    """

    kind: ClassVar[str] = "date"

    first: int
    last: int
    middle: int
    trend: bool
    season: bool
    week: bool
    clock: bool
    gaps: bool
    zone: str | None
    form: str = "dates"

    def groups(self, name: str) -> list[list[str]]:
        """Return the names of the output columns, those of one input in one list."""
        groups = [
            [f"{name} in years"],
            [f"{name} season {part}" for part in ("sin", "cos")],
            [f"{name} {day}" for day in WEEKDAYS],
            [f"{name} time of day {part}" for part in ("sin", "cos")],
            [f"{name} is missing"],
            gaps.group(name),
        ]
        there = (self.trend, self.season, self.week, self.clock, self.gaps, self.gaps)
        return [group for group, wanted in zip(groups, there, strict=True) if wanted]

    def encode(self, values: Values) -> tuple[np.ndarray, int]:
        """Return the output columns of a block, and the number of gaps that training had none of."""
        dates = dates_of(values, self.form, self.zone)
        missing = np.isnat(dates)
        first, middle = (np.datetime64(moment, "us") for moment in (self.first, self.middle))
        dates = np.where(missing, middle, dates)
        parts = []
        if self.trend:
            parts.append(seconds_since(first, dates)[:, None] / YEAR)
        if self.season:
            parts.append(np.where(missing[:, None], 0.0, circle(part_of_year(dates))))
        if self.week:
            parts.append(np.where(missing[:, None], 1 / 7, np.eye(7)[weekday(dates)]))
        if self.clock:
            parts.append(np.where(missing[:, None], 0.0, circle(seconds_of_day(dates) / DAY)))
        if self.gaps:
            parts += [missing[:, None].astype(np.float64), gaps.of_new_rows(missing)]
        return np.concatenate(parts, axis=1), 0 if self.gaps else int(missing.sum())

    def words(self) -> str:
        """Return what is done, as a person reads it."""
        whole = self.first % 86_400_000_000 == self.last % 86_400_000_000 == 0
        shown = [np.datetime64(t, "us").astype(f"M8[{'D' if whole else 's'}]") for t in self._ends]
        cycles = {
            "the trend in years": self.trend,
            "season of the year": self.season,
            "weekday": self.week,
            "time of day": self.clock,
        }
        done = f"{shown[0]} to {shown[1]}: " + ", ".join(name for name in cycles if cycles[name])
        if not self.trend:
            return f"always {shown[0]} where it is there; an input says where it is missing"
        done += _READ_AS.get(self.form, "")
        return done + "; an input says where it is missing" * self.gaps

    @property
    def _ends(self) -> tuple[int, int]:
        return self.first, self.last

    def facts(self) -> dict[str, Any]:
        """Return what was found in training."""
        first, last = (str(np.datetime64(moment, "us")) for moment in self._ends)
        return {"first": first, "last": last, "zone": self.zone}


@dataclass(frozen=True)
class TimeEncoding:
    """A time of day as a place on a circle; a gap is its centre.

    Attributes
    ----------
    gaps : bool
        Whether there is an indicator of gaps.
    low, high : float
        Range in training, seconds since midnight.
    """

    kind: ClassVar[str] = "time of day"
    form: ClassVar[str] = "times"

    gaps: bool
    low: float
    high: float

    def groups(self, name: str) -> list[list[str]]:
        """Return the names of the output columns, those of one input in one list."""
        value = [[f"{name} sin", f"{name} cos"]] * (self.low < self.high)
        return value + ([[f"{name} is missing"], gaps.group(name)] if self.gaps else [])

    def encode(self, values: Values) -> tuple[np.ndarray, int]:
        """Return the output columns of a block, and the number of gaps that training had none of."""
        seconds = numbers_of(values, "times")
        missing = np.isnan(seconds)[:, None]
        parts = []
        if self.low < self.high:
            parts.append(np.where(missing, 0.0, circle(np.nan_to_num(seconds) / DAY)))
        if self.gaps:
            parts += [missing.astype(np.float64), gaps.of_new_rows(missing[:, 0])]
        return np.concatenate(parts, axis=1), 0 if self.gaps else int(missing.sum())

    def words(self) -> str:
        """Return what is done, as a person reads it."""
        if self.low == self.high:
            return f"always {clock_time(self.low)} where it is there; an input says where it is missing"
        done = (
            f"{clock_time(self.low)} to {clock_time(self.high)}, as a place on a circle of 24 hours"
        )
        return done + "; an input says where it is missing" * self.gaps

    def facts(self) -> dict[str, Any]:
        """Return what was found in training."""
        return {"low": self.low, "high": self.high}


def clock_time(seconds: float) -> str:
    """Return seconds since midnight as people write a time of day."""
    minutes = int(seconds) // 60
    return f"{minutes // 60:02d}:{minutes % 60:02d}"
