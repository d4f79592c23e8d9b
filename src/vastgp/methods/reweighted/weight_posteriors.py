"""Posteriors of the weights of a fixed basis given their prior, from sufficient statistics, on the host.

Targets of several functions, one after the other along the first axis of ``target`` and ``projected``, give as many
means, of shape (C, m); the covariance is the same for all.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from vastgp.linalg.cholesky import factorize
from vastgp.methods.reweighted.evidence import EvidenceData, factor_of


def diagonal_weights(
    data: EvidenceData, log_variances: np.ndarray, log_noise: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance of the weights with ``C = diag(gamma)``: ``gamma^1/2 B^-1 gamma^1/2``."""
    root, noise = np.exp(0.5 * log_variances), float(np.exp(log_noise))
    B = np.asarray(data.gram) * np.outer(root, root) / noise
    factor = factorize(B, 1.0, what="the posterior precision of the weights")
    mean = root * factor.solve((root * np.asarray(data.target)).T).T / noise
    inverse = factor.into_whole_inverse()
    return mean, inverse * np.outer(root, root)


def covariance_weights(
    data: EvidenceData, covariance: np.ndarray, log_noise: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance of the weights with any ``C``: ``C - C F M^-1 F^T C``."""
    F = factor_of(data)
    cross = covariance @ F
    M = F.T @ cross
    factor = factorize(0.5 * (M + M.T), float(np.exp(log_noise)), what="the covariance of the data")
    lower = (np.tril(factor.lower), True)
    mean = cho_solve(lower, np.asarray(data.projected).T).T @ cross.T
    half = solve_triangular(lower[0], cross.T, lower=True)
    return mean, covariance - half.T @ half


def orthonormal_weights(
    data: EvidenceData,
    log_scales: np.ndarray,
    log_noise: float,
    reflections: np.ndarray,
    outside: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance of the weights with the prior of `spectral_evidence`.

    Weights ``w~`` of the orthonormal functions have the mean ``U (b - 1) / b U^T q`` and the covariance
    ``U diag(s^2 g / b) U^T``. Those of the basis are ``w = V s^-1 w~`` and what is orthogonal to the data: the remark
    in section 5.2.2 wants the latter in predictions, as it is all that is uncertain far from the data. Their prior
    variance is ``outside``.
    """
    values, V = np.asarray(data.values), np.asarray(data.vectors)
    rank = len(values)
    own = values**2 * np.exp(log_scales)
    b = 1.0 + own * np.exp(-log_noise)
    U = np.eye(rank)
    for a in reflections[::-1]:  # H_1 H_2 ... H_h
        U -= np.outer(a, (2.0 / (a @ a)) * (a @ U))
    into = (V[:, :rank] / values) @ U
    mean = ((b - 1.0) / b * (np.asarray(data.projected) @ U)) @ into.T
    half = into * np.sqrt(own / b)
    rest = V[:, rank:]
    return mean, half @ half.T + outside * (rest @ rest.T)
