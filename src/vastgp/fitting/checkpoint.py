"""Checkpoints: the whole state of a fit in one file, written whole or not at all."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vastgp.data.archive import read_archive, write_archive
from vastgp.fitting.history import History

_KIND = "checkpoint"
# Writing a checkpoint may take up at most this share of the time of a fit, however often it is asked for.
_MOST_SHARE_OF_TIME = 0.05


@dataclass(frozen=True)
class Saved:
    """What a checkpoint held: the state, steps done, seconds spent, and the history so far."""

    state: Any
    num_iter: int
    seconds: float
    history: History


class Checkpoint:
    """A file from which an interrupted fit goes on as if it had never stopped.

    Parameters
    ----------
    path : str or path
        Where the file is written. Its folder must exist.
    every_seconds : float, default 30.0
        Time between two writes; longer when writing takes more than a twentieth of it.
    fingerprint : dict
        What makes the fit the one it is, as plain JSON-able data (nested dicts allowed): library version, estimator,
        its parameters, the data, the seed. A file with another fingerprint is refused.

    Notes
    -----
    Everything that decides the next step must be in the state (counters and PRNG keys too): that is what makes a
    resumed run equal an uninterrupted one bit for bit.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        every_seconds: float = 30.0,
        *,
        fingerprint: Mapping[str, Any],
    ) -> None:
        self.path = Path(path).expanduser()
        self.every_seconds = float(every_seconds)
        self.fingerprint = dict(fingerprint)
        if not self.path.parent.is_dir():
            raise ValueError(
                f"checkpoint: the folder of {str(self.path)!r} does not exist. Make the folder, or choose another path."
            )
        self._last_write = time.perf_counter()
        self._write_seconds = 0.0

    def due(self) -> bool:
        """Whether it is time to write again."""
        wait = max(self.every_seconds, self._write_seconds / _MOST_SHARE_OF_TIME)
        return time.perf_counter() - self._last_write >= wait

    def save(self, state: Any, num_iter: int, seconds: float, history: History) -> None:
        """Write the state and the history so far, in place of what the file held."""
        started = time.perf_counter()
        leaves = jax.tree.leaves(state)
        arrays = {f"state/{i}": _to_numpy(leaf) for i, leaf in enumerate(leaves)}
        columns = history.to_arrays()
        arrays |= {f"history/{name}": column for name, column in columns.items()}
        header = {
            "kind": _KIND,
            "fingerprint": self.fingerprint,
            "structure": _structure(state),
            "num_iter": int(num_iter),
            "seconds": float(seconds),
            "history": list(columns),
        }
        write_archive(self.path, header, arrays)
        self._last_write = time.perf_counter()
        self._write_seconds = self._last_write - started

    def load(self, like: Any) -> Saved | None:
        """Return what the file holds, or None when there is no file.

        Parameters
        ----------
        like : pytree of arrays
            A state of the same structure, shapes and dtypes: the one the fit would start from.

        Raises
        ------
        ValueError
            When the file belongs to another fit (what differs is named), or is no checkpoint.
        """
        if not self.path.exists():
            return None
        header, arrays = read_archive(self.path)
        if header.get("kind") != _KIND:
            raise ValueError(
                f"checkpoint: {str(self.path)!r} is a vastgp file but not a checkpoint. Choose another path."
            )
        self._refuse_other_fit(header["fingerprint"])
        if header["structure"] != _structure(like):
            raise ValueError(
                f"checkpoint: the state in {str(self.path)!r} has another structure than this fit's "
                f"({_first_difference(header['structure'], _structure(like))}). Delete the file to start afresh."
            )
        leaves, tree = jax.tree.flatten(like)
        restored = [_like_leaf(arrays[f"state/{i}"], leaf) for i, leaf in enumerate(leaves)]
        history = History.from_dict(
            {name: arrays[f"history/{name}"] for name in header["history"]},
        )
        return Saved(
            jax.tree.unflatten(tree, restored), header["num_iter"], header["seconds"], history
        )

    def remove(self) -> None:
        """Delete the file, if there is one."""
        self.path.unlink(missing_ok=True)

    def _refuse_other_fit(self, theirs: Mapping[str, Any]) -> None:
        there, here = _flatten(theirs), _flatten(self.fingerprint)
        missing = object()
        differing = [
            name
            for name in sorted(there.keys() | here.keys())
            if there.get(name, missing) != here.get(name, missing)
        ]
        if differing:
            listed = "; ".join(
                f"{name} was {there.get(name, 'absent')!r}, is {here.get(name, 'absent')!r}"
                for name in differing
            )
            raise ValueError(
                f"checkpoint: {str(self.path)!r} was written by another fit: {listed}. "
                "Delete the file to start afresh, or change these back to go on from it."
            )


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _to_numpy(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _like_leaf(array: np.ndarray, leaf: Any) -> Any:
    """Return the array as the kind of thing that ``leaf`` is."""
    if _is_key(leaf):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    if not isinstance(leaf, jax.Array):
        return array if isinstance(leaf, np.ndarray) else array[()]
    restored = jnp.asarray(array)
    if restored.dtype != array.dtype:
        raise RuntimeError(  # a mistake of the caller, not of the user
            f"a {array.dtype} state was restored outside precision({str(array.dtype)!r})."
        )
    return restored


def _structure(state: Any) -> list[list[Any]]:
    """Return the path, shape and dtype of every leaf: what a state is, but for its values."""
    rows = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        array = _to_numpy(leaf)
        rows.append([jax.tree_util.keystr(path), list(array.shape), str(array.dtype)])
    return rows


def _first_difference(there: list[list[Any]], here: list[list[Any]]) -> str:
    for theirs, ours in zip(there, here, strict=False):
        if theirs != ours:
            return (
                f"{theirs[0]} is {theirs[2]}{theirs[1]} there, {ours[0]} is {ours[2]}{ours[1]} here"
            )
    return f"{len(there)} arrays there, {len(here)} here"


def _flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = list(value) if isinstance(value, tuple) else value
    return flat
