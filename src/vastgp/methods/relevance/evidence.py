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
