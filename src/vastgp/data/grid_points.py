"""Where to predict: the grid of the fit, a new grid, or scattered points, from what a user writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vastgp.data.grid import Group


@dataclass(frozen=True)
class Target:
    """Points to predict.

    Attributes
    ----------
    points : list of ndarray of shape (q_l, d_l)
        Axes of a grid; or the inputs of every group at each point, all of one length, where ``scattered``.
    scattered : bool
    dims : tuple of str
        Dimensions of the result, in the order of its values.
    sizes : tuple of int
    coords : dict
        Coordinates of the result, as `xarray.DataArray` takes them.
    """

    points: list[np.ndarray]
    scattered: bool
    dims: tuple[str, ...]
    sizes: tuple[int, ...]
    coords: dict[str, Any]


def training_target(groups: Sequence[Group], template: Any) -> Target:
    """Return the grid of the fit, with all its coordinates."""
    dims, sizes = _layout(groups)
    return Target([group.points for group in groups], False, dims, sizes, dict(template.coords))


def make_target(coords: Any, groups: Sequence[Group], template: Any) -> Target:
    """Return what ``coords`` asks for.

    Parameters
    ----------
    coords : mapping, xarray object or data frame
        Names to values. Plain arrays make a new grid, and names that are left out keep the coordinates of the fit.
        DataArrays along a dimension of another name (and the columns of a data frame) are scattered points.
    groups : sequence of Group
    template : xarray.Dataset
        Coordinates of the fit.
    """
    given = _as_mapping(coords)
    known = [name for group in groups for name in group.names]
    for name in given:
        if name not in known:
            raise ValueError(
                f"coords has {name!r}, and the model knows {', '.join(map(repr, known))}. Give those to change; the "
                "others keep the coordinates of the fit."
            )
    along = _scattered_along(given, groups)
    if along is None:
        return _new_grid(given, groups, template)
    return _scattered(given, groups, template, along)


def _as_mapping(coords: Any) -> dict[str, Any]:
    import xarray as xr

    if isinstance(coords, (xr.DataArray, xr.Dataset)):
        # without its own values: the coordinates along its dimensions
        return {
            str(name): coords.coords[name]
            for name in coords.coords
            if coords.coords[name].ndim == 1
        }
    if hasattr(coords, "columns") and not isinstance(coords, Mapping):
        return {
            str(name): xr.DataArray(np.asarray(coords[name]), dims="point")
            for name in coords.columns
        }
    if isinstance(coords, Mapping):
        return {str(name): value for name, value in coords.items()}
    raise ValueError(
        f"coords must be a mapping of names to values, an xarray object or a data frame; received "
        f"{type(coords).__name__}. For example {{'time': new_times}}."
    )


def _scattered_along(given: Mapping[str, Any], groups: Sequence[Group]) -> str | None:
    """Return the dimension that points are scattered along, None for a grid."""
    import xarray as xr

    found: set[str] = set()
    for group in groups:
        for name in group.names:
            value = given.get(name)
            if isinstance(value, xr.DataArray) and value.ndim == 1 and name in group.dims:
                found |= {str(dim) for dim in value.dims if dim != name}
    if len(found) > 1:
        raise ValueError(
            f"coords has points along {', '.join(map(repr, sorted(found)))}. Scattered points run along one dimension."
        )
    return found.pop() if found else None


def _numbers(group: Group, values: Mapping[str, Any]) -> list[np.ndarray]:
    return [
        coordinate.numbers(_one_dimensional(coordinate.name, values[coordinate.name]))
        for coordinate in group.coordinates
    ]


def _one_dimensional(name: str, value: Any) -> np.ndarray:
    array = np.atleast_1d(np.asarray(value))
    if array.ndim != 1 or array.size == 0:
        raise ValueError(
            f"coords[{name!r}] must be a number or one-dimensional and not empty, received shape {array.shape}."
        )
    return array


def _layout(groups: Sequence[Group]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    dims = tuple(dim for group in groups for dim in group.dims)
    return dims, tuple(size for group in groups for size in group.sizes)


def _new_grid(given: Mapping[str, Any], groups: Sequence[Group], template: Any) -> Target:
    points: list[np.ndarray] = []
    dims: list[str] = []
    sizes: list[int] = []
    coords: dict[str, Any] = {}
    changed: set[str] = set()
    for group in groups:
        named = [name for name in group.names if name in given]
        if not named:
            points.append(group.points)
            dims += group.dims
            sizes += group.sizes
            continue
        changed |= set(group.dims)
        on_axes = set(group.names) <= set(group.dims)
        if on_axes:
            values = {c.name: given.get(c.name, c.values) for c in group.coordinates}
            each = _numbers(group, values)
            mesh = np.meshgrid(*each, indexing="ij")
            points.append(np.stack([part.ravel() for part in mesh], axis=1))
            dims += group.dims
            sizes += [len(part) for part in each]
            coords |= {name: _one_dimensional(name, values[name]) for name in group.names}
            continue
        each = _together(group, given)
        (dim,) = group.dims
        points.append(np.stack(each, axis=1))
        dims.append(dim)
        sizes.append(len(each[0]))
        coords |= {name: (dim, _one_dimensional(name, given[name])) for name in group.names}
    kept = {
        name: coordinate
        for name, coordinate in template.coords.items()
        if not set(coordinate.dims) & changed and name not in coords
    }
    return Target(points, False, tuple(dims), tuple(sizes), {**kept, **coords})


def _together(group: Group, given: Mapping[str, Any]) -> list[np.ndarray]:
    missing = [name for name in group.names if name not in given]
    if missing:
        raise ValueError(
            f"coords lacks {missing[0]!r}: the coordinates {', '.join(map(repr, group.names))} go together."
        )
    each = _numbers(group, given)
    if len({len(part) for part in each}) > 1:
        lengths = ", ".join(f"{n!r}: {len(p)}" for n, p in zip(group.names, each, strict=True))
        raise ValueError(f"coords must have as many values of each of a point's inputs: {lengths}.")
    return each


def _scattered(
    given: Mapping[str, Any], groups: Sequence[Group], template: Any, along: str
) -> Target:
    import xarray as xr

    chosen = [group for group in groups if any(name in given for name in group.names)]
    rest = [group for group in groups if not any(name in given for name in group.names)]
    rows = {id(group): np.stack(_together(group, given), axis=1) for group in chosen}
    lengths = {len(points) for points in rows.values()}
    if len(lengths) > 1:
        raise ValueError(
            f"coords has scattered points along {along!r} of lengths {sorted(lengths)}; give as many of each."
        )
    count = lengths.pop()
    # what is not named is wanted at every point of the fit: all outputs at each point, say
    dims, sizes = _layout(rest)
    each = int(np.prod(sizes)) if sizes else 1
    index = np.unravel_index(np.arange(each), [len(group.points) for group in rest] or [1])
    kept = dict(zip(map(id, rest), index, strict=False))
    points = [
        rows[id(group)].repeat(each, axis=0)
        if id(group) in rows
        else np.tile(group.points[kept[id(group)]], (count, 1))
        for group in groups
    ]
    taken = {dim for group in chosen for dim in group.dims}
    coords: dict[str, Any] = {
        name: coordinate
        for name, coordinate in template.coords.items()
        if not set(coordinate.dims) & taken
    }
    for group in chosen:
        for name in group.names:
            value = given[name]
            values = value.values if isinstance(value, xr.DataArray) else np.asarray(value)
            coords[name] = (along, values)
    return Target(points, True, (along, *dims), (count, *sizes), coords)
