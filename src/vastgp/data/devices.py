"""Several devices of one process: what has rows lies on all of them, each with a part, and one program sums over them.

XLA splits a program whose arguments are split: of a product ``Phi^T Phi v`` with rows on four devices each makes a
quarter of the features and of the operations, and what is told is the sum, once. With one device nothing is moved.
"""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import jax
import numpy as np

from vastgp import _accelerator

T = TypeVar("T")

# Multiplications that are worth a device of their own: a few milliseconds of one core. Telling each other a sum takes
# some 0.05 ms, and a program for several devices is started by each of them.
LEAST_WORK = 1 << 24


def devices_for(work: float, *sizes: int) -> int:
    """Return how many devices of this process some work is dealt out to.

    Parameters
    ----------
    work : float
        Multiplications that fall as they are dealt out. Each device has at least `LEAST_WORK` of them: one works alone
        where there are fewer.
    *sizes : int
        Lengths of what is dealt out: each device has the same number of them.
    """
    most = int(min(len(_accelerator.devices()), work // LEAST_WORK))
    even = (k for k in range(most, 1, -1) if all(size % k == 0 for size in sizes))
    return next(even, 1)


@functools.cache
def mesh(count: int) -> Any:
    """Return the first devices of this process as a mesh of one axis."""
    return jax.sharding.Mesh(np.array(jax.local_devices()[:count]), ("parts",))


def layout(count: int, axis: int | None, ndim: int = 0) -> Any:
    """Return how an array lies on some devices: a part of one axis, counted from the end if negative, on each.

    Whole on each where ``axis`` is None.
    """
    if axis is None:
        return jax.sharding.NamedSharding(mesh(count), jax.sharding.PartitionSpec())
    names: list[str | None] = [None] * ndim
    names[axis] = "parts"
    return jax.sharding.NamedSharding(mesh(count), jax.sharding.PartitionSpec(*names))


def over_devices(tree: T, count: int, axis: int = 0) -> T:
    """Put arrays on some devices, of one axis a part on each; `devices_for` finds a number that it divides by.

    Arrays without that axis are whole on each.
    """
    if count == 1:
        return jax.device_put(tree)

    def put(array: Any) -> Any:
        return jax.device_put(
            array, layout(count, axis if np.ndim(array) > axis else None, np.ndim(array))
        )

    return jax.tree.map(put, tree)


def rows_over_devices(rows: T, work: float) -> T:
    """Return arrays of rows over so many devices as are worth it, as they are where that is one.

    Parameters
    ----------
    rows : pytree of arrays
        With the rows along their first axis.
    work : float
        Multiplications that a row takes.
    """
    size = len(jax.tree.leaves(rows)[0])
    count = devices_for(size * work, size)
    return rows if count == 1 else over_devices(rows, count)


def filled_over_devices(array: Any, count: int, axis: int = 0, fill: float = 0.0) -> Any:
    """Put an array on some devices as `over_devices` does, filled up at the end of that axis to equal parts."""
    if count > 1 and np.shape(array)[axis] % count:
        widths = [(0, 0)] * np.ndim(array)
        widths[axis] = (0, -np.shape(array)[axis] % count)
        array = np.pad(np.asarray(array), widths, constant_values=fill)
    return over_devices(array, count, axis)


def on_every_device(tree: T, count: int) -> T:
    """Return arrays that go with those of `over_devices`: whole on each device."""
    return tree if count == 1 else jax.device_put(tree, layout(count, None))


def where_another_lies(array: Any, other: jax.Array) -> Any:
    """Put an array of the host over the devices that another of its shape lies over, as that does."""
    several = len(other.sharding.device_set) > 1
    return jax.device_put(array, other.sharding if several else None)


def on_first_device(tree: T) -> T:
    """Return what a program made of arrays of `over_devices`, for all else that one device does."""
    devices = _accelerator.devices()
    return tree if len(devices) == 1 else jax.device_put(tree, devices[0])


def on_host(tree: T) -> T:
    """Return what a program made of arrays of `over_devices` as arrays that go with those of any devices."""
    return tree if len(_accelerator.devices()) == 1 else jax.device_get(tree)


def dealt(array: Any, count: int, axis: int = 0) -> Any:
    """Return an array, within a program, of which each device is to make a part of one axis."""
    if count == 1:
        return array
    return jax.lax.with_sharding_constraint(array, layout(count, axis, np.ndim(array)))


def whole(tree: T, count: int) -> T:
    """Return arrays, within a program, that each device is to have all of."""
    return tree if count == 1 else jax.lax.with_sharding_constraint(tree, layout(count, None))
