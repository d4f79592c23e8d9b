"""Grids in: an xarray.DataArray with named dimensions becomes axes of numbers and values with gaps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from vastgp.data.coordinates import Coordinate, is_latitude, is_longitude, make_coordinate
from vastgp.data.validate import warn_constant_target

# Values whose squares, times what hyperparameters add to or take from a scale, are numbers of float64.
_LEAST_VALUE, _MOST_VALUE = 1e-130, 1e140


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
    def is_cyclic(self) -> bool:
        """Whether its points are longitudes all around."""
        return len(self.coordinates) == 1 and self.coordinates[0].closes

    @property
    def is_time(self) -> bool:
        """Whether its points are times: dates, spans, counts since a date, or numbers of that name."""
        (first, *others) = self.coordinates
        return not others and (
            first.kind == "time" or first.step != 1.0 or first.name.lower() == "time"
        )

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


def make_group(
    array: Any, names: tuple[str, ...], time_unit: str = "days", on_sphere: bool = False
) -> Group:
    """Return the group of these names, its coordinates checked.

    Parameters
    ----------
    array : xarray.DataArray
    names : tuple of str
    time_unit : str, default "days"
    on_sphere : bool, default False
        Whether its kernel takes latitude and longitude as they are.

    Raises
    ------
    ValueError
        For a dimension of one point, coordinates that repeat, that are missing or not finite.
    """
    dims = _dims_of(array, names)
    for dim in dims:
        if array.sizes[dim] == 0:
            raise ValueError(
                f"dimension {dim!r} is empty ({sizes_of(array)}): there are no values. A selection before the fit left "
                "nothing of it; check its bounds, and which way the coordinate runs."
            )
        if array.sizes[dim] < 2:
            raise ValueError(
                f"dimension {dim!r} has {array.sizes[dim]} point: nothing can be learned along it. Give it no kernel, "
                f"or drop it with array.isel({dim}=0)."
            )
    on_axes = all(name in array.dims for name in names)
    coordinates = tuple(
        make_coordinate(
            name,
            _values(array, name),
            time_unit,
            array[name].attrs,
            on_axis=on_axes,
            absolute=on_sphere,
        )
        for name in names
    )
    if on_sphere:
        _check_on_sphere(array, names)
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


def _check_on_sphere(array: Any, names: tuple[str, ...]) -> None:
    """Refuse what are no latitudes and longitudes, in this order."""
    known = len(names) == 2 and array[names[0]].dtype.kind in "fiu"
    attrs = [array[name].attrs for name in names]
    turned = known and is_longitude(names[0], attrs[0]) and is_latitude(names[1], attrs[1])
    if not known or turned or float(np.max(np.abs(_values(array, names[0])))) > 90.0:
        raise ValueError(
            f"kernels has an OnSphere kernel for {_show(names)}, which are not latitude and longitude in degrees. "
            "Expected the names of both, latitude (from -90 to 90) first: kernels={('lat', 'lon'): OnSphere()}."
        )


def without_single(array: Any, kernels: Mapping[Any, Any] | None) -> Any:
    """Return an array without its dimensions of one point, whose coordinates stay as single values.

    Those that kernels were given for stay, and all of them where no other dimension would.
    """
    keys = [key if isinstance(key, tuple) else (key,) for key in kernels or {}]
    named = set(itertools.chain.from_iterable(keys))
    single = [dim for dim in array.dims if array.sizes[dim] == 1 and dim not in named]
    return array.squeeze(single) if len(single) < array.ndim else array


def check_array(array: Any) -> None:
    """Refuse what is no DataArray of numbers with at least one dimension; values are not looked at yet."""
    import xarray as xr

    if not isinstance(array, xr.DataArray):
        raise ValueError(
            f"data_array must be an xarray.DataArray or Dataset, received {type(array).__name__}. Name the "
            "dimensions of an array by xarray.DataArray(values, dims=('time', 'x'), coords={'time': ..., 'x': ...})."
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
    with reading(array):
        values = _read(array.transpose(*dims))
    _check_decoded(array.attrs, values)
    if values.dtype != np.float32:
        values = values.astype(np.float64, copy=False)
    if np.isinf(values).any():
        infinite = np.isinf(values)
        _, place = first_marked(infinite, dims)
        raise ValueError(
            f"data_array has {int(infinite.sum())} infinite values, the first at {place}. Mark what was not observed "
            "by NaN: array.where(numpy.isfinite(array))."
        )
    count = values.size - int(np.count_nonzero(np.isnan(values)))
    if count < 2:
        raise ValueError(
            f"data_array has {count} observed value{'s' if count != 1 else ''} of {values.size} ({sizes_of(array)}): "
            "all others are NaN. A fit needs two at least."
        )
    return values.reshape([len(group.points) for group in groups])


def first_marked(bad: np.ndarray, dims: Sequence[str]) -> tuple[tuple[int, ...], str]:
    """Return the position of the first cell that is marked, and what messages call it."""
    where = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
    return where, ", ".join(f"{dim}={i}" for dim, i in zip(dims, where, strict=True))


def _read(array: Any) -> np.ndarray:
    """Return the values of an array; those in chunks are read one by one into their place.

    Gathered by dask they would be held twice: all chunks, and what they are joined to.
    """
    if array.chunks is None or not hasattr(array.data, "store"):
        return np.asarray(array.values)
    values = np.empty(array.shape, array.dtype)
    array.data.store(values)
    return values


def sizes_of(array: Any) -> str:
    """Return the dimensions of an array and their sizes, for messages."""
    return ", ".join(f"{dim}: {size}" for dim, size in array.sizes.items())


@contextmanager
def reading(array: Any) -> Iterator[None]:
    """Say of which array it is that its values cannot be read from a file."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:  # codecs and file formats raise what they like
        chunks = "" if array.chunks is None else f", in chunks of {dict(array.chunksizes)}"
        raise ValueError(
            f"data_array ({sizes_of(array)}{chunks}) cannot be read: {type(error).__name__}: {error}. A chunk of its "
            "file is cut off, or of another size than the file says; copy or write it again."
        ) from error


def _check_decoded(attrs: Mapping[Any, Any], values: np.ndarray) -> None:
    """Refuse values as files pack them: integers in other units, and numbers that stand for gaps."""
    packed = [
        name
        for name, plain in (("scale_factor", 1), ("add_offset", 0))
        if attrs.get(name, plain) != plain
    ]
    fills = {
        name: attrs[name]
        for name in ("_FillValue", "missing_value")
        if isinstance(attrs.get(name), (int, float, np.number)) and np.any(values == attrs[name])
    }
    if packed or fills:
        found = ", ".join([*packed, *(f"{name}={value}" for name, value in fills.items())])
        raise ValueError(
            f"data_array.attrs has {found}, and the values are as a file packs them. Decode them first: "
            "xarray.decode_cf(dataset), which xarray.open_dataset does by itself unless mask_and_scale=False."
        )


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
