"""What phases of a fit compute, as data of its file and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from vastgp.kernels import from_spec, to_spec
from vastgp.likelihoods import Likelihood
from vastgp.likelihoods import from_spec as likelihood_from_spec
from vastgp.likelihoods import to_spec as likelihood_to_spec


def is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray))


def encode(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Return a value as JSON-able data; what of it are arrays goes to ``arrays``."""

    def put(leaves: Mapping[str, Any]) -> dict[str, str]:
        places = {}
        for key, leaf in leaves.items():
            places[key] = f"v{len(arrays)}"
            arrays[places[key]] = np.array(leaf)
        return places

    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        return {"array": put({"": value})[""], "scalar": isinstance(value, np.generic)}
    if isinstance(value, Likelihood):
        return {"likelihood": likelihood_to_spec(value)}
    if isinstance(value, dict):
        return {"dict": {key: encode(entry, arrays) for key, entry in value.items()}}
    if isinstance(value, (tuple, list)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [encode(entry, arrays) for entry in value]}
    spec, leaves = to_spec(value)
    return {"kernel": spec, "leaves": put(leaves)}


def decode(plain: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return what `encode` encoded."""
    if not isinstance(plain, dict):
        return plain
    if "array" in plain:
        array = arrays[plain["array"]]
        return array[()] if plain["scalar"] else array
    if "likelihood" in plain:
        return likelihood_from_spec(plain["likelihood"])
    if "kernel" in plain:
        leaves = {key: arrays[place] for key, place in plain["leaves"].items()}
        return from_spec(plain["kernel"], leaves)
    if "dict" in plain:
        return {key: decode(entry, arrays) for key, entry in plain["dict"].items()}
    kind = "list" if "list" in plain else "tuple"
    entries = [decode(entry, arrays) for entry in plain[kind]]
    return entries if kind == "list" else tuple(entries)
