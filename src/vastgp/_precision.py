"""Precision is chosen by each estimator, never for the whole process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from vastgp import _accelerator

_X64 = {"float32": False, "float64": True}


class _Process:
    """Whether JAX was used in this process, and whether a parent had used it when this one was forked off."""

    used = False
    forked_after_use = False

    @classmethod
    def forked(cls) -> None:
        """Note it, in the child."""
        cls.forked_after_use = cls.used


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Process.forked)


@contextmanager
def precision(dtype: object) -> Iterator[None]:
    """Do JAX work in one floating point precision, whatever the surrounding setting is; on a GPU in all of its digits.

    JAX turns 64-bit numbers into 32-bit ones unless it is told otherwise by a setting of the whole process. Its
    context manager form acts on the running thread alone and is undone on leaving, also after an error, so a library
    can use it without changing the numbers of the program around it. It is set both ways: a ``float32`` fit inside a
    program that enabled 64-bit numbers must make the same 32-bit arrays (random bits included) as anywhere else.

    Parameters
    ----------
    dtype : {"float32", "float64"}
        Precision of arrays made inside the block. Arrays that exist already keep theirs, so a ``float64`` NumPy array
        handed to JAX inside a ``float32`` block is rounded.

    Raises
    ------
    ValueError
        When ``dtype`` is neither of the two names.
    RuntimeError
        In a process that was forked off after JAX had been used: JAX's threads are not there, and it would wait for
        them for ever.
    MemoryError
        In place of the RuntimeError that JAX has for it.

    Notes
    -----
    Compiled functions are cached per setting: the same function used under both precisions compiles twice. Do not
    yield from inside the block of a generator that the caller may leave suspended, as the setting would leak to it.
    """
    # `dtype` is annotated as anything: it is what a user wrote, and the answer to a wrong one must be ours.
    if not isinstance(dtype, str) or dtype not in _X64:
        raise ValueError(
            f"dtype must be 'float32' or 'float64', received {dtype!r}. "
            "Choose 'float32' for speed and memory, 'float64' when a factorisation fails or for reference results."
        )
    if _Process.forked_after_use:
        raise RuntimeError(
            "this process was forked from one that had used vastgp already, and JAX, which works in threads, waits for "
            "ever in such a process. Start processes afresh: multiprocessing.get_context('spawn') or 'forkserver'; "
            "joblib and scikit-learn's n_jobs do so."
        )
    _Process.used = True
    with jax.enable_x64(_X64[dtype]), _accelerator.full_products(), _memory_errors():
        yield


@contextmanager
def _memory_errors() -> Iterator[None]:
    """Raise for want of memory what everybody else raises for it."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise MemoryError(f"{error} Use fewer rows, or a method of fewer functions.") from error


def as_dtype(tree: Any, dtype: Any) -> Any:
    """Return a pytree of numbers and arrays with its floating ones in one precision."""

    def cast(leaf: Any) -> Any:
        array = np.asarray(leaf)
        # rounded by NumPy and put there as it is: `jnp.asarray` compiles a program for every shape
        return jax.device_put(array.astype(dtype) if array.dtype.kind == "f" else array)

    return jax.tree.map(cast, tree)
