"""Programs that factorise batches of matrices, one at a time: on a CPU two of them wait for each other for ever."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax

from vastgp import _accelerator

_lock = threading.RLock()


def alone() -> AbstractContextManager[Any]:
    """Let no other thread of the process run a program that factorises batches until the block has ended.

    XLA's CPU executor deals a batch out to a pool of threads that all programs share, and waits in one of them. Two
    batches at once, of fits in two threads of two cores, each wait for a thread that the other has (JAX 0.10.2). The
    block is to wait for what its program makes. Programs of an accelerator have no such pool.
    """
    return nullcontext() if _accelerator.is_present() else _lock


def run_alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a compiled function run `alone`, to its end; within another program it is as it was."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((args, kwargs))):
            return function(*args, **kwargs)
        with alone():
            return jax.block_until_ready(function(*args, **kwargs))

    return call
