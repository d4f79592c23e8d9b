"""Stochastic Lanczos quadrature: the trace of a function of a matrix that is known by its products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp._programs import numbers, program
from vastgp.solvers.cg import lanczos_quadrature


def quadrature_of(
    function: Callable[[np.ndarray], np.ndarray],
    system: Any,
    probes: Float[Array, "C M"],
    num_steps: int,
) -> np.ndarray:
    """Return ``z^T f(A) z`` for every probe, by Gauss quadrature of Lanczos' tridiagonal matrix.

    Golub and Meurant (2010), chapter 7. For probes with ``E[z z^T] = I`` the mean is an unbiased estimate of
    ``tr f(A)``, up to the error of the quadrature, which falls exponentially with the number of steps. The loss of
    orthogonality repeats nodes and leaves the quadrature as it is, so nothing is reorthogonalised.

    Parameters
    ----------
    function : callable
        Of the (positive) eigenvalues.
    system : object with a method ``product``
    probes : Array of shape (C, M)
    num_steps : int

    Returns
    -------
    ndarray of shape (C,)
    """
    size, diagonal, below = (np.asarray(part) for part in _tridiagonal(system, probes, num_steps))
    values = np.empty(len(size))
    for i in range(len(size)):
        # an invariant subspace was found where the off-diagonal vanishes
        tiny = 1e-7 * np.max(np.abs(diagonal[:, i])) if below.dtype == np.float32 else 0.0
        small = np.flatnonzero(below[:-1, i] <= max(tiny, 1e-13 * np.max(np.abs(diagonal[:, i]))))
        steps = int(small[0]) + 1 if small.size else num_steps
        matrix = diagonal[:steps, i].astype(np.float64), below[: steps - 1, i].astype(np.float64)
        values[i] = size[i] * lanczos_quadrature(*matrix, function)
    return values


def _numbers_of_steps(system: Any, probes: Array, num_steps: int) -> int:
    return num_steps * numbers(system, probes)


@program(filtered=True, work=_numbers_of_steps)
def _tridiagonal(system: Any, probes: Array, num_steps: int) -> tuple[Array, Array, Array]:
    """Return ``|z|^2``, and the diagonal and off-diagonal of Lanczos' matrix, shape (steps, C)."""
    square = jnp.sum(probes**2, axis=1)

    def step(carry: tuple[Array, Array, Array], _: None) -> tuple[Any, tuple[Array, Array]]:
        before, now, link = carry
        product = system.product(now) - link[:, None] * before
        diagonal = jnp.sum(now * product, axis=1)
        product = product - diagonal[:, None] * now
        new_link = jnp.sqrt(jnp.sum(product**2, axis=1))
        after = product / jnp.where(new_link > 0, new_link, 1.0)[:, None]
        return (now, after, new_link), (diagonal, new_link)

    start = (
        jnp.zeros_like(probes),
        probes / jnp.sqrt(square)[:, None],
        jnp.zeros_like(square),
    )
    _, (diagonal, below) = jax.lax.scan(step, start, None, length=num_steps)
    return square, diagonal, below
