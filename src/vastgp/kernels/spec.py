"""Kernels by name, and as plain data for files."""

from __future__ import annotations

from typing import Any

import numpy as np

from vastgp.kernels.base import Kernel, Product, Sum
from vastgp.kernels.coregionalisation import Coregionalisation
from vastgp.kernels.embedded import Cyclic, Embedded, OnSphere
from vastgp.kernels.grid import GridKernel
from vastgp.kernels.linear import Constant, Linear
from vastgp.kernels.periodic import Periodic
from vastgp.kernels.stationary import (
    RBF,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    Stationary,
)

_BY_NAME: dict[str, type[Stationary] | type[Linear] | type[Constant]] = {
    "rbf": RBF,
    "matern12": Matern12,
    "matern32": Matern32,
    "matern52": Matern52,
    "rational-quadratic": RationalQuadratic,
    "linear": Linear,
    "constant": Constant,
}
# Kernels that a name alone does not make: a period or a number of outputs belongs to them.
_WITH_ARGUMENTS: dict[str, type[Kernel]] = {
    "periodic": Periodic,
    "coregionalisation": Coregionalisation,
}
_KINDS: dict[str, type[Kernel]] = {**_BY_NAME, **_WITH_ARGUMENTS}
_NAMES: dict[type[Kernel], str] = {cls: name for name, cls in _KINDS.items()}
_COMPOSITES: dict[str, type[Sum] | type[Product]] = {"sum": Sum, "product": Product}


def from_name(name: str) -> Kernel:
    """Return a kernel with unit hyperparameters by its name, or by names with ``+`` and ``*`` between them.

    ``"matern32 + linear"`` is a sum; products bind closer, as in arithmetic.

    Raises
    ------
    ValueError
        When the name is unknown; the message lists the known ones.
    """
    try:
        terms = [
            [_BY_NAME[part.strip()]() for part in term.split("*")]
            for term in name.lower().split("+")
        ]
    except (KeyError, AttributeError):
        known = ", ".join(repr(known) for known in _BY_NAME)
        raise ValueError(
            f"kernel must be one of {known}, a sum or product of them such as 'matern32 + linear', or a Kernel; "
            f"received {name!r}."
        ) from None
    factors = [term[0] if len(term) == 1 else Product(tuple(term)) for term in terms]
    return factors[0] if len(factors) == 1 else Sum(tuple(factors))


def to_spec(kernel: Kernel) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return a kernel as JSON-able structure and the arrays of its hyperparameters."""
    arrays: dict[str, np.ndarray] = {}

    def visit(node: Kernel, path: str) -> dict[str, Any]:
        if isinstance(node, (Sum, Product)):
            kind = "sum" if isinstance(node, Sum) else "product"
            parts = [visit(part, f"{path}.{i}") for i, part in enumerate(node.parts)]
            return {"kind": kind, "parts": parts}
        if isinstance(node, GridKernel):
            arrays[f"{path}.variance"] = np.asarray(node.variance)
            parts = [visit(part, f"{path}.{i}") for i, part in enumerate(node.parts)]
            groups = [list(group) for group in node.groups]
            return {"kind": "grid", "parts": parts, "groups": groups, "path": path}
        if isinstance(node, Embedded):
            inner = visit(node.kernel, f"{path}.0")
            if isinstance(node, Cyclic):
                return {"kind": "cyclic", "parts": [inner], "period": node.period}
            return {"kind": "on-sphere", "parts": [inner]}
        if type(node) not in _NAMES:
            raise TypeError(f"a kernel of type {type(node).__name__} cannot be saved.")
        held = {name: getattr(node, name) for name in node.__dataclass_fields__}
        names = [name for name, value in held.items() if value is not None]
        for field in names:
            arrays[f"{path}.{field}"] = np.asarray(held[field])
        return {"kind": _NAMES[type(node)], "hyperparameters": names, "path": path}

    return visit(kernel, "kernel"), arrays


def from_spec(spec: dict[str, Any], arrays: dict[str, np.ndarray]) -> Kernel:
    """Return the kernel that `to_spec` wrote.

    Raises
    ------
    ValueError
        When the structure names a kernel this version does not know.
    """
    kind = spec.get("kind")
    if kind in _COMPOSITES:
        return _COMPOSITES[kind](tuple(from_spec(part, arrays) for part in spec["parts"]))
    if kind == "cyclic":
        return Cyclic(spec["period"], from_spec(spec["parts"][0], arrays))
    if kind == "on-sphere":
        return OnSphere(from_spec(spec["parts"][0], arrays))
    if kind == "grid":
        parts = [from_spec(part, arrays) for part in spec["parts"]]
        return GridKernel(parts, spec["groups"], arrays[f"{spec['path']}.variance"])
    if kind not in _KINDS:
        raise ValueError(f"the file holds a kernel {kind!r} that this version does not know.")
    values = {name: arrays[f"{spec['path']}.{name}"] for name in spec["hyperparameters"]}
    return _KINDS[kind](**values)
