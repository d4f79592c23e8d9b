"""Spectral densities of stationary kernels, as functions of their hyperparameters."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from vastgp.kernels.stationary import RBF, Matern12, Matern32, Matern52

_TWICE_ORDER: dict[type, int] = {Matern12: 1, Matern32: 3, Matern52: 5}


def check_spectral_density(kernel: Any, instead: str = "") -> None:
    """Raise ``ValueError`` for a kernel whose density has no closed form here; ``instead`` is what else would do."""
    if not isinstance(kernel, (RBF, *_TWICE_ORDER)):
        raise ValueError(
            f"kernel={kernel!r} has no spectral density in closed form. Use RBF, Matern12, Matern32 or Matern52"
            f"{instead}."
        )


def log_spectral_density(kernel: Any, frequencies: Float[Array, "b d"]) -> Float[Array, " b"]:
    """Return ``log s(omega)`` with ``k(x, z) = (2 pi)^-d int s(omega) cos(omega^T (x - z)) d omega``.

    RBF: ``s = v (2 pi)^(d/2) prod_i l_i exp(-q / 2)``; Matern of order ``nu``:
    ``s = v 2^d pi^(d/2) Gamma(nu + d/2) (2 nu)^nu / Gamma(nu) prod_i l_i (2 nu + q)^-(nu + d/2)``, with
    ``q = sum_i l_i^2 omega_i^2`` (Rasmussen and Williams 2006, eqs. (4.11) and (4.15), with angular frequencies).

    Raises
    ------
    ValueError
        For a kernel whose density has no closed form here.
    """
    check_spectral_density(kernel)
    d = frequencies.shape[1]
    scales = jnp.broadcast_to(jnp.asarray(kernel.scales, frequencies.dtype), (d,))
    q = jnp.sum((frequencies * scales) ** 2, axis=1)
    amplitude = jnp.log(jnp.asarray(kernel.variance, q.dtype)) + jnp.sum(jnp.log(scales))
    if isinstance(kernel, RBF):
        return amplitude + 0.5 * d * math.log(2.0 * math.pi) - 0.5 * q
    nu = 0.5 * _TWICE_ORDER[type(kernel)]
    constant = (
        d * math.log(2.0) + 0.5 * d * math.log(math.pi) + math.lgamma(nu + 0.5 * d)
        + nu * math.log(2.0 * nu) - math.lgamma(nu)
    )  # fmt: skip
    return amplitude + constant - (nu + 0.5 * d) * jnp.log(2.0 * nu + q)
