"""Cells of a grid that are not to be filled: land in a map of the sea."""

from __future__ import annotations

from typing import Any

import numpy as np

from vastgp.data.grid_errors import along_cells, like_the_values
from vastgp.data.grid_fields import same_along

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


def without_masked(result: Any, mask: Any) -> Any:
    """Return predictions or draws with NaN in masked cells, where they are on the cells of the mask."""
    if mask is None or not all(same_along(dim, result, mask) for dim in mask.dims):
        return result
    return result.where(~mask)
