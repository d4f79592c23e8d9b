"""Sums over all basis functions of an inducing basis, in passes over blocks of its inputs.

A block is a few thousand inputs: with some hundred rows a panel of kernel values stays in cache, and nothing of size
rows x basis functions exists whatever their numbers are.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vastgp.bases.inducing import InducingBasis

# Inputs in a block.
_BLOCK = 4096


class BlockedInputs(eqx.Module):
    """An inducing basis whose inputs are padded to whole blocks; weights of the padding are zero."""

    basis: InducingBasis
    size: int = eqx.field(static=True)
    block: int = eqx.field(static=True)

    @classmethod
    def cut(cls, basis: InducingBasis) -> BlockedInputs:
        """Pad a basis."""
        size = basis.num_basis
        block = min(_BLOCK, size)
        extra = -size % block
        inputs = jnp.concatenate([basis.inputs, basis.inputs[:extra]]) if extra else basis.inputs
        return cls(InducingBasis(basis.kernel, inputs), size, block)

    @property
    def num_blocks(self) -> int:
        """Number of blocks, the last one padded."""
        return self.basis.num_basis // self.block

    def pad(self, v: Float[Array, "*C m"]) -> Float[Array, "*C padded"]:
        """Return values of all inputs with zeros for the padding."""
        return jnp.pad(v, [(0, 0)] * (v.ndim - 1) + [(0, self.basis.num_basis - self.size)])

    def features(self, X: Float[Array, "n d"], which: Any) -> Float[Array, "n b"]:
        """Return the features of a block."""
        return self.basis.kernel(X, self.slice(self.basis.inputs, which))

    def slice(self, v: Float[Array, "padded ..."], which: Any) -> Float[Array, "b ..."]:
        """Return one block of an array along its first axis."""
        return jax.lax.dynamic_slice_in_dim(v, which * self.block, self.block)


def blocked_product(
    blocks: BlockedInputs, X: Float[Array, "n d"], v: Float[Array, " m"]
) -> Float[Array, " n"]:
    """Return ``Phi v`` at the rows of ``X``: for use inside compiled functions."""
    padded = blocks.pad(v)

    def body(which: Any, total: Array) -> Array:
        return total + blocks.features(X, which) @ blocks.slice(padded, which)

    return jax.lax.fori_loop(0, blocks.num_blocks, body, jnp.zeros(X.shape[0], X.dtype))


@jax.jit
def function_values(
    blocks: BlockedInputs, X: Float[Array, "n d"], v: Float[Array, " m"]
) -> Float[Array, " n"]:
    """Return ``Phi v`` at the rows of ``X``."""
    return blocked_product(blocks, X, v)


@jax.jit
def squares_of_features(
    blocks: BlockedInputs, X: Float[Array, "n d"], variances: Float[Array, " m"]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Return ``sum_r phi_r^2 c_rr^2`` and ``sum_r phi_r^2`` in one pass."""
    variances = blocks.pad(variances)
    ones = blocks.pad(jnp.ones(blocks.size, X.dtype))

    def body(which: Any, totals: tuple[Array, Array]) -> tuple[Array, Array]:
        spread, squares = totals
        phi = blocks.features(X, which)
        return (
            spread + phi**2 @ blocks.slice(variances, which),
            squares + phi**2 @ blocks.slice(ones, which),
        )

    zero = jnp.zeros(X.shape[0], X.dtype)
    return jax.lax.fori_loop(0, blocks.num_blocks, body, (zero, zero))


@jax.jit
def squared_norms(
    blocks: BlockedInputs, X: Float[Array, "n d"], weights: Float[Array, " n"]
) -> Float[Array, " padded"]:
    """Return ``sum_l weights_l phi_r(x_l)^2`` of every basis function (and of the padding)."""

    def body(which: Any, total: Array) -> Array:
        part = weights @ blocks.features(X, which) ** 2
        return jax.lax.dynamic_update_slice_in_dim(total, part, which * blocks.block, axis=0)

    start = jnp.zeros(blocks.basis.num_basis, X.dtype)
    return jax.lax.fori_loop(0, blocks.num_blocks, body, start)
