"""Readings of stations, from tables, files and xarray, checked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vastgp.auto.categories import TextFacts
from vastgp.auto.columns import new_facts, settle
from vastgp.auto.dates import DateEncoding
from vastgp.auto.source import Source, open_source
from vastgp.auto.space import (
    Space,
    check_coordinates,
    looks_like_latitude,
    looks_like_longitude,
    read_space,
)
from vastgp.auto.stations.point_files import POINT_FILES, columns_of_dataset
from vastgp.auto.values import UnfitError, Values, dates_of, levels_of, numbers_of
from vastgp.data import column_names, files, validate
from vastgp.data.dataset_files import open_dataset


@dataclass
class Readings:
    """Readings with a value, one row each.

    Attributes
    ----------
    where : str
        What the table is called.
    space : Space
        What its coordinates are called.
    target, time : str or None
        Names of the target and of the times.
    covariates : tuple of str
    y : ndarray of shape (n,)
    place : ndarray of shape (n, 2)
        Latitude and longitude, or coordinates of a plane.
    when : ndarray of shape (n,), datetime64[us] or float64, or None
    beside : ndarray of shape (n, p)
        The covariates.
    noise : ndarray of shape (n,), or None
        Known standard deviation of each reading's error.
    station : ndarray of int, shape (n,)
        Number of each reading's station: by its label, or by its place.
    dropped : int
        Rows without a value.
    attrs : dict of str to dict
        Attributes of the columns, of files that have some.
    form : str
        How times are written, see `form_of_times`.
    """

    where: str
    space: Space
    target: str | None
    time: str | None
    covariates: tuple[str, ...]
    y: np.ndarray
    place: np.ndarray
    when: np.ndarray | None
    beside: np.ndarray
    noise: np.ndarray | None
    station: np.ndarray
    dropped: int = 0
    attrs: dict[str, dict[str, Any]] = field(default_factory=dict)
    form: str = "dates"

    def __len__(self) -> int:
        return len(self.y)

    def of_rows(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Return values, covariates and known errors of some readings, by their numbers or a mask."""
        return self.y[rows], self.beside[rows], None if self.noise is None else self.noise[rows]

    @property
    def dated(self) -> bool:
        """Whether times are dates."""
        return self.when is not None and self.when.dtype.kind == "M"


def read_readings(
    table: Any,
    target: Any,
    lat: Any,
    lon: Any,
    time: Any,
    covariates: Any,
    station: Any,
    noise: Any,
) -> Readings:
    """Read a table of readings.

    Parameters
    ----------
    table
        As in `StationGP.fit`.
    target, lat, lon, time, covariates, station, noise
        Names of columns; ``target`` and ``noise`` may be arrays, ``lat`` and ``lon`` None where columns are called so.
    """
    source, attrs, own = _opened(table, target)
    target = own if target is None else target
    if target is None:
        raise ValueError(
            f"target is missing: name the column of values of {source.where}, one of "
            f"{validate.listed(source.names, 30)}."
        )
    space = _space(lat, lon, source, attrs)
    beside = _listed(covariates)
    named = {"target": target, "time": time, "station": station, "noise_std": noise}
    texts = {key: value for key, value in named.items() if isinstance(value, str)}
    _check_names(source, texts | {f"covariates ({name})": name for name in beside})
    wanted = list(dict.fromkeys([space.first, space.second, *texts.values(), *beside]))
    if isinstance(target, str) and target in beside:
        raise ValueError(
            f"covariates has {target!r}, which is the target: a trend in itself says nothing. Leave it out."
        )
    columns = _columns(source, wanted, texts.get("time"))
    form = "dates" if time is None else form_of_times(columns[time], time, source)
    y = _array(columns, target, "target", source)
    keep = np.isfinite(y)
    if not keep.any():
        raise ValueError(f"{_called(target)} of {source.where} holds no value in any row.")
    lat_, lon_ = (_numbers(columns, name, source) for name in (space.first, space.second))
    # a row without a value is left out, wherever it is
    check_coordinates(np.where(keep, lat_, 0.0), np.where(keep, lon_, 0.0), space, source.where)
    errors = None if noise is None else _array(columns, noise, "noise_std", source)
    place = np.column_stack([lat_, lon_])
    found = [_numbers(columns, name, source) for name in beside]
    for name, values in zip(beside, found, strict=True):
        _check_covariate(name, values, keep, source)
    return Readings(
        source.where,
        space,
        target if isinstance(target, str) else None,
        time,
        tuple(beside),
        y[keep],
        place[keep],
        None if time is None else _times(columns[time], time, source, keep, form)[keep],
        np.column_stack([*found, np.zeros((len(y), 0))])[keep],
        None if errors is None else _errors(errors, keep, noise, source)[keep],
        stations_of(
            once(place[keep], space), None if station is None else _labels(columns[station])[keep]
        ),
        int(np.sum(~keep)),
        attrs,
        form,
    )


def once(place: np.ndarray, space: Space) -> np.ndarray:
    """Return places with one longitude for each meridian: 180 degrees west and east are one."""
    return np.column_stack([place[:, 0], np.mod(place[:, 1], 360.0)]) if space.sphere else place


def stations_of(place: np.ndarray, labels: np.ndarray | None = None) -> np.ndarray:
    """Return the number of each reading's station, from 0."""
    rows = place if labels is None else labels[:, None]
    return np.unique(rows, axis=0, return_inverse=True)[1].ravel()


def _opened(table: Any, target: Any) -> tuple[Source, dict[str, dict[str, Any]], Any]:
    """Return a table as a source, the attributes of its columns, and the target that it has by itself."""
    path = Path(table).expanduser() if isinstance(table, (str, os.PathLike)) else None
    if path is not None and path.suffix.lower() in POINT_FILES:
        files.check_exists(path, "table")
        with open_dataset(path) as dataset:
            return _of_dataset(dataset, repr(str(path)), target)
    if type(table).__module__.partition(".")[0] == "xarray":
        return _of_dataset(table, f"the {type(table).__name__}", target)
    return open_source(table), {}, None


def _of_dataset(
    dataset: Any, where: str, target: Any
) -> tuple[Source, dict[str, dict[str, Any]], Any]:
    import pyarrow as pa

    columns, attrs, own = columns_of_dataset(dataset, where, target)
    source = open_source(pa.table(columns))
    source.where = where
    return source, attrs, own


def _space(lat: Any, lon: Any, source: Source, attrs: dict[str, dict[str, Any]]) -> Space:
    """Return which columns are the place: those named, or those that are called latitude and longitude."""
    from vastgp.data.coordinates import is_latitude, is_longitude

    found: list[Any] = [lat, lon]
    tests = ((is_latitude, looks_like_latitude), (is_longitude, looks_like_longitude))
    for number, (by_attrs, by_name) in enumerate(tests):
        if found[number] is not None:
            continue
        names = [name for name in source.names if name in attrs and by_attrs(name, attrs[name])]
        names = names or [name for name in source.names if by_name(name)]
        if len(names) != 1:
            which, argument = (("latitude", "lat"), ("longitude", "lon"))[number]
            said = f"{validate.listed(names)} are" if names else "no column is"
            raise ValueError(
                f"{argument} is missing, and in {source.where} {said} called {which}. Name it: {argument}='...'. Its "
                f"columns are: {validate.listed(source.names, 30)}."
            )
        found[number] = names[0]
    _check_names(source, {"lat": found[0], "lon": found[1]})
    a, b = attrs.get(found[0], {}), attrs.get(found[1], {})
    if is_latitude(found[0], a) and is_longitude(found[1], b):
        return Space(found[0], found[1], True)
    if a.get("units") in ("m", "km", "metre", "meter") or not _may_be_degrees(found[0], found[1]):
        return Space(found[0], found[1], False)
    return read_space((found[0], found[1]), source.names)


def _may_be_degrees(first: str, second: str) -> bool:
    names = (first, second)
    return any(looks_like_latitude(one) or looks_like_longitude(one) for one in names)


def _listed(covariates: Any) -> list[str]:
    if covariates is None:
        return []
    names = [covariates] if isinstance(covariates, str) else covariates
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"covariates must be names of columns, received {covariates!r}.")
    column_names.check_unique_names(list(names), "covariates")
    return list(names)


def _check_names(source: Source, names: dict[str, Any]) -> None:
    for argument, name in names.items():
        if name not in source.names:
            raise ValueError(
                f"{argument}={name!r} is no column of {source.where}. Its columns are: "
                f"{validate.listed(source.names, 30)}."
            )


def _columns(source: Source, names: Sequence[str], time: str | None) -> dict[str, list[Values]]:
    parts: dict[str, list[Values]] = {name: [] for name in names}
    # times with a zone are told by one clock
    zones = {} if time is None else {time: "UTC"}
    for _, block in source.blocks(names, zones=zones):
        for name, values in zip(names, block, strict=True):
            parts[name].append(values)
    if not next(iter(parts.values())):
        raise ValueError(f"{source.where} has no rows.")
    return parts


def _read(
    parts: Sequence[Values], name: str, source: Source, read: Any, expected: str
) -> np.ndarray:
    found, first = [], 0
    for values in parts:
        try:
            found.append(read(values))
        except UnfitError as error:
            raise ValueError(
                f"Column {name!r} of {source.where} holds {error.held} in row {first + error.row} (counted from 0). "
                f"Expected {expected}."
            ) from None
        first += len(values)
    return np.concatenate(found)


def _numbers(columns: dict[str, list[Values]], name: str, source: Source) -> np.ndarray:
    return _read(columns[name], name, source, numbers_of, "numbers")


def _array(
    columns: dict[str, list[Values]], given: Any, argument: str, source: Source
) -> np.ndarray:
    """Return a column, or an array of one number for each row."""
    rows = len(np.concatenate([one.data for one in next(iter(columns.values()))]))
    if isinstance(given, str):
        return _numbers(columns, given, source)
    found = np.asarray(given, np.float64)
    if found.shape != (rows,):
        raise ValueError(
            f"{argument} has shape {found.shape}. Expected ({rows},), one number for each row of {source.where}, or "
            "the name of a column."
        )
    return found


def form_of_times(parts: Sequence[Values], name: str, source: Source) -> str:
    """Return how the blocks of a column write dates, as tables have it, see `vastgp.auto.written`; "numbers" of others.

    Raises
    ------
    ValueError
        Where either the day or the month may come first.
    """
    if all(values.form == "dates" for values in parts):
        return "dates"
    facts, first = new_facts(parts[0], None), 0
    for values in parts:
        facts.update(first, values)
        first += len(values)
    if isinstance(facts, TextFacts) and facts.in_two_ways:
        raise ValueError(
            f"Column {name!r} of {source.where} holds dates such as {facts.example()}, of which the day or the month "
            "may come first. Write them as 2024-12-31, or read the table with pandas and to_datetime(..., "
            "dayfirst=True or False)."
        )
    how = settle(name, facts, max_levels=1, squash=False).encoding
    if isinstance(how, DateEncoding):
        return how.form
    return "dates" if parts[0].form in ("dates", "text") else "numbers"


def _times(
    parts: Sequence[Values], name: str, source: Source, keep: np.ndarray, form: str
) -> np.ndarray:
    dated = form != "numbers"
    read = partial(dates_of, form=form, zone="UTC") if dated else numbers_of
    found = _read(parts, name, source, read, "dates or numbers")
    missing = np.isnat(found) if dated else ~np.isfinite(found)
    bad = np.flatnonzero(missing & keep)
    if len(bad):
        raise ValueError(
            f"Column {name!r} of {source.where} has no time in row {bad[0]} (counted from 0). Leave the row out, or "
            "leave time out for readings without one."
        )
    return found


def _labels(parts: Sequence[Values]) -> np.ndarray:
    found = []
    for values in parts:
        codes, levels = levels_of(values)
        found.append(np.array([*levels, ""], dtype=np.str_)[codes])
    return np.concatenate(found)


def _check_covariate(name: str, values: np.ndarray, keep: np.ndarray, source: Source) -> None:
    bad = np.flatnonzero(~np.isfinite(values) & keep)
    if len(bad):
        raise ValueError(
            f"Column {name!r} of {source.where}, a covariate, holds no finite number in row {bad[0]} (counted from "
            f"0), nor in {len(bad) - 1} others. Fill it, leave the rows out, or leave the covariate out."
        )
    if np.ptp(values[keep]) <= 1e-12 * np.max(np.abs(values[keep])):
        raise ValueError(
            f"Column {name!r} of {source.where}, a covariate, is {values[keep][0]:g} in all rows: no trend can be "
            "learned of it. Leave it out."
        )


def _errors(errors: np.ndarray, keep: np.ndarray, given: Any, source: Source) -> np.ndarray:
    bad = np.flatnonzero(~(np.isfinite(errors) & (errors >= 0.0)) & keep)
    if len(bad):
        raise ValueError(
            f"{_called(given, 'noise_std')} of {source.where} must hold finite numbers that are not negative; row "
            f"{bad[0]} (counted from 0) has {errors[bad[0]]}."
        )
    return errors


def _called(given: Any, argument: str = "target") -> str:
    return f"Column {given!r}" if isinstance(given, str) else argument
