"""Coordinates and attributes of a grid as plain data, for model files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vastgp.data.coordinates import Coordinate, origin_of
from vastgp.data.grid import Group


def encode_coords(template: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the coordinates of a dataset as JSON-able data and arrays.

    Raises
    ------
    ValueError
        For values that only pickle could store, with the name of the coordinate.
    """
    described: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    for name, coordinate in template.coords.items():
        values = coordinate.values
        entry: dict[str, Any] = {
            "dims": list(coordinate.dims),
            "attrs": plain_attrs(coordinate.attrs),
        }
        if values.dtype.kind in "fiub":
            arrays[f"coord.{name}"] = values
        elif values.dtype.kind in "mM":
            entry["time"] = str(values.dtype)
            arrays[f"coord.{name}"] = values.astype("int64")
        elif all(isinstance(value, str) for value in values.ravel().tolist()):
            entry["labels"] = values.ravel().tolist()
            entry["shape"] = list(values.shape)
        elif values.size and hasattr(values.flat[0], "calendar"):
            entry["calendar"] = str(values.flat[0].calendar)
            arrays[f"coord.{name}"] = _cftime_numbers(values, entry["calendar"])
        else:
            raise ValueError(
                f"coordinate {name!r} holds {type(values.flat[0]).__name__} objects, which no file of numbers and text "
                "can store. Convert it to numbers, times or strings before fit."
            )
        described[str(name)] = entry
    return described, arrays


def decode_coords(described: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
    """Return the dataset of coordinates that `encode_coords` described."""
    import xarray as xr

    coords = {}
    for name, entry in described.items():
        if "labels" in entry:
            values = np.array(entry["labels"]).reshape(entry["shape"])
        elif "time" in entry:
            values = arrays[f"coord.{name}"].astype(entry["time"])
        elif "calendar" in entry:
            values = _cftime_dates(arrays[f"coord.{name}"], entry["calendar"])
        else:
            values = arrays[f"coord.{name}"]
        coords[name] = (entry["dims"], values, entry["attrs"])
    return xr.Dataset(coords=coords)


def decode_mask(dims: list[str] | None, values: np.ndarray | None, template: Any) -> Any:
    """Return the mask that a file holds; None where it holds none, as files of earlier versions do not."""
    import xarray as xr

    if dims is None:
        return None
    coords = {dim: template.coords[dim] for dim in dims if dim in template.indexes}
    return xr.DataArray(values, dims=dims, coords=coords)


def plain_attrs(attrs: Mapping[Any, Any]) -> dict[str, Any]:
    """Return attributes as JSON has them: numbers, strings and lists of these; others as their text."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return plain(value.tolist())
        if isinstance(value, np.generic):
            return plain(value.item())
        if isinstance(value, (list, tuple)):
            return [plain(entry) for entry in value]
        return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)

    return {str(name): plain(value) for name, value in attrs.items()}


_CF_UNITS = "microseconds since 1970-01-01"


def _cftime_numbers(values: np.ndarray, calendar: str) -> np.ndarray:
    import cftime

    return np.asarray(cftime.date2num(values, _CF_UNITS, calendar=calendar), dtype=np.int64)


def _cftime_dates(numbers: np.ndarray, calendar: str) -> np.ndarray:
    import cftime

    return np.asarray(cftime.num2date(numbers, _CF_UNITS, calendar=calendar))


def describe_group(group: Group) -> dict[str, Any]:
    """Return a group of dimensions as JSON-able data, all but its points."""
    return {
        "dims": list(group.dims),
        "sizes": list(group.sizes),
        "coordinates": [_describe(coordinate) for coordinate in group.coordinates],
    }


def _describe(coordinate: Coordinate) -> dict[str, Any]:
    found = {"name": coordinate.name, "kind": coordinate.kind, "unit": coordinate.unit}
    if coordinate.kind != "number":
        return found
    return found | {
        "origin": float(coordinate.origin),
        "extent": coordinate.extent,
        "step": coordinate.step,
    }


def restore_group(entry: dict[str, Any], template: Any, points: np.ndarray) -> Group:
    """Return the group that `describe_group` described."""
    dims, sizes = tuple(entry["dims"]), tuple(entry["sizes"])
    on_axes = all(described["name"] in dims for described in entry["coordinates"])
    coordinates = []
    for described in entry["coordinates"]:
        name, kind = described["name"], described["kind"]
        # a dimension without coordinates counts from 0
        size = sizes[dims.index(name)] if name in dims else sizes[0]
        values = template.coords[name].values if name in template.coords else np.arange(size)
        # times have the origin of the fit by its own rule, and so have all in files of earlier versions
        origin = described.get("origin", origin_of(kind, values, on_axis=on_axes))
        extent, step = described.get("extent"), described.get("step", 1.0)
        coordinates.append(Coordinate(name, kind, values, origin, described["unit"], extent, step))
    return Group(tuple(coordinates), dims, sizes, points)
