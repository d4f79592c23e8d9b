"""Preconditioned conjugate gradients for several right-hand sides at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

Operator = Callable[[Array], Array]


class CGState(NamedTuple):
    """State of conjugate gradients; every right-hand side (a row) runs with its own step lengths.

    Attributes
    ----------
    solution, residual, direction : Array of shape (C, p)
        ``residual`` is that of the recurrence; see `true_residual`.
    energy : Array of shape (C,)
        ``r^T P^-1 r``, which the next direction needs.
    """

    solution: Float[Array, "C p"]
    residual: Float[Array, "C p"]
    direction: Float[Array, "C p"]
    energy: Float[Array, " C"]


def cg_start(
    solution: Float[Array, "C p"], residual: Float[Array, "C p"], precondition: Operator
) -> CGState:
    """Begin, or begin again, from a solution with a known residual."""
    preconditioned = precondition(residual)
    return CGState(solution, residual, preconditioned, jnp.sum(residual * preconditioned, axis=1))


def cg_update(state: CGState, product: Float[Array, "C p"], precondition: Operator) -> CGState:
    """Take one step along the direction, given its product with the system's matrix.

    A direction without curvature (a converged right-hand side, or the limit of the precision)
    gets a step of zero instead of a division by zero.
    """
    solution, residual, direction, energy = state
    curvature = jnp.sum(direction * product, axis=1)
    step = jnp.where(curvature > 0, energy / jnp.where(curvature > 0, curvature, 1.0), 0.0)
    solution = solution + step[:, None] * direction
    residual = residual - step[:, None] * product
    preconditioned = precondition(residual)
    new_energy = jnp.sum(residual * preconditioned, axis=1)
    ratio = jnp.where(energy > 0, new_energy / jnp.where(energy > 0, energy, 1.0), 0.0)
    return CGState(solution, residual, preconditioned + ratio[:, None] * direction, new_energy)
