"""Wall clocks of time zones: moments that say where they are read, as the clocks of another zone show them."""

from __future__ import annotations

import datetime
import functools
import re
import zoneinfo
from collections.abc import Iterable

import numpy as np

_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d\d):?(\d\d)?")
# In place of a zone: moments by the clocks of more than one, such as those of summer and of winter.
SEVERAL = "several zones"
# Universal time by all its names, of which files of zones have links to one another.
_UNIVERSAL = {
    "Z",
    "utc",
    *("UTC", "GMT", "UCT", "Zulu", "Universal", "Greenwich", "GMT0", "GMT+0", "GMT-0"),
}


@functools.cache
def zone_of(name: str) -> datetime.tzinfo | None:
    """Return a time zone by its name or its offset, such as "Europe/Oslo", "UTC" and "+01:00"; None of any other."""
    if name.removeprefix("Etc/") in _UNIVERSAL:
        return datetime.UTC
    match = _OFFSET.fullmatch(name)
    if match is not None:
        sign, hours, minutes = match.groups()
        offset = datetime.timedelta(hours=int(hours), minutes=int(minutes or 0))
        return datetime.timezone(-offset if sign == "-" else offset)
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        return None


def common_zone(zones: Iterable[str | None]) -> str | None:
    """Return the zone that all of these are, by one name however it was written; `SEVERAL`, or None of none."""
    # those without a name say nothing
    found = {_named(zone) for zone in zones if zone}
    return SEVERAL if len(found) > 1 else next(iter(found), None)


def _named(zone: str) -> str:
    known = zone_of(zone)
    return str(known) if isinstance(known, datetime.timezone) else zone


def zone_said(moment: datetime.datetime) -> str:
    """Return the zone that a moment says it is read in, by its name or its offset; empty where it says none."""
    zone = moment.tzinfo
    if zone is None:
        return ""
    name = getattr(zone, "key", None) or getattr(zone, "zone", None)  # of zoneinfo, and of pytz
    if isinstance(name, str) and zone_of(name) is not None:
        return name
    return str(datetime.timezone(moment.utcoffset() or datetime.timedelta(0)))


def wall_clock(moment: datetime.datetime, zone: str | None) -> np.datetime64:
    """Return what clocks of a zone show at a moment; its own clock where either has no zone."""
    there = None if zone is None or moment.tzinfo is None else zone_of(zone)
    if there is not None:
        moment = moment.astimezone(there)
    return np.datetime64(moment.replace(tzinfo=None), "us")


def moved(date: np.datetime64, own: str, zone: str) -> np.datetime64:
    """Return what clocks of a zone show when those of another show a date."""
    here = zone_of(own)
    moment = date.astype("datetime64[us]").item()
    if here is None or not isinstance(moment, datetime.datetime):  # beyond the years of Python
        return date
    return wall_clock(moment.replace(tzinfo=here), zone)
