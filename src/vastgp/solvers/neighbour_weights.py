"""Weights of rows' neighbours where no slope is asked for: on a host its LAPACK solves the systems that XLA makes."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from vastgp import _accelerator
from vastgp.linalg.alone import run_alone
from vastgp.linalg.lapack_pointers import is_available
from vastgp.linalg.small_systems import solve_each_on_host
from vastgp.solvers.neighbour_systems import half_solved, of_parts, solve_each
from vastgp.solvers.neighbourhoods import Neighbours, local_systems


def row_weights(
    kernel: Any, X: Any, Z: Any, present: Any, border: Any, jitter: Any, *, devices: int
) -> tuple[Any, Any]:
    """Return the weights ``a_i`` of each row's neighbours and the prior's variance given them.

    Of several devices each has its part of the rows. Their number is always named: a call without is another program.

    Parameters
    ----------
    kernel : Kernel
    X : array of shape (n, d)
    Z : array of shape (n, h, d)
        The neighbours of each row.
    present : array of bool, shape (n, h)
    border : array of shape (n, d), optional
        See `local_systems`, as is ``jitter``.
    jitter : float, or array of shape (n, h)
    devices : int
    """
    given = kernel, X, Z, present, border, jitter
    if not solved_on_host(devices):
        return _weights(*given, devices=devices)
    K, k, prior = map(np.asarray, _systems(*given))
    a = solve_each_on_host(K, k[..., None])[..., 0]
    return a, np.maximum(prior - np.sum(k * a, axis=1), 0.0)


def row_halves(
    kernel: Any, X: Any, Z: Any, present: Any, jitter: Any, targets: Any, *, devices: int
) -> tuple[Any, Any, Any]:
    """Return ``L_i^-1 y_i`` and ``L_i^-1 k_i`` with the factor of each ``K_i``, and ``k(x_i, x_i)``.

    Parameters are those of `row_weights`, and ``targets`` of shape (n, h).
    """
    given = kernel, X, Z, present, None, jitter
    if not solved_on_host(devices):
        return _halves(targets, *given, devices=devices)
    K, k, prior = map(np.asarray, _systems(*given))
    half = solve_each_on_host(K, np.stack([targets, k], axis=2), half=True)
    return half[..., 0], half[..., 1], prior


def solved_on_host(devices: int) -> bool:
    """Whether LAPACK solves the systems of rows, not the program that makes them."""
    return devices == 1 and not _accelerator.is_present() and is_available()


@jax.jit
def _systems(
    kernel: Any,
    X: Float[Array, "n d"],
    Z: Float[Array, "n h d"],
    present: Bool[Array, "n h"],
    border: Float[Array, "n d"] | None,
    jitter: Any,
) -> tuple[Float[Array, "n h h"], Float[Array, "n h"], Float[Array, " n"]]:
    blank = jnp.zeros((*Z.shape[:2], 1), Z.dtype)
    K, k = local_systems(kernel, X, Neighbours(Z, present, blank, blank, border), jitter)
    return K, k, kernel.diag(X)


@run_alone
@partial(jax.jit, static_argnames="devices")
def _weights(*given: Any, devices: int) -> tuple[Float[Array, "n h"], Float[Array, " n"]]:
    K, k, prior = _systems(*given)
    a = solve_each(K, k, devices)
    return a, jnp.maximum(prior - jnp.sum(k * a, axis=1), 0.0)


@run_alone
@partial(jax.jit, static_argnames="devices")
def _halves(
    targets: Float[Array, "n h"], *given: Any, devices: int
) -> tuple[Float[Array, "n h"], Float[Array, "n h"], Float[Array, " n"]]:
    K, k, prior = _systems(*given)
    half = of_parts(half_solved, devices, K, jnp.stack([targets, k], axis=2))
    return half[..., 0], half[..., 1], prior
