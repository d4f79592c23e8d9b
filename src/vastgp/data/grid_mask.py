"""Cells of a grid that are not to be filled: land in a map of the sea."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vastgp.data.coordinates import is_longitude
from vastgp.data.grid import Group
from vastgp.data.grid_errors import along_cells, like_the_values
from vastgp.data.grid_points import Target

# Points are one cell where they differ by this part of the least step between cells, and of one unit.
_SAME = 1e-2
_WHAT = "True (or 1) in every cell that is not to be filled, False (or 0) elsewhere"


def make_mask(mask: Any, whole: Any, array: Any) -> Any:
    """Return which cells are not to be filled, as a DataArray of its own dimensions with the coordinates of the fit.

    Parameters
    ----------
    mask : xarray.DataArray or array-like
        As in `GridGP.fit`.
    whole, array : xarray.DataArray
        The values as they came, and without the dimensions of one point that the model leaves out.

    Raises
    ------
    ValueError
        For a mask of other cells, and for one that holds other numbers than 0 and 1.
    """
    import xarray as xr

    mask = like_the_values(mask, whole, array, "mask")
    if getattr(mask, "attrs", {}).get("standard_name") == "sea_binary_mask":
        raise ValueError(
            f"mask has the standard name 'sea_binary_mask', which is 1 where there is sea. Expected {_WHAT}: mask == 0."
        )
    plain = (
        mask.astype(np.int8) if getattr(getattr(mask, "dtype", None), "kind", "") == "b" else mask
    )
    found = along_cells(plain, array, "mask", _WHAT)
    values = np.asarray(found.values)
    other = ~((values == 0) | (values == 1))
    if other.any():
        raise ValueError(
            f"mask must hold 0 and 1, received {int(other.sum())} other values, the first {values[other][0]}. Expected "
            f"{_WHAT}: compare it, such as mask > 0.5."
        )
    coords = {dim: array.coords[dim] for dim in found.dims if dim in array.indexes}
    return xr.DataArray(values.astype(bool), dims=found.dims, coords=coords)


def without_masked(result: Any, mask: Any, groups: Sequence[Group], target: Target) -> Any:
    """Return predictions or draws with NaN in masked cells, where they are of no other cells than those of the mask.

    Cells are found by the numbers of their coordinates: in any order, units and convention of longitudes.
    """
    import xarray as xr

    hidden = None if mask is None else _masked(mask, groups, target)
    return result if hidden is None else result.where(~xr.DataArray(hidden, dims=target.dims))


def _masked(mask: Any, groups: Sequence[Group], target: Target) -> np.ndarray | None:
    """Return which points of a target are masked; None where some of them are no cells along the mask."""
    lengths = [len(points) for points in target.points]
    found: dict[str, np.ndarray] = {}
    for axis, (group, points) in enumerate(zip(groups, target.points, strict=True)):
        if not set(group.dims) & set(mask.dims):
            continue
        shape = [-1 if other == axis else 1 for other in range(len(groups))]
        for dim, cells in _cells(group, points, target).items():
            found[dim] = cells if target.scattered else cells.reshape(shape)
    where = [found[dim] for dim in mask.dims]
    if any(np.any(cells < 0) for cells in where):
        return None
    hidden = np.asarray(mask.values)[tuple(where)]
    whole = lengths[:1] if target.scattered else lengths
    return np.broadcast_to(hidden, whole).reshape(target.sizes)


def _cells(group: Group, points: np.ndarray, target: Target) -> dict[str, np.ndarray]:
    """Return by dimension the positions of the fit's cells that points are, -1 where they are none."""
    if points is group.points:
        all_cells = np.unravel_index(np.arange(len(points)), group.sizes)
        return dict(zip(group.dims, all_cells, strict=True))
    around = [
        is_longitude(name, getattr(target.coords.get(name), "attrs", {})) for name in group.names
    ]
    if not group.on_axes:
        return {group.dims[0]: _positions(points, group.points, around)}
    return {
        one.name: _positions(points[:, [j]], one.numbers(one.values)[:, None], [around[j]])
        for j, one in enumerate(group.coordinates)
    }


def _positions(asked: np.ndarray, own: np.ndarray, around: Sequence[bool]) -> np.ndarray:
    """Return which of a fit's points some points are, -1 where they are none."""
    from scipy.spatial import KDTree

    columns = []
    for ours, theirs, circle in zip(own.T, asked.T, around, strict=True):
        near = _SAME * np.min(np.diff(np.unique(ours)), initial=1.0)
        middle = 0.5 * (ours.min() + ours.max())
        both = np.concatenate([ours, theirs])
        columns.append((both - 360.0 * np.round((both - middle) / 360.0) * circle) / near)
    points = np.column_stack(columns)
    _, found = KDTree(points[: len(own)]).query(
        points[len(own) :], p=np.inf, distance_upper_bound=1.0
    )
    return np.where(found < len(own), found, -1)
