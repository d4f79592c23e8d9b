"""How people write numbers, dates and times: what a text is when it is read as one of these.

Each reading has a name, its *form*, which an encoding keeps, so that new rows are read as those of the fit were.
Numbers with a unit, "$1,200" or "15 %", have it in their form: ``numbers: $#``, ``comma numbers: # €``.
"""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np

# What people and programs write where a number or a date is missing.
MISSING_WORDS = {"", "na", "n/a", "#n/a", "nan", "nat", "<na>", "null", "none", "-", "?"}
# The form of text that is numbers with a comma before their decimals; elsewhere such a column is one of numbers.
COMMA_NUMBERS = "comma numbers"
# Dates of which the day, or the month, comes first: 31/12/2024, 12/31/2024.
DAY_FIRST, MONTH_FIRST = "dates, day first", "dates, month first"
# Dates that are whole numbers of eight digits: 20241231.
AS_NUMBERS = "dates, as numbers"

# ---------------------------------------------------------------- numbers

# Between thousands: no-break spaces, as programs write them, and the apostrophe of the Swiss, beside comma or point.
_APART = "\u00a0\u202f'’"
_EXPONENT = r"(?:[eE][+-]?\d+)?"
_POINTED = rf"(?:\d{{1,3}}(?:[,{_APART}]\d{{3}})+(?:\.\d*)?|\d+\.?\d*|\.\d+){_EXPONENT}"
_COMMAED = (
    rf"(?:\d{{1,3}}(?:[.{_APART}]\d{{3}})+|\d{{1,3}}(?: \d{{3}})+(?=,)|\d+)(?:,\d+)?{_EXPONENT}"
)
_NUMBER, _COMMA_NUMBER = re.compile(rf"[+-]?{_POINTED}"), re.compile(rf"[+-]?{_COMMAED}")
_BETWEEN_THOUSANDS = str.maketrans("", "", f", {_APART}")
_BETWEEN_THOUSANDS_OF_COMMA = str.maketrans(",", ".", f". {_APART}")

# Before a number: a currency. Behind it: a currency, a per cent sign, or the few letters of a unit.
_CURRENCY = (
    r"(?:[A-Z]{0,3}[$€£¥₹₩₽₺₪฿₫₴]"
    r"|USD|EUR|GBP|JPY|CHF|CNY|INR|AUD|CAD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|ZAR|TRY|KRW|SGD|HKD)"
)
_UNIT = (
    r"(?:%|‰|[^\W\d_][^\d\s,;:()]{0,11}(?: [^\W\d_][^\d\s,;:()]{0,5})?|[°µ$€£¥₹][^\d\s,;:()]{0,7})"
)
_NUMBER_MARK = "#"
_WITH_UNIT = {
    form: re.compile(rf"\(?[+-]?\s*({_CURRENCY}\s?)?[+-]?{number}(\s?{_UNIT})?\)?")
    for form, number in (("numbers", _POINTED), (COMMA_NUMBERS, _COMMAED))
}

_TRUTH = {"true": 1.0, "false": 0.0, "1": 1.0, "0": 0.0, "1.0": 1.0, "0.0": 0.0}


def parse_number(text: str) -> float | None:
    """Return the number that a text is, with or without commas between thousands."""
    return float(text.translate(_BETWEEN_THOUSANDS)) if _NUMBER.fullmatch(text) else None


def parse_comma_number(text: str) -> float | None:
    """Return the number that a text is with a comma before its decimals, with or without points between thousands."""
    if not _COMMA_NUMBER.fullmatch(text):
        return None
    return float(text.translate(_BETWEEN_THOUSANDS_OF_COMMA))


def parse_truth(text: str) -> float | None:
    """Return 1 or 0 for the words that tables have for true and false."""
    return _TRUTH.get(text.lower())


def kind_of(form: str) -> str:
    """Return what values of a form are: numbers, comma numbers, booleans, dates, times or durations."""
    return re.split("[:,]", form, maxsplit=1)[0]


def read_form(form: str) -> str:
    """Return the form of values that were read as this one: numbers, of those with a comma or a unit."""
    kind = kind_of(form)
    return "numbers" if kind == COMMA_NUMBERS else kind


def unit_of(form: str) -> tuple[str, str]:
    """Return what stands before and behind the numbers of a form; nothing where they have no unit."""
    before, _, behind = form.partition(": ")[2].partition(_NUMBER_MARK)
    return before, behind


def form_with_unit(text: str, form: str) -> str | None:
    """Return the form of a number with a unit; None where the text is none.

    Parameters
    ----------
    text : str
        One of the column.
    form : {"numbers", "comma numbers"}
        How the number itself is written.
    """
    found = _WITH_UNIT[form].fullmatch(text)
    if found is None or (found[1] is None) == (found[2] is None):
        return None
    return f"{form}: {found[1] or ''}{_NUMBER_MARK}{found[2] or ''}"


def _with_unit(form: str) -> Callable[[str], float | None]:
    before, behind = (re.escape(part.strip()) for part in unit_of(form))
    comma = kind_of(form) == COMMA_NUMBERS
    number, parse = (_COMMAED, parse_comma_number) if comma else (_POINTED, parse_number)
    # accountants write a loss in brackets
    pattern = re.compile(rf"(\()?([+-]?)\s*{before}\s*([+-]?)({number})\s*{behind}(?(1)\))")

    def parse_with_unit(text: str) -> float | None:
        found = pattern.fullmatch(text)
        if found is None:
            return None
        value = parse(found[4])
        signs = (found[1] is not None) + (found[2] == "-") + (found[3] == "-")
        return None if value is None or signs > 1 else value * (-1.0 if signs else 1.0)

    return parse_with_unit


# ---------------------------------------------------------------- dates

_ISO = re.compile(
    r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?( ?(Z|UTC|[+-]\d\d(:?\d\d)?))?)?"
)
# A time of day behind a date, with or without a zone, which is dropped: dates are the wall clock.
_CLOCK = (
    r"(?:(?:T|,? )(?P<hour>\d\d?):(?P<minute>\d\d)(?::(?P<second>\d\d)(?P<part>\.\d{1,9})?)?"
    r"(?: ?(?P<half>[AaPp])\.?[Mm]\.?)?(?: ?(?:Z|UTC|GMT|[+-]\d\d(?::?\d\d)?))?)?"
)
# That zone, whatever the date before it.
_ZONE = re.compile(
    r"\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?: ?[AaPp]\.?[Mm]\.?)? ?(Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)$"
    r"|\d{8}T\d{4}(?:\d\d)?(Z)$"
)
_WEEKDAY = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? )?"
_NAMED = r"(?P<name>[A-Za-z]{3,9})\.?"
_YEAR, _ANY_YEAR = r"(?P<year>\d{4})", r"(?P<year>\d{4}|\d\d)"
_DAY, _MONTH = r"(?P<day>\d\d?)", r"(?P<month>\d\d?)"
# Before a letter for what the year is divided into: 4711M12 is no date.
_THESE_YEARS = r"(?P<year>[12]\d{3})"
# Whose parts nobody can take for each other.
_CLEAR_DATES = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_YEAR}(?P<sign>[-/.]){_MONTH}(?P=sign){_DAY}{_CLOCK}",
        rf"{_YEAR}[-/](?P<month>\d\d)",
        rf"{_YEAR}(?P<month>\d\d)(?P<day>\d\d)T(?P<hour>\d\d)(?P<minute>\d\d)(?P<second>\d\d)?Z?",
        rf"{_YEAR}[- ]?Q(?P<quarter>[1-4])",
        rf"Q(?P<quarter>[1-4])[-/ ]?{_YEAR}",
        rf"{_WEEKDAY}{_DAY}(?:st|nd|rd|th|\.)?[ -]{_NAMED},?[ -]{_ANY_YEAR}{_CLOCK}",
        rf"{_WEEKDAY}{_NAMED}[ -]{_DAY}(?:st|nd|rd|th)?,?[ -]{_YEAR}{_CLOCK}",
        rf"{_NAMED}[ -]{_YEAR}",
        rf"{_YEAR}[ -]{_NAMED}(?:[ -]{_DAY})?",
        rf"{_THESE_YEARS}[- ]?W(?P<week>\d\d)(?:-?(?P<weekday>[1-7]))?",
        rf"{_THESE_YEARS}[- ]?M(?P<month>\d\d?)",
        rf"{_THESE_YEARS}[- ]?[HS](?P<half_year>[12])",
    )
)
# Two digits are a year behind strokes alone: 1.2.34 and 10-12-45 number other things. Points are those of people who
# write the day first.
_DAY_FIRST = (
    re.compile(rf"{_DAY}/{_MONTH}/{_ANY_YEAR}{_CLOCK}"),
    re.compile(rf"{_DAY}(?P<sign>[.-]){_MONTH}(?P=sign){_YEAR}{_CLOCK}"),
)
_MONTH_FIRST = (
    re.compile(rf"{_MONTH}/{_DAY}/{_ANY_YEAR}{_CLOCK}"),
    re.compile(rf"{_MONTH}-{_DAY}-{_YEAR}{_CLOCK}"),
)
_EIGHT_DIGITS = re.compile(r"(?P<year>\d{4})(?P<month>\d\d)(?P<day>\d\d)(?:\.0*)?")
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
# Years of two digits are from this one on those of the last century, as POSIX has it.
_LAST_CENTURY = 69


def parse_date(text: str) -> np.datetime64 | None:
    """Return the wall clock of an ISO date, with or without a time and a zone, or of another that is as clear.

    Such are 2024/3/1, 2024-03, 2024Q1, 2024 W09, 2024H1, 1 Mar 2024, March 1, 2024, 2024 Mar and 20240301T1200; months
    have English names. What has no day is the first of its week (ISO 8601), month, quarter or half-year.
    """
    match = _ISO.fullmatch(text)
    if match is not None:
        zone = match.group(4)
        try:
            return np.datetime64(text[: len(text) - len(zone)] if zone else text, "us")
        except ValueError:  # the 31st of February
            return None
    return _clear_date(text)


def zone_written(text: str) -> str:
    """Return the zone that a date says behind its time, such as "Z" and "+01:00"; empty where it says none."""
    match = _ZONE.search(text)
    return "" if match is None else match[1] or match[2]


def _date_by(*patterns: re.Pattern[str]) -> Callable[[str], np.datetime64 | None]:
    """Return what reads a text as a date that one of the patterns takes apart."""

    def parse(text: str) -> np.datetime64 | None:
        matches = (pattern.fullmatch(text) for pattern in patterns)
        found = next((match for match in matches if match is not None), None)
        return None if found is None else _date_of(found.groupdict())

    return parse


def _date_of(found: dict[str, str | None]) -> np.datetime64 | None:
    """Return the date of matched parts; None where there is no such day or time."""

    def part(name: str, otherwise: int = 0) -> int:
        return int(found.get(name) or otherwise)

    year, month = part("year"), part("month", 1)
    if len(found.get("year") or "") == 2:
        year += 1900 if year >= _LAST_CENTURY else 2000
    if found.get("quarter"):
        month = 3 * part("quarter") - 2
    if found.get("half_year"):
        month = 6 * part("half_year") - 5
    if name := (found.get("name") or "").lower():
        month = next((k for k, full in enumerate(_MONTHS, 1) if _is_month(name, full)), 0)
    seconds = _clock(part("hour"), part("minute"), part("second"), found.get("half"))
    try:
        if found.get("week"):
            day = datetime.date.fromisocalendar(year, part("week"), part("weekday", 1))
        else:
            day = datetime.date(year, month, part("day", 1))
    except ValueError:
        return None
    if seconds is None:
        return None
    micro = round(1e6 * float(found.get("part") or 0))
    return np.datetime64(day, "us") + np.timedelta64(1_000_000 * seconds + micro, "us")


_clear_date = _date_by(*_CLEAR_DATES)


def _is_month(name: str, full: str) -> bool:
    return name in (full, full[:3]) or (name == "sept" and full == "september")


# ---------------------------------------------------------------- times and durations

_TIME = re.compile(r"(\d\d?):(\d\d)(?::(\d\d(?:\.\d{1,9})?))?(?: ?([AaPp])\.?[Mm]\.?)?")
_DURATION = re.compile(r"(-?\d+) days?(?:,? \+?(\d\d?:\d\d(?::\d\d(?:\.\d{1,9})?)?))?")


def _clock(hour: int, minute: int, second: int, half: str | None) -> int | None:
    """Return whole seconds since midnight; None where no clock shows that."""
    if half is not None:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + 12 * (half in "Pp")
    return 3600 * hour + 60 * minute + second if hour < 24 and minute < 60 and second < 60 else None


def parse_time(text: str) -> float | None:
    """Return the seconds since midnight of a time such as 9:30, 9:30 PM or 23:59:59.5."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    second = float(found[3] or 0.0)
    whole = _clock(int(found[1]), int(found[2]), int(second), found[4])
    return None if whole is None else whole + second % 1.0


def parse_duration(text: str) -> float | None:
    """Return the seconds of a duration as Python and pandas write it: 3 days 12:00:00."""
    match = _DURATION.fullmatch(text)
    rest = parse_time(match.group(2) or "0:00") if match else None
    return None if match is None or rest is None else 86_400 * int(match.group(1)) + rest


# ---------------------------------------------------------------- by form

_PARSERS: dict[str, Callable[[str], Any]] = {
    "numbers": parse_number,
    COMMA_NUMBERS: parse_comma_number,
    "booleans": parse_truth,
    "dates": parse_date,
    DAY_FIRST: _date_by(*_DAY_FIRST),
    MONTH_FIRST: _date_by(*_MONTH_FIRST),
    AS_NUMBERS: _date_by(_EIGHT_DIGITS),
    "times": parse_time,
    "durations": parse_duration,
}


_EXAMPLES = {
    DAY_FIRST: "dates such as 31/12/2024",
    MONTH_FIRST: "dates such as 12/31/2024",
    AS_NUMBERS: "dates such as 20241231",
}


@functools.lru_cache(maxsize=256)
def parser_of(form: str) -> Callable[[str], Any] | None:
    """Return what reads a text as a form, to None where it is none; None for forms that no text is."""
    return _with_unit(form) if _NUMBER_MARK in form else _PARSERS.get(form)


def words_of(form: str) -> str:
    """Return what a form is called in messages."""
    if _NUMBER_MARK in form:
        return f"numbers such as {form.partition(': ')[2].replace(_NUMBER_MARK, '12')!r}"
    return _EXAMPLES.get(form, form)


def missing_of(form: str) -> Any:
    """Return what stands for a missing value among those of a form."""
    return np.datetime64("NaT", "us") if kind_of(form) == "dates" else np.nan
