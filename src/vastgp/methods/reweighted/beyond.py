"""What a kernel's function is uncertain of beyond the data, where the functions of a basis vanish."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from vastgp._precision import as_dtype
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.fitting.sufficient_statistics import feature_matrix
from vastgp.kernels.stationary import Stationary

# Points on the line towards the data, and lengthscales between them at most.
_POINTS, _SPACING = 12, 0.5
# Noise at a point, at least, relative to the kernel's variance: for matrices that can be factorised.
_LEAST_NOISE = 1e-10
# Waves that samples beyond the data are made of.
_WAVES = 512
_TILE = 4096


@dataclass(frozen=True, eq=False)
class Beyond:
    """An independent function that is zero in the range of the data, and outside as uncertain as the kernel's.

    What the basis lacks of the kernel's prior variance is no measure of it: near the walls that is large among the
    data, too, which tell of it (of 300 rows of a sine it was 80 times the noise variance at some). At a scaled distance
    ``r`` from the range, the kernel's function is known as well as observations on the line towards the data tell,

        c(r) = k(0) - k_r^T (K + sigma^2 I)^-1 k_r,    k_r = k(r + t_j),    K = k(t_i - t_j),

    with one at its end, ``t = 0``, and at every half lengthscale inside. Variance ``c(r) - c(0)`` is what is beyond.

    Attributes
    ----------
    kernel : Stationary
    noise_variance : float
        ``sigma^2``.
    low, high : ndarray of shape (d,)
        Range of the data, in the units of the kernel.
    """

    kernel: Stationary
    noise_variance: float
    low: np.ndarray
    high: np.ndarray

    def variances(self, X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """Return the variance at the rows of ``X``, zero in the range of the data."""
        found = np.zeros(len(X))
        for start in range(0, len(X), _TILE):
            found[start : start + _TILE] = self._of_tile(
                np.asarray(X[start : start + _TILE], float)
            )
        return found

    def _of_tile(self, X: np.ndarray) -> np.ndarray:
        scales = np.broadcast_to(np.asarray(self.kernel.scales, float), self.low.shape)
        away = np.abs(X - np.clip(X, self.low, self.high)) / scales
        distance = np.linalg.norm(away, axis=1)
        found, outside = np.zeros(len(X)), np.flatnonzero(distance > 0.0)
        if not len(outside):
            return found
        r, direction = distance[outside], away[outside] / distance[outside, None]
        # the line ends where it would leave the range on the other side
        spans = (self.high - self.low) / scales
        ends = np.divide(
            spans, direction, out=np.full_like(direction, np.inf), where=direction > 0.0
        )
        spacing = np.minimum(_SPACING, ends.min(axis=1) / (_POINTS - 1))
        t = spacing[:, None] * np.arange(_POINTS)
        noise = self.noise_variance / float(self.kernel.variance) + _LEAST_NOISE
        K = self.kernel.correlation((t[:, :, None] - t[:, None, :]) ** 2) + noise * np.eye(_POINTS)
        both = self.kernel.correlation(np.stack([t, r[:, None] + t], axis=-1) ** 2)
        at_end, beyond = np.sum(both * np.linalg.solve(K, both), axis=1).T
        found[outside] = float(self.kernel.variance) * np.maximum(at_end - beyond, 0.0)
        return found

    def samples(
        self, X: np.ndarray, count: tuple[int, int], generator: np.random.Generator
    ) -> Float[np.ndarray, "C n s"]:
        """Return joint samples of so many functions: deviations times samples of the kernel's correlation."""
        functions, num_samples = count
        seed = int(generator.integers(2**31))
        normals = generator.standard_normal((functions, _WAVES, num_samples))
        deviations = np.sqrt(self.variances(X) / float(self.kernel.variance))
        found = np.zeros((functions, len(X), num_samples))
        outside = np.flatnonzero(deviations)
        if len(outside):
            basis = as_dtype(RandomFourierBasis(self.kernel, seed_key(seed), _WAVES), X.dtype)
            waves = np.asarray(feature_matrix(basis, X[outside]), np.float64)
            found[:, outside] = (deviations[outside, None] * waves) @ normals
        return found
