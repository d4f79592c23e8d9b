"""Log-determinant and trace of the inverse of a kernel matrix on a grid with gaps, with their derivatives.

Both are sums over eigenvalues, and there are three ways to them. Two take the eigenvalues of the whole grid: free
compression, and Nystrom's approximation (thesis, section 3.4). Random probes (`vastgp.methods.grid.probes`) are
unbiased. Derivatives come as matrices ``G_l`` with ``d value = sum_l <G_l, dK_l> + by_scale d s + by_noise d noise``;
no eigendecomposition is needed beyond that of the value.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from vastgp.linalg.kronecker import KroneckerEigen
from vastgp.methods.grid.selected_spectrum import spectrum_of

# Of the logarithm that free compression looks for, and how far a bracket reaches beyond what contains it.
_LOG_TOLERANCE, _MARGIN = 1e-12, 1e-6


class Term(NamedTuple):
    """A part of a criterion and its derivatives.

    Attributes
    ----------
    value : float
    by_factors : tuple of ndarray of shape (m_l, m_l)
        By the unscaled factors ``K_l`` of the kernel matrix.
    by_scale : float
        By the variance that multiplies them.
    by_noise : float
    """

    value: float
    by_factors: tuple[np.ndarray, ...]
    by_scale: float
    by_noise: float

    def plus(self, other: Term, times: float = 1.0) -> Term:
        """Return the sum with a multiple of another."""
        both = zip(self.by_factors, other.by_factors, strict=True)
        return Term(
            self.value + times * other.value,
            tuple(ours + times * theirs for ours, theirs in both),
            self.by_scale + times * other.by_scale,
            self.by_noise + times * other.by_noise,
        )


def compressed_log_determinant(
    eigen: KroneckerEigen, noise: float, num_observed: int, excess: np.ndarray | None = None
) -> Term:
    """Return ``sum_i log(lambda_i + w) + N log(N / M) + (M - N) log g``, over all ``M`` eigenvalues of the whole grid.

    The spectrum of ``K_XX`` where the gaps are free of the eigenvectors, in the sense of free probability (Nica and
    Speicher 2006, lecture 14), to which random gaps come near on large grids. Gaps are noise of infinite variance on
    a share ``1 - N / M`` of the points; for a sum of free matrices ``K`` and ``D``,

    ``log|K + D| / M = E log(lambda + w) + E log(d + v) - log(1 / g)``,

    stationary in ``w`` and ``v``, with ``g = E[1 / (lambda + w)] = E[1 / (d + v)] = 1 / (w + v)``. Where ``d`` is the
    noise at observed points and infinite at others, ``v = (N / M) / g - noise``, and one number is left to find:

    ``w = noise + (1 - N / M) / g``, where ``g = E[1 / (lambda + w)]``.

    Where the noise of observed points is ``noise + R_i``, with ``t = noise + v``, it is
    ``sum_i log(lambda_i + w) + sum_i log(R_i + t) + M log g``. As the value is stationary, derivatives take ``w``,
    ``t`` and ``g`` as constant. Exact without gaps and excess, and for multiples of the identity whatever these are.

    Parameters
    ----------
    eigen : KroneckerEigen
    noise : float
        The least of any point.
    num_observed : int
    excess : ndarray of shape (N,), optional
        ``R``. None is zero everywhere.
    """
    spectrum = spectrum_of(eigen)
    size = spectrum.size
    shift, resolvent, least = _compression(spectrum, noise, num_observed, excess)
    shifted = spectrum + shift
    value = float(np.sum(np.log(shifted))) + size * math.log(resolvent)
    value += (
        num_observed * math.log(least) if excess is None else float(np.sum(np.log(excess + least)))
    )
    slopes = np.reciprocal(shifted, out=shifted)
    return _from_slopes(eigen, spectrum, value, slopes, size * resolvent)


def compressed_inverse_trace(eigen: KroneckerEigen, noise: float, num_observed: int) -> Term:
    """Return ``M g`` of `compressed_log_determinant`: its derivative by the noise."""
    spectrum = spectrum_of(eigen)
    size = spectrum.size
    shift, resolvent, _ = _compression(spectrum, noise, num_observed)
    # dg = -E[(d lambda + d w) / (lambda + w)^2], and d w = d noise - (1 - N / M) dg / g^2
    squares = (spectrum + shift) ** -2.0
    mean = float(np.mean(squares))
    gain = 1.0 / (1.0 - (1.0 - num_observed / size) * mean / resolvent**2)
    return _from_slopes(eigen, spectrum, size * resolvent, -gain * squares, -gain * size * mean)


def _compression(
    spectrum: np.ndarray, noise: float, num_observed: int, excess: np.ndarray | None = None
) -> tuple[float, float, float]:
    """Return ``w``, ``g`` and ``t`` of `compressed_log_determinant`.

    With ``u(t) = M / sum_i 1 / (R_i + t)``, which is ``t M / N`` without excess, and ``w(t) = noise + u(t) - t``,
    ``E[u / (lambda + w)] = 1`` has one solution. The left side grows with ``t``: ``u`` is a harmonic mean, concave,
    with a derivative of 1 or more, so that ``u`` and ``w`` grow and ``(t - lambda - noise) / u`` does.
    """
    size = spectrum.size
    if num_observed == size and excess is None:
        resolvent = float(np.mean(1.0 / (spectrum + noise)))
        return noise, resolvent, 1.0 / resolvent

    def mean_noise(t: float) -> float:
        if excess is None:
            return t * size / num_observed
        return size / float(np.sum(1.0 / (excess + t)))

    def off(at: float) -> float:
        t = math.exp(at)
        u = mean_noise(t)
        return u * float(np.mean(1.0 / (spectrum + (noise + (u - t))))) - 1.0

    # the left side is 1 or less at t = noise, as u / (lambda + u) is, and 1 or more at t = noise + E lambda by Jensen's
    # inequality; the latter is the solution where all eigenvalues are equal
    low, high = math.log(noise), math.log(float(np.mean(spectrum)) + noise)
    t = math.exp(brentq(off, low - _MARGIN, high + _MARGIN, xtol=_LOG_TOLERANCE))
    u = mean_noise(t)
    return noise + (u - t), 1.0 / u, t


def nystrom_log_determinant(eigen: KroneckerEigen, noise: float, num_observed: int) -> Term:
    """Return ``sum_i log(N / M lambda_i + noise)`` over the ``N`` largest eigenvalues of the whole grid (section 3.4).

    Exact without gaps. With them the smallest eigenvalues of ``K_XX`` are too large: by interlacing they lie anywhere
    between the ``N``-th and the last of ``K``, and near the last where neighbours were observed together.
    """
    return _nystrom(eigen, noise, num_observed, np.log, lambda x: 1.0 / x)


def nystrom_inverse_trace(eigen: KroneckerEigen, noise: float, num_observed: int) -> Term:
    """Return ``sum_i 1 / (N / M lambda_i + noise)`` over the ``N`` largest eigenvalues (equation (B.9)).

    Exact without gaps.
    """
    return _nystrom(eigen, noise, num_observed, lambda x: 1.0 / x, lambda x: -(x**-2.0))


def _nystrom(eigen, noise, num_observed, function, derivative):  # type: ignore[no-untyped-def]
    spectrum = spectrum_of(eigen)
    share = num_observed / spectrum.size
    values = share * spectrum + noise
    slopes = derivative(values)
    if num_observed < spectrum.size:
        # ties at the threshold are equal, so which of them counts is no matter for the value
        dropped = np.argpartition(spectrum, spectrum.size - num_observed)[
            : spectrum.size - num_observed
        ]
        kept = np.ones(spectrum.size, dtype=bool)
        kept[dropped] = False
        value = float(np.sum(function(values[kept])))
        slopes[dropped] = 0.0
    else:
        value = float(np.sum(function(values)))
    by_noise = float(np.sum(slopes))
    return _from_slopes(eigen, spectrum, value, share * slopes, by_noise)


def _from_slopes(
    eigen: KroneckerEigen, spectrum: np.ndarray, value: float, slopes: np.ndarray, by_noise: float
) -> Term:
    """Return a function of the eigenvalues from its derivatives by every one of them."""
    by_scale = float(slopes @ spectrum) / float(eigen.scale)
    by_values = along_factors(float(eigen.scale) * slopes, eigen)
    vectors = [np.asarray(Q) for Q in eigen.vectors]
    by_factors = tuple((Q * g) @ Q.T for Q, g in zip(vectors, by_values, strict=True))
    return Term(value, by_factors, by_scale, by_noise)


SPECTRAL_TERMS = {
    "free-compression": (compressed_log_determinant, compressed_inverse_trace),
    "nystrom": (nystrom_log_determinant, nystrom_inverse_trace),
}


def along_factors(weights: np.ndarray, eigen: KroneckerEigen) -> list[np.ndarray]:
    """Return, for every factor, ``sum_i w_i d(prod_k t_k,i_k) / d t_l,j`` over all points ``i`` of the grid.

    With ``d t_l,j = q_lj^T dK_l q_lj`` that is all that derivatives by the factors need.
    """
    tensor = np.asarray(weights, dtype=np.float64).reshape(eigen.shape)
    result = []
    for axis in range(tensor.ndim):
        rest = tensor
        # from the last dimension to the first, all but this one are summed away
        for other in reversed(range(tensor.ndim)):
            if other != axis:
                rest = np.tensordot(rest, np.asarray(eigen.values[other]), axes=(other, 0))
        result.append(rest)
    return result
