"""What constructor arguments of `GridGP` mean for the data at hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from vastgp._memory import available_bytes
from vastgp.data.grid import Group, reading, sizes_of
from vastgp.kernels import Coregionalisation, Kernel, OnSphere, Product, Sum, from_name
from vastgp.methods.grid.options import Criterion
from vastgp.methods.grid.probes import probe_batch

OUTPUTS = "coregionalisation"
# Arrays of the grid's size that a fit holds at its peak, counted: vectors, those of a probe, spectra in float64.
_VECTORS, _VECTORS_A_PROBE, _SPECTRA = 14, 6, 6
# Of a point while values are read and those of cells that were never observed are left out.
_BYTES_OF_READING = 32


def check_kernels(kernels: Any) -> None:
    """Refuse what is no dictionary of kernels."""
    if kernels is not None and not isinstance(kernels, dict):
        raise ValueError(
            f"kernels must be a dictionary from names of dimensions to kernels, or None; received {kernels!r}. "
            "For example {'time': 'matern32', ('lat', 'lon'): 'rbf'}."
        )
    for key, spec in (kernels or {}).items():
        if spec == OUTPUTS or isinstance(spec, Coregionalisation):
            continue
        try:
            kernel = spec if isinstance(spec, Kernel) else from_name(spec)
        except ValueError as error:
            raise ValueError(
                f"kernels[{key!r}] must be a Kernel or the name of one, received {spec!r}: {error}"
            ) from None
        if not kernel.constant_variance:
            raise ValueError(
                f"kernels[{key!r}] is {spec!r}: a line through a point that no grid has, where the function has no "
                "variance. For a trend give an RBF or Matern kernel with a long lengthscale, alone or in a sum such as "
                "RBF(1000.0) + Matern32(30.0)."
            )


def groups_on_sphere(kernels: dict[Any, Any] | None) -> set[tuple[str, ...]]:
    """Return the groups of names whose kernel takes latitude and longitude as they are."""

    def spherical(kernel: Any) -> bool:
        if isinstance(kernel, (Sum, Product)):
            return any(map(spherical, kernel.parts))
        return isinstance(kernel, OnSphere)

    given = {(key,) if isinstance(key, str) else key: spec for key, spec in (kernels or {}).items()}
    return {names for names, spec in given.items() if spherical(spec)}


def check_known_errors(criterion: Criterion) -> None:
    """Refuse criteria that have no place for noise that differs from cell to cell."""
    if criterion.criterion != "evidence":
        raise ValueError(
            "noise_std and criterion='gcv' exclude each other: cross validation knows noise only relative to the "
            "variance of the field. Set criterion='evidence', or leave noise_std out."
        )
    if criterion.spectrum == "nystrom":
        raise ValueError(
            "noise_std and criterion=Evidence(spectrum='nystrom') exclude each other: it takes one noise for all "
            "cells. Set spectrum='free-compression' or spectrum='probes', or leave noise_std out."
        )


def check_memory(
    array: Any, groups: Sequence[Group], dtype: str, num_probes: int, mask: Any = None
) -> None:
    """Refuse what will not fit into memory, before anything is read where that can be told.

    What a fit holds is of the points of each group that have a value somewhere (`vastgp.data.grid.points_to_fit`): of a
    map of the sea as one group not its land. Values are looked at for that, chunk by chunk, where all points were too
    many.
    """
    available = available_bytes()
    if available is None:
        return
    needed = _bytes_of_fit([len(group.points) for group in groups], dtype, num_probes)
    to_read = _BYTES_OF_READING * array.size
    if to_read < available < needed:
        seen = _points_seen(array if mask is None else array.where(~mask), groups)
        needed = min(needed, to_read + _bytes_of_fit(seen, dtype, num_probes))
    if needed > available:
        raise ValueError(
            f"data_array has {array.size:,} points ({sizes_of(array)}), and a fit of it needs about "
            f"{needed / 1e9:.1f} GB of memory; {available / 1e9:.1f} GB are free. Use dtype='float32', a coarser grid "
            "(array.coarsen), or parts of it one at a time."
        )


def _bytes_of_fit(shape: Sequence[int], dtype: str, num_probes: int) -> int:
    """Return what a fit holds at its peak, of so many points of every group."""
    size, itemsize = math.prod(shape), 4 if dtype == "float32" else 8
    probes = probe_batch(num_probes, max(size, 1)) if num_probes else 0
    vectors = itemsize * (_VECTORS + _VECTORS_A_PROBE * probes) + 8 * _SPECTRA
    return size * vectors + 32 * max(shape) ** 2


def _points_seen(array: Any, groups: Sequence[Group]) -> list[int]:
    """Return how many points of every group have a value somewhere; labels all count."""
    seen = array.notnull()
    found = []
    for group in groups:
        others = [dim for dim in array.dims if dim not in group.dims]
        with reading(array):
            count = int(seen.any(others).sum())
        found.append(len(group.points) if group.is_labels or count < 2 else count)
    return found


def check_outputs(groups: Sequence[Group]) -> None:
    """Refuse labels along more than one dimension: outputs have units and noise of their own, and are one dimension."""
    labels = [group.names[0] for group in groups if group.is_labels]
    if len(labels) > 1:
        both = " and ".join(f"dimension {name!r}" for name in labels)
        raise ValueError(
            f"{both} of data_array hold labels, and only one may name outputs. Give the others numbers as coordinates, "
            "or make one dimension of them, whose labels name the combinations."
        )


def factor_specs(groups: Sequence[Group], kernels: dict[Any, Any] | None, fixed: bool) -> list[Any]:
    """Return the kernel given for every group, None where there is none, checked against its coordinates."""
    given = {(key,) if isinstance(key, str) else key: spec for key, spec in (kernels or {}).items()}
    specs = [given.get(group.names) for group in groups]
    for group, spec in zip(groups, specs, strict=True):
        name = group.names[0] if len(group.names) == 1 else group.names
        of_outputs = isinstance(spec, Coregionalisation) or spec == OUTPUTS
        if of_outputs and not group.is_labels:
            raise ValueError(
                f"kernels has a coregionalisation for {name!r}, whose coordinate holds numbers. Name the outputs: "
                f"array.assign_coords({group.names[0]}=['a', 'b', ...])."
            )
        if group.is_labels and spec is not None and not of_outputs:
            raise ValueError(
                f"kernels[{name!r}] is {spec!r}, and the coordinate holds labels, between which there is no distance. "
                "Use 'coregionalisation', or numbers as coordinate."
            )
        if isinstance(spec, Coregionalisation) and len(spec.diagonal) != len(group.points):
            raise ValueError(
                f"kernels[{name!r}] is a matrix of {len(spec.diagonal)} outputs, and the data have {len(group.points)}."
            )
        if fixed and not isinstance(spec, Kernel):
            raise ValueError(
                f"kernels needs a Kernel for {name!r} with hyperparameters='fixed', received {spec!r}. Give its "
                "lengthscales in units of the coordinates."
            )
    return specs
