"""Several processes that fit one model: what each has of the rows, told to all.

A program that called ``jax.distributed.initialize()`` runs once on every machine, and each of these processes does the
same things in the same order. Whatever is told here is told by all of them at the same place in the program. Arrays
travel as bytes, so that they arrive as they were in whatever precision JAX computes.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from vastgp.data.lost_processes import Others, ProcessLostError, described

# Rows in whose multiples a table is shared.
BLOCK_ROWS = 1 << 14
_MOST_DIMENSIONS = 6
# Messages are filled up to a power of two: what is compiled for one length serves others.
_LEAST_BYTES = 1 << 8
# A large array is told in parts, so that no process holds more than so many bytes of each of the others.
_PART_BYTES = 1 << 26

T = TypeVar("T")


def count() -> int:
    """Return how many processes there are: 1 unless ``jax.distributed.initialize()`` was called."""
    if "jax" not in sys.modules:
        return 1
    import jax

    return int(jax.process_count()) if jax.distributed.is_initialized() else 1


def number() -> int:
    """Return the number of this process, from 0."""
    if count() == 1:
        return 0
    import jax

    return int(jax.process_index())


def gathered(array: Any) -> list[np.ndarray]:
    """Return an array of every process, in the order of their numbers; sizes may differ."""
    own = np.asarray(array)
    if count() == 1:
        return [own]
    head = np.full(2 + _MOST_DIMENSIONS, -1, np.int64)
    kind = own.dtype.str.encode()
    head[0], head[1] = int.from_bytes(kind, "little"), own.ndim
    head[2 : 2 + own.ndim] = own.shape
    heads = _told(head.view(np.uint8)).view(np.int64)
    kinds = [np.dtype(int(row[0]).to_bytes(8, "little").rstrip(b"\0").decode()) for row in heads]
    shapes = [tuple(row[2 : 2 + row[1]]) for row in heads]
    sizes = [int(np.prod(s)) * k.itemsize for s, k in zip(shapes, kinds, strict=True)]
    whole = _bytes_of(np.ascontiguousarray(own).reshape(-1).view(np.uint8), sizes)
    return [
        part.view(kind).reshape(shape)
        for part, kind, shape in zip(whole, kinds, shapes, strict=True)
    ]


def texts(own: str) -> list[str]:
    """Return a text of every process, in the order of their numbers."""
    return [part.tobytes().decode() for part in gathered(np.frombuffer(own.encode(), np.uint8))]


def _bytes_of(own: np.ndarray, sizes: list[int]) -> list[np.ndarray]:
    """Return the bytes of every process, told in parts."""
    found = [np.empty(size, np.uint8) for size in sizes]
    for start in range(0, max(sizes), _PART_BYTES):
        most = min(max(sizes) - start, _PART_BYTES)
        length = max(_LEAST_BYTES, 1 << (most - 1).bit_length())
        part = np.zeros(length, np.uint8)
        mine = own[start : start + _PART_BYTES]
        part[: len(mine)] = mine
        for whole, told in zip(found, _told(part), strict=True):
            here = whole[start : start + _PART_BYTES]
            here[:] = told[: len(here)]
    return found


def _told(message: np.ndarray) -> np.ndarray:
    """Return a message of one length of every process, shape (processes, length).

    Raises
    ------
    ProcessLostError
        Where one of them has ended.
    """
    with heard():
        return _exchanged(message)


@contextmanager
def heard() -> Iterator[None]:
    """Say which process has ended where what all do together fails.

    Raises
    ------
    ProcessLostError
    """
    others = _others()
    try:
        yield
    except (ValueError, RuntimeError) as error:
        if "RESOURCE_EXHAUSTED" in str(error):
            # of this process itself, which has no room
            raise
        raise others.lost(error) from error


@functools.cache
def _others() -> Others:
    """Meet the other processes, once."""
    own = np.zeros(_LEAST_BYTES, np.uint8)
    said = described().encode()[:_LEAST_BYTES]
    own[: len(said)] = np.frombuffer(said, np.uint8)
    others = Others([row.tobytes().rstrip(b"\0").decode() for row in _exchanged(own)])
    if number() > 0:
        others.outlive_first()
    return others


def _exchanged(message: np.ndarray) -> np.ndarray:
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(message))


def from_first(array: Any) -> np.ndarray:
    """Return the array of process 0, for what was measured or read by a clock, and must be the same for all."""
    return gathered(array if number() == 0 else np.zeros(0, np.uint8))[0]


def of_first(tree: T) -> T:
    """Return a pytree of arrays of process 0: for what all have computed alike, where machines round differently."""
    if count() == 1:
        return tree
    import jax

    return jax.tree.map(from_first, tree)


def agreed(decision: Any) -> bool:
    """Return what process 0 decides, where rounding may make the others see it otherwise."""
    return bool(decision) if count() == 1 else bool(from_first(np.bool_(decision)))


def summed(arrays: T) -> T:
    """Return sums over processes of arrays of the same shapes, added in the order of their numbers.

    Parameters
    ----------
    arrays : array, or pytree of arrays
        On JAX's device; so is what is returned. Of one process they are returned as they are.
    """
    if count() == 1:
        return arrays
    import jax

    return jax.tree.map(lambda own: jax.device_put(added(own)), arrays)


def added(own: Any) -> np.ndarray:
    """Return the sum over processes of a NumPy array or a number, as `summed` does."""
    total, *others = gathered(own)
    for part in others:
        total += part
    return total


def together(work: Callable[[], T]) -> T:
    """Do what may fail for one process alone, such as reading its files; where one fails, all do, and say which.

    Raises
    ------
    Exception
        Of this process, as it was.
    ValueError
        Where another process failed; with what it said, and its number.
    """
    if count() == 1:
        return work()
    error: Exception | None = None
    found = None
    try:
        found = work()
    except ProcessLostError:
        raise
    except Exception as caught:
        error = caught
    said = "" if error is None else f"{type(error).__name__}: {error}"
    heard = texts(said)
    if error is not None:
        error.add_note(f"(in process {number()} of {count()})")
        raise error
    failed = [f"process {k} of {count()}: {text}" for k, text in enumerate(heard) if text]
    if failed:
        words = "; ".join(failed)
        raise ValueError(f"another process could not go on, so that none does. {words}")
    return found  # type: ignore[return-value]


def part_of(n: int) -> slice:
    """Return which of n rows, numbered through, are those of this process.

    Shares are whole blocks, in which sums over rows are taken, so that these are the same however many processes there
    are. Of a table of fewer blocks than processes some have nothing.
    """
    first, last = share_of(-(-n // BLOCK_ROWS))
    return slice(min(first * BLOCK_ROWS, n), min(last * BLOCK_ROWS, n))


def share_of(pieces: int) -> tuple[int, int]:
    """Return which of some pieces of work are those of this process: from one on, up to another."""
    return number() * pieces // count(), (number() + 1) * pieces // count()
