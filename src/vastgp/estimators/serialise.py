"""Constructor arguments as plain data, for model files and for the fingerprints of checkpoints."""

from __future__ import annotations

import functools
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

import vastgp
from vastgp import kernels, likelihoods
from vastgp._parameters import Parameters
from vastgp.data import Rows, processes
from vastgp.data.archive import below
from vastgp.estimators.registry import OPTIONS, option_class
from vastgp.kernels import Kernel
from vastgp.likelihoods import Likelihood

# Bytes of a tile of rows, which stays in the processor's cache.
_TILE_BYTES = 1 << 18


def encode_params(params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return constructor arguments as JSON-able data, and the arrays that they hold.

    Raises
    ------
    ValueError
        For an argument that only pickle could store, with what to do.
    """
    arrays: dict[str, np.ndarray] = {}

    def encode(name: str, value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, np.generic) and value.dtype.kind in "fiub":
            return value.item()
        if isinstance(value, Kernel):
            spec, leaves = kernels.to_spec(value)
            arrays.update({f"{name}/{key}": leaf for key, leaf in leaves.items()})
            return {"kernel": spec}
        if isinstance(value, Likelihood):
            return {"likelihood": likelihoods.to_spec(value)}
        if isinstance(value, Parameters) and _is_known(type(value)):
            held = value.get_params(deep=False)
            arguments = {key: encode(f"{name}/{key}", entry) for key, entry in held.items()}
            return {"options": [type(value).__name__, arguments]}
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
            arrays[f"{name}/array"] = np.ascontiguousarray(value)
            return {"array": True}
        if isinstance(value, os.PathLike):
            return {"path": os.fspath(value)}
        if isinstance(value, (tuple, list)):
            kind = "tuple" if isinstance(value, tuple) else "list"
            return {kind: [encode(f"{name}/{i}", entry) for i, entry in enumerate(value)]}
        if isinstance(value, dict):
            pairs = [[key, entry] for key, entry in value.items()]
            return {"dict": [encode(f"{name}/{i}", pair) for i, pair in enumerate(pairs)]}
        name = name.partition("/")[0]
        raise ValueError(
            f"{name}={params[name]!r} cannot be stored in a file: only numbers and arrays of them, strings, None, "
            "kernels, likelihoods and options of vastgp, and lists or dictionaries of these can. Set it to one of them "
            f"first, for example model.set_params({name}=...)."
        )

    return {name: encode(name, value) for name, value in params.items()}, arrays


def decode_params(plain: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the arguments that `encode_params` encoded.

    Raises
    ------
    ValueError
        For objects that this version does not know. Nothing but constructors of this library is called.
    """

    def decode(name: str, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        if kind == "kernel":
            return kernels.from_spec(content, below(f"{name}/", arrays))
        if kind == "likelihood":
            return likelihoods.from_spec(content)
        if kind == "path":
            return Path(content)
        if kind == "array":
            return arrays[f"{name}/array"]
        if kind == "options":
            known, arguments = content
            if known not in OPTIONS:
                raise ValueError(f"the file holds {known!r}, which this version does not know.")
            held = {key: decode(f"{name}/{key}", entry) for key, entry in arguments.items()}
            return option_class(known)(**held)
        entries = [decode(f"{name}/{i}", entry) for i, entry in enumerate(content)]
        if kind == "dict":
            return {key: entry for key, entry in entries}  # noqa: C416
        return tuple(entries) if kind == "tuple" else entries

    return {name: decode(name, value) for name, value in plain.items()}


def _is_known(cls: type) -> bool:
    return OPTIONS.get(cls.__name__) == cls.__module__


@runtime_checkable
class Described(Protocol):
    """Training data that are no rows."""

    def describe(self) -> dict[str, Any]:
        """Return what makes them others than others, as JSON-able data: shape and checksum."""


def fit_fingerprint(
    estimator: str, params: dict[str, Any], data: Rows | Described, seed: int | None = None
) -> dict[str, Any]:
    """Return what makes a fit the one it is, for `vastgp.fitting.checkpoint.Checkpoint`.

    Parameters
    ----------
    estimator : str
        Name of the class.
    params : dict
        Those constructor arguments that the result depends on.
    data : Rows or Described
        Training data: of rows their shape counts, and a checksum of all values (one pass, a tile in memory at a time),
        wherever and in whatever form they are stored: a file may be copied or touched.
    seed : int, optional
        What the fit draws follows from.
    """
    plain, arrays = encode_params(params)
    major, minor, *_ = vastgp.__version__.split(".")
    return {
        "vastgp": major if major != "0" else f"0.{minor}",
        "estimator": estimator,
        "params": plain | {name: array.tolist() for name, array in arrays.items()},
        **(_of_rows(data) if isinstance(data, Rows) else data.describe()),
        "seed": seed,
    }


def _of_rows(rows: Rows) -> dict[str, Any]:
    return {"rows": rows.n, "features": rows.d, "data": _digest(rows)}


def _digest(rows: Rows) -> str:
    """Return checksums of inputs and targets: the same whether one process has the rows, or several have parts."""
    of_X = of_y = 0, 0  # checksum and bytes
    for X, y in rows.local.batches(max(1, _TILE_BYTES // (8 * rows.d))):
        of_X = zlib.crc32(X.data, of_X[0]), of_X[1] + X.nbytes
        if y is not None:
            of_y = zlib.crc32(y.data, of_y[0]), of_y[1] + y.nbytes
    parts = [part.tolist() for part in processes.gathered(np.array([of_X, of_y], np.int64))]
    found = [functools.reduce(_joined, (part[k] for part in parts)) for k in range(2)]
    return "".join(f"{checksum:08x}" for checksum, _ in found)


def _joined(before: Sequence[int], after: Sequence[int]) -> Sequence[int]:
    """Return checksum and length of bytes that follow each other, from those of both.

    A CRC is linear: of ``before`` it is shifted by the length of ``after``, a product with ``x^(8 n)`` modulo the
    polynomial (zlib's ``crc32_combine``).
    """
    power, base, n = 1 << 31, 1 << 23, after[1]  # 1 and x^8, the bits reversed
    while n:
        if n & 1:
            power = _polynomial_product(base, power)
        base, n = _polynomial_product(base, base), n >> 1
    return _polynomial_product(power, before[0]) ^ after[0], before[1] + after[1]


def _polynomial_product(a: int, b: int) -> int:
    """Return the product modulo the polynomial of CRC-32, the bits reversed."""
    found = 0
    for place in range(31, -1, -1):
        if a >> place & 1:
            found ^= b
        b = b >> 1 ^ (0xEDB88320 if b & 1 else 0)
    return found
