"""Random sets of basis functions, drawn in time and memory that do not depend on how many there are."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int


def stratified_indices(key: Array, size: int, first: int, stop: int) -> Int[Array, " size"]:
    """Return ``size`` distinct indices of ``first ... stop - 1``, each equally likely to be in the set.

    One index is drawn from each of ``size`` runs of (nearly) equal length, and the whole is rotated by a random
    amount, which makes the inclusion probabilities exactly equal. Nothing of the length of the range is stored, and
    the set is in order but for the rotation, so that gathers walk forwards through memory.

    Parameters
    ----------
    key : Array
        PRNG key.
    size : int
        At most ``stop - first``; then it is all of them.
    first, stop : int
        The range.
    """
    total = stop - first
    if size >= total:
        return jnp.arange(first, stop, dtype=jnp.int32)
    edges = np.arange(size + 1, dtype=np.int64) * total // size
    starts, lengths = edges[:-1], np.diff(edges)
    rotation_key, offset_key = jax.random.split(key)
    rotation = jax.random.randint(rotation_key, (), 0, total, dtype=jnp.int32)
    offsets = jax.random.randint(
        offset_key, (size,), 0, jnp.asarray(lengths, jnp.int32), dtype=jnp.int32
    )
    position = jnp.asarray(starts, jnp.int32) + offsets
    # position + rotation < 2 total <= 2^31: no overflow
    return first + (position + rotation) % total
