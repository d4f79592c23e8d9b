"""Constructor arguments of `GridGP`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vastgp._memory import available_bytes
from vastgp.data.grid import TIME_UNITS, Group
from vastgp.estimators.arguments import check_choice, check_positive
from vastgp.kernels import Coregionalisation, Kernel, from_name
from vastgp.methods.grid.posterior import VARIANCES
from vastgp.methods.grid.probes import probe_batch
from vastgp.methods.grid.solver import SOLVERS
from vastgp.methods.grid.spectrum import SPECTRAL_TERMS

OUTPUTS = "coregionalisation"
# Arrays of the grid's size that a fit holds at its peak, counted: vectors, those of a probe, spectra in float64.
_VECTORS, _VECTORS_A_PROBE, _SPECTRA = 14, 6, 6


def check_grid_params(model: Any) -> None:
    """Refuse bad constructor arguments, before any work."""
    check_choice("solver", model.solver, ("auto", *SOLVERS))
    check_choice("criterion", model.criterion, ("evidence", "gcv"))
    check_choice("log_determinant", model.log_determinant, (*SPECTRAL_TERMS, "probes"))
    check_choice("hyperparameters", model.hyperparameters, ("learn", "fixed"))
    check_choice("variance", model.variance, VARIANCES)
    check_choice("time_unit", model.time_unit, TIME_UNITS)
    for name in ("noise_floor", "penalty", "tol"):
        check_positive(name, getattr(model, name))
    for name in ("num_samples", "max_cg_iter", "max_iter"):
        check_positive(name, getattr(model, name), integer=True)
    check_positive("cg_tol", model.cg_tol, none="1e-6 in float64, 1e-3 in float32")
    check_positive("max_seconds", model.max_seconds, none="no limit")
    _check_count("num_probes", model.num_probes)
    if model.preconditioner_rank is not None:
        _check_count("preconditioner_rank", model.preconditioner_rank)
    if model.kernels is not None and not isinstance(model.kernels, dict):
        raise ValueError(
            f"kernels must be a dictionary from names of dimensions to kernels, or None; received {model.kernels!r}. "
            "For example {'time': 'matern32', ('lat', 'lon'): 'rbf'}."
        )
    for key, spec in (model.kernels or {}).items():
        _check_spec(key, spec)
    if model.hyperparameters == "fixed":
        for each in np.ravel(np.asarray(model.noise_std, dtype=object)):
            check_positive("noise_std", each)
    elif model.noise_std is not None:
        raise ValueError(
            f"noise_std={model.noise_std!r} was given, but the noise is learned. Leave it out, or set "
            "hyperparameters='fixed' to keep kernels and noise as given."
        )
    if model.log_determinant == "probes" and model.num_probes < 2:
        raise ValueError(
            f"num_probes must be at least 2 with log_determinant='probes', received {model.num_probes!r}."
        )


def check_memory(model: Any, array: Any) -> None:
    """Refuse what will not fit into memory before anything is read."""
    itemsize = 4 if model.dtype == "float32" else 8
    probes = int(model.num_probes)
    if model.log_determinant != "probes":
        probes = probe_batch(probes, max(array.size, 1)) if probes else 0
    vectors = itemsize * (_VECTORS + _VECTORS_A_PROBE * probes) + 8 * _SPECTRA
    groups = [key if isinstance(key, tuple) else (key,) for key in model.kernels or {}]
    widest = [math.prod(array.sizes[d] for d in group if d in array.dims) for group in groups]
    needed = array.size * vectors + 32 * max([*widest, *array.sizes.values()]) ** 2
    available = available_bytes()
    if available is not None and needed > available:
        raise ValueError(
            f"data_array has {array.size:,} points, and a fit of it needs about {needed / 1e9:.1f} GB of memory; "
            f"{available / 1e9:.1f} GB are free. Use dtype='float32', a coarser grid (array.coarsen), or parts of "
            "it one at a time."
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


def _check_spec(key: Any, spec: Any) -> None:
    if isinstance(spec, Kernel) or spec == OUTPUTS:
        return
    try:
        from_name(spec)
    except ValueError as error:
        raise ValueError(
            f"kernels[{key!r}] must be a Kernel or the name of one, received {spec!r}: {error}"
        ) from None


def _check_count(name: str, value: Any) -> None:
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_integer or value < 0:
        raise ValueError(f"{name} must be a whole number, 0 or more; received {value!r}.")
