"""Log evidence of a linear model under any prior of its weights, at a cost that does not depend on the rows.

``y = Phi w + eps``, ``w ~ N(0, C)``, ``eps ~ N(0, sigma^2 I)`` with a fixed basis: hyperparameters move ``C`` and the
noise alone. Data enter through their sufficient statistics, prepared once. With ``Phi^T Phi = F F^T`` and the
coordinates ``q`` of ``y`` in the span of the features,

    log p(y) = -1/2 [ (y^T y - q^T q) / sigma^2 + q^T (F^T C F + sigma^2 I)^-1 q
                      + log |F^T C F + sigma^2 I| + (n - rank) log sigma^2 + n log(2 pi) ],

which is equation (5.4) of the thesis written so that no matrix is inverted that could be singular. Functions here are
for JAX, inside ``precision("float64")``.
"""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from vastgp.fitting.sufficient_statistics import SufficientStatistics
from vastgp.linalg.cholesky import FactorizationError
from vastgp.linalg.eigen import symmetric_eigen

_LOG_2PI = math.log(2.0 * math.pi)
# Singular values of the features below this share of the largest, squared, are rounding errors of their Gram matrix.
_NULL = 1e-13
# Where the rank is below this share of the basis, a matrix of the size of the rank is factorised, not of the basis.
_LOW_RANK = 0.6


class EvidenceData(eqx.Module):
    """Sufficient statistics, prepared for evaluations of the evidence.

    Attributes
    ----------
    num_rows : scalar Array
        ``n``.
    gram : Array of shape (m, m)
        ``A = Phi^T Phi``.
    target : Array of shape (m,)
        ``r = Phi^T y``, less that of the prior mean.
    square : scalar Array
        ``y^T y``, less that of the prior mean.
    vectors : Array of shape (m, m)
        Eigenvectors of ``A``, right singular vectors of the features; the first ``rank`` belong to ``values``, the
        rest are orthogonal to the data.
    values : Array of shape (rank,)
        Singular values of the features, in descending order.
    projected : Array of shape (rank,)
        ``q``, the coordinates of ``y`` in the left singular vectors.
    residual : scalar Array
        ``y^T y - q^T q``: what no weights explain.
    """

    num_rows: Any
    gram: Any
    target: Any
    square: Any
    vectors: Any
    values: Any
    projected: Any
    residual: Any

    @property
    def num_basis(self) -> int:
        """Number of basis functions ``m``."""
        return int(self.gram.shape[0])

    @property
    def rank(self) -> int:
        """Directions of the weights that the data tell of, at most ``min(m, n)``."""
        return int(self.values.shape[0])

    @property
    def low_rank(self) -> bool:
        """Whether what is factorised has the size of the rank, rather than of the basis."""
        return self.rank <= _LOW_RANK * self.num_basis

    @property
    def factor(self) -> Float[Array, "m k"]:
        """``F`` with ``A = F F^T``."""
        return jnp.asarray(self.vectors)[:, : self.rank] * jnp.asarray(self.values)


def factor_of(data: EvidenceData) -> Float[np.ndarray, "m k"]:
    """Return `EvidenceData.factor` in NumPy."""
    return np.asarray(data.vectors)[:, : data.rank] * np.asarray(data.values)


def prepare(statistics: SufficientStatistics, prior_mean: np.ndarray | None = None) -> EvidenceData:
    """Return what evaluations need of the statistics, in O(m^3) time.

    Parameters
    ----------
    statistics : SufficientStatistics
    prior_mean : ndarray of shape (m,), optional
        ``mu`` of ``w ~ N(mu, C)``: ``r`` becomes ``r - A mu`` and ``y^T y`` becomes
        ``y^T y - 2 r^T mu + mu^T A mu`` (section 5.2.5); what is inferred is ``w - mu``.

    Raises
    ------
    FactorizationError
        When the statistics hold NaN or infinity.
    """
    gram, target, square = statistics.gram, statistics.target, statistics.square
    if not (np.all(np.isfinite(gram)) and np.all(np.isfinite(target)) and np.isfinite(square)):
        raise FactorizationError(
            "the sufficient statistics hold NaN or infinity: the features overflow. Check the hyperparameters of the "
            "basis."
        )
    if prior_mean is not None:
        shift = gram @ prior_mean
        square = square - 2.0 * float(target @ prior_mean) + float(prior_mean @ shift)
        target = target - shift
    values, vectors = symmetric_eigen(gram)
    values, vectors = values[::-1], np.ascontiguousarray(vectors[:, ::-1])
    rank = max(1, min(int(np.sum(values > _NULL * max(values[0], 0.0))), statistics.num_rows))
    roots = np.sqrt(np.maximum(values[:rank], np.finfo(float).tiny))
    projected = (vectors[:, :rank].T @ target) / roots
    residual = max(square - float(projected @ projected), 0.0)
    parts = (float(statistics.num_rows), gram, target, square, vectors, roots, projected, residual)
    return EvidenceData(*(jax.device_put(np.asarray(part, np.float64)) for part in parts))


# ---------------------------------------------------------------- O(m^3)


@jax.custom_vjp
def diagonal_evidence(
    data: EvidenceData, log_variances: Float[Array, " m"], log_noise: Float[Array, ""]
) -> Float[Array, ""]:
    """Return the log evidence with ``C = diag(gamma)``: one factorisation, O(m^3) (section 5.2.1).

    Parameters
    ----------
    data : EvidenceData
    log_variances : Array of shape (m,)
        ``log gamma``, prior variances of the weights.
    log_noise : scalar Array
        ``log sigma^2``.
    """
    return _diagonal(data, log_variances, log_noise)[0]


def _diagonal(data: EvidenceData, log_variances: Array, log_noise: Array) -> tuple:
    """Return the log evidence and its gradient.

    With ``B = I + gamma^1/2 A gamma^1/2 / sigma^2``, ``sigma^2 S + A = sigma^2 S^1/2 B S^1/2``, equation (5.5) becomes

        d / d log gamma_i = 1/2 [ u_i^2 / sigma^4 - (1 - (B^-1)_ii) ],      u = B^-1 gamma^1/2 r,
        d / d log sigma^2 = 1/2 [ ||y - Phi mu||^2 / sigma^2 - (n - m + tr B^-1) ],

    since ``A P^-1 = I - sigma^2 S P^-1``: the product ``P^-1 A`` is never formed.
    """
    noise, root = jnp.exp(log_noise), jnp.exp(0.5 * log_variances)
    if data.low_rank:
        # B^-1 = I - G M^-1 G^T / sigma^2 with G = gamma^1/2 F and M = I + G^T G / sigma^2
        G = data.factor * root[:, None]
        M = jnp.eye(data.rank) + jnp.matmul(G.T, G, precision="highest") / noise
        L = jnp.linalg.cholesky(M)
        half = solve_triangular(L, data.projected, lower=True)
        T = solve_triangular(L, G.T, lower=True)
        misfit = data.residual + half @ half
        u = half @ T
        alpha = solve_triangular(L, half, lower=True, trans=1)
        left = data.residual + alpha @ alpha
        known = jnp.sum(T**2, axis=0) / noise
    else:
        B = jnp.eye(data.num_basis) + data.gram * (root[:, None] * root) / noise
        L = jnp.linalg.cholesky(B)
        right = root * data.target
        half = solve_triangular(L, right, lower=True)
        inverse = solve_triangular(L, jnp.eye(data.num_basis), lower=True)
        u = half @ inverse
        misfit = data.square - half @ half / noise
        left = misfit - u @ u / noise
        known = 1.0 - jnp.sum(inverse**2, axis=0)
    log_det = 2.0 * jnp.sum(jnp.log(jnp.diagonal(L)))
    value = -0.5 * (misfit / noise + log_det + data.num_rows * (_LOG_2PI + log_noise))
    by_variances = 0.5 * (u**2 / noise**2 - known)
    by_noise = 0.5 * (left / noise - (data.num_rows - jnp.sum(known)))
    return value, by_variances, by_noise


def _diagonal_forward(data: EvidenceData, log_variances: Array, log_noise: Array) -> tuple:
    value, by_variances, by_noise = _diagonal(data, log_variances, log_noise)
    return value, (data, by_variances, by_noise)


def _diagonal_backward(kept: tuple, cotangent: Array) -> tuple:
    data, by_variances, by_noise = kept
    return _no_slope(data), cotangent * by_variances, cotangent * by_noise


diagonal_evidence.defvjp(_diagonal_forward, _diagonal_backward)


@jax.custom_vjp
def covariance_evidence(
    data: EvidenceData, covariance: Float[Array, "m m"], log_noise: Float[Array, ""]
) -> Float[Array, ""]:
    """Return the log evidence with any prior covariance ``C`` of the weights, in O(m^3).

    Parameters
    ----------
    data : EvidenceData
    covariance : Array of shape (m, m)
        It may be singular.
    log_noise : scalar Array
    """
    return _covariance(data, covariance, log_noise)[0]


def _covariance(data: EvidenceData, covariance: Array, log_noise: Array) -> tuple:
    """Return the log evidence and its gradient: ``d / dC = 1/2 F (a a^T - M^-1) F^T``, ``a = M^-1 q``."""
    noise, F = jnp.exp(log_noise), data.factor
    M = F.T @ covariance @ F
    M = 0.5 * (M + M.T) + noise * jnp.eye(data.rank)
    L = jnp.linalg.cholesky(M)
    half = solve_triangular(L, data.projected, lower=True)
    alpha = solve_triangular(L, half, lower=True, trans=1)
    T = solve_triangular(L, F.T, lower=True)
    log_det = 2.0 * jnp.sum(jnp.log(jnp.diagonal(L)))
    free = data.num_rows - data.rank
    value = -0.5 * (
        data.residual / noise + half @ half + log_det + free * log_noise + data.num_rows * _LOG_2PI
    )
    through = F @ alpha
    by_covariance = 0.5 * (jnp.outer(through, through) - T.T @ T)
    inverse = solve_triangular(L, jnp.eye(data.rank), lower=True)
    by_noise = 0.5 * (data.residual / noise - free + noise * (alpha @ alpha - jnp.sum(inverse**2)))
    return value, by_covariance, by_noise


def _covariance_forward(data: EvidenceData, covariance: Array, log_noise: Array) -> tuple:
    value, by_covariance, by_noise = _covariance(data, covariance, log_noise)
    return value, (data, by_covariance, by_noise)


def _covariance_backward(kept: tuple, cotangent: Array) -> tuple:
    data, by_covariance, by_noise = kept
    return _no_slope(data), cotangent * by_covariance, cotangent * by_noise


covariance_evidence.defvjp(_covariance_forward, _covariance_backward)


def _no_slope(data: EvidenceData) -> EvidenceData:
    """Return zeros: the data are constants."""
    return jax.tree.map(jnp.zeros_like, data)


# ---------------------------------------------------------------- O(m^2) and O(m)


def spectral_evidence(
    data: EvidenceData,
    reflections: Float[Array, "h k"],
    log_scales: Float[Array, " k"],
    log_noise: Float[Array, ""],
) -> Float[Array, ""]:
    """Return the log evidence with ``S~ = U D U^T``, U a product of Householder reflections (section 5.2.2).

    The basis is turned and scaled to ``phi~_i = sum_j v_ji phi_j / s_i``, orthonormal on the data; its weights have the
    prior covariance ``U D^-1 U^T`` with ``D_ii^-1 = s_i^2 g_i``: without U and with ``g = 1`` that is the prior
    ``w ~ N(0, I)`` itself. Time O(h m), which for all ``h = m`` reflections, any prior at all, is O(m^2).

    Parameters
    ----------
    data : EvidenceData
    reflections : Array of shape (h, rank)
        Normals of the mirrors, of any length.
    log_scales : Array of shape (rank,)
        ``log g``.
    log_noise : scalar Array
    """
    return _orthonormal(data, reflect(reflections, data.projected), log_scales, log_noise)


def orthogonal_evidence(
    data: EvidenceData, log_scales: Float[Array, " k"], log_noise: Float[Array, ""]
) -> Float[Array, ""]:
    """Return the log evidence with ``S~`` diagonal: `spectral_evidence` without reflections, O(m) (section 5.2.3)."""
    return _orthonormal(data, data.projected, log_scales, log_noise)


def _orthonormal(data: EvidenceData, turned: Array, log_scales: Array, log_noise: Array) -> Array:
    # sigma^2 S~ + I = U (b / (b - 1)) U^T with b = 1 + s^2 g / sigma^2
    b = 1.0 + data.values**2 * jnp.exp(log_scales - log_noise)
    misfit = data.residual + jnp.sum(turned**2 / b)
    log_det = jnp.sum(jnp.log(b))
    return -0.5 * (misfit * jnp.exp(-log_noise) + log_det + data.num_rows * (_LOG_2PI + log_noise))


def reflect(reflections: Float[Array, "h k"], vector: Float[Array, " k"]) -> Float[Array, " k"]:
    """Return ``U^T v`` with ``U = H_1 H_2 ... H_h``, ``H = I - 2 a a^T / a^T a``."""

    def mirror(v: Array, a: Array) -> tuple[Array, None]:
        return v - (2.0 * (a @ v) / (a @ a)) * a, None

    return jax.lax.scan(mirror, vector, reflections)[0]
