"""Methods of likelihoods at many rows: compiled once for all numbers of them, in tiles of bounded memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np

from vastgp import _accelerator
from vastgp._programs import numbers, program
from vastgp.data.tiles import over_tiles
from vastgp.likelihoods.base import Likelihood

# Rows at once: a softmax of ten classes takes 100 MB for these. Fewer are padded to a power of two, so that data of
# similar sizes share compiled code; without it a quadrature is compiled anew at every call, which takes a second.
_TILE, _LEAST = 8192, 16
_NODES = Likelihood.nodes_for_each


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
    rows = next(np.shape(array)[-1] for array in arrays if array is not None)
    few = rows * likelihood.num_latent <= likelihood.most_in_numpy
    if method in likelihood.in_numpy and few:
        return getattr(likelihood, method)(*arrays)
    if not rows:
        # of several processes one may have no rows
        empty = jax.eval_shape(getattr(likelihood, method), *arrays)
        return jax.tree.map(lambda part: np.zeros(part.shape, part.dtype), empty)
    compiled = partial(_compiled, likelihood, method)
    # a second of compilation on an accelerator, for next to no work
    with _accelerator.left_out():
        pieces = list(over_tiles(compiled, *arrays, most=_TILE, least=_LEAST, axis=-1))
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis=-1), *pieces)


def nodes_made(*arguments: Any) -> int:
    """Return about how many numbers a method of a likelihood makes of its arguments: nodes of a quadrature for each."""
    first = arguments[0]
    nodes = first.nodes_for_each if isinstance(first, Likelihood) else _NODES
    return nodes * numbers(*arguments)


@program(work=nodes_made, static_argnames="method")
def _compiled(likelihood: Likelihood, method: str, *arrays: Any) -> Any:
    return getattr(likelihood, method)(*arrays)
