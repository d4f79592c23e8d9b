"""Constructor arguments as plain data, for model files and for the fingerprints of checkpoints."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

import vastgp
from vastgp.data import Rows
from vastgp.data.archive import below
from vastgp.kernels import Kernel, from_spec, to_spec

_SAMPLED_ROWS = 1024


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
            spec, leaves = to_spec(value)
            arrays.update({f"{name}/{key}": leaf for key, leaf in leaves.items()})
            return {"kernel": spec}
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
            "kernels, and lists or dictionaries of these can. Set it to one of them first, for example "
            f"model.set_params({name}=...)."
        )

    return {name: encode(name, value) for name, value in params.items()}, arrays


def decode_params(plain: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the arguments that `encode_params` encoded."""

    def decode(name: str, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        if kind == "kernel":
            return from_spec(content, below(f"{name}/", arrays))
        if kind == "path":
            return Path(content)
        if kind == "array":
            return arrays[f"{name}/array"]
        entries = [decode(f"{name}/{i}", entry) for i, entry in enumerate(content)]
        if kind == "dict":
            return {key: entry for key, entry in entries}  # noqa: C416
        return tuple(entries) if kind == "tuple" else entries

    return {name: decode(name, value) for name, value in plain.items()}


def fit_fingerprint(
    estimator: str, params: dict[str, Any], rows: Rows, seed: int | None = None
) -> dict[str, Any]:
    """Return what makes a fit the one it is, for `vastgp.fitting.checkpoint.Checkpoint`.

    Parameters
    ----------
    estimator : str
        Name of the class.
    params : dict
        Those constructor arguments that the result depends on.
    rows : Rows
        Training data: their shape counts, and the values of up to about a thousand rows spread over all of them.
    seed : int, optional
        The seed drawn, when ``random_state`` did not fix one.
    """
    plain, arrays = encode_params(params)
    major, minor, *_ = vastgp.__version__.split(".")
    return {
        "vastgp": major if major != "0" else f"0.{minor}",
        "estimator": estimator,
        "params": plain | {name: array.tolist() for name, array in arrays.items()},
        "rows": rows.n,
        "features": rows.d,
        "data": _digest(rows),
        "seed": seed,
    }


def _digest(rows: Rows) -> str:
    spread = np.linspace(0, rows.n - 1, min(rows.n, _SAMPLED_ROWS)).astype(np.int64)
    X, y = rows.take(np.unique(spread))
    digest = hashlib.blake2b(np.ascontiguousarray(X).tobytes(), digest_size=16)
    if y is not None:
        digest.update(np.ascontiguousarray(y).tobytes())
    return digest.hexdigest()
