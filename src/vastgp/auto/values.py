"""Values of a column as the encodings read them, whichever table they came from.

A block of any column becomes one of a few forms: numbers, booleans, durations (seconds) and times of day (seconds)
are float64 with NaN for what is missing; dates are the wall clock as datetime64[us] with NaT; text and categories are
distinct levels and the number of each row's, -1 for what is missing. What is text in one file is a number or a date
in another, so text is parsed where that is asked for (`vastgp.auto.written`).
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vastgp.auto.written import (
    AS_NUMBERS,
    MISSING_WORDS,
    missing_of,
    parser_of,
    read_form,
    words_of,
    zone_written,
)
from vastgp.auto.zones import common_zone, moved, wall_clock, zone_said
from vastgp.data.missing import is_missing

# Whole numbers that are dates: of these years.
_EIGHT_DIGITS = (1700_01_01, 2200_12_31)


@dataclass(frozen=True)
class Values:
    """A block of one column.

    Attributes
    ----------
    form : {"nothing", "numbers", "booleans", "durations", "times", "dates", "text"}
        What the values are; "nothing" where all are missing and the column has no type either.
    data : ndarray of shape (n,)
        The values, or of text the number of each row's level.
    levels : sequence of str
        The distinct texts of the block.
    order : tuple of str, optional
        All levels in their declared order, where the column declares one.
    declared : bool
        Whether the column says that it holds categories, so that they are not looked at as numbers.
    zone : str, optional
        Time zone whose wall clock the dates are, `vastgp.auto.zones.SEVERAL` where each row has its own.
    """

    form: str
    data: np.ndarray
    levels: Sequence[str] = ()
    order: tuple[str, ...] | None = None
    declared: bool = False
    zone: str | None = None

    def __len__(self) -> int:
        return len(self.data)

    def of_rows(self, rows: Any) -> Values:
        """Return some of the values, by their places; of text with the levels that these have, if it declares none."""
        data = self.data[rows]
        if self.form != "text" or self.declared:
            return dataclasses.replace(self, data=data)
        used = np.unique(data[data >= 0])
        places = np.full(len(self.levels) + 1, -1)  # the last is that of a missing value
        places[used] = np.arange(len(used))
        levels = [self.levels[number] for number in used]
        return dataclasses.replace(self, data=places[data], levels=levels)

    def shown(self, row: int) -> str:
        """Return one value as messages show it."""
        if self.form == "text":
            return repr(self.levels[int(self.data[row])])
        if self.form == "booleans":
            return repr(bool(self.data[row]))
        if self.form == "dates":
            return str(self.data[row])
        return f"{self.data[row]:g}"


class UnfitError(Exception):
    """A value that an encoding cannot read: where in the block, and what was expected."""

    def __init__(self, values: Values, row: int, expected: str) -> None:
        self.row = row
        self.held = f"{values.form} such as {values.shown(row)}"
        self.expected = expected
        super().__init__(f"{self.held}, expected {expected}")


# ---------------------------------------------------------------- read as one form


def numbers_of(values: Values, form: str = "numbers") -> np.ndarray:
    """Return float64 values, missing ones as NaN.

    Parameters
    ----------
    values
        The block.
    form
        Which of the forms that are float64; text is parsed.

    Raises
    ------
    UnfitError
        For the first value that is none.
    """
    read = read_form(form)
    if values.form == read or (read, values.form) == ("numbers", "booleans"):
        return values.data
    if not present(values).any():
        return np.full(len(values), np.nan)
    if values.form == "text" and parser_of(form) is not None:
        return _parsed(values, form)
    if (form, values.form) == ("booleans", "numbers"):
        odd = ~np.isnan(values.data) & (values.data != 0) & (values.data != 1)
        if not odd.any():
            return values.data
        raise UnfitError(values, int(np.argmax(odd)), form)
    raise UnfitError(values, first_present(values), words_of(form))


def dates_of(values: Values, form: str = "dates", zone: str | None = None) -> np.ndarray:
    """Return datetime64[us] values of the wall clock, missing ones as NaT; text is parsed.

    Parameters
    ----------
    values
        The block.
    form
        How text writes dates, see `vastgp.auto.written`.
    zone
        Whose clocks they are to be read from, where text says from whose it has them.
    """
    if values.form == "dates":
        return values.data
    if not present(values).any():
        return np.full(len(values), missing_of("dates"))
    if values.form == "text":
        return _parsed(values, form, zone)
    if (values.form, form) == ("numbers", AS_NUMBERS):
        found = dates_of_numbers(values.data)
        odd = np.isnat(found) & present(values)
        if not odd.any():
            return found
        raise UnfitError(values, int(np.argmax(odd)), words_of(form))
    raise UnfitError(values, first_present(values), words_of(form))


def dates_of_numbers(data: np.ndarray) -> np.ndarray:
    """Return the dates that whole numbers such as 20241231 write, NaT for those that write none, (n,)."""
    low, high = _EIGHT_DIGITS
    able = (low <= data) & (data <= high) & (data == np.rint(data))
    year, rest = np.divmod(np.where(able, data, low).astype(np.int64), 10_000)
    month, day = np.divmod(rest, 100)
    able &= (month >= 1) & (month <= 12) & (day >= 1)
    months = (year - 1970).astype("datetime64[Y]").astype("datetime64[M]")
    months += np.where(able, month - 1, 0)
    days = months.astype("datetime64[D]") + (day - 1)
    able &= days.astype("datetime64[M]") == months  # not the 31st of February
    return np.where(able, days.astype("datetime64[us]"), missing_of("dates"))


def levels_of(values: Values) -> tuple[np.ndarray, Sequence[str]]:
    """Return the number of each row's level, -1 for missing ones, and the levels; numbers are written as text."""
    if values.form == "text":
        return values.data, values.levels
    if not present(values).any():
        return np.full(len(values), -1), ()
    if values.form in ("numbers", "booleans"):
        return _number_levels(values)
    raise UnfitError(values, first_present(values), "categories")


def present(values: Values) -> np.ndarray:
    """Return which values are there: a column without any fits every form, whatever its type."""
    return values.data >= 0 if values.form == "text" else values.data == values.data


def first_present(values: Values) -> int:
    """Return the first row that is not missing."""
    return int(np.argmax(present(values)))


def _parsed(values: Values, form: str, zone: str | None = None) -> np.ndarray:
    parsed, unread = parse_levels(values.levels, form)
    if zone is not None:
        for number, level in enumerate(values.levels):
            own = zone_written(level.strip())
            if own and own != zone and not np.isnat(parsed[number]):
                parsed[number] = moved(parsed[number], own, zone)
    # of levels that no row has nothing is asked
    odd = np.flatnonzero(np.isin(values.data, unread))
    if len(odd):
        raise UnfitError(values, int(odd[0]), words_of(form))
    # the last place is that of -1
    return np.append(parsed, np.asarray([missing_of(form)], dtype=parsed.dtype))[values.data]


def parse_levels(
    levels: Sequence[str], form: str, most: int | None = None
) -> tuple[np.ndarray, list[int]]:
    """Return the levels read as a form that text has, and the numbers of those that cannot be.

    With more of these than ``most`` the reading has ended there.
    """
    parse, missing = parser_of(form), missing_of(form)
    assert parse is not None
    dtype = np.float64 if isinstance(missing, float) else "datetime64[us]"
    found = np.full(len(levels), missing, dtype=dtype)
    unread: list[int] = []
    for number, level in enumerate(levels):
        text = level.strip()
        if text.lower() in MISSING_WORDS:
            continue
        value = parse(text)
        if value is not None:
            found[number] = value
            continue
        unread.append(number)
        if most is not None and len(unread) > most:
            break
    return found, unread


# ---------------------------------------------------------------- text and categories


def level_text(value: Any) -> str:
    """Return the text that a category of any type is known by: 1 and 1.0 are one, and so is 0.1 in either precision."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, numbers.Integral):  # of more digits than a float has
        return str(int(value))
    if isinstance(value, numbers.Real | decimal.Decimal):
        number = float(value)
        if number.is_integer():
            return str(int(number))
        with np.errstate(over="ignore", under="ignore"):
            single = np.float32(number)
        return str(single) if float(single) == number else repr(number)
    return str(value)


def text_values(codes: np.ndarray, levels: Sequence[Any], **more: Any) -> Values:
    """Return a block of text from codes into any levels, of which it keeps those that occur and are not empty."""
    used = np.unique(codes[codes >= 0])
    found: dict[str, int] = {}
    place = np.full(len(levels) + 1, -1, dtype=np.int64)
    for code in used.tolist():
        text = level_text(levels[code])
        if text.strip():
            place[code] = found.setdefault(text, len(found))
    return Values("text", place[codes], list(found), **more)


def text_of(array: np.ndarray) -> Values:
    """Return the block of an array of Python objects or fixed-width text."""
    codes = np.empty(len(array), dtype=np.int64)
    known: dict[Any, int] = {}
    for row, value in enumerate(array.tolist()):
        codes[row] = -1 if is_missing(value) else known.setdefault(level_text(value), len(known))
    return text_values(codes, list(known))


def _number_levels(values: Values) -> tuple[np.ndarray, list[str]]:
    distinct, codes = np.unique(values.data, return_inverse=True)
    kind: Any = bool if values.form == "booleans" else float
    present = distinct[~np.isnan(distinct)]
    codes = np.where(codes < len(present), codes, -1)
    return codes, [level_text(kind(value)) for value in present]


# ---------------------------------------------------------------- Python objects


def form_of_objects(values: np.ndarray) -> str | tuple[str, Any]:
    """Return the form of a whole column of Python objects, or "refused" and the first value that has none."""
    listed = values.tolist()
    forms = {kind: _form_of_type(kind) for kind in set(map(type, listed))}
    if len(set(forms.values())) > 1 or None in forms.values():
        # NaN is a number by its type, and a gap among other things
        kinds = {type(value) for value in listed if not is_missing(value)}
        forms = {kind: form for kind, form in forms.items() if kind in kinds}
    found = {form for form in forms.values() if form is not None}
    if len(found) == len(set(forms.values())) and (
        len(found) < 2 or found <= {"numbers", "booleans", "text"}
    ):
        if "text" in found:
            return "text"
        return "numbers" if "numbers" in found else next(iter(found), "nothing")
    usual = next(forms[type(value)] for value in listed if not is_missing(value))
    odd = [kind for kind, form in forms.items() if form is None or form != usual]
    return "refused", next(v for v in listed if type(v) in odd and not is_missing(v))


def _form_of_type(kind: type) -> str | None:
    for form, kinds in (
        ("text", (str,)),
        ("booleans", (bool, np.bool_)),
        ("durations", (datetime.timedelta, np.timedelta64)),  # which NumPy counts among integers
        ("numbers", (numbers.Real, decimal.Decimal)),
        ("dates", (datetime.date, np.datetime64)),
        ("times", (datetime.time,)),
    ):
        if issubclass(kind, kinds):
            return form
    return None


def objects_as(array: np.ndarray, form: str, zone: str | None = None) -> Values:
    """Return the block of an array of Python objects whose form is known, of dates by the clocks of a zone."""
    if form == "text":
        return text_of(array)
    if form == "nothing":
        return Values(form, np.full(len(array), np.nan))
    if form == "dates":
        missing = np.datetime64("NaT", "us")
        data = np.array(
            [missing if is_missing(v) else _date(v, zone) for v in array], "datetime64[us]"
        )
        said = {zone_said(v) for v in array if isinstance(v, datetime.datetime)}
        return Values(form, data, zone=common_zone(said) if zone is None else zone)
    read = {"durations": _seconds_of_one, "times": seconds_of_day}.get(form, _number)
    values = [np.nan if is_missing(value) else read(value) for value in array]
    return Values(form, np.array(values, dtype=np.float64))


_PARTS_OF_A_MICROSECOND = {"ns": 10**3, "ps": 10**6, "fs": 10**9, "as": 10**12}
# A year has 365.2425 days, as NumPy has it, and a month a twelfth.
_SECONDS = {
    "s": 1, "m": 60, "h": 3600, "D": 86_400, "W": 604_800, "M": 2_629_746, "Y": 31_556_952,
}  # fmt: skip


def _date(value: Any, zone: str | None) -> np.datetime64:
    if isinstance(value, datetime.datetime):
        return wall_clock(value, zone)
    return np.datetime64(value, "us")


def _number(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return np.inf


def seconds_of(durations: np.ndarray) -> np.ndarray:
    """Return durations of any unit in seconds, NaN where there is none, (n,).

    By the integers that are stored, as a cast of long ones to a finer unit gives others without a word, or an error.
    """
    unit, step = np.datetime_data(durations.dtype)
    stored = durations.astype(np.int64)
    seconds: np.ndarray
    if unit in _PARTS_OF_A_MICROSECOND:
        # whole microseconds apart, so that one duration is one number whatever unit it came in
        parts = _PARTS_OF_A_MICROSECOND[unit]
        rest = np.fmod(stored, parts)
        seconds = step * ((stored - rest) // parts / 1e6 + rest / parts / 1e6)
    elif unit in ("us", "ms", "generic"):  # a number without a unit counts microseconds
        seconds = step * (stored / (1e3 if unit == "ms" else 1e6))
    else:
        seconds = stored * float(step * _SECONDS[unit])
    return np.where(np.isnat(durations), np.nan, seconds)


def _seconds_of_one(value: Any) -> float:
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    return float(seconds_of(np.array([value]))[0])


def seconds_of_day(value: datetime.time) -> float:
    """Return the seconds since midnight."""
    return 3600 * value.hour + 60 * value.minute + value.second + value.microsecond / 1e6
