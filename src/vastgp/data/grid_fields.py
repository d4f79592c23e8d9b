"""Several fields on one grid: which variables of a Dataset they are, and what stands beside them in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

# By which a variable or a coordinate names others that belong to it (CF 1.11, appendix A).
_BOUNDS = ("bounds", "climatology")
_BESIDE = (*_BOUNDS, "grid_mapping", "cell_measures", "formula_terms")


@dataclass(frozen=True)
class Fields:
    """What a Dataset holds.

    Attributes
    ----------
    arrays : dict of str to DataArray
        The fields, all with the same dimensions.
    beside : Dataset
        Bounds of cells, grid mappings, cell measures: what fields and coordinates name as theirs.
    attrs : dict
        Of the Dataset.
    """

    arrays: dict[str, Any]
    beside: Any
    attrs: dict[Any, Any]


def fields_of(dataset: Any) -> Fields:
    """Return the fields of a Dataset and what stands beside them.

    Ancillary variables (flags, errors), which a field names as such, are neither.

    Raises
    ------
    ValueError
        For a Dataset without a field, and for one whose fields have different dimensions.
    """
    names = names_of_fields(dataset)
    if not names:
        raise ValueError(
            f"{called(dataset)} has no field: its variables are {_listed(dataset.data_vars) or 'none'}. Expected one "
            "variable on a grid at least."
        )
    whole = dataset[max(names, key=lambda name: dataset[name].ndim)]
    for name in names:
        _check_on_grid(dataset[name], whole, called(dataset))
    arrays = {name: dataset[name] for name in names}
    return Fields(arrays, beside_of(dataset), dict(dataset.attrs))


def names_of_fields(dataset: Any) -> list[str]:
    """Return the names of variables that no other variable or coordinate names as its own."""
    named = _named_by(dataset.variables.values(), (*_BESIDE, "ancillary_variables"))
    return [str(name) for name in dataset.data_vars if name not in named]


def names_beside(dataset: Any) -> list[Any]:
    """Return the names of variables that others of a Dataset name as theirs: bounds, grid mappings, cell measures."""
    named = _named_by(dataset.variables.values(), _BESIDE)
    return [name for name in dataset.variables if name in named and name not in dataset.dims]


def beside_of(dataset: Any) -> Any:
    """Return these variables, read."""
    names = names_beside(dataset)
    found = dataset.reset_coords()[names].compute()
    return found.set_coords([name for name in names if name in dataset.coords])


def grid_mapping_of(dataset: Any, dims: tuple[Any, ...]) -> str | None:
    """Return the grid mapping that variables on these dimensions name, if they name one: predictions there have it."""
    found = {
        str(text)
        for variable in dataset.variables.values()
        if variable.dims and set(variable.dims) <= set(dims)
        and (text := variable.attrs.get("grid_mapping", variable.encoding.get("grid_mapping")))
    }  # fmt: skip
    return found.pop() if len(found) == 1 else None


def with_beside(result: Any, beside: Any) -> Any:
    """Return predictions with what stood beside the values, where it is of the same cells.

    What coordinates and variables name and is not there, they do not name any more.

    Parameters
    ----------
    result : Dataset
    beside : Dataset
        As `beside_of` returns it, with the coordinates of the fit.
    """
    named = _named_by(result.variables.values(), _BESIDE)
    bounds = _named_by(result.variables.values(), _BOUNDS)
    fitting = [
        name
        for name, variable in beside.variables.items()
        if name in named
        and name not in result.variables
        # the last dimension of bounds is that of vertices
        and all(
            same_along(dim, result, beside)
            for dim in (variable.dims[:-1] if name in bounds else variable.dims)
        )
    ]
    result = result.assign({name: beside[name].variable for name in fitting})
    result = result.set_coords([name for name in fitting if name in beside.coords])
    for name, variable in result.variables.items():
        dangling = [key for key in _BESIDE if not _is_there(variable.attrs.get(key), key, result)]
        if dangling:
            kept = {key: value for key, value in variable.attrs.items() if key not in dangling}
            result[name].attrs = kept
    return result


@contextmanager
def told_of(data: Any) -> Iterator[None]:
    """Say of which variable and file an error is, where the values came from one."""
    try:
        yield
    except ValueError as error:
        source = _source(data)
        if source is None:
            raise
        raise ValueError(f"{data.name!r} of {source!r}: {error}") from error


def called(dataset: Any) -> str:
    """Return what messages call a Dataset: its file, where it has one."""
    source = _source(dataset)
    return "the Dataset" if source is None else repr(source)


def _source(data: Any) -> str | None:
    source = getattr(data, "encoding", {}).get("source")
    return source if isinstance(source, str) and source else None


def _check_on_grid(array: Any, whole: Any, where: str) -> None:
    """Refuse a variable with other dimensions than those of the grid."""
    if set(array.dims) == set(whole.dims):
        return
    lacks = [dim for dim in whole.dims if dim not in array.dims]
    more = [dim for dim in array.dims if dim not in whole.dims]
    found = [f"has no dimension {_listed(lacks)}"] if lacks else []
    found += [f"has the dimension {_listed(more)} that the grid lacks"] if more else []
    raise ValueError(
        f"variable {array.name!r} of {where} is not on the grid of {whole.name!r} ({_listed(whole.dims)}): it "
        f"{' and '.join(found)}. Choose the variables that share a grid: dataset[[{whole.name!r}, ...]]."
    )


def _listed(names: Any) -> str:
    return ", ".join(repr(str(name)) for name in names)


def _words(text: Any, key: str) -> list[str]:
    """Return what variables an attribute names, as in ``"area: areacella"``, ``"crs: lat lon"``, ``"time_bnds"``."""
    words = text.split() if isinstance(text, str) else []
    keys = [word.rstrip(":") for word in words if word.endswith(":")]
    if key == "grid_mapping" and keys:
        return keys
    return [word for word in words if not word.endswith(":")]


def _named_by(variables: Any, keys: tuple[str, ...]) -> set[str]:
    """Return what variables name by some of their attributes, which xarray may have taken for encoding."""
    found: set[str] = set()
    for variable in variables:
        for key in keys:
            found.update(_words(variable.attrs.get(key, variable.encoding.get(key)), key))
    return found


def same_along(dim: Any, result: Any, beside: Any) -> bool:
    """Return whether predictions have a dimension of the fit, with the same coordinates."""
    if dim not in result.dims or result.sizes[dim] != beside.sizes[dim]:
        return False
    if dim not in result.indexes or dim not in beside.indexes:
        return dim not in result.indexes and dim not in beside.indexes
    return bool(result.indexes[dim].equals(beside.indexes[dim]))


def _is_there(text: Any, key: str, result: Any) -> bool:
    """Return whether all that an attribute names is there, or said to be in another file."""
    elsewhere = str(result.attrs.get("external_variables", "")).split()
    return all(word in [*result.variables, *elsewhere] for word in _words(text, key))
