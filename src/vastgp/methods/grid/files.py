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
        levels = getattr(template.indexes.get(name), "names", [])
        entry: dict[str, Any] = {
            "dims": list(coordinate.dims),
            "attrs": plain_attrs(coordinate.attrs),
        }
        if values.dtype.kind in "fiub":
            arrays[f"coord.{name}"] = values
        elif values.dtype.kind in "mM":
            entry["time"] = str(values.dtype)
            arrays[f"coord.{name}"] = values.astype("int64")
        elif len(levels) > 1 and name not in levels:
            # of stacked dimensions, whose values are coordinates of their own, with the same index
            entry["levels"] = list(map(str, levels))
        elif (labels := _labels(values)) is not None:
            entry["labels"], entry["shape"] = labels, list(values.shape)
            if values.dtype.kind == "S":
                entry["bytes"] = str(values.dtype)
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
    import pandas as pd
    import xarray as xr

    coords, stacked = {}, {}
    for name, entry in described.items():
        if "levels" in entry:
            stacked[name] = entry["levels"]
            continue
        if "labels" in entry:
            values = _of_labels(entry).reshape(entry["shape"])
        elif "time" in entry:
            values = arrays[f"coord.{name}"].astype(entry["time"])
        elif "calendar" in entry:
            values = _cftime_dates(arrays[f"coord.{name}"], entry["calendar"])
        else:
            values = arrays[f"coord.{name}"]
        coords[name] = (entry["dims"], values, entry["attrs"])
    found = xr.Dataset(coords=coords)
    for name, levels in stacked.items():
        index = pd.MultiIndex.from_arrays([found[level].values for level in levels], names=levels)
        of_levels = xr.Coordinates.from_pandas_multiindex(index, name)
        attrs = {level: found[level].attrs for level in levels}
        found = found.drop_vars(levels).assign_coords(of_levels)
        for part in (name, *levels):
            found[part].attrs = attrs.get(part, described[name]["attrs"])
    return found


def _labels(values: np.ndarray) -> list[str | None] | None:
    """Return text as JSON has it, with None where it is missing; None where some of it is no text.

    Bytes, as files with text of one length have them, are a letter each.
    """
    texts: list[str | None] = []
    for value in values.ravel().tolist():
        missing = value is None or (isinstance(value, float) and np.isnan(value))
        if not missing and not isinstance(value, (str, bytes)):
            return None
        text = value.decode("latin-1") if isinstance(value, bytes) else value
        texts.append(None if missing else text)
    return texts


def _of_labels(entry: Mapping[str, Any]) -> np.ndarray:
    """Return the labels that `_labels` wrote: text of one length, missing ones NaN among objects."""
    labels = entry["labels"]
    if "bytes" in entry:
        return np.array([label.encode("latin-1") for label in labels], entry["bytes"])
    if None in labels:
        return np.array([np.nan if label is None else label for label in labels], dtype=object)
    return np.array(labels)


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
