"""Places: two columns of a table that together are one input, a point of the Earth or of a plane.

Longitude alone is no input: 359.9 and -0.1 are neighbours, and at 80 degrees north a degree of it is a sixth of one at
the equator. A place on the Earth becomes three columns, the point ``R (cos lat cos lon, cos lat sin lon, sin lat)`` in
kilometres from its centre, which have one lengthscale: a stationary kernel of them is one of the chord, the straight
line through the Earth, which is valid on the sphere whatever the kernel (distances along the ground are not: Gneiting
2013), knows no seam and no poles, and is one that every method of this library has.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from vastgp._arguments import is_number
from vastgp.auto.source import Source
from vastgp.auto.values import UnfitError, Values, numbers_of
from vastgp.data import column_names, validate
from vastgp.data.coordinates import EARTH_RADIUS, chord_points
from vastgp.data.tables import text_of_name

FORM = "places"
_LATITUDE, _LONGITUDE = {"lat", "latitude", "lats"}, {"lon", "long", "lng", "longitude", "lons"}
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_MOST_LATITUDE, _MOST_LONGITUDE = 90.0, 360.0
# Coordinates that differ by less than this share of their size are the same, but for rounding.
_SAME = 1e-12


def looks_like_latitude(name: str) -> bool:
    """Return whether a name is one of a latitude: lat, Latitude, station_lat, decimalLatitude."""
    return bool(_LATITUDE & _words(name))


def looks_like_longitude(name: str) -> bool:
    """Return whether a name is one of a longitude."""
    return bool(_LONGITUDE & _words(name))


def _words(name: str) -> set[str]:
    return {word.lower() for word in _WORDS.findall(str(name))}


# ---------------------------------------------------------------- what the user says


@dataclass(frozen=True)
class Space:
    """Which columns are a place.

    Attributes
    ----------
    first, second : str
        Latitude and longitude, or the coordinates of a plane.
    sphere : bool
    """

    first: str
    second: str
    sphere: bool

    @property
    def name(self) -> str:
        """What the input is called."""
        return f"{self.first}, {self.second}"


def place_in(source: Source, space: Any) -> Space:
    """Return which columns of a source ``space`` names; numbers count those of its table, whatever else they are."""
    numbers = None if source.table is None else source.table.all_names
    return read_space(space, source.names, numbers)


def read_space(space: Any, names: Sequence[str], numbers: Sequence[str] | None = None) -> Space:
    """Return which columns ``space`` names.

    Parameters
    ----------
    space : (str or int, str or int), or {"lat": ..., "lon": ...}
        A pair of columns, latitude and longitude (in either order) where they are called so, coordinates of a plane
        where neither is; or by a mapping, whatever they are called.
    names : sequence of str
        Of the table.
    numbers : sequence of str, optional
        Names of all columns that are counted, where some of them are no inputs.
    """
    sphere = None
    given = space
    if isinstance(space, Mapping):
        if set(space) != {"lat", "lon"}:
            raise _unclear(space)
        given, sphere = (space["lat"], space["lon"]), True
    if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != 2:
        raise _unclear(space)
    found = [_named(one, names, numbers or names, space) for one in given]
    if found[0] == found[1]:
        raise ValueError(f"space={space!r} names the same column twice; a place has two.")
    if sphere is None:
        north, east = (
            [one(name) for name in found] for one in (looks_like_latitude, looks_like_longitude)
        )
        sphere = any(north) or any(east)
        if sphere and not ((north[0] and east[1]) or (north[1] and east[0])):
            raise ValueError(
                f"space={space!r}: of {found[0]!r} and {found[1]!r} one is called latitude or longitude and the other "
                "is not. Say which is which, space={'lat': ..., 'lon': ...}, or rename coordinates of a plane (x, y)."
            )
        if sphere and north[1] and not north[0]:
            found.reverse()
    return Space(found[0], found[1], sphere)


def plain_space(space: Any) -> Any:
    """Return what was given as data for JSON."""
    if isinstance(space, Mapping):
        return {str(key): plain_space(value) for key, value in space.items()}
    if isinstance(space, (tuple, list)):
        return [plain_space(one) for one in space]
    return int(space) if isinstance(space, np.integer) else space


def _unclear(space: Any) -> ValueError:
    return ValueError(
        f"space must name two columns, such as ('lat', 'lon') or ('x', 'y'), or be "
        f"{{'lat': column, 'lon': column}}; received {space!r}."
    )


def _named(one: Any, names: Sequence[str], numbers: Sequence[str], space: Any) -> str:
    # a name of several levels was a tuple before it was in a file
    found = text_of_name(tuple(one) if isinstance(one, list) else one)
    if is_number(one, whole=True):
        number = int(one)
        there = -len(numbers) <= number < len(numbers)
        if there and found in numbers and numbers[number] != found:
            raise ValueError(
                f"space={space!r}: {number} is the column {numbers[number]!r} by its number and {found!r} by its name. "
                f"Name the one that is meant as text, {numbers[number]!r} or {found!r}."
            )
        if not there and found not in names:
            raise ValueError(
                f"space={space!r} names column {number}, and the table has {len(numbers)}, counted from 0."
            )
        found = numbers[number] if there else found
    if found not in names:
        raise ValueError(
            f"space={space!r} names the column {found!r}, which the table has not, or not as an input. Its columns "
            f"are: {validate.listed(list(names), 30)}."
        )
    return found


# ---------------------------------------------------------------- values


@dataclass(frozen=True)
class Places(Values):
    """A block of places: ``data`` has two columns.

    Attributes
    ----------
    space : Space
    """

    space: Space = dataclasses.field(kw_only=True)

    def shown(self, row: int) -> str:
        return f"{self.data[row, 0]:g}, {self.data[row, 1]:g}"


def with_places(source: Source, space: Space | None) -> Source:
    """Return a source in which the two columns of a place are one, of `Places`, checked as they are read.

    The source itself without a space, and where they are one already.
    """
    if space is None or source.space == space:
        return source
    missing = [name for name in (space.first, space.second) if name not in source.names]
    if missing:
        raise column_names.missing_features_error(missing, [], source.where, "TableEncoder")
    names = [name for name in source.names if name != space.second]
    names[names.index(space.first)] = space.name

    def read(wanted: Sequence[str], rows: int, zones: Mapping[str, str]) -> Iterator[list[Values]]:
        if space.name not in wanted:
            yield from source.read(wanted, rows, zones)
            return
        place = list(wanted).index(space.name)
        theirs = [*wanted[:place], space.first, space.second, *wanted[place + 1 :]]
        first = 0
        for block in source.read(theirs, rows, zones):
            together = _joined(block[place], block[place + 1], space, source.where, first)
            first += len(together)
            yield [*block[:place], together, *block[place + 2 :]]

    refused = {
        space.name if name in (space.first, space.second) else name: why
        for name, why in source.refused.items()
    }
    return dataclasses.replace(
        source, names=names, read=read, refused=refused, space=space, of_table=source.names
    )


def _joined(a: Values, b: Values, space: Space, where: str, first: int) -> Places:
    """Return two columns as one of places; what is none is refused by column and row."""
    columns = []
    for name, values in ((space.first, a), (space.second, b)):
        try:
            columns.append(numbers_of(values))
        except UnfitError as error:
            raise ValueError(
                f"Column {name!r} of {where} holds {error.held} in row {first + error.row} (counted from 0). Expected "
                "numbers, as it is a coordinate of a place (space)."
            ) from None
    check_coordinates(columns[0], columns[1], space, where, first)
    return Places(FORM, np.column_stack(columns), space=space)


def check_coordinates(
    lat: np.ndarray, lon: np.ndarray, space: Space, where: str, first: int = 0
) -> None:
    """Refuse coordinates that are missing, infinite or not on the Earth.

    Parameters
    ----------
    lat, lon : ndarray of shape (n,)
    space : Space
        What they are called.
    where : str
        What the table is called.
    first : int, default 0
        Number of the first row.
    """
    limits = (_MOST_LATITUDE, _MOST_LONGITUDE) if space.sphere else (np.inf, np.inf)
    of_both = ((space.first, lat, limits[0]), (space.second, lon, limits[1]))
    for name, values, most in of_both:
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            what = "no number" if np.isnan(values[bad[0]]) else "infinity"
            raise ValueError(
                f"Column {name!r} of {where} holds {what} in row {first + bad[0]} (counted from 0), where a "
                "coordinate of a place should be. Leave the row out, or give its place."
            )
        far = np.flatnonzero(np.abs(values) > most)
        if not len(far):
            continue
        value, row = values[far[0]], first + far[0]
        if name == space.first:
            raise ValueError(
                f"Column {name!r} of {where} holds {value:g} in row {row} (counted from 0), and a latitude lies "
                "between -90 and 90 degrees. Are latitude and longitude exchanged, or are these metres? Coordinates "
                "of a plane are given under other names, such as space=('x', 'y')."
            )
        raise ValueError(
            f"Column {name!r} of {where} holds {value:g} in row {row} (counted from 0), and a longitude lies between "
            "-180 and 180 or between 0 and 360 degrees."
        )


# ---------------------------------------------------------------- how it becomes inputs


class PlaceFacts:
    """What the rows so far say of a column of places."""

    form = FORM
    missing = 0

    def __init__(self, space: Space) -> None:
        self.space = space
        self.present = 0
        self.low, self.high = np.full(2, np.inf), np.full(2, -np.inf)
        # of the points: 0 and 360 degrees east are one place, and so are all longitudes of a pole
        self.least: Any = np.inf
        self.most: Any = -np.inf

    def update(self, first: int, values: Values) -> None:
        """Take in a block."""
        del first
        self.present += len(values)
        if len(values):
            self.low = np.minimum(self.low, values.data.min(axis=0))
            self.high = np.maximum(self.high, values.data.max(axis=0))
            points = _points(values.data, self.space.sphere)
            self.least = np.minimum(self.least, points.min(axis=0))
            self.most = np.maximum(self.most, points.max(axis=0))

    @property
    def constant(self) -> bool:
        """Whether all places are the same."""
        return bool(np.all(self.most - self.least <= _SAME * self._size))

    @property
    def _size(self) -> Any:
        return EARTH_RADIUS if self.space.sphere else np.maximum(abs(self.least), abs(self.most))

    def encoding(self) -> PlaceEncoding:
        """Return how the place becomes inputs."""
        space = self.space
        ranges = [(float(a), float(b)) for a, b in zip(self.low, self.high, strict=True)]
        return PlaceEncoding((space.first, space.second), space.sphere, ranges[0], ranges[1])


@dataclass(frozen=True)
class PlaceEncoding:
    """A place as a point, whose columns are one input.

    Attributes
    ----------
    of : tuple of str
        The columns of the table: latitude and longitude, or those of a plane.
    sphere : bool
        Whether it is a point of the Earth, in kilometres from the centre, or of a plane, in its own units.
    first, second : tuple of float
        Range of each in training.
    """

    kind: ClassVar[str] = "place"

    of: tuple[str, ...]
    sphere: bool
    first: tuple[float, ...]
    second: tuple[float, ...]

    @property
    def space(self) -> Space:
        """Which columns these are."""
        return Space(self.of[0], self.of[1], self.sphere)

    def groups(self, name: str) -> list[list[str]]:
        """Return the names of the output columns, those of one input in one list."""
        if not self.sphere:
            return [list(self.of)]
        return [[f"{name} {axis}" for axis in ("x km", "y km", "z km")]]

    def encode(self, values: Values) -> tuple[np.ndarray, int]:
        """Return the output columns of a block; there are no gaps."""
        return _points(values.data, self.sphere), 0

    def words(self) -> str:
        """Return what is done, as a person reads it."""
        (south, north), (west, east) = self.first, self.second
        ranges = f"{self.of[0]} {south:g} to {north:g}, {self.of[1]} {west:g} to {east:g}"
        if not self.sphere:
            return f"{ranges}: one place in a plane, two columns with one lengthscale"
        return (
            f"{ranges}: one place on the Earth, a point in km from its centre, three columns with one lengthscale "
            "(distances are straight lines through the Earth)"
        )

    def facts(self) -> dict[str, Any]:
        """Return what was found in training."""
        return {"sphere": self.sphere, self.of[0]: self.first, self.of[1]: self.second}


def _points(data: np.ndarray, sphere: bool) -> np.ndarray:
    return chord_points(data[:, 0], data[:, 1]) if sphere else np.asarray(data, np.float64)


def space_of(columns: Sequence[Any]) -> Space | None:
    """Return the place among the columns of a fitted encoder, where there is one."""
    for column in columns:
        if column.kind == PlaceEncoding.kind and isinstance(column.encoding, PlaceEncoding):
            return column.encoding.space
    return None


def names_of(column: Any) -> list[str]:
    """Return the names that a column of an encoder has in the table: two of a place."""
    encoding = column.encoding
    return list(encoding.of) if isinstance(encoding, PlaceEncoding) else [column.name]


def lengthscales_in_km(columns: Sequence[Any], lengthscales: np.ndarray | None) -> dict[str, float]:
    """Return the lengthscale of a place on the Earth by its name; nothing where there is none.

    Parameters
    ----------
    columns : sequence of Column
    lengthscales : ndarray of shape (d,), or None
        Of the encoded columns.
    """
    if lengthscales is None:
        return {}
    return {
        column.name: float(lengthscales[column.outputs[0]])
        for column in columns
        if isinstance(column.encoding, PlaceEncoding) and column.encoding.sphere
    }


def quarter(data: np.ndarray) -> np.ndarray:
    """Return for each place the quarter of all of them that it lies in, in words."""
    middle = np.median(data, axis=0)
    north = np.where(data[:, 0] >= middle[0], "north", "south")
    east = np.where(data[:, 1] >= middle[1], "east", "west")
    return np.array([f"{a}-{b}" for a, b in zip(north, east, strict=True)], dtype=object)
