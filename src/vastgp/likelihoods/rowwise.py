"""Methods of likelihoods at many rows: compiled once for all numbers of them, in tiles of bounded memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np

from vastgp.likelihoods.base import Likelihood

# Rows at once: a softmax of ten classes takes 100 MB for these. Fewer are padded to a power of two, so that data of
# similar sizes share compiled code; without it a quadrature is compiled anew at every call, which takes a second.
_TILE, _LEAST = 8192, 16


def by_rows(likelihood: Likelihood, method: str, *arrays: Any) -> Any:
    """Return what a method of the likelihood gives for rows, as NumPy arrays.

    Parameters
    ----------
    likelihood : Likelihood
    method : str
        Of `Likelihood`.
    *arrays : array of shape (*c, n), or None
        Its arguments, rows last.
    """
    n = next(np.shape(array)[-1] for array in arrays if array is not None)
    tile = min(_TILE, max(_LEAST, 1 << (n - 1).bit_length()))
    pieces = []
    for start in range(0, n, tile):
        count = min(tile, n - start)
        some = (_padded(array, slice(start, start + count), tile) for array in arrays)
        found = _compiled(likelihood, method, *some)
        pieces.append(jax.tree.map(lambda part, k=count: np.asarray(part)[..., :k], found))
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis=-1), *pieces)


def _padded(array: Any, rows: slice, size: int) -> Any:
    if array is None:
        return None
    some = np.asarray(array)[..., rows]
    beside = [(0, 0)] * (some.ndim - 1)
    return np.pad(some, [*beside, (0, size - some.shape[-1])], mode="edge")


@partial(jax.jit, static_argnames="method")
def _compiled(likelihood: Likelihood, method: str, *arrays: Any) -> Any:
    return getattr(likelihood, method)(*arrays)
