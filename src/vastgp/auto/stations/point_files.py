"""Readings in xarray: discrete sampling geometries of the CF conventions (1.11, chapter 9) as columns.

Points, series of times at stations as a matrix of both, and ragged arrays, indexed or contiguous, all become columns
along one dimension: what a reading has in common with others (its station's place) is repeated.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vastgp.data.grid_fields import names_beside, names_of_fields

POINT_FILES = (".nc", ".nc4", ".zarr")


def columns_of_dataset(
    dataset: Any, where: str, target: Any = None
) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]], str | None]:
    """Return the variables along the dimensions of the readings as columns, their attributes, and a lone variable.

    Parameters
    ----------
    dataset : xarray.Dataset or DataArray
    where : str
        What it is called.
    target : object, optional
        The variable of the readings, where it is known by name.
    """
    import xarray as xr

    own = None
    if isinstance(dataset, xr.DataArray):
        own = str(dataset.name or "value")
        dataset = dataset.to_dataset(name=own)
    dataset = _without_ragged(dataset)
    if not dataset.sizes:
        raise ValueError(f"{where} has no dimension of readings.")
    fields = names_of_fields(dataset)
    if own is None and len(fields) == 1:
        own = fields[0]
    sizes = _sizes_of_readings(dataset, own if target is None else target)
    columns: dict[str, np.ndarray] = {}
    attrs: dict[str, dict[str, Any]] = {}
    for name, variable in dataset.variables.items():
        if not set(variable.dims) <= set(sizes) or not variable.dims:
            continue
        values = variable.set_dims(sizes).transpose(*sizes).values
        columns[str(name)] = _plain(values.ravel(), str(name), where)
        attrs[str(name)] = {str(key): value for key, value in variable.attrs.items()}
    return columns, attrs, own


def _sizes_of_readings(dataset: Any, target: Any) -> dict[Any, int]:
    """Return the dimensions of the target, or of the variable that has most of them, and their sizes.

    What others name as theirs is none: bounds of times have one dimension more, that of their two ends.
    """
    known = isinstance(target, str) and target in dataset.variables
    if known and dataset[target].dims:
        return dict(dataset[target].sizes)
    beside = names_beside(dataset)
    able = [one for name, one in dataset.variables.items() if name not in beside]
    widest = max(able, key=lambda one: (one.ndim, one.size))
    return dict(zip(widest.dims, widest.shape, strict=True))


def _without_ragged(dataset: Any) -> Any:
    """Return a Dataset in which what a ragged array says of its stations is repeated for their readings (CF 9.3.3)."""
    for name, variable in list(dataset.variables.items()):
        instance, sample = (
            variable.attrs.get(key) for key in ("instance_dimension", "sample_dimension")
        )
        if instance in dataset.sizes:  # indexed: for every reading the number of its station
            index, dim = np.asarray(variable.values, np.int64), str(variable.dims[0])
        elif sample in dataset.sizes:  # contiguous: for every station how many readings it has
            instance, dim = str(variable.dims[0]), str(sample)
            index = np.repeat(np.arange(len(variable)), np.asarray(variable.values, np.int64))
        else:
            continue
        import xarray as xr

        of_stations = {
            other: one for other, one in dataset.variables.items() if one.dims == (instance,)
        }
        taken = {
            other: (dim, one.values[index], one.attrs, one.encoding)
            for other, one in of_stations.items()
            if other != name
        }
        rest = dataset.drop_vars([*of_stations, *([name] if name not in of_stations else [])])
        return xr.Dataset({**{str(k): v for k, v in rest.variables.items()}, **taken})
    return dataset


def calendar_if_any(values: np.ndarray) -> str | None:
    """Return the calendar of dates of cftime; None of other values."""
    first = values.flat[0] if values.dtype.kind == "O" and values.size else None
    return getattr(first, "calendar", None)


def check_calendar(values: np.ndarray, called: str) -> None:
    """Refuse dates of cftime, whose calendars may have other days than that of NumPy."""
    calendar = calendar_if_any(values)
    if calendar is not None:
        raise ValueError(
            f"{called} holds dates of the calendar {calendar!r}, and those of readings are of the standard one. "
            "Convert them: dataset.convert_calendar('standard')."
        )


def _plain(values: np.ndarray, name: str, where: str) -> np.ndarray:
    """Return values as a column of a table."""
    if values.dtype.kind == "O":
        check_calendar(values, f"{name!r} of {where}")
        return values.astype(str)
    if values.dtype.kind == "S":
        return np.char.decode(values, "utf-8")
    if values.dtype.kind == "M":
        return values.astype("datetime64[us]")
    return values
