"""Known errors of a grid's cells: an array beside the values, in the order and the units of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vastgp.data import observations, validate
from vastgp.data.grid import Group, first_marked
from vastgp.data.own_noise import MOST_ERROR

_WHAT = "each cell's known standard deviation, in units of the values"


def known_variances(
    noise_std: Any, array: Any, groups: Sequence[Group], values: np.ndarray
) -> np.ndarray:
    """Return known error variances of the observed cells, in units of the values squared, NaN in the gaps.

    Parameters
    ----------
    noise_std : xarray.DataArray or array-like
        Known standard deviations. A DataArray may lack dimensions, along which it is the same; it may hold other cells
        too. What it holds in the gaps does not matter.
    array : xarray.DataArray
        The values as they came.
    groups : sequence of Group
    values : ndarray of shape (m_1, ..., m_d)
        The values by `vastgp.data.grid.ordered_values`, whose shape the result has.

    Raises
    ------
    ValueError
        For errors of other cells, and for observed cells whose error is no number or negative.
    """
    hint = " To hold the noise that all cells have in common, set hyperparameters=Fixed(noise_std=...)."
    errors = along_cells(noise_std, array, "noise_std", _WHAT, hint).set_dims(dict(array.sizes))
    dims = [dim for group in groups for dim in group.dims]
    flat = np.asarray(errors.transpose(*dims).values, dtype=np.float64)
    observed = ~np.isnan(values).reshape(flat.shape)
    bad = observed & ~(np.isfinite(flat) & (flat >= 0.0))
    if bad.any():
        where, place = first_marked(bad, dims)
        raise ValueError(
            f"noise_std must hold finite numbers that are not negative where data_array has a value, received "
            f"{int(bad.sum())} other value{'s' if bad.sum() > 1 else ''}, the first {flat[where]} at {place}. Expected "
            f"{_WHAT} (0 where it is known exactly); leave out cells whose error is unknown: "
            "data_array.where(noise_std >= 0)."
        )
    variances = np.minimum(np.where(observed, flat, np.nan), MOST_ERROR) ** 2
    return variances.reshape(values.shape)


def like_the_values(given: Any, whole: Any, array: Any, name: str = "noise_std") -> Any:
    """Return errors, or a mask, without the dimensions of one point that the values were given without."""
    import xarray as xr

    single = [dim for dim in whole.dims if dim not in array.dims]
    if not isinstance(given, xr.DataArray):
        found = validate.numeric_array(given, name)
        return found.reshape(array.shape) if found.shape == whole.shape else given
    return given.squeeze([dim for dim in single if given.sizes.get(dim) == 1])


def scaling_with_errors(
    values: np.ndarray,
    variances: np.ndarray,
    groups: Sequence[Group],
    plain: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of the values without what known errors add to the latter.

    Parameters
    ----------
    values, variances : ndarray of shape (m_1, ..., m_d)
    groups : sequence of Group
    plain : tuple of ndarray
        Those of `vastgp.data.grid.value_scaling`, of every output where there are several; their form is the result's.
    """
    mean, scale = (part.copy() for part in plain)
    outputs = [i for i, group in enumerate(groups) if group.is_labels]
    for k in range(mean.size):
        chosen = (
            np.take(np.stack([values, variances]), [k], axis=outputs[0] + 1) if outputs else None
        )
        target, error = (values, variances) if chosen is None else chosen
        seen = ~np.isnan(target)
        target = target[seen].astype(np.float64)
        found = observations.mean_and_variance(
            np.column_stack([target, np.ones(len(target)), error[seen]])
        )
        if found[1] > (1e-14 * abs(found[0])) ** 2:
            mean.flat[k], scale.flat[k] = found[0], found[1] ** 0.5
    return mean, scale


def standardised_variances(variances: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return error variances in units of the values' variance, no larger than says nothing; NaN stays."""
    with np.errstate(over="ignore"):
        return np.minimum(variances / scale**2, observations.MOST)


def along_cells(given: Any, array: Any, name: str, what: str, hint: str = "") -> Any:
    """Return an argument as a Variable of numbers along dimensions of the values, at their positions.

    Parameters
    ----------
    given : xarray.DataArray or array-like
    array : xarray.DataArray
    name, what : str
        Of the argument, and what is expected of it, for messages.
    hint : str
        What a single value may have been meant for.
    """
    import xarray as xr

    if not isinstance(given, xr.DataArray):
        found = validate.numeric_array(given, name)
        if found.ndim == 0:
            raise ValueError(
                f"{name}={given!r} is a single value. Expected an array of shape {array.shape}, {what}.{hint}"
            )
        if found.shape != array.shape:
            raise ValueError(
                f"{name} has shape {found.shape}. Expected {array.shape}, that of data_array: {what}. A DataArray "
                "may have some of the dimensions."
            )
        return xr.Variable(array.dims, found)
    if given.dtype.kind not in "fiu":
        raise ValueError(
            f"{name} must hold real numbers, received dtype {given.dtype}. Expected {what}."
        )
    foreign = [dim for dim in given.dims if dim not in array.dims]
    if foreign:
        raise ValueError(
            f"{name} has the dimension {foreign[0]!r}, and data_array has {', '.join(map(repr, array.dims))}. "
            f"Expected {what}: choose a position along it, {name}.isel({foreign[0]}=0)."
        )
    for dim in given.dims:
        given = _at_same(given, array, dim, name, what)
    return given.variable


def _at_same(given: Any, array: Any, dim: Any, name: str, what: str) -> Any:
    """Return errors at the positions of the values along a dimension."""
    if dim in array.indexes and dim in given.indexes:
        ours, theirs = array.indexes[dim], given.indexes[dim]
        if ours.equals(theirs):
            return given
        where = theirs.get_indexer(ours) if theirs.is_unique else np.full(len(ours), -1)
        if np.all(where >= 0):
            return given.isel({dim: where})
        raise ValueError(
            f"{name} has other coordinates along {dim!r} than data_array: nothing at {ours[int(np.argmin(where))]}. "
            f"Expected {what}. Bring both to one grid, such as {name}.interp_like(data_array)."
        )
    if given.sizes[dim] != array.sizes[dim]:
        raise ValueError(
            f"{name} has {given.sizes[dim]} positions along {dim!r}, and data_array has {array.sizes[dim]}. "
            f"Expected {what}."
        )
    return given
