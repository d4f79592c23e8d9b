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

import jax.numpy as jnp
from jaxtyping import Array, Float

from vastgp.likelihoods import Likelihood
from vastgp.solvers.neighbour_systems import (
    batches_apart,
    batches_together,
    solve_and_divergence,
    solve_each,
)
from vastgp.solvers.neighbourhoods import (
    Moments,
    Neighbours,
    conditional_variance,
    local_systems,
    weighted_moments,
)


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


def row_moments(kernel: Any, X: Float[Array, "n d"], near: Neighbours, jitter: Any) -> Moments:
    """Return mean and variance of the function at each row, eq. (13)."""
    K, k = local_systems(kernel, X, near, jitter)
    a = solve_each(K, k)
    return weighted_moments(a, near, conditional_variance(kernel, X, k, a))


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
