"""Where a map is wanted: grids by coordinates, xarray, tables of points; and the answer in their form."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vastgp.auto.space import check_coordinates, looks_like_latitude, looks_like_longitude
from vastgp.auto.stations.point_files import POINT_FILES, calendar_if_any, check_calendar
from vastgp.auto.stations.readings import Readings, _columns, _numbers, _times
from vastgp.auto.values import UnfitError, dates_of, text_of
from vastgp.data import column_names, files, validate
from vastgp.data.calendars import recounted
from vastgp.data.cf_attributes import LATITUDE, LONGITUDE, of_file, of_std
from vastgp.data.dataset_files import open_dataset
from vastgp.data.grid_fields import beside_of, grid_mapping_of, with_beside
from vastgp.data.grid_points import refuse_taken
from vastgp.data.units import in_units_of_fit

# Points of a tile: its inputs take a few megabytes.
TILE = 32_768
_DEGREES = (LATITUDE, LONGITUDE)
# Kinds of arrays of text, or of Python objects.
_TEXT = "UOT"


@dataclass
class Target:
    """Places and times of a map, and its covariates, as arrays of one shape that may repeat values without a copy.

    Attributes
    ----------
    first, second : ndarray
        Latitude and longitude, or coordinates of a plane.
    when : ndarray or None
    beside : list of ndarray
        The covariates; NaN where nothing can be predicted.
    shape : tuple of int
    made : callable
        ``made(fields)`` gives the answer, of arrays by name, in the form that was asked for.
    """

    first: np.ndarray
    second: np.ndarray
    when: np.ndarray | None
    beside: list[np.ndarray]
    shape: tuple[int, ...]
    made: Any

    @property
    def size(self) -> int:
        """Number of points."""
        return int(np.prod(self.shape))

    def tiles(self) -> Iterator[tuple[slice, np.ndarray, np.ndarray | None, np.ndarray]]:
        """Yield numbers of points, their places, times and covariates."""
        for start in range(0, self.size, TILE):
            here = slice(start, min(start + TILE, self.size))
            at = np.unravel_index(np.arange(here.start, here.stop), self.shape)
            place = np.column_stack([self.first[at], self.second[at]]).astype(np.float64)
            beside = np.empty((len(place), len(self.beside)))
            for j, values in enumerate(self.beside):
                beside[:, j] = values[at]
            yield here, place, None if self.when is None else self.when[at], beside


def make_target(grid: Any, readings: Readings, attrs: Mapping[str, Any]) -> Target:
    """Return what a grid asks for.

    Parameters
    ----------
    grid
        As in `StationGP.predict`.
    readings : Readings
        Of the fit: what coordinates and covariates are called.
    attrs : mapping
        Attributes of the target.
    """
    if isinstance(grid, (str, os.PathLike)):
        path = Path(grid).expanduser()
        if path.suffix.lower() in POINT_FILES:
            files.check_exists(path, "table")
            with open_dataset(path) as dataset:
                return _of_dataset(dataset.load(), readings, attrs, repr(str(path)))
        return _of_table(grid, readings)
    if isinstance(grid, Mapping) and type(grid).__module__.partition(".")[0] != "xarray":
        return _of_dataset(_spanned(grid, readings), readings, attrs, "grid")
    if type(grid).__module__.partition(".")[0] == "xarray":
        dataset = grid
        if not hasattr(grid, "data_vars"):
            named = grid.name in readings.covariates
            dataset = grid.to_dataset() if named else grid.coords.to_dataset()
        return _of_dataset(dataset, readings, attrs, f"the {type(grid).__name__} grid")
    return _of_table(grid, readings)


def _spanned(grid: Mapping[Any, Any], readings: Readings) -> Any:
    """Return the grid that lists of coordinates span, as a Dataset; arrays with named dimensions stay as they are."""
    import xarray as xr

    made: dict[Any, Any] = {}
    for name, values in grid.items():
        if isinstance(values, xr.DataArray):
            made[name] = values
            continue
        array = np.asarray(values)
        if array.dtype.kind in _TEXT:
            array = dates_as_read(array, f"grid[{name!r}]", readings)
        if array.ndim > 1:
            raise ValueError(
                f"grid[{name!r}] has shape {array.shape}. Expected one dimension; give coordinates in two as "
                "xarray.DataArray with named dimensions."
            )
        if array.dtype.kind == "M":
            array = array.astype("datetime64[us]")  # nanoseconds are of 1678 to 2262 only
        attrs = _attrs_of(str(name), readings)
        made[name] = ((name,), array, attrs) if array.ndim else ((), array, attrs)
    coords = {name: value for name, value in made.items() if name not in readings.covariates}
    beside = {name: value for name, value in made.items() if name in readings.covariates}
    return xr.Dataset(beside, coords=coords)


def dates_as_read(array: np.ndarray, called: str, readings: Readings) -> np.ndarray:
    """Return text as dates: in a form that is clear, or as the readings have them."""
    check_calendar(array, called)
    text = text_of(array.ravel())
    for form in dict.fromkeys(["dates", readings.form] if readings.dated else ["dates"]):
        try:
            return dates_of(text, form, "UTC").reshape(array.shape)
        except UnfitError as error:
            held = error.held
    raise ValueError(f"{called} holds {held}, which is no number and no date.")


def _attrs_of(name: str, readings: Readings) -> dict[str, Any]:
    space = readings.space
    known = dict(readings.attrs.get(name, {}))
    if space.sphere and name in (space.first, space.second) and "units" not in known:
        known |= _DEGREES[name == space.second]
    return known


def _of_dataset(dataset: Any, readings: Readings, attrs: Mapping[str, Any], where: str) -> Target:
    import xarray as xr

    space = readings.space
    names = [_coordinate(dataset, number, readings, where) for number in (0, 1)]
    if readings.time is not None:
        names.insert(0, _time(dataset, readings, where))
    missing = [name for name in readings.covariates if name not in dataset.variables]
    if missing:
        raise ValueError(
            f"{where} has no {validate.listed(missing)}, a covariate of the fit. Its variables are "
            f"{validate.listed([str(name) for name in dataset.variables], 30)}: add the covariate's field on the same "
            "grid, for example grid.assign(height=(('lat', 'lon'), values))."
        )
    arrays = [np.asarray(dataset[name].values) for name in names]
    if readings.time is not None:
        times = _as_times(arrays[0], names[0], readings, where)
        known = {} if readings.dated else readings.attrs.get(readings.time, {})
        arrays[0] = recounted(times, dataset[names[0]].attrs, known, str(names[0]))
    for number, name in ((-2, space.first), (-1, space.second)):
        here, known = dataset[names[number]], readings.attrs.get(name, {})
        arrays[number] = in_units_of_fit(arrays[number], here.attrs, known, str(names[number]))
    together = xr.broadcast(
        *[
            xr.DataArray(array, dims=dataset[name].dims)
            for array, name in zip(arrays, names, strict=True)
        ]
    )
    dims, shape = together[0].dims, together[0].shape
    if 0 in shape:
        raise ValueError(
            f"{where} has no point along {dims[shape.index(0)]!r}. Give the coordinates of the map, one value at least."
        )
    values = [one.values for one in together]
    when = values.pop(0) if readings.time is not None else None
    beside = []
    for name in readings.covariates:
        variable = dataset[name]
        if not set(variable.dims) <= set(dims):
            odd = [str(dim) for dim in variable.dims if dim not in dims]
            raise ValueError(
                f"the covariate {name!r} of {where} has the dimensions {validate.listed(odd)}, which the map has not: "
                f"its dimensions are {validate.listed([str(dim) for dim in dims])}. Choose one place along them, for "
                f"example .isel({odd[0]}=0)."
            )
        sizes = dict(zip(dims, shape, strict=True))
        known = readings.attrs.get(name, {})
        variable = variable.copy(data=in_units_of_fit(variable.values, variable.attrs, known, name))
        beside.append(variable.variable.set_dims(sizes).transpose(*dims).values)
        if not np.isfinite(variable.values).any():
            raise ValueError(
                f"the covariate {name!r} of {where} holds no finite number anywhere on the map, so that nothing can be "
                "predicted. Give its values on the grid of the map."
            )
    places = [np.asarray(dataset[name].values, np.float64) for name in names[-2:]]
    for place, name, number in zip(places, names[-2:], (0, 1), strict=True):
        other = np.zeros(place.size)
        lat, lon = (place.ravel(), other) if number == 0 else (other, place.ravel())
        called = _renamed(space, names[-2:])
        check_coordinates(lat, lon, called, f"{where} (coordinate {name!r})")
    coords = {name: one for name, one in dataset.coords.items() if set(one.dims) <= set(dims)} | {
        name: dataset[name] for name in names
    }
    refuse_taken(dims, coords, ("mean", "std"), where)
    beside_cells, mapping = beside_of(dataset), grid_mapping_of(dataset, dims)

    def made(fields: dict[str, np.ndarray]) -> Any:
        found = xr.Dataset(
            {
                name: (dims, field.reshape(shape), _attrs_of_field(name, attrs, readings))
                for name, field in fields.items()
            },
            coords=coords,
            attrs=of_file({}),
        )
        if "std" in fields:
            found["mean"].attrs["ancillary_variables"] = "std"
        for name in fields if mapping else ():
            found[name].attrs["grid_mapping"] = mapping
        return with_beside(found, beside_cells)

    return Target(values[0], values[1], when, beside, shape, made)


def _renamed(space: Any, names: Sequence[Any]) -> Any:
    from dataclasses import replace

    return replace(space, first=str(names[0]), second=str(names[1]))


def _attrs_of_field(name: str, attrs: Mapping[str, Any], readings: Readings) -> dict[str, Any]:
    """Return attributes of the mean or the deviation: those of the target, by the CF conventions (1.11, 3.3)."""
    kept = {
        key: value for key, value in attrs.items() if key in ("units", "standard_name", "long_name")
    }
    if name == "std":
        return of_std(kept, readings.target)
    called = str(kept.get("long_name") or readings.target or "value")
    return kept | {"long_name": f"predicted mean of {called}"}


def _coordinate(dataset: Any, number: int, readings: Readings, where: str) -> Any:
    """Return the name of latitude or longitude, or of a coordinate of a plane: that of the fit, or the only one."""
    from vastgp.data.coordinates import is_latitude, is_longitude

    space = readings.space
    name = (space.first, space.second)[number]
    if name in dataset.variables:
        return name
    if space.sphere:
        by_attrs, by_name = (
            (is_latitude, looks_like_latitude),
            (is_longitude, looks_like_longitude),
        )[number]
        coords = dataset.coords
        found = [one for one in coords if by_attrs(str(one), coords[one].attrs)]
        found = found or [one for one in coords if by_name(str(one))]
        if len(found) == 1:
            return found[0]
    raise ValueError(
        f"{where} has no coordinate {name!r}. Its coordinates are "
        f"{validate.listed([str(one) for one in dataset.coords], 30)}; give it under that name."
    )


def _time(dataset: Any, readings: Readings, where: str) -> Any:
    if readings.time in dataset.variables:
        return readings.time
    found = [name for name in dataset.coords if dataset[name].dtype.kind == "M"]
    if len(found) == 1:
        return found[0]
    raise ValueError(
        f"{where} has no coordinate {readings.time!r}, and the readings have times. Give the grid "
        f"those of the map, one or more, as {readings.time!r}."
    )


def _as_times(values: np.ndarray, name: Any, readings: Readings, where: str) -> np.ndarray:
    called, held = f"coordinate {str(name)!r} of {where}", _held(values)
    if (held != "numbers") != readings.dated:
        wanted = ("numbers", "dates")[readings.dated]
        raise ValueError(
            f"{called} holds {held}, and the times of the readings are {wanted}. Give {wanted}."
        )
    if values.dtype.kind in _TEXT:
        values = dates_as_read(values, called, readings)
    bad = np.isnat(values) if readings.dated else ~np.isfinite(values)
    if bad.any():
        raise ValueError(f"{called} has a time that is missing.")
    return values.astype("datetime64[us]") if readings.dated else values.astype(np.float64)


def _held(values: np.ndarray) -> str:
    """Return what messages call the values of a coordinate."""
    calendar = calendar_if_any(values)
    if calendar is not None:
        return f"dates of the calendar {calendar!r}"
    kind = values.dtype.kind
    return "dates" if kind == "M" else "text" if kind in _TEXT else "numbers"


def _of_table(grid: Any, readings: Readings) -> Target:
    from vastgp.auto.source import open_source

    source = open_source(grid)
    space = readings.space
    wanted = [space.first, space.second, *([readings.time] if readings.time else [])]
    wanted += readings.covariates
    missing = [name for name in wanted if name not in source.names]
    if missing:
        extra = [name for name in source.names if name not in wanted]
        raise column_names.missing_features_error(missing, extra, source.where, "StationGP")
    columns = _columns(source, wanted, readings.time)
    first, second = (_numbers(columns, name, source) for name in (space.first, space.second))
    check_coordinates(first, second, space, source.where)
    when = None
    if readings.time is not None:
        whole = np.ones(len(first), bool)
        when = _as_times(
            _times(columns[readings.time], readings.time, source, whole, readings.form),
            readings.time,
            readings,
            source.where,
        )
    beside = [_numbers(columns, name, source) for name in readings.covariates]

    def made(fields: dict[str, np.ndarray]) -> Any:
        own = {space.first: first, space.second: second}
        own |= {} if when is None else {str(readings.time): when}
        return _frame(own | fields, source)

    return Target(first, second, when, beside, first.shape, made)


def _frame(columns: dict[Any, np.ndarray], source: Any) -> Any:
    """Return a frame of the library that the points came from; of files and arrays an Arrow table."""
    import narwhals as nw

    library: Any = "pyarrow"
    if source.table is not None and source.table.in_memory:
        library = next(source.table.frames(source.table.names[:1], 1)).implementation.value
    return nw.from_dict({str(k): v for k, v in columns.items()}, backend=library).to_native()
