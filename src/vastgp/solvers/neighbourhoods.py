r"""Neighbourhoods: a row, the inputs nearest to it, and what the prior makes of the variables there.

Row ``i`` sees the inputs ``Z_i``. With ``K_i = k(Z_i, Z_i)`` and ``k_i = k(Z_i, x_i)`` its function value is

    f_i = a_i^T u_i + e_i,    a_i = K_i^-1 k_i,    Var e_i = k(x_i, x_i) - k_i^T a_i.

All rows of a minibatch are done at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from vastgp.kernels.metric import falling_part

# Share of the way to the border from which on a neighbour's weight fades.
_FADES_FROM = 0.5


class Neighbours(NamedTuple):
    """The inducing inputs that each of ``n`` rows sees, and their variables' mean and spread.

    Attributes
    ----------
    Z : Array of shape (n, H, d)
    present : Array of shape (n, H)
        False where a row has fewer neighbours: what stands there plays no part.
    mean : Array of shape (n, H, C)
        Of each of C functions.
    spread : Array of shape (n, H, C), or (n, H, C, M)
        Variances of a diagonal covariance, or rows of the lower factor of a full one, ``S = L L^T``.
    border : Array of shape (n, d), optional
        The nearest input that a row does not see. Given, a neighbour's weight fades as it gets there.
    """

    Z: Float[Array, "n h d"]
    present: Bool[Array, "n h"]
    mean: Float[Array, "n h C"]
    spread: Float[Array, "n h C"] | Float[Array, "n h C M"]
    border: Float[Array, "n d"] | None = None


class Moments(NamedTuple):
    """Mean and variance of each function at each row, (C, n), and the prior's variance given the neighbours, (n,)."""

    mean: Float[Array, "C n"]
    variance: Float[Array, "C n"]
    conditional: Float[Array, " n"]


def local_systems(
    kernel: Any, X: Float[Array, "n d"], near: Neighbours, jitter: Any
) -> tuple[Float[Array, "n h h"], Float[Array, "n h"]]:
    """Return ``K_i`` and ``k_i`` of each row; the identity and zero where neighbours are absent.

    ``jitter``, relative to the prior variance, is that of all neighbours, or of each: (n, h).

    With a border, ``K_i`` has what variance of noise fades each neighbour out on its diagonal: none up to half the way
    to the border, infinite there. Weights are then continuous functions of ``x`` also where a neighbour is replaced.
    """
    size = near.present.shape[1]
    K = jax.vmap(lambda z: kernel(z, z))(near.Z)
    k = jax.vmap(lambda x, z: kernel(x[None], z)[0])(X, near.Z)
    scale = kernel.total_variance()
    added = jnp.broadcast_to(jnp.asarray(jitter * scale, X.dtype), near.present.shape)
    if near.border is not None:
        added = added + scale * fading(kernel, X, near)
    both = near.present[:, :, None] & near.present[:, None, :]
    identity = jnp.eye(size, dtype=X.dtype)
    K = jnp.where(both, K, 0.0) + identity * jnp.where(near.present, added, 1.0)[:, None, :]
    return K, jnp.where(near.present, k, 0.0)


def fading(kernel: Any, X: Float[Array, "n d"], near: Neighbours) -> Float[Array, "n h"]:
    """Return the variance of noise, relative to the prior's, that fades out neighbours near the border."""
    assert near.border is not None
    falling = falling_part(kernel)
    variance = falling.total_variance()

    def distance(x: Array, z: Array) -> Array:
        # the kernel's own: 1 - correlation grows with the distance
        return 1.0 - falling(x[None], z)[0] / variance

    r = jax.vmap(distance)(X, near.Z)
    edge = jax.vmap(distance)(X, near.border[:, None, :])
    tiny = jnp.finfo(X.dtype).tiny
    share = jnp.clip((r / (edge + tiny) - _FADES_FROM) / (1.0 - _FADES_FROM), 0.0, 1.0)
    # t^2 / (1 - t): smooth from zero, infinite at the border; a number beyond all others in its place
    return jnp.minimum(share**2 / jnp.maximum(1.0 - share, 1e-8), 1e6)


def weighted_moments(
    a: Float[Array, "n h"], near: Neighbours, conditional: Float[Array, " n"]
) -> Moments:
    """Return the moments of ``a_i^T u_i`` plus independent noise of the conditional variance."""
    mean = jnp.einsum("nh,nhc->cn", a, near.mean)
    if near.spread.ndim == 3:
        spread = jnp.einsum("nh,nhc->cn", a**2, near.spread)
    else:
        # a^T L L^T a
        spread = jnp.sum(jnp.einsum("nh,nhcm->cnm", a, near.spread) ** 2, axis=2)
    return Moments(mean, spread + conditional, conditional)


def conditional_variance(kernel: Any, X: Array, k: Array, a: Array) -> Array:
    """Return the prior's variance at each row given its neighbours, by ``k_i`` and the weights ``a_i``."""
    return jnp.maximum(kernel.diag(X) - jnp.sum(k * a, axis=1), 0.0)
