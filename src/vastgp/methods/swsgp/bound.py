r"""The bound of sparse-within-sparse Gaussian processes: each row sees the H inducing inputs nearest to it.

Tran, Milios, Michiardi and Filippone (2021), "Sparse within sparse Gaussian processes using neighbor information",
eqs. (10) to (13). Row ``i`` has the neighbourhood ``Z_i`` of H inducing inputs, the variables ``u_i`` there have
``q(u_i) = N(m_i, S_i)``, rows and columns of one mean and one covariance, and

    f_i ~ N(a_i^T m_i,  k(x_i, x_i) - k_i^T a_i + a_i^T S_i a_i),    a_i = K_i^-1 k_i                            (13)

with ``K_i = k(Z_i, Z_i)`` and ``k_i = k(Z_i, x_i)``. All rows of a minibatch are done at once.

Two ways to count the prior are here. The paper's takes the divergence of each row's neighbourhood and averages it over
the rows (11). As neighbourhoods depend on the row, that bounds no evidence (``docs/errata.md``), and each inducing
variable's prior counts ``H / M`` times. The other is that of a prior which can be written down (Vecchia 1988; Wu,
Pleiss and Cunningham 2022): inducing inputs stand in an order, and each depends on its H nearest predecessors alone,

    p(u) = prod_j N(u_j | a_j^T u_j',  v_j),    v_j = k(z_j, z_j) - k_j^T a_j.

Its divergence is a sum over inducing inputs, and the whole a bound of the evidence. With H = M both are SVGP's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from vastgp.kernels.metric import falling_part
from vastgp.likelihoods import Likelihood
from vastgp.methods.swsgp.neighbour_systems import (
    batches_apart,
    batches_together,
    solve_and_divergence,
    solve_each,
)

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


class Inducing(NamedTuple):
    """Some inducing inputs and their variables.

    Attributes
    ----------
    Z : Array of shape (J, d)
    mean : Array of shape (J, C)
    spread : Array of shape (J, C), or (J, C, M)
        As in `Neighbours`.
    innovation : Array of shape (J, C)
        ``log s_j``, or ``log L_jj^2``: logarithms whose sum is ``log |S|``.
    """

    Z: Float[Array, "J d"]
    mean: Float[Array, "J C"]
    spread: Float[Array, "J C"] | Float[Array, "J C M"]
    innovation: Float[Array, "J C"]


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


def row_moments(kernel: Any, X: Float[Array, "n d"], near: Neighbours, jitter: Any) -> Moments:
    """Return mean and variance of the function at each row, eq. (13)."""
    K, k = local_systems(kernel, X, near, jitter)
    a = solve_each(K, k)
    return weighted_moments(a, near, conditional_variance(kernel, X, k, a))


def conditional_variance(kernel: Any, X: Array, k: Array, a: Array) -> Array:
    """Return the prior's variance at each row given its neighbours, by ``k_i`` and the weights ``a_i``."""
    return jnp.maximum(kernel.diag(X) - jnp.sum(k * a, axis=1), 0.0)


def moments_and_divergences(
    kernel: Any, X: Float[Array, "n d"], near: Neighbours, jitter: Any, devices: int = 1
) -> tuple[Moments, Float[Array, " n"]]:
    """Return eq. (13) at each row and ``KL(q(u_i) || p(u_i))`` of its neighbourhood, summed over functions."""
    K, k = local_systems(kernel, X, near, jitter)
    functions = near.mean.shape[2]
    held = jnp.where(near.present[:, :, None], near.mean, 0.0)
    B = jnp.einsum("nic,njc->nij", held, held)
    identity = jnp.eye(K.shape[1], dtype=K.dtype)
    if near.spread.ndim == 3:
        # absent neighbours have the variance one that their place in K has: nothing diverges there
        variances = jnp.where(near.present[:, :, None], near.spread, 1.0)
        B = B + identity * jnp.sum(variances, axis=2)[:, None, :]
        S = K[:0]
    else:
        rows = jnp.where(near.present[:, :, None, None], near.spread, 0.0)
        S = jnp.einsum("nicm,njcm->ncij", rows, rows)
        absent = jnp.where(near.present, 0.0, 1.0)[:, None, None, :]
        S = S + identity * absent
        B = B + jnp.sum(S, axis=1)
        S = S.reshape(-1, *K.shape[1:])
    a, trace, log_determinant, logs = solve_and_divergence(K, k, B, S, devices)
    if near.spread.ndim == 3:
        entropy = jnp.sum(jnp.log(variances), axis=(1, 2))
    else:
        entropy = logs.reshape(len(X), -1).sum(axis=1)
    # KL(N(m, S) || N(0, K)) = 1/2 [tr(K^-1 (S + m m^T)) - H + log |K| - log |S|]
    size = functions * K.shape[1]
    divergence = 0.5 * (trace - size + functions * log_determinant - entropy)
    return weighted_moments(a, near, conditional_variance(kernel, X, k, a)), divergence


def moments_and_ordered_divergences(
    kernel: Any,
    X: Float[Array, "n d"],
    near: Neighbours,
    own: Inducing,
    predecessors: Neighbours,
    jitter: Any,
    devices: int = 1,
) -> tuple[Moments, Float[Array, " J"]]:
    """Return `row_moments` and the divergences of inducing variables of the ordered prior, solved as one batch.

    Two batches do not depend on each other, and XLA's CPU executor begins both: each waits for threads that the other
    has, for ever where there are two (JAX 0.10.2). Over several devices each has its part of both.
    """
    of_rows = local_systems(kernel, X, near, jitter)
    of_own = local_systems(kernel, own.Z, predecessors, jitter)
    K, k_both = (batches_together(*each, devices) for each in zip(of_rows, of_own, strict=True))
    a, a_own = batches_apart(solve_each(K, k_both, devices), len(X), devices)
    k, k_own = of_rows[1], of_own[1]
    moments = weighted_moments(a, near, conditional_variance(kernel, X, k, a))
    return moments, _ordered_divergences(kernel, own, predecessors, jitter, k_own, a_own)


def _ordered_divergences(
    kernel: Any, own: Inducing, predecessors: Neighbours, jitter: Any, k: Array, a: Array
) -> Float[Array, " J"]:
    """Return the divergence that each inducing variable adds, given its nearest predecessors.

    ``E_q[log q(u_j | before) - log N(u_j | a^T u', v)]``, summed over functions. The sum over all inducing inputs is
    ``KL(q(u) || p(u))``.
    """
    # an inducing variable has jitter of its own, as on the diagonal of K: the prior is the same one
    v = conditional_variance(kernel, own.Z, k, a) + jitter * kernel.total_variance()
    mean = own.mean - jnp.einsum("nh,nhc->nc", a, predecessors.mean)
    if own.spread.ndim == 2:
        # Var[u_j - a^T u'] of a diagonal S
        spread = own.spread + jnp.einsum("nh,nhc->nc", a**2, predecessors.spread)
    else:
        # rows of L: (L_j - a^T L') (L_j - a^T L')^T
        rest = own.spread - jnp.einsum("nh,nhcm->ncm", a, predecessors.spread)
        spread = jnp.sum(rest**2, axis=2)
    v = v[:, None]
    return 0.5 * jnp.sum((mean**2 + spread) / v - 1.0 + jnp.log(v) - own.innovation, axis=1)


def expected_log_likelihoods(
    likelihood: Likelihood, y: Float[Array, " n"] | Float[Array, "n 3"], moments: Moments
) -> Float[Array, " n"]:
    """Return ``E_q[log p(y_i | f_i)]`` of each row."""
    mean, variance = moments.mean, moments.variance
    if likelihood.num_latent == 1:
        mean, variance = mean[0], variance[0]
    return likelihood.expected_log_prob(y, mean, variance)
