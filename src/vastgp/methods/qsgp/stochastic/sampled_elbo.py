"""Unbiased estimates of the evidence lower bound from some rows and some basis functions.

The model is ``y = Phi w + noise`` with prior ``w ~ N(0, S^-1)`` and the approximate posterior is
``N(mu, C C^T)``. Eq. (2) of Evans and Nair (2020) splits the bound into three terms,

    ELBO = -1/2 (L_mu + L_Sigma + L_const),

and each function here estimates one of them from a set of rows ``l`` and two sets of basis
functions ``i`` and ``j``. The sets ``i`` and ``j`` must be drawn independently of each other and of
the rows; within a set, sampling without replacement stays unbiased and varies less.

Everything takes plain arrays: the caller gathers the blocks. A ``basis_factor`` is ``m / len(i)``, or
one inverse inclusion probability for each index where some are sampled more often than others.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

Scalar = Float[Array, ""] | float
# One number for all indices of a set, or one for each.
Factor = Float[Array, " b"] | Float[Array, ""] | float


class DensePrior(NamedTuple):
    """A general precision, by its block ``S[j, i]``: unbiased whatever ``S`` is."""

    block: Float[Array, "j i"]

    def quadratic(
        self, v_i: Float[Array, "i r"], v_j: Float[Array, "j r"], factor_i: Factor, factor_j: Factor
    ) -> Float[Array, " r"]:
        # (m / m~)^2 v_j^T S_ji v_i, last term of Theorem 1
        return jnp.sum(weighted(v_j, factor_j) * (self.block @ weighted(v_i, factor_i)), axis=0)


class DiagonalPrior(NamedTuple):
    """A diagonal precision, by its entries at the two sets.

    A single sum needs a single sampled index: ``m / m~ sum_i s_ii v_i^2``, averaged over both sets.
    Theorem 1 as printed would count only indices that happen to be in both, ``m / m~`` times as
    seldom and ``m / m~`` times as heavy.
    """

    at_i: Float[Array, " i"]
    at_j: Float[Array, " j"]

    def quadratic(
        self, v_i: Float[Array, "i r"], v_j: Float[Array, "j r"], factor_i: Factor, factor_j: Factor
    ) -> Float[Array, " r"]:
        return 0.5 * (
            jnp.sum(weighted(self.at_i[:, None] * v_i**2, factor_i), axis=0)
            + jnp.sum(weighted(self.at_j[:, None] * v_j**2, factor_j), axis=0)
        )


def weighted(v: Float[Array, "b r"], factor: Factor) -> Float[Array, "b r"]:
    """Return the rows of ``v`` times their factors."""
    factor = jnp.asarray(factor, dtype=v.dtype)
    return v * (factor[:, None] if factor.ndim else factor)


def sampled_product(
    phi: Float[Array, "n b"], v: Float[Array, "b r"], factor: Factor
) -> Float[Array, "n r"]:
    """Return ``m / m~ Phi_i v_i``, an unbiased estimate of ``Phi v`` at the rows of ``phi``."""
    return phi @ weighted(v, factor)


def mean_objective(
    y: Float[Array, " n"],
    f_i: Float[Array, " n"],
    f_j: Float[Array, " n"],
    prior: Scalar,
    *,
    noise_variance: Scalar,
    row_factor: Scalar,
) -> Float[Array, ""]:
    """Return an unbiased estimate of ``L_mu`` (Theorem 1).

    Parameters
    ----------
    y : Array of shape (n~,)
        Targets of the sampled rows.
    f_i, f_j : Array of shape (n~,)
        Two independent unbiased estimates of ``Phi mu`` at these rows: `sampled_product` of the two
        sets, with or without a control variate subtracted.
    prior : float
        Estimate of ``mu^T S mu``, from `quadratic` of the prior.
    noise_variance : float
        ``sigma^2``.
    row_factor : float
        ``n / n~``.

    Notes
    -----
    The term in ``y`` is averaged over both sets; Theorem 1 uses the first. Same mean, smaller variance,
    and ``L_mu + y^T y / sigma^2`` becomes the product of two residuals.
    """
    # 1/sigma^2 (-2 y^T Phi mu + sum((Phi mu)^2)) + mu^T S mu
    data = jnp.sum(f_i * f_j - y * (f_i + f_j))
    return row_factor / noise_variance * data + prior


def mean_gradient(
    phi_i: Float[Array, "n i"],
    residual_j: Float[Array, "r n"],
    prior_i: Float[Array, "r i"],
    *,
    noise_variance: Scalar,
    row_factor: Scalar,
) -> Float[Array, "r i"]:
    """Return half the gradient of ``L_mu`` by ``mu_i``, unbiased given the set ``i``.

    Differentiating Theorem 1 by ``mu_i`` gives ``m / m~`` times
    ``2 [n / (n~ sigma^2) Phi_i^T (m / m~ Phi_j mu_j - y) + m / m~ S_ij mu_j]``: a residual estimated from
    the *other* set. The factor ``m / m~`` makes up for the entries left at zero; without it this is the
    gradient's own entries at ``i``, which is what a step on these entries wants.

    Parameters
    ----------
    phi_i : Array of shape (n~, m~)
    residual_j : Array of shape (r, n~)
        Unbiased estimates of ``Phi v - target`` that do not depend on the set ``i``, for ``r`` right-hand sides.
    prior_i : Array of shape (r, m~)
        ``(S v)_i`` or an unbiased estimate of it.
    noise_variance, row_factor : float
        As in `mean_objective`.
    """
    return (row_factor / noise_variance) * (residual_j @ phi_i) + prior_i


def covariance_objective(
    h_i: Float[Array, "n r"],
    h_j: Float[Array, "n r"],
    prior: Float[Array, " r"],
    diagonal: Float[Array, " r"],
    *,
    noise_variance: Scalar,
    row_factor: Scalar,
    column_factor: Scalar,
) -> Float[Array, ""]:
    """Return an unbiased estimate of ``L_Sigma`` (Theorem 2).

    Parameters
    ----------
    h_i, h_j : Array of shape (n~, r~)
        Two independent unbiased estimates of ``Phi c_r`` at the sampled rows, one column for each
        sampled column ``r`` of the Cholesky factor.
    prior : Array of shape (r~,)
        Estimates of ``c_r^T S c_r``.
    diagonal : Array of shape (r~,)
        Entries ``c_rr > 0``.
    noise_variance, row_factor : float
        As in `mean_objective`.
    column_factor : float
        Number of columns over number of sampled ones.

    Notes
    -----
    The logarithm stands inside the sum over ``r`` (as printed, the bracket is missing).
    """
    data = row_factor / noise_variance * jnp.sum(h_i * h_j, axis=0)
    return column_factor * jnp.sum(data + prior - 2.0 * jnp.log(diagonal))


def optimal_diagonal(
    gram_diagonal: Float[Array, "*r"],
    prior_diagonal: Float[Array, "*r"] | Scalar,
    noise_variance: Scalar,
) -> Float[Array, "*r"]:
    """Return the entry of a diagonal column that maximises the bound (Proposition 1).

    Parameters
    ----------
    gram_diagonal : Array
        ``phi_r^T phi_r`` over all rows.
    prior_diagonal : Array or float
        ``s_rr``.
    noise_variance : float
    """
    # c_rr = sqrt(sigma^2 / (phi_r^T phi_r + sigma^2 s_rr))
    return jnp.sqrt(noise_variance / (gram_diagonal + noise_variance * prior_diagonal))


def diagonal_objective(
    phi: Float[Array, "n r"],
    diagonal: Float[Array, " r"],
    prior_diagonal: Float[Array, " r"] | float,
    *,
    noise_variance: Scalar,
    row_factor: Scalar,
    column_factor: Factor,
) -> Float[Array, ""]:
    """Return an unbiased estimate of the part of ``L_Sigma`` that comes from diagonal columns.

    Theorem 2 for ``c_r = c_rr e_r``: no sum over basis functions is left to sample.

    Parameters
    ----------
    phi : Array of shape (n~, r~)
        Features of the sampled diagonal columns at the sampled rows.
    diagonal : Array of shape (r~,)
        ``c_rr > 0``; any value gives a valid bound, `optimal_diagonal` the tightest.
    prior_diagonal : Array or float
        ``s_rr``.
    noise_variance, row_factor : float
        As in `mean_objective`.
    column_factor : float or Array of shape (r~,)
        Inverse inclusion probability of the columns.
    """
    curvature = row_factor / noise_variance * jnp.sum(phi**2, axis=0) + prior_diagonal
    return jnp.sum(column_factor * (curvature * diagonal**2 - 2.0 * jnp.log(diagonal)))


def constant_objective(
    y: Float[Array, " n"],
    prior_diagonal: Float[Array, " b"],
    *,
    noise_variance: Scalar,
    row_factor: Scalar,
    basis_factor: Factor,
    num_rows: Scalar | int,
    num_basis: int,
) -> Float[Array, ""]:
    """Return an unbiased estimate of ``L_const`` for a diagonal prior precision (Proposition 2).

    Parameters
    ----------
    y : Array of shape (n~,)
        Targets of the sampled rows.
    prior_diagonal : Array of shape (m~,)
        ``s_ii`` of the sampled basis functions (ones for a whitened basis, whose hyperparameters act
        through the features alone).
    noise_variance, row_factor : float
        As in `mean_objective`.
    basis_factor : float or Array of shape (m~,)
        ``m / m~``.
    num_rows, num_basis : float and int
        ``n`` and ``m``.
    """
    # -m/m~ sum_i log s_ii - m + n log(2 pi sigma^2) + n / (n~ sigma^2) y_l^T y_l
    return (
        -jnp.sum(basis_factor * jnp.log(prior_diagonal))
        - num_basis
        + num_rows * jnp.log(2.0 * jnp.pi * noise_variance)
        + row_factor / noise_variance * jnp.sum(y**2)
    )


def elbo(
    mean: Float[Array, ""], covariance: Float[Array, ""], constant: Float[Array, ""]
) -> Float[Array, ""]:
    """Return the evidence lower bound in nats from its three terms (eq. (2))."""
    return -0.5 * (mean + covariance + constant)
