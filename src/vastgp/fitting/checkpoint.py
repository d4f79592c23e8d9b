"""The file of an unfinished fit: all its phases, written whole or not at all."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from vastgp._warn import warn
from vastgp.data import processes
from vastgp.data.archive import above, below, read_archive_together, write_archive
from vastgp.fitting.history import History

_KIND = "checkpoint"
# Writing a checkpoint may take up at most this share of the time of a fit, however often it is asked for.
_MOST_SHARE_OF_TIME = 0.05


@dataclass
class Saved:
    """What is known of one phase.

    Attributes
    ----------
    arrays : dict of str to ndarray
        Leaves of its state, by place.
    structure : list
        Path, shape and dtype of every leaf.
    num_iter : int
        Steps done.
    seconds : float
        Of this phase, those before a resume included.
    history : History
    ended : dict, optional
        How it ended (the fields of `Stop`), where it has.
    value : object
        JSON-able data of a phase that has no steps.
    began : float
        Seconds of the fit before the phase.
    limit : float, optional
        Budget of the fit, where the clock had a say in what a phase without steps found.
    """

    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    structure: list[Any] = field(default_factory=list)
    num_iter: int = 0
    seconds: float = 0.0
    history: History = field(default_factory=History)
    ended: dict[str, Any] | None = None
    value: Any = None
    began: float = 0.0
    limit: float | None = None


class Checkpoint:
    """A file from which an interrupted fit goes on as if it had never stopped.

    A fit is a sequence of phases by name. Those that had ended are not done again; the one at work goes on from its
    last record; what lies between them is a function of the arguments, and is computed anew.

    Parameters
    ----------
    path : str or path
        Where the file is written. Its folder must exist. A file that is there is read at once, so that one of another
        fit is refused before any work.
    every_seconds : float, default 30.0
        Time between two writes; longer when writing takes more than a twentieth of it.
    fingerprint : dict
        What makes the fit the one it is, as plain JSON-able data (nested dicts allowed): library version, estimator,
        its parameters, the data, the seed. A file with another fingerprint is refused.
    drawn : sequence of str
        Entries of the fingerprint that were drawn for this fit: of a fit that goes on they are those of the file.

    Attributes
    ----------
    fingerprint : dict
        With what was drawn when the fit began.
    phases : dict of str to Saved
        In the order in which they began.
    seconds : float
        Of the fit up to the last write, those before earlier resumes included.
    resumed : bool
        Whether the file was there.
    writes : bool
        Whether this process writes: process 0 does, of several.

    Notes
    -----
    Everything that decides the next step must be in the state (counters and PRNG keys too): that is what makes a
    resumed run equal an uninterrupted one bit for bit. Of several processes that fit one model each has the same state:
    process 0 writes it, and reads it and tells the others, so that as many of them, fewer or more go on from it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        every_seconds: float = 30.0,
        *,
        fingerprint: Mapping[str, Any],
        drawn: Sequence[str] = (),
    ) -> None:
        self.path = Path(path).expanduser()
        self.every_seconds = float(every_seconds)
        self.fingerprint, self._drawn = dict(fingerprint), tuple(drawn)
        # what is saved is the same in all of several processes
        self.writes = processes.number() == 0
        processes.together(self._check_folder)
        self.phases: dict[str, Saved] = {}
        self.seconds, self.resumed = 0.0, False
        self._began = self._last_write = time.perf_counter()
        self._write_seconds = 0.0
        found = read_archive_together(self.path)
        if found is not None:
            self._read(*found)

    def phase(self, name: str, layout: Layout | None = None) -> Phase:
        """Return one phase of the fit, which `vastgp.fitting.loop.run_chunks` saves to and resumes from."""
        return Phase(self, name, layout)

    def elapsed(self) -> float:
        """Return the seconds of the fit so far, those before a resume included."""
        return self.seconds + time.perf_counter() - self._began

    def forget_after(self, name: str) -> None:
        """Forget all phases after one that went on: they were made of where it had stood."""
        names = list(self.phases)
        if name in names:
            for later in names[names.index(name) + 1 :]:
                del self.phases[later]

    def forget(self, name: str) -> None:
        """Forget a phase, and all after it, that were made of it."""
        self.forget_after(name)
        del self.phases[name]

    def due(self) -> bool:
        """Whether it is time to write again."""
        wait = max(self.every_seconds, self._write_seconds / _MOST_SHARE_OF_TIME)
        return time.perf_counter() - self._last_write >= wait

    def _check_folder(self) -> None:
        if self.writes and not self.path.parent.is_dir():
            raise ValueError(
                f"checkpoint: the folder of {str(self.path)!r} does not exist. Make the folder, or choose another path."
            )

    def write(self) -> None:
        """Write all phases in place of what the file held; a disk that cannot take them is warned of, once."""
        started = time.perf_counter()
        if not self.writes:
            self._last_write = started
            return
        arrays: dict[str, np.ndarray] = {}
        listed = []
        for number, (name, saved) in enumerate(self.phases.items()):
            columns = saved.history.to_arrays()
            arrays |= above(f"{number}/state/", saved.arrays) | above(f"{number}/history/", columns)
            listed.append({
                "name": name, "structure": saved.structure, "num_iter": saved.num_iter,
                "seconds": saved.seconds, "history": list(columns), "ended": saved.ended,
                "value": saved.value, "began": saved.began, "limit": saved.limit,
            })  # fmt: skip
        header = {
            "kind": _KIND,
            "fingerprint": self.fingerprint,
            "seconds": self.elapsed(),
            "phases": listed,
        }
        try:
            write_archive(self.path, header, arrays)
        except OSError as error:
            # the fit is worth more than its file; it is tried again when it is due
            warn(
                f"the checkpoint {str(self.path)!r} could not be written: {error}. The fit goes on and will try again."
            )
        self._last_write = time.perf_counter()
        self._write_seconds = self._last_write - started

    def remove(self) -> None:
        """Delete the file, if there is one; where it cannot be deleted, say so: the fit is complete all the same."""
        if not self.writes:
            return
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            warn(
                f"the fit is complete, and its checkpoint {str(self.path)!r} could not be deleted: {error}. Delete it."
            )

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Name the file in whatever error a fit ends with that went on from it: such a file holds anything at all.

        Those of the fit itself, which a file cannot be the cause of, pass as they are.
        """
        try:
            yield
        except (MemoryError, ImportError, OSError, ArithmeticError, np.linalg.LinAlgError):
            raise
        except Exception as error:
            if not self.resumed or str(error).startswith("checkpoint:"):
                raise
            raise ValueError(
                f"checkpoint: the fit that went on from {str(self.path)!r} ended in {error!r}. Was the file made by "
                "another program? Delete it to start afresh."
            ) from error

    def _read(self, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        if header.get("kind") != _KIND:
            raise ValueError(
                f"checkpoint: {str(self.path)!r} is a vastgp file but not a checkpoint. Choose another path."
            )
        self.resumed = True
        with self.blamed():
            self._restore(header, arrays)

    def _restore(self, header: Mapping[str, Any], arrays: dict[str, np.ndarray]) -> None:
        theirs = header["fingerprint"]
        self.fingerprint |= {name: theirs[name] for name in self._drawn if name in theirs}
        self._refuse_other_fit(theirs)
        for number, entry in enumerate(header["phases"]):
            of_history = below(f"{number}/history/", arrays)
            self.phases[entry["name"]] = Saved(
                below(f"{number}/state/", arrays),
                entry["structure"],
                entry["num_iter"],
                entry["seconds"],
                History.from_dict({name: of_history[name] for name in entry["history"]}),
                entry["ended"],
                entry["value"],
                entry["began"],
                entry.get("limit"),  # which earlier files have not
            )
        self.seconds = float(header["seconds"])

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


@runtime_checkable
class Layout(Protocol):
    """How a state lies in a file where this is not how it lies over devices."""

    def to_file(self, state: Any) -> Any:
        """Return the state as the file has it, the same whatever the devices."""

    def from_file(self, state: Any) -> Any:
        """Return a state of the file over the devices."""


class Phase:
    """One phase of a fit in its `Checkpoint`.

    Parameters
    ----------
    file : Checkpoint
    name : str
    layout : Layout, optional
        How the state lies in the file; None: as it is.
    """

    def __init__(self, file: Checkpoint, name: str, layout: Layout | None = None) -> None:
        self.file, self.name, self.layout = file, name, layout

    @property
    def saved(self) -> Saved | None:
        """What the file held of the phase."""
        return self.file.phases.get(self.name)

    def due(self) -> bool:
        """Whether it is time to write again."""
        return self.file.due()

    def load(self, like: Any) -> tuple[Any, Saved] | None:
        """Return the state of the phase, and what else is known of it; None where it has not begun.

        Parameters
        ----------
        like : pytree of arrays
            A state of the same structure, shapes and dtypes: the one the phase would start from.

        Raises
        ------
        ValueError
            When the state has another structure.
        """
        saved = self.saved
        if saved is None:
            return None
        like = self._in_file(like)
        if saved.structure != _structure(like):
            raise ValueError(
                f"checkpoint: the state in {str(self.file.path)!r} has another structure than this fit's "
                f"({_first_difference(saved.structure, _structure(like))}). Delete the file to start afresh."
            )
        leaves, tree = jax.tree.flatten(like)
        restored = [_like_leaf(saved.arrays[str(i)], leaf) for i, leaf in enumerate(leaves)]
        state = jax.tree.unflatten(tree, restored)
        return state if self.layout is None else self.layout.from_file(state), saved

    def _in_file(self, state: Any) -> Any:
        return state if self.layout is None else self.layout.to_file(state)

    def save(self, state: Any, num_iter: int, seconds: float, history: History) -> None:
        """Write the state and the history so far."""
        self.note(state, num_iter, seconds, history)
        self.file.write()

    def note(
        self,
        state: Any,
        num_iter: int,
        seconds: float,
        history: History,
        ended: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep the state and the history so far for the next write."""
        state, before = self._in_file(state), self.saved
        began = before.began if before else self.file.elapsed() - seconds
        if before is None or before.num_iter != num_iter:
            self.file.forget_after(self.name)
        arrays = {str(i): _to_numpy(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
        self.file.phases[self.name] = Saved(
            arrays, _structure(state), int(num_iter), float(seconds), history,
            None if ended is None else dict(ended), None, began,
        )  # fmt: skip


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _to_numpy(leaf: Any) -> np.ndarray:
    # a copy: the state may be given away to the next chunk
    return np.array(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


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
