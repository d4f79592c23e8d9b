"""How weights and samples lie on the devices of a process: each has a run of all pairs, and a part of every sample.

Which functions a step has is drawn by their numbers, whatever has them, so that answers do not depend on the number of
devices but by rounding. Each device makes the features of its part of a sample, at all rows; what the sample says of
the rows is the sum. Weights of a sample are read and written where they lie.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Int

from vastgp.data.devices import dealt, layout, mesh
from vastgp.methods.qsgp.stochastic.state import FourierBasis, StochasticPlan, StochasticState
from vastgp.solvers.least_squares import BlockedBasis

# What of the state is as long as the basis.
_LONG = ("mean", "mean_average", "columns", "columns_average", "squares", "column_squares")


def flat(plan: StochasticPlan, values: Float[Array, "*s 2 b"]) -> Float[Array, "*s c"]:
    """Return what belongs to the functions of some pairs: of each device's part cosines first, then sines."""
    *lead, _, b = values.shape
    if plan.devices == 1:
        return values.reshape(*lead, 2 * b)
    split = values.reshape(*lead, 2, plan.devices, b // plan.devices)
    whole = jnp.swapaxes(split, -3, -2).reshape(*lead, 2 * b)
    return dealt(whole, plan.devices, axis=-1)


def by_pairs(plan: StochasticPlan, values: Float[Array, "*s c"]) -> Float[Array, "*s 2 b"]:
    """Return what `flat` was made of."""
    *lead, c = values.shape
    split = values.reshape(*lead, plan.devices, 2, c // (2 * plan.devices))
    return jnp.swapaxes(split, -3, -2).reshape(*lead, 2, c // 2)


def function_order(plan: StochasticPlan, pairs: Int[Array, " b"]) -> Int[Array, " c"]:
    """Return the numbers of the functions of some pairs as `flat` has them; pair ``p`` has ``2 p`` and ``2 p + 1``."""
    return flat(plan, jnp.stack([2 * pairs, 2 * pairs + 1]))


def diagonal_position(plan: StochasticPlan, chosen: Int[Array, " k"]) -> Int[Array, " k"]:
    """Return where in a sample's functions the diagonal entries of dense columns lie: those of its first pairs."""
    each = plan.pair_batch // plan.devices
    pair = chosen // 2
    return (pair // each) * 2 * each + (chosen % 2) * each + pair % each


class _Part(BlockedBasis):
    """A run of the pairs of a basis, which begins with number ``first``, cut into blocks."""

    first: Any
    length: int = eqx.field(static=True)

    @property
    def num_pairs(self) -> int:
        return self.length

    def numbers(self, pairs: Int[Array, " b"]) -> Int[Array, " b"]:
        return self.first + pairs


def over_functions(
    plan: StochasticPlan, function: Callable[..., Array], basis: FourierBasis, *given: Any,
    long: tuple[Array, ...] = (), summed: bool = True,
) -> Array:  # fmt: skip
    """Return ``function(blocks, *given, *long)`` of a whole basis, of which each device does its run.

    Parameters
    ----------
    plan : StochasticPlan
    function : callable
        Of a `BlockedBasis`.
    basis : basis
    *given : arrays
        Whole for all.
    long : tuple of arrays
        With the pairs along their last axis.
    summed : bool, default True
        Whether what it returns is a sum over functions. If not, its last axis are the pairs.
    """
    if plan.devices == 1:
        return function(BlockedBasis.cut(basis), *given, *long)
    length = plan.num_pairs // plan.devices

    def run(basis: FourierBasis, given: tuple[Any, ...], long: tuple[Array, ...]) -> Array:
        block = BlockedBasis.size(length)
        first = jax.lax.axis_index("parts") * length
        found = function(_Part(basis, block, first, length), *given, *long)
        return jax.lax.psum(found, "parts") if summed else found

    last = [PartitionSpec(*[None] * (array.ndim - 1), "parts") for array in long]
    out = PartitionSpec() if summed else PartitionSpec(None, "parts")
    whole = PartitionSpec()
    return jax.shard_map(
        run, mesh=mesh(plan.devices), in_specs=(whole, whole, tuple(last)), out_specs=out, check_vma=False
    )(basis, given, long)  # fmt: skip


def products(
    plan: StochasticPlan, basis: FourierBasis, X: Float[Array, "n d"], *parts: Float[Array, "_ 2 P"]
) -> Float[Array, "n r"]:
    """Return ``Phi w`` of every row of weights in ``parts``, each as long as the basis and copied only to be padded."""
    return over_functions(plan, _products, basis, X, long=parts)


def _products(
    blocks: BlockedBasis, X: Float[Array, "n d"], *parts: Float[Array, "_ 2 P"]
) -> Float[Array, "n r"]:
    padded = [blocks.pad(part) for part in parts]

    def body(which: Any, total: Array) -> Array:
        weights = jnp.concatenate([blocks.take(part, which) for part in padded])
        return total + (weights @ blocks.features(X, which)).T

    start = jnp.zeros((X.shape[0], sum(map(len, parts))), X.dtype)
    return jax.lax.fori_loop(0, blocks.num_blocks, body, start)


def layouts(plan: StochasticPlan, state: StochasticState) -> StochasticState:
    """Return how a state lies on the devices: what is as long as the basis, a run of the pairs on each."""

    def of(name: str, part: Any) -> Any:
        def one(leaf: Any) -> Any:
            long = name in _LONG and leaf.shape[-1] == plan.num_pairs
            return layout(plan.devices, -1 if long else None, leaf.ndim)

        return jax.tree.map(one, part)

    return StochasticState(*map(of, state._fields, state))
