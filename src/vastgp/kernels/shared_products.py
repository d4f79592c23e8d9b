"""Products with kernel matrices by several devices or processes: each device has some of the rows, and no more.

A device's rows and the columns of its vectors go round a ring, from each device to the one before. Where a block of
rows meets that of another device, both parts of the product are made of one tile, and what the visitor gets of it
travels on with him. After half a round every pair has met; so no device holds more than its own rows and a
visitor's, and all have as many tiles.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp.data import processes
from vastgp.data.devices import mesh, on_every_device, over_devices
from vastgp.kernels.products import (
    KernelMatrix,
    Share,
    bilinear_slope,
    block_product,
    cross_slope,
    kernel_product,
    times,
    with_noise,
)

_PARTS = jax.sharding.PartitionSpec("parts")
_COLUMNS = jax.sharding.PartitionSpec(None, "parts")
_WHOLE = jax.sharding.PartitionSpec()

# ``meet(number, share, turned, visitor, kept) -> (visitor, kept)`` of the own rows with those of a visitor.
Meeting = Callable[[Share, Any, Any, Any], tuple[Any, Any]]


class SharedKernelMatrix(KernelMatrix):
    """`KernelMatrix` by several devices or processes, each of which makes its share of the tiles.

    Rows, vectors and what a device makes of them lie over the devices of this process, a part on each; processes all
    have whole ones, and tell each other what each adds to a product, so that it is no part of a compiled program.

    Attributes
    ----------
    devices : int
        Of this process; the number of rows is a multiple of it.
    """

    devices: int = eqx.field(static=True, default=1)

    def product(self, V: Float[Array, "C n"]) -> Float[Array, "C n"]:
        """Return ``A v`` of each row of ``V``, which lies over the devices."""
        of_kernel = _shared_product(
            self.devices, _share(), self.kernel, self.X, times(V, self.scale)
        )
        of_kernel = self._summed(of_kernel, lambda own: over_devices(own, self.devices, axis=1))
        return with_noise(of_kernel, self.scale, self.noise_variance, V)

    def _slope_of_kernel(
        self, U: Float[Array, "C n"], V: Float[Array, "C n"], signs: Float[Array, " C"]
    ) -> Any:
        slope = _shared_slope(self.devices, _share(), self.kernel, self.X, U, V, signs)
        return self._summed(slope, lambda own: on_every_device(own, self.devices))

    def _summed(self, found: Any, placed: Callable[[Any], Any]) -> Any:
        """Return the sum over processes."""
        if processes.count() == 1:
            return found
        return jax.tree.map(lambda own: placed(processes.added(own)), found)


def _share() -> Share:
    return np.int32(processes.number()), np.int32(processes.count())


@functools.partial(jax.jit, static_argnums=0)
def _shared_product(devices: int, share: Share, kernel: Any, X: Array, V: Array) -> Array:
    """Return a process' share of ``K v``."""
    if devices == 1:
        return kernel_product(kernel, X, V, share)

    def part(share: Share, kernel: Any, X: Array, V: Array) -> Array:
        def meet(share: Share, turned: Any, visitor: Any, total: Array) -> tuple[Any, Array]:
            Z, W, theirs = visitor
            here, there = block_product(kernel, (X, Z), (V, W), share, turned)
            return (Z, W, theirs + there), total + here

        own = kernel_product(kernel, X, V, share)
        visitor, own = _half_round(devices, share, meet, (X, V, jnp.zeros_like(own)), own)
        return own + _sent(visitor[2], devices, devices // 2)

    return jax.shard_map(
        part, mesh=mesh(devices), in_specs=(_WHOLE, _WHOLE, _PARTS, _COLUMNS), out_specs=_COLUMNS,
        check_vma=False,
    )(share, kernel, X, V)  # fmt: skip


@functools.partial(jax.jit, static_argnums=0)
def _shared_slope(
    devices: int, share: Share, kernel: Any, X: Array, U: Array, V: Array, signs: Array
) -> Any:
    """Return a process' share of `bilinear_slope`."""
    if devices == 1:
        return bilinear_slope(kernel, X, U, V, signs, share)

    def part(share: Share, kernel: Any, X: Array, U: Array, V: Array, signs: Array) -> Any:
        def meet(share: Share, turned: Any, visitor: Any, total: Any) -> tuple[Any, Any]:
            Z, P, Q = visitor
            found = cross_slope(kernel, (X, Z), (U, P), (V, Q), signs, share, turned)
            return visitor, jax.tree.map(jnp.add, total, found)

        own = bilinear_slope(kernel, X, U, V, signs, share)
        _, own = _half_round(devices, share, meet, (X, U, V), own)
        return jax.lax.psum(own, "parts")

    return jax.shard_map(
        part, mesh=mesh(devices), in_specs=(_WHOLE, _WHOLE, _PARTS, _COLUMNS, _COLUMNS, _WHOLE),
        out_specs=_WHOLE, check_vma=False,
    )(share, kernel, X, U, V, signs)  # fmt: skip


def _half_round(
    devices: int, share: Share, meet: Meeting, visitor: Any, kept: Any
) -> tuple[Any, Any]:
    """Return the last visitor and what is kept, when every two devices have met.

    Two that stand opposite each other in an even ring meet twice, and make half of the tiles each.
    """
    number, of = share
    me = jax.lax.axis_index("parts")

    def step(distance: Any, carry: Any) -> Any:
        opposite, second = 2 * distance == devices, me >= devices // 2
        halves = jnp.where(opposite, 2, 1)
        turned = opposite & second
        own = number * halves + turned.astype(jnp.int32), of * halves
        return meet(own, turned, _sent(carry[0], devices, -1), carry[1])

    return jax.lax.fori_loop(1, devices // 2 + 1, step, (visitor, kept))


def _sent(tree: Any, devices: int, by: int) -> Any:
    """Return what the device has that stands so many places before this one: each sends it on by as many."""
    pairs = [(k, (k + by) % devices) for k in range(devices)]
    return jax.tree.map(lambda array: jax.lax.ppermute(array, "parts", pairs), tree)
