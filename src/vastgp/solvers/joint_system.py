"""Several functions of the same rows and basis functions, solved together: features are made once for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from vastgp.solvers.cg import CGState
from vastgp.solvers.least_squares import gram_product, project
from vastgp.solvers.preconditioners import JointPreconditioner, Preconditioner
from vastgp.solvers.systems import RowSystem, Solution


class JointSystem:
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
        self.blocks, self.vector_dtype = first.blocks, first.vector_dtype
        self.right = jnp.concatenate([system.right for system in systems])
        self.precondition: Preconditioner = JointPreconditioner(
            tuple(system.precondition for system in systems)
        )
        # of every column
        self.scale = jnp.repeat(
            jnp.stack([system.scale for system in systems]), len(first.right), axis=0
        )

    def product(self, V: Array) -> Array:
        """Return every system's product with its columns, in one pass over the basis functions."""
        first = self.systems[0]
        gram = gram_product(self.blocks, first.X, V * self.scale) * self.scale
        return gram + first.noise_variance * V

    def errors(self, state: CGState) -> Array:
        """Return the errors of `RowSystem`: first that of the mean that is worst, then those of all samples."""
        first = self.systems[0]
        size = jnp.linalg.norm(state.residual, axis=1)
        errors = size / jnp.sqrt(first.noise_variance * first.observed.num_rows)
        errors = errors.reshape(len(self.systems), -1)
        return jnp.concatenate([jnp.max(errors[:, :1], axis=0), errors[:, 1:].ravel()])

    def weights(self, solution: Array) -> Solution:
        """Return the weights of every function: means (C, 2, P), deviations (C, S, 2, P)."""
        first = self.systems[0]
        pairs = self.blocks.basis.num_pairs
        W = project(self.blocks, first.X, solution * self.scale).astype(first.X.dtype)
        W = W.reshape(len(self.systems), len(first.right), *W.shape[1:])[..., :pairs]
        prior = jnp.stack([system.prior()[..., :pairs] for system in self.systems])
        return Solution(W[:, 0], prior - W[:, 1:])

    def slopes(self, solution: Array) -> tuple[Any, float]:
        """Refuse: hyperparameters of several functions are learned on a subset of the rows."""
        raise NotImplementedError("slopes of the evidence of several functions")
