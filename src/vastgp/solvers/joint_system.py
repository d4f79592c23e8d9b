"""Several functions of the same rows and basis functions, solved together: features are made once for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from vastgp._programs import program
from vastgp.solvers.preconditioners import JointPreconditioner
from vastgp.solvers.row_system import RowSystem, shared_row_product
from vastgp.solvers.systems import Measures, Solution, System


class JointSystem(System):
    """The systems of several functions that differ in their rows' targets and weights.

    Columns are those of the first system, ``[mean, samples]``, then those of the second, and so on.

    Parameters
    ----------
    systems : sequence of RowSystem
        With the same inputs, basis, noise variance and number of samples.
    """

    def __init__(self, systems: Sequence[RowSystem]) -> None:
        self.systems = tuple(systems)
        first = self.systems[0]
        self.basis, self.blocks, self.vector_dtype = first.basis, first.blocks, first.vector_dtype
        self.noise_variance, self.num_rows = first.noise_variance, first.num_rows
        self.precondition = JointPreconditioner(tuple(system.precondition for system in systems))
        # the scale is that of every column
        self.right, self.scale = _joined(
            tuple(system.right for system in systems), tuple(system.scale for system in systems)
        )

    def product(self, V: Array) -> Array:
        """Return every system's product with its columns, in one pass over the basis functions."""
        first = self.systems[0]
        return shared_row_product(self.blocks, first.X, self.scale, first.noise, V)

    def errors(self, measures: Measures) -> np.ndarray:
        """Return the errors of `RowSystem`: first that of the mean that is worst, then those of all samples."""
        errors = super().errors(measures).reshape(len(self.systems), -1)
        return np.concatenate([[np.max(errors[:, 0])], errors[:, 1:].ravel()])

    def weights(self, solution: Array) -> Solution:
        """Return the weights of every function: means (C, 2, P), deviations (C, S, 2, P)."""
        parts = solution.reshape(len(self.systems), -1, solution.shape[1])
        found = [system.weights(part) for system, part in zip(self.systems, parts, strict=True)]
        return jax.tree.map(lambda *each: jnp.stack(each), *found)

    def slopes(self, solution: Array) -> tuple[Any, Any]:
        """Refuse: hyperparameters of several functions are learned on a subset of the rows."""
        raise NotImplementedError("slopes of the evidence of several functions")


@program
def _joined(rights: tuple[Array, ...], scales: tuple[Array, ...]) -> tuple[Array, Array]:
    return jnp.concatenate(rights), jnp.repeat(jnp.stack(scales), len(rights[0]), axis=0)
