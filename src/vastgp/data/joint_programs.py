"""Programs that several processes run together, each with rows of its own: what they add up is told within them.

A step whose sums are told by `vastgp.data.processes` goes back to Python for each message, which takes some
milliseconds; within a compiled loop it is a tenth of that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from vastgp.data import processes

AXIS = "processes"

T = TypeVar("T")


class Own(NamedTuple):
    """Arguments of a `JointProgram` of which each process has its own, of shapes that are the same in all."""

    value: Any


def added_within(tree: T, count: int) -> T:
    """Return sums over processes of arrays, within a program that so many of them run: all in one message."""
    if count == 1:
        return tree
    flat, rebuild = ravel_pytree(tree)
    return rebuild(jax.lax.psum(flat, AXIS))


def all_find(truth: Array, count: int) -> Array:
    """Return whether all processes find a thing true, where rounding may make them see it otherwise."""
    if count == 1:
        return truth
    return jax.lax.pmin(truth.astype(jnp.int32), AXIS) == 1


class JointProgram:
    """A function that is compiled for all processes, which call it at the same place of the program.

    Parameters
    ----------
    function : callable
        Of positional arguments. Those parts of them that are given as `Own` are of each process, and reach it without
        that mark; all else, and what it returns, is the same in all. So what it makes of them goes through
        `added_within` before it is returned.
    num_static : int
        How many arguments, the first ones, it is compiled for.
    donated : int
        Number of the argument that is given away.
    compiler_options : dict, optional
        Of `jax.jit`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        num_static: int,
        donated: int,
        compiler_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.function, self.num_static = function, num_static
        self.compiler_options = dict(compiler_options or {}) or None
        self._program = jax.jit(
            self._everywhere,
            static_argnums=tuple(range(num_static)),
            donate_argnums=donated,
            compiler_options=self.compiler_options,
        )

    def __call__(self, *arguments: Any) -> Any:
        """Return what the function does, on this process's device, when it is there.

        Raises
        ------
        ProcessLostError
            Where another process has ended.
        """
        static, given = arguments[: self.num_static], arguments[self.num_static :]
        with processes.heard():
            placed = jax.tree.map(_placed, given, owned(given))
            found = jax.block_until_ready(self._program(*static, *placed))
        return jax.tree.map(lambda array: array.addressable_data(0), found)

    def _everywhere(self, *arguments: Any) -> Any:
        static, given = arguments[: self.num_static], arguments[self.num_static :]
        leaves, tree = jax.tree.flatten(given)
        own = jax.tree.leaves(owned(given))

        def here(leaves: list[Array]) -> Any:
            mine = [leaf[0] if is_own else leaf for leaf, is_own in zip(leaves, own, strict=True)]
            return self.function(*static, *opened(jax.tree.unflatten(tree, mine)))

        axes = [PartitionSpec(AXIS) if is_own else PartitionSpec() for is_own in own]
        # that all come to the same is for whoever wrote the function
        program = jax.shard_map(
            here, mesh=_mesh(), in_specs=(axes,), out_specs=PartitionSpec(), check_vma=False
        )
        return program(leaves)


def owned(tree: Any) -> Any:
    """Return which arrays of a pytree each process has its own of."""
    return jax.tree.map(
        lambda part: jax.tree.map(lambda _: isinstance(part, Own), part), tree, is_leaf=_is_own
    )


def opened(tree: Any) -> Any:
    """Return a pytree without the marks of what each process has its own of."""
    return jax.tree.map(
        lambda part: part.value if isinstance(part, Own) else part, tree, is_leaf=_is_own
    )


def _is_own(part: Any) -> bool:
    return isinstance(part, Own)


@functools.cache
def _mesh() -> Mesh:
    """Return the first device of each process, as a mesh of one axis."""
    first: dict[int, Any] = {}
    for device in jax.devices():
        first.setdefault(device.process_index, device)
    return Mesh(np.array([first[k] for k in sorted(first)]), (AXIS,))


def _placed(array: Any, own: bool) -> Array:
    """Return an array of this process as its part of one of all: the whole, or a row along a new axis."""
    mesh = _mesh()
    mine = jax.device_put(array[None] if own else array, mesh.local_devices[0])
    axes = PartitionSpec(AXIS) if own else PartitionSpec()
    shape = (mesh.size, *mine.shape[1:]) if own else mine.shape
    return jax.make_array_from_single_device_arrays(shape, NamedSharding(mesh, axes), [mine])


def passed_on(own: np.ndarray) -> np.ndarray:
    """Return the array that the process before this one has; each gives its own to the next, the last one to the first.

    Parameters
    ----------
    own : ndarray
        Of one shape and type in all processes. It travels as bytes.

    Raises
    ------
    ProcessLostError
        Where another process has ended.
    """
    message = np.ascontiguousarray(own).reshape(-1).view(np.uint8)
    with processes.heard():
        return _passed(message).view(own.dtype).reshape(own.shape)


def _passed(message: np.ndarray) -> np.ndarray:
    return np.asarray(_ring()(_placed(message, True)).addressable_data(0))[0]


@functools.cache
def _ring() -> Any:
    """Return the program in which each process gives a message to the next."""
    parts = PartitionSpec(AXIS)
    pairs = [(k, (k + 1) % _mesh().size) for k in range(_mesh().size)]
    return jax.jit(
        jax.shard_map(
            lambda message: jax.lax.ppermute(message, AXIS, pairs),
            mesh=_mesh(), in_specs=parts, out_specs=parts, check_vma=False,
        )
    )  # fmt: skip
