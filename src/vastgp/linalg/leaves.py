"""Trees of arrays as vectors, which is how optimisers and samplers take them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def from_vector(vector: Any, like: Any) -> Any:
    """Return the tree whose leaves, of the shapes of another's, lie one after the other in a vector."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([np.size(leaf) for leaf in leaves])
    parts = [
        vector[end - np.size(leaf) : end].reshape(np.shape(leaf))
        for leaf, end in zip(leaves, ends, strict=True)
    ]
    return jax.tree.unflatten(structure, parts)
