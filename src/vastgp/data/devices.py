"""Several devices of one process: what has rows lies on all of them, each with a part, and one program sums over them.

XLA splits a program whose arguments are split: of a product ``Phi^T Phi v`` with rows on four devices each makes a
quarter of the features and of the operations, and what is told is the sum, once. With one device nothing is moved.
"""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import jax
import numpy as np

T = TypeVar("T")


@functools.cache
def _mesh() -> Any:
    """Return the devices of this process as a mesh of one axis."""
    return jax.sharding.Mesh(np.array(jax.local_devices()), ("rows",))


def _placed(tree: T, whole: bool) -> T:
    count = _mesh().size

    def put(array: Any) -> Any:
        # rows that cannot be dealt out evenly are worked on by every device
        split = not whole and np.ndim(array) > 0 and array.shape[0] % count == 0
        axes = jax.sharding.PartitionSpec("rows") if split else jax.sharding.PartitionSpec()
        return jax.device_put(array, jax.sharding.NamedSharding(_mesh(), axes))

    return jax.tree.map(put, tree)


def over_devices(tree: T) -> T:
    """Put arrays with rows along their first axis on the devices, a part on each."""
    return jax.device_put(tree) if _mesh().size == 1 else _placed(tree, whole=False)


def on_every_device(tree: T) -> T:
    """Return arrays that go with those of `over_devices`: whole on each device."""
    return tree if _mesh().size == 1 else _placed(tree, whole=True)


def on_first_device(tree: T) -> T:
    """Return what a program made of arrays of `over_devices`, for all else that one device does."""
    return tree if _mesh().size == 1 else jax.device_put(tree, jax.local_devices()[0])
