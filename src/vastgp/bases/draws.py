"""Standard normals of any random feature, regenerated from (seed, index).

Nothing here is stored: feature number ``p`` is a pure function of the seed and ``p``, the same
whatever else is asked for and in whatever order.
"""

from __future__ import annotations

import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from vastgp import _accelerator

KINDS = ("plain", "orthogonal", "qmc")

# Streams of one seed, so that directions, lengths and scrambles never share a key.
_NORMALS, _ROTATION, _SCRAMBLE = 0, 1, 2
# Numbers of rotations that an accelerator draws together.
_NUMBERS_AT_ONCE = 1 << 24


def typed_key(data: Any) -> Array:
    """Return the PRNG key of stored key data (uint32, shape (2,)), always threefry.

    Threefry alone gives every index its own value independent of the batch it is drawn in;
    the process-wide default may be another generator.
    """
    return jax.random.wrap_key_data(jnp.asarray(data, dtype=jnp.uint32), impl="threefry2x32")


def purpose_key(data: Any, purpose: str) -> Array:
    """Return the key that a seed has for one purpose: none of its features has it, nor any other purpose.

    Parameters
    ----------
    data : uint32 array of shape (2,)
        From `seed_key`.
    purpose : str
        A name; features fold the small numbers of their terms into the same seed.
    """
    return jax.random.fold_in(typed_key(data), np.uint32(zlib.crc32(purpose.encode())))


def index_keys(key: Array, indices: Int[Any, " b"]) -> Array:
    """Return one key for each index."""
    return jax.vmap(lambda i: jax.random.fold_in(key, i))(indices)


def standard_normals(
    kind: str,
    key: Array,
    indices: Int[Array, " b"],
    num_directions: int,
    num_auxiliary: int,
    dtype: Any,
    *,
    span: int | None = None,
    first_dimension: int = 0,
) -> tuple[Float[Array, "b d"], Float[Array, "b a"]]:
    """Return the Gaussian direction and the auxiliary normals of each index.

    Parameters
    ----------
    kind : {"plain", "orthogonal", "qmc"}
        ``"plain"`` draws independent normals. ``"orthogonal"`` makes each run of ``d`` consecutive
        indices mutually orthogonal (Yu et al. 2016), which lowers the error of the kernel when
        ``d`` is more than a few. ``"qmc"`` maps a scrambled Halton sequence through the normal
        quantile (Yang et al. 2014), best for few inputs.
    key : Array
        Typed PRNG key.
    indices : Array of shape (b,)
        Which features.
    num_directions, num_auxiliary : int
        Numbers of normals for the direction and beside it.
    span : int, optional
        How far the last of ascending indices is from the first at most, where that is known: each rotation is drawn
        once then. Without it one is drawn for every index, ``O(d^3)`` each.
    first_dimension : int, default 0
        Of the Halton sequence. What is to be independent of other normals of the same indices has dimensions that they
        do not have: other shifts of the same digits are not independent, however many indices there are.
    """
    if kind == "qmc":
        points = _halton(key, indices, first_dimension, num_directions + num_auxiliary, dtype)
        normals = jax.scipy.special.ndtri(points)
        return normals[:, :num_directions], normals[:, num_directions:]
    keys = index_keys(jax.random.fold_in(key, _NORMALS), indices)
    width = num_directions + num_auxiliary
    normals = jax.vmap(lambda k: jax.random.normal(k, (width,), dtype=dtype))(keys)
    directions, auxiliary = normals[:, :num_directions], normals[:, num_directions:]
    if kind == "orthogonal":
        directions = _orthogonal(key, indices, directions, span)
    return directions, auxiliary


def _orthogonal(
    key: Array, indices: Int[Array, " b"], normals: Float[Array, "b d"], span: int | None
) -> Float[Array, "b d"]:
    """Return rows of random rotations with the lengths of ``normals``.

    Index ``p`` takes row ``p mod d`` of rotation ``p // d``; the length of an independent normal
    vector gives each row the chi distribution that a Gaussian direction has.
    """
    d = normals.shape[1]
    # On the host one after the other: two batches of factorisations at once, of two kernels, wait for each other's
    # threads for ever on two cores. Of a thousand inputs each takes 8 MB, and as much again for its factors.
    at_once = max(_NUMBERS_AT_ONCE // d**2, 1) if _accelerator.is_present() else None
    runs, rotation_key = indices // d, jax.random.fold_in(key, _ROTATION)

    def rotation(k: Array) -> Array:
        q, r = jnp.linalg.qr(jax.random.normal(k, (d, d), dtype=normals.dtype))
        # Signs of the diagonal of R make Q uniform over rotations (Mezzadri 2007).
        return q * jnp.where(jnp.diagonal(r) < 0, -1.0, 1.0).astype(q.dtype)

    if span is None:
        each = index_keys(rotation_key, runs), indices % d
        directions = jax.lax.map(lambda own: rotation(own[0])[:, own[1]], each, batch_size=at_once)
    else:
        drawn = runs[0] + jnp.arange(span // d + 2)
        rotations = jax.lax.map(rotation, index_keys(rotation_key, drawn), batch_size=at_once)
        directions = rotations[runs - runs[0], :, indices % d]
    return directions * jnp.linalg.norm(normals, axis=1, keepdims=True)


def _halton(
    key: Array, indices: Int[Array, " b"], first: int, num_dimensions: int, dtype: Any
) -> Float[Array, "b D"]:
    """Return some dimensions of a Halton sequence with random digit shifts, strictly inside (0, 1)."""
    scramble = jax.random.fold_in(key, _SCRAMBLE)
    tiny = jnp.asarray(jnp.finfo(dtype).eps, dtype)
    columns = []
    for dimension, base in enumerate(_primes(first + num_dimensions)[first:]):
        digits = int(np.ceil(24 * np.log(2) / np.log(base)))
        shifts = jax.random.randint(
            jax.random.fold_in(scramble, dimension), (digits,), 0, base, dtype=jnp.int32
        )
        rest, weight = indices.astype(jnp.int32), 1.0 / base
        value = jnp.zeros(indices.shape, dtype=dtype)
        for place in range(digits):
            value = value + ((rest + shifts[place]) % base).astype(dtype) * jnp.asarray(
                weight, dtype
            )
            rest, weight = rest // base, weight / base
        columns.append(jnp.clip(value, tiny, 1.0 - tiny))
    return jnp.stack(columns, axis=1)


def _primes(count: int) -> list[int]:
    found: list[int] = []
    candidate = 2
    while len(found) < count:
        if all(candidate % p for p in found if p * p <= candidate):
            found.append(candidate)
        candidate += 1
    return found
