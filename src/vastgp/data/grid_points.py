"""Where to predict: the grid of the fit, a new grid, or scattered points, from what a user writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vastgp.data.calendars import recounted
from vastgp.data.coordinates import Coordinate, check_latitude
from vastgp.data.grid import Group
from vastgp.data.units import in_units_of_fit


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
    dims = tuple(dim for group in groups for dim in group.dims)
    sizes = tuple(size for group in groups for size in group.sizes)
    return Target([group.points for group in groups], False, dims, sizes, dict(template.coords))


def make_target(coords: Any, groups: Sequence[Group], template: Any) -> Target:
    """Return what ``coords`` asks for, by the rule of xarray's indexing.

    A plain list runs along a dimension of its own name, so that several lists make a map. An array with named
    dimensions runs along these, so that those that share one are points. Names that are left out keep the coordinates
    of the fit.

    Parameters
    ----------
    coords : mapping, xarray object or data frame
        Names to values; the columns of a data frame share a dimension ``point``. Of an xarray object's coordinates,
        those that the model does not know are handed through.
    groups : sequence of Group
    template : xarray.Dataset
        Coordinates of the fit.
    """
    known = [name for group in groups for name in group.names]
    given, others, needed = _as_given(coords, known, template)
    _check_sizes(given.values())
    parts = [_points(group, given, template) for group in groups]
    changed = {dim for group in groups for dim in _changed(group, given)}
    dims = [dim for part_dims, _, _ in parts for dim in part_dims]
    shared = len(set(dims)) < len(dims)
    points = [points for _, _, points in parts]
    sizes = [size for _, part_sizes, _ in parts for size in part_sizes]
    if shared:
        points, dims, sizes = _scattered(parts)
    kept = {
        name: coordinate
        for name, coordinate in template.coords.items()
        if not set(coordinate.dims) & changed
    }
    for dim in needed:
        if dim not in dims:
            raise _unknown(dim, known)
    kept |= {name: other for name, other in others.items() if set(other.dims) <= set(dims)}
    given = {name: _described(variable, template, name) for name, variable in given.items()}
    return Target(points, shared, tuple(dims), tuple(sizes), {**kept, **given})


def refuse_taken(
    dims: Iterable[Any], coords: Iterable[Any], taken: Sequence[str], what: str
) -> None:
    """Refuse dimensions and coordinates that are called as what a model gives is.

    Parameters
    ----------
    dims, coords : iterable
        Names.
    taken : sequence of str
    what : str
        What has them, for messages.
    """
    dims = list(dims)
    for name in (*dims, *coords):
        if name in taken:
            kind = "dimension" if name in dims else "coordinate"
            raise ValueError(
                f"{what} has a {kind} {name!r}, and what a model gives there has "
                f"{' and '.join(map(repr, taken))} of its own. Rename it: .rename({name}='{name}_of_input')."
            )


# A part of a target: dimensions, sizes, and the inputs of one group at their points.
_Part = tuple[tuple[str, ...], tuple[int, ...], np.ndarray]


def _points(group: Group, given: Mapping[str, Any], template: Any) -> _Part:
    """Return the points of a group: those of the fit, or at all combinations of what its names were given."""
    import xarray as xr

    if not any(name in given for name in group.names):
        return group.dims, group.sizes, group.points
    arrays = []
    for coordinate in group.coordinates:
        if coordinate.name in given:
            asked = given[coordinate.name]
            arrays.append(xr.DataArray(_as_fitted(asked, coordinate, template), dims=asked.dims))
        elif group.on_axes:
            arrays.append(xr.DataArray(coordinate.values, dims=coordinate.name))
        else:
            raise ValueError(
                f"coords lacks {coordinate.name!r}: the coordinates {', '.join(map(repr, group.names))} go together."
            )
    together = xr.broadcast(*arrays)
    numbers = [
        c.numbers(a.values.ravel()) for c, a in zip(group.coordinates, together, strict=True)
    ]
    for coordinate, array in zip(group.coordinates, together, strict=True):
        if coordinate.name in given and coordinate.kind == "number":
            attrs = template[coordinate.name].attrs if coordinate.name in template.coords else {}
            check_latitude(coordinate.name, array.values, attrs)
    dims = tuple(map(str, together[0].dims))
    return dims, together[0].shape, np.stack(numbers, axis=1)


def _as_fitted(asked: Any, coordinate: Coordinate, template: Any) -> np.ndarray:
    """Return new values of a coordinate in the units of the fit, where both say theirs."""
    counted = coordinate.kind == "number" and asked.dtype.kind in "fiu"
    if not counted or coordinate.name not in template.coords:
        return np.asarray(asked.values)
    fitted = template.coords[coordinate.name].attrs
    values = recounted(asked.values, asked.attrs, fitted, coordinate.name)
    return in_units_of_fit(values, asked.attrs, fitted, coordinate.name)


def _changed(group: Group, given: Mapping[str, Any]) -> set[str]:
    """Return the dimensions of a group that are not those of the fit any more."""
    named = {name for name in group.names if name in given}
    return named if group.on_axes else set(group.dims if named else ())


def _scattered(parts: Sequence[_Part]) -> tuple[list[np.ndarray], list[str], list[int]]:
    """Return the inputs of every group at each point of parts that share dimensions, and these and their sizes."""
    import xarray as xr

    index = xr.broadcast(
        *[xr.DataArray(np.arange(len(p)).reshape(sizes), dims=dims) for dims, sizes, p in parts]
    )
    points = [p[each.values.ravel()] for (_, _, p), each in zip(parts, index, strict=True)]
    return points, [str(dim) for dim in index[0].dims], list(index[0].shape)


def _as_given(
    coords: Any, known: Sequence[str], template: Any
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Return the variables of names that the model knows, other coordinates that came with them, and dimensions.

    The last are those that the result must have.
    """
    import xarray as xr

    if isinstance(coords, xr.Coordinates):
        coords = coords.to_dataset()
    if isinstance(coords, (xr.DataArray, xr.Dataset)):
        one = isinstance(coords, xr.DataArray)
        variables = coords.variables if isinstance(coords, xr.Dataset) else coords.coords
        given = {str(n): _variable(str(n), coords[n]) for n in variables if n in known}
        for dim, size in coords.sizes.items():
            # as in a fit, a dimension without coordinates counts from 0
            if dim in known and dim not in given and dim not in template.coords:
                given[str(dim)] = xr.Variable(dim, np.arange(size))
        return (
            given,
            _others(coords, known),
            [str(dim) for dim in coords.dims if one or dim in coords.coords],
        )
    if hasattr(coords, "columns") and not isinstance(coords, Mapping):
        coords = {n: xr.DataArray(np.asarray(coords[n]), dims="point") for n in coords.columns}
    if not isinstance(coords, Mapping):
        raise ValueError(
            f"coords must be a mapping of names to values, an xarray object or a data frame; received "
            f"{type(coords).__name__}. For example {{'time': new_times}}."
        )
    others: dict[str, Any] = {}
    given = {}
    for name, value in coords.items():
        if name not in known:
            raise _unknown(name, known)
        if isinstance(value, xr.DataArray):
            others |= _others(value, known)
        given[str(name)] = _variable(str(name), value)
    return given, others, []


def _others(array: Any, known: Sequence[str]) -> dict[str, Any]:
    """Return the variables of coordinates that the model does not know."""
    return {str(name): one.variable for name, one in array.coords.items() if name not in known}


def _described(variable: Any, template: Any, name: str) -> Any:
    """Return new values of a coordinate with what is said of it, its units say, where nothing came with them."""
    if variable.attrs or name not in template.coords:
        return variable
    # bounds are of the cells of the fit
    attrs = {key: at for key, at in template.coords[name].attrs.items() if key != "bounds"}
    described = variable.copy(deep=False)
    described.attrs = attrs
    return described


def _unknown(name: Any, known: Sequence[str]) -> ValueError:
    return ValueError(
        f"coords has {name!r}, and the model knows {', '.join(map(repr, known))}. Give those to change; the others "
        "keep the coordinates of the fit."
    )


def _variable(name: str, value: Any) -> Any:
    import xarray as xr

    if isinstance(value, xr.DataArray):
        return value.variable
    if isinstance(value, xr.Variable):
        return value
    array = np.atleast_1d(np.asarray(value))
    if array.ndim != 1:
        raise ValueError(
            f"coords[{name!r}] must be a number or one-dimensional, received shape {array.shape}. Name the dimensions "
            "of an array by xarray.DataArray."
        )
    return xr.Variable(name, array)


def _check_sizes(variables: Iterable[Any]) -> None:
    seen: dict[str, int] = {}
    for variable in variables:
        for dim, size in variable.sizes.items():
            if size == 0:
                raise ValueError(f"coords has no points along {dim!r}: it is empty.")
            if seen.setdefault(str(dim), size) != size:
                raise ValueError(
                    f"coords has {seen[str(dim)]} and {size} points along {dim!r}. Points need as many values of each."
                )
