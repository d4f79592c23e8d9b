"""Log-determinant and trace of the inverse of a kernel matrix on a grid with gaps, with their derivatives.

Both are sums over eigenvalues, and there are two ways to them: Nystrom's approximation by the eigenvalues of the whole
grid (thesis, section 3.4), and random probes (`vastgp.objectives.grid_probes`), which are unbiased. Derivatives come as
matrices ``G_l`` with ``d value = sum_l <G_l, dK_l> + by_scale d s + by_noise d noise``; no eigendecomposition is needed
beyond that of the value.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vastgp.linalg.kronecker import KroneckerEigen
from vastgp.linalg.selected_spectrum import spectrum_of


class SpectralTerm(NamedTuple):
    """A function of the eigenvalues of ``K_XX + noise I`` and its derivatives.

    Attributes
    ----------
    value : float
    by_factors : tuple of ndarray of shape (m_l, m_l)
        By the unscaled factors ``K_l`` of the kernel matrix.
    by_scale : float
        By the variance that multiplies them.
    by_noise : float
    standard_error : float
        Of the value, 0 where it is no estimate.
    """

    value: float
    by_factors: tuple[np.ndarray, ...]
    by_scale: float
    by_noise: float
    standard_error: float = 0.0


def nystrom_log_determinant(eigen: KroneckerEigen, noise: float, num_observed: int) -> SpectralTerm:
    """Return ``sum_i log(N / M lambda_i + noise)`` over the ``N`` largest eigenvalues of the whole grid (section 3.4).

    Exact without gaps.
    """
    return _nystrom(eigen, noise, num_observed, np.log, lambda x: 1.0 / x)


def nystrom_inverse_trace(eigen: KroneckerEigen, noise: float, num_observed: int) -> SpectralTerm:
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
    by_scale = share * float(slopes @ spectrum) / float(eigen.scale)
    by_values = along_factors(share * float(eigen.scale) * slopes, eigen)
    by_factors = tuple((Q * g) @ Q.T for Q, g in zip(eigen.vectors, by_values, strict=True))
    return SpectralTerm(value, by_factors, by_scale, float(np.sum(slopes)))


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
