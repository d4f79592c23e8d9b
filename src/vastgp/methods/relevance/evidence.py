"""The evidence bound of a relevance vector machine for a set of basis functions, at the best mean and covariance.

``f = Phi w`` with independent weights ``w_i ~ N(0, 1 / s_i)`` (Tipping 2001; Evans and Nair 2020, appendix I.3) and an
approximate posterior ``N(mu, C C^T)``, C a chevron: its first columns are full, the rest hold their diagonal. With
``A = Phi^T Phi / sigma^2 + diag(s)`` every part of the best posterior has a closed form.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, lapack

from vastgp.linalg.cholesky import factorize


class Statistics(NamedTuple):
    """What the bound needs of the data: sums over rows.

    Attributes
    ----------
    gram : ndarray of shape (k, k)
        ``Phi^T Phi``.
    target : ndarray of shape (k,)
        ``Phi^T y``.
    square : float
        ``y^T y``.
    num_rows : int
    """

    gram: np.ndarray
    target: np.ndarray
    square: float
    num_rows: int

    def of(self, keep: np.ndarray) -> Statistics:
        """Return those of some basis functions."""
        return self._replace(gram=self.gram[np.ix_(keep, keep)], target=self.target[keep])


class BestPosterior(NamedTuple):
    """Posterior of highest bound, and the bound.

    Attributes
    ----------
    mean : ndarray of shape (k,)
    factor : ndarray of shape (k, k)
        ``C``, lower triangular.
    determined : ndarray of shape (k,)
        ``gamma_i = 1 - s_i Sigma_ii``: how far the data determine each weight, from 0 to 1.
    residual : float
        ``||y - Phi mu||^2``.
    bound : float
        In nats.
    """

    mean: np.ndarray
    factor: np.ndarray
    determined: np.ndarray
    residual: float
    bound: float


def best_posterior(
    data: Statistics, precision: np.ndarray, noise_variance: float, dense_columns: int | None
) -> BestPosterior:
    """Return mean and chevron covariance of highest bound (eq. (2)), and the bound.

    Column r of C minimises ``c^T A c - 2 log c_rr`` over its entries from r on: for a full column that is
    ``A_rr^-1 e_1 / sqrt(e_1^T A_rr^-1 e_1)`` with the trailing block ``A_rr = A[r:, r:]``, and ``1 / sqrt(A_rr)`` for
    one that holds its diagonal (Proposition 1). The full columns are those of ``L^-1`` with ``A = L^T L``, L lower
    triangular.

    Parameters
    ----------
    data : Statistics
    precision : ndarray of shape (k,)
        ``s``.
    noise_variance : float
    dense_columns : int or None
        Full columns; None: all, which is the exact posterior.
    """
    k = len(precision)
    if k == 0:
        bound = data.square / noise_variance + data.num_rows * np.log(2.0 * np.pi * noise_variance)
        nothing = np.zeros(0)
        return BestPosterior(nothing, np.zeros((0, 0)), nothing, data.square, -0.5 * bound)
    A = data.gram / noise_variance + np.diag(precision)
    # turned around, the usual factor of A is the one that starts at the last row
    turned = factorize(A[::-1, ::-1], what="the precision of the weights")
    mean = cho_solve((turned.lower, True), data.target[::-1] / noise_variance)[::-1]
    inverse, _ = lapack.dtrtri(np.tril(turned.lower), lower=1)
    factor = np.tril(inverse.T[::-1, ::-1])
    full = k if dense_columns is None else min(dense_columns, k)
    if full < k:
        factor = np.hstack([factor[:, :full], np.zeros((k, k - full))])
        rest = np.arange(full, k)
        factor[rest, rest] = 1.0 / np.sqrt(np.diagonal(A)[rest])
    determined = np.clip(1.0 - precision * np.sum(factor**2, axis=1), 1e-12, 1.0)
    residual = data.square - 2.0 * data.target @ mean + mean @ data.gram @ mean
    # the columns' quadratic terms are one each, which cancels against -m of L_const
    twice = (
        residual / noise_variance + mean**2 @ precision - np.sum(np.log(precision))
        - 2.0 * np.sum(np.log(np.diagonal(factor))) + data.num_rows * np.log(2.0 * np.pi * noise_variance)
    )  # fmt: skip
    return BestPosterior(mean, factor, determined, max(float(residual), 0.0), -0.5 * float(twice))


def left_to_gain(
    data: Statistics,
    best: BestPosterior,
    precision: np.ndarray,
    noise_variance: float,
    *,
    noise_is_free: bool,
    most_move: float,
) -> float:
    """Return what the bound has left to gain by a quadratic model in the logarithms of precisions and noise, in nats.

    With ``g`` the slope and ``l`` the curvature along an eigenvector of the Hessian it is the most of
    ``|g| t - 1/2 l t^2`` over ``0 <= t <= most_move``: half the square of the Newton decrement near a maximum, and much
    beside a saddle, which the fixed point leaves slowly.

    With ``d Sigma_ij / d log s_k = -s_k Sigma_ik Sigma_kj``, ``d mu / d log s_k = -s_k mu_k Sigma e_k`` and
    ``d mu / d log sigma^2 = -Sigma S mu``, the Hessian is, at ``P = S^1/2 Sigma S^1/2`` and ``m = S^1/2 mu``,

        H_ij = P_ij^2 / 2 + m_i m_j P_ij - delta_ij (P_ii + m_i^2) / 2,
        H_iv = -(P - P^2)_ii / 2 + m_i (P m)_i,
        H_vv = -||y - Phi mu||^2 / (2 sigma^2) + m^T P m - tr(P - P^2) / 2.

    Covariances of variances are those of the chevron, exact with all or no full columns; those of the mean are
    ``A^-1``, as it is that of the exact posterior.

    Parameters
    ----------
    data, precision, noise_variance
        As in `best_posterior`, which has given ``best``.
    noise_is_free : bool
        Whether no bound holds the noise.
    most_move : float
        How far the model holds, in logarithms.
    """
    k, root = len(precision), np.sqrt(precision)
    weights = root * best.mean
    P = (root[:, None] * best.factor) @ (root[:, None] * best.factor).T
    A = data.gram / noise_variance + np.diag(precision)
    inverse = np.zeros((0, 0))
    if k:
        inverse = factorize(A, what="the precision of the weights").into_whole_inverse()
    of_mean = root[:, None] * inverse * root
    still = np.diagonal(P) - np.sum(P**2, axis=1)
    misfit, together = best.residual / noise_variance, of_mean @ weights
    hessian = np.empty((k + 1, k + 1))
    hessian[:k, :k] = 0.5 * P**2 + np.outer(weights, weights) * of_mean
    hessian[:k, :k] -= np.diag(0.5 * (np.diagonal(P) + weights**2))
    hessian[:k, k] = hessian[k, :k] = weights * together - 0.5 * still
    hessian[k, k] = weights @ together - 0.5 * (misfit + np.sum(still))
    slope = 0.5 * np.append(
        best.determined - weights**2, misfit - data.num_rows + np.sum(best.determined)
    )
    if not noise_is_free:
        hessian, slope = hessian[:k, :k], slope[:k]
    curvature, axes = np.linalg.eigh(-hessian)
    along = np.abs(axes.T @ slope)
    # the maximum inside, or the end
    move = np.where(curvature * most_move > along, along / np.maximum(curvature, 1e-300), most_move)
    return float(np.sum(along * move - 0.5 * curvature * move**2))
