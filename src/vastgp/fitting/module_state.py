"""Bases and priors as plain data: their fields by name."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from vastgp.bases import GridEigenfunctionBasis, RandomFourierBasis
from vastgp.bases.kernel_columns import KernelColumnBasis
from vastgp.bases.laplace_eigenfunctions import LaplaceEigenfunctionBasis
from vastgp.data.archive import above, below
from vastgp.kernels import Kernel, from_spec, to_spec

_BASES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        GridEigenfunctionBasis,
        RandomFourierBasis,
        KernelColumnBasis,
        LaplaceEigenfunctionBasis,
    )
}


def module_to_state(module: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return a basis or a prior as JSON-able data and arrays."""
    fields: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    for field in dataclasses.fields(module):
        value = getattr(module, field.name)
        if isinstance(value, Kernel):
            spec, leaves = to_spec(value)
            fields[field.name] = {"kernel": spec}
            arrays |= above(f"{field.name}/", leaves)
        elif value is None or isinstance(value, (int, str)):
            fields[field.name] = value
        elif isinstance(value, tuple):
            fields[field.name] = {"tuple": list(value)}
        else:
            fields[field.name] = {"array": True}
            arrays[field.name] = np.asarray(value)
    return {"class": type(module).__name__, "fields": fields}, arrays


def module_from_state(
    state: dict[str, Any], arrays: dict[str, np.ndarray], *more: type[Any]
) -> Any:
    """Return what `module_to_state` described; nothing but a basis or one of the classes ``more`` is ever made."""
    known = _BASES | {kind.__name__: kind for kind in more}

    def restore(name: str, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if "kernel" in value:
            return from_spec(value["kernel"], below(f"{name}/", arrays))
        return tuple(value["tuple"]) if "tuple" in value else arrays[name]

    fields = {name: restore(name, value) for name, value in state["fields"].items()}
    return known[state["class"]](**fields)
