"""Grids in: an xarray.DataArray with named dimensions becomes axes of numbers and values with gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vastgp.data.validate import warn_constant_target

# Seconds in every unit that lengthscales along times may have.
_SECONDS = {
    "seconds": 1.0,
    "minutes": 60.0,
    "hours": 3600.0,
    "days": 86400.0,
    "years": 365.25 * 86400.0,
}
TIME_UNITS = tuple(_SECONDS)
# Values whose squares, times what hyperparameters add to or take from a scale, are numbers of float64.
_LEAST_VALUE, _MOST_VALUE = 1e-130, 1e140


@dataclass(frozen=True)
class Coordinate:
    """One coordinate and how its values become numbers.

    Attributes
    ----------
    name : str
    kind : {"number", "time", "label"}
    values : ndarray
        As they came: numbers, ``datetime64``, dates of cftime, or labels.
    origin : object
        What is subtracted (numbers lose digits in single precision otherwise), see `origin_of`.
    unit : str or None
        Of times.
    """

    name: str
    kind: str
    values: np.ndarray
    origin: Any
    unit: str | None = None

    def numbers(self, values: Any) -> np.ndarray:
        """Return values of this coordinate as float64 numbers, in its own unit from its origin.

        Raises
        ------
        ValueError
            When they are of another kind, not finite, or labels that the fit has not seen.
        """
        array = np.asarray(values)
        flat = np.atleast_1d(array)
        if self.kind == "label":
            return self._positions(flat)
        if self.kind == "time":
            if _kind(flat) != "time":
                raise ValueError(
                    f"coordinate {self.name!r} holds times, received {flat.dtype} (first: {flat[:1]}). Give "
                    "datetime64 values, or dates of the calendar of the fit."
                )
            return _seconds_between(flat, self.origin, self.name) / _SECONDS[str(self.unit)]
        if _kind(flat) != "number":
            raise ValueError(
                f"coordinate {self.name!r} holds numbers, received {flat.dtype} (first: {flat[:1]})."
            )
        numbers = flat.astype(np.float64) - float(self.origin)
        _check_finite(self.name, numbers)
        return numbers

    def _positions(self, labels: np.ndarray) -> np.ndarray:
        known = {label: position for position, label in enumerate(self.values.tolist())}
        unknown = [label for label in labels.tolist() if label not in known]
        if unknown:
            raise ValueError(
                f"coordinate {self.name!r} has no {unknown[0]!r}: the fit has seen "
                f"{', '.join(map(repr, list(known)[:10]))}. Nothing is known of others."
            )
        return np.array([known[label] for label in labels.tolist()], dtype=np.float64)


@dataclass(frozen=True)
class Group:
    """Dimensions (or coordinates along one) that share a factor of the kernel.

    Attributes
    ----------
    coordinates : tuple of Coordinate
        The inputs of the factor's kernel.
    dims : tuple of str
        Dimensions of the array that the group's points run over.
    sizes : tuple of int
    points : ndarray of shape (m, d)
        All its points as numbers.
    """

    coordinates: tuple[Coordinate, ...]
    dims: tuple[str, ...]
    sizes: tuple[int, ...]
    points: np.ndarray

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return tuple(coordinate.name for coordinate in self.coordinates)

    @property
    def on_axes(self) -> bool:
        """Whether its inputs are dimensions, and not coordinates along one."""
        return all(name in self.dims for name in self.names)

    @property
    def is_labels(self) -> bool:
        """Whether its points are labels, not numbers."""
        return self.coordinates[0].kind == "label"


def group_keys(array: Any, kernels: Mapping[Any, Any] | None) -> list[tuple[str, ...]]:
    """Return the groups of names that kernels were given for, and one for every other dimension.

    Parameters
    ----------
    array : xarray.DataArray
    kernels : mapping or None
        Keys are a name or a tuple of names: dimensions, or coordinates along one of them.
    """
    keys = [] if kernels is None else [_as_names(key) for key in kernels]
    taken: dict[str, tuple[str, ...]] = {}
    for key in keys:
        for dim in _dims_of(array, key):
            if dim in taken:
                raise ValueError(
                    f"kernels has {_show(taken[dim])} and {_show(key)}, both about dimension {dim!r}. Give each "
                    "dimension one kernel; a tuple of names as key makes a group."
                )
            taken[dim] = key
    rest: list[tuple[str, ...]] = [(str(dim),) for dim in array.dims if dim not in taken]
    # in the order of the array's dimensions, by the first of each group
    order = {dim: position for position, dim in enumerate(array.dims)}
    return sorted(keys + rest, key=lambda key: min(order[dim] for dim in _dims_of(array, key)))


def make_group(array: Any, names: tuple[str, ...], time_unit: str = "days") -> Group:
    """Return the group of these names, its coordinates checked.

    Raises
    ------
    ValueError
        For a dimension of one point, coordinates that repeat, that are missing or not finite.
    """
    dims = _dims_of(array, names)
    for dim in dims:
        if array.sizes[dim] < 2:
            raise ValueError(
                f"dimension {dim!r} has {array.sizes[dim]} point: nothing can be learned along it. Drop it with "
                f"array.isel({dim}=0, drop=True)."
            )
    on_axes = all(name in array.dims for name in names)
    coordinates = tuple(
        _coordinate(name, _values(array, name), time_unit, on_axis=on_axes) for name in names
    )
    if any(coordinate.kind == "label" for coordinate in coordinates) and len(coordinates) > 1:
        raise ValueError(
            f"the group {_show(names)} mixes labels with other coordinates. Give the labels a kernel of their own."
        )
    each = [coordinate.numbers(coordinate.values) for coordinate in coordinates]
    if on_axes:
        mesh = np.meshgrid(*each, indexing="ij")
        points = np.stack([part.ravel() for part in mesh], axis=1)
    else:
        points = np.stack(each, axis=1)
    return Group(coordinates, dims, tuple(int(array.sizes[dim]) for dim in dims), points)


def check_array(array: Any) -> None:
    """Refuse what is no DataArray of numbers with at least one dimension; values are not looked at yet."""
    import xarray as xr

    if isinstance(array, xr.Dataset):
        names = ", ".join(map(repr, array.data_vars))
        raise ValueError(
            f"data_array must be an xarray.DataArray, received a Dataset with variables {names}. Choose one "
            "(dataset['name']), or model several together: dataset.to_dataarray('output')."
        )
    if not isinstance(array, xr.DataArray):
        raise ValueError(
            f"data_array must be an xarray.DataArray, received {type(array).__name__}. Name the dimensions of an array "
            "by xarray.DataArray(values, dims=('time', 'x'), coords={'time': ..., 'x': ...})."
        )
    if array.dtype.kind not in "fiu":
        raise ValueError(
            f"data_array must hold real numbers, received dtype {array.dtype}. Convert it with array.astype(float)."
        )
    if array.ndim == 0:
        raise ValueError("data_array must have at least one dimension, received a single value.")


def ordered_values(array: Any, groups: Sequence[Group]) -> np.ndarray:
    """Return the values, float64, with dimensions in the order of the groups, one axis a group.

    Raises
    ------
    ValueError
        For infinite values, or when fewer than two values were observed.
    """
    dims = [dim for group in groups for dim in group.dims]
    values = np.asarray(array.transpose(*dims).values)
    if values.dtype != np.float32:
        values = values.astype(np.float64, copy=False)
    infinite = np.isinf(values)
    if infinite.any():
        where = np.unravel_index(int(np.argmax(infinite)), values.shape)
        place = ", ".join(f"{dim}={int(i)}" for dim, i in zip(dims, where, strict=True))
        raise ValueError(
            f"data_array has {int(infinite.sum())} infinite values, the first at {place}. Mark what was not observed "
            "by NaN: array.where(numpy.isfinite(array))."
        )
    count = int(np.count_nonzero(~np.isnan(values)))
    if count < 2:
        raise ValueError(
            f"data_array has {count} observed values of {values.size}: all others are NaN. A fit needs two at least."
        )
    return values.reshape([len(group.points) for group in groups])


def points_to_fit(
    values: np.ndarray, groups: Sequence[Group]
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Return the values and the points of every group in ascending order, less those where nothing was observed.

    Of a cell of land in a group ("lat", "lon"), or a day without any value: the posterior is the same without it, and
    it is no gap any more. Outputs stay. Coordinates of dimensions ascend, so that a fit (and what it draws at random
    point by point) is the same whichever way latitude runs in a file.
    """
    axes = []
    for i, group in enumerate(groups):
        others = tuple(j for j in range(len(groups)) if j != i)
        seen = np.any(~np.isnan(values), axis=others) | group.is_labels
        if np.count_nonzero(seen) < 2:  # nothing could be learned along a single point
            seen[:] = True
        chosen = np.arange(len(seen))
        if group.on_axes and not group.is_labels:
            chosen = np.lexsort(group.points.T[::-1])
        chosen = chosen[seen[chosen]]
        if not np.array_equal(chosen, np.arange(len(seen))):
            values = np.take(values, chosen, axis=i)
        axes.append(group.points[chosen])
    return values, tuple(axes)


def value_scaling(values: np.ndarray, groups: Sequence[Group]) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of the observed values: of every output, where there are several.

    Arrays of the values' dimensions, of length 1 along all but that of the outputs.

    Raises
    ------
    ValueError
        For an output without any value, and for values so large or small that their variance is no number.
    """
    axes = tuple(i for i, group in enumerate(groups) if not group.is_labels)
    counts = np.sum(~np.isnan(values), axis=axes, keepdims=True)
    if np.any(counts == 0):
        labels = next(group for group in groups if group.is_labels).coordinates[0]
        empty = labels.values.tolist()[int(np.argmin(counts))]
        raise ValueError(
            f"data_array has no observed value with {labels.name}={empty!r}: all are NaN. Leave that output out."
        )
    span = max(float(np.nanmax(values)), -float(np.nanmin(values)))
    if span > 0 and not _LEAST_VALUE < span < _MOST_VALUE:
        raise ValueError(
            f"data_array holds values up to {span:.1e}, whose variance float64 cannot hold. Give them in other units: "
            f"fit data_array / {span:.0e}."
        )
    mean = np.asarray(np.nanmean(values, axis=axes, keepdims=True, dtype=np.float64))
    scale = np.asarray(np.nanstd(values, axis=axes, keepdims=True, dtype=np.float64))
    largest = np.maximum(np.abs(mean), 1e-300)
    if np.any(scale <= 1e-14 * largest):
        warn_constant_target(float(np.ravel(mean)[int(np.argmin(scale / largest))]))
        scale = np.where(scale <= 1e-14 * largest, 1.0, scale)
    return mean, scale


def _coordinate(name: str, values: np.ndarray, time_unit: str, *, on_axis: bool) -> Coordinate:
    kind = _kind(values)
    if kind == "label":
        labels = values.tolist()
        if len(set(labels)) < len(labels):
            again = next(label for label in labels if labels.count(label) > 1)
            raise ValueError(f"coordinate {name!r} has the label {again!r} more than once.")
        return Coordinate(name, kind, values, 0)
    found = Coordinate(name, kind, values, values[0], time_unit if kind == "time" else None)
    numbers = found.numbers(values)
    if not on_axis:
        return found
    order = np.argsort(numbers, kind="stable")
    repeated = np.flatnonzero(np.diff(numbers[order]) == 0)
    if repeated.size:
        at, again = order[repeated[0]], order[repeated[0] + 1]
        raise ValueError(
            f"coordinate {name!r} has the value {values[at]} more than once (positions {at} and {again}). Average "
            f"or drop repetitions: array.groupby({name!r}).mean()."
        )
    return replace(found, origin=origin_of(kind, values, on_axis=True))


def origin_of(kind: str, values: np.ndarray, *, on_axis: bool) -> Any:
    """Return what is subtracted from a coordinate's values: the least along a dimension, whichever way it runs."""
    if kind == "label":
        return 0
    return values.min() if on_axis else values[0]


def _kind(values: np.ndarray) -> str:
    if values.dtype.kind in "fiub":
        return "number"
    if values.dtype.kind in "mM":
        return "time"
    if values.dtype == object and values.size and hasattr(values.flat[0], "calendar"):
        return "time"
    return "label"


def _seconds_between(values: np.ndarray, origin: Any, name: str) -> np.ndarray:
    if values.dtype.kind in "mM":
        if np.isnat(values).any():
            raise ValueError(f"coordinate {name!r} has missing times (NaT). Drop those positions.")
        return (values - origin) / np.timedelta64(1, "s")
    # cftime dates: calendars that NumPy does not have
    return np.array([(value - origin).total_seconds() for value in values], dtype=np.float64)


def _check_finite(name: str, numbers: np.ndarray) -> None:
    if not np.all(np.isfinite(numbers)):
        at = int(np.argmin(np.isfinite(numbers)))
        raise ValueError(
            f"coordinate {name!r} is not finite at position {at}. Drop those positions, or give the coordinate."
        )


def _as_names(key: Any) -> tuple[str, ...]:
    names = (key,) if isinstance(key, str) else key
    if (
        not isinstance(names, tuple)
        or not names
        or not all(isinstance(name, str) for name in names)
    ):
        raise ValueError(
            f"keys of kernels must be a name or a tuple of names, received {key!r}; for example 'time' or "
            "('lat', 'lon')."
        )
    return names


def _dims_of(array: Any, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the dimensions that names stand for: themselves, or the one that coordinates run along."""
    if len(set(names)) < len(names):
        raise ValueError(f"kernels has the group {_show(names)}, with a name twice.")
    for name in names:
        if name not in array.dims and name not in array.coords:
            known = ", ".join(
                map(repr, [*array.dims, *(c for c in array.coords if c not in array.dims)])
            )
            raise ValueError(
                f"kernels has {_show(names)}, and the array has no dimension or coordinate {name!r}. It has {known}."
            )
    if all(name in array.dims for name in names):
        return tuple(str(dim) for dim in names)
    along = {name: tuple(array.coords[name].dims) for name in names}
    one = set(along.values())
    if len(one) != 1 or len(next(iter(one))) != 1:
        raise ValueError(
            f"kernels has the group {_show(names)}, whose coordinates run along "
            f"{', '.join(f'{name}: {dims}' for name, dims in along.items())}. A group's names are dimensions, or "
            "one-dimensional coordinates along one and the same dimension."
        )
    return (str(next(iter(one))[0]),)


def _values(array: Any, name: str) -> np.ndarray:
    """Return the values of a coordinate; positions for a dimension that has none."""
    return np.asarray(array[name].values)


def _show(names: tuple[str, ...]) -> str:
    return repr(names[0]) if len(names) == 1 else repr(names)
