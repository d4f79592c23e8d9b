"""An accelerator beside the host: whether there is one, what it holds, full precision of its products, and work that
is the host's although there is one.
"""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax


def is_present() -> bool:
    """Whether JAX works on an accelerator, such as a GPU, and neither we nor the user left it out here."""
    return jax.default_backend() != "cpu" and not _is_host(told_device())


def left_out(when: bool = True) -> AbstractContextManager[Any]:
    """Work on the host inside the block, in this thread; nothing changes without an accelerator, or not ``when``.

    A program of an accelerator takes 0.2 to 6 s to compile, several times as long as one of the host, as its compiler
    times the ways to multiply: a fit of some thousand rows is done sooner on the host. What was made in the block may
    be used outside, and what was made outside within it: JAX moves arrays that nobody tied to a device.
    """
    host = _host() if when and is_present() else None
    return nullcontext() if host is None else jax.default_device(host)


def told_device() -> Any:
    """Return the device that JAX was told to work on here, in this thread; None where nobody said."""
    return jax.config.jax_default_device  # type: ignore[attr-defined]


def devices() -> list[Any]:
    """Return the devices of this process that work is for here: all of one kind, or the host where that is told to."""
    told = told_device()
    if _is_host(told) and jax.default_backend() != "cpu":
        return jax.local_devices(backend="cpu")[:1]
    return jax.local_devices()


def _is_host(device: Any) -> bool:
    """Whether a device as JAX is told of it, an object or a name, is the host."""
    return device is not None and getattr(device, "platform", device) == "cpu"


@functools.cache
def _host() -> Any:
    """Return JAX's device of the host; None where it was told not to have one."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


def free_bytes() -> int | None:
    """Return the memory of the accelerator that new work can have; None where it does not tell, or there is none."""
    if not is_present():
        return None
    told = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" not in told:
        return None
    return int(told["bytes_limit"] - told.get("bytes_in_use", 0))


def full_products() -> AbstractContextManager[None]:
    """Make products of matrices as precise as their numbers inside the block.

    Accelerators round float32 factors to ten bits (TF32) where they are not told otherwise: sums of 8192 products of
    normal numbers were off by up to 0.13 on an H200, by 0.0008 in full, at an eighth of the rate. A posterior beside a
    low noise is lost in that. A CPU has no other products.
    """
    return jax.default_matmul_precision("highest") if is_present() else nullcontext()
