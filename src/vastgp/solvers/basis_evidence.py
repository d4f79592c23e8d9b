"""Log evidence of the model with random features, for few rows."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import as_dtype, precision
from vastgp._programs import program
from vastgp.bases import PairedBasis
from vastgp.data.padding import pad_rows
from vastgp.fitting.dual_evidence import DualEvidence
from vastgp.fitting.exact_evidence import ExactEvidence, RowEvidence
from vastgp.kernels import Kernel
from vastgp.linalg.cholesky import ToFactorize
from vastgp.solvers.least_squares import (
    BlockedBasis,
    features_made,
    gram_of_rows,
    slope_through_features,
)

# Most rounding of sums in float32, as a root mean square that grows with the root of the rows, of the noise variance:
# eigenvalues are ten times as far off at most.
_MOST_ROUNDING = 0.01


class _BasisRows(RowEvidence):
    """Rows whose covariance is ``Phi Phi^T`` of random Fourier features.

    Features are made in float32, as the block solver makes them, and summed in float64: the sum stays positive
    definite then, however far the variance is above the noise. Where it is not far, float32 sums serve, in less than
    half the time. Slopes that are to vanish need features in float64: rounded ones leave steps in the evidence.

    Parameters
    ----------
    X, y
        As in `RowEvidence`.
    basis : PairedBasis
        Its frequencies; its kernel is not used.
    dtype : {"float32", "float64"}, default "float32"
        Of the features.
    """

    def __init__(self, X: Any, y: Any, basis: PairedBasis, dtype: str = "float32") -> None:
        super().__init__(X, y)
        self._dtype = dtype
        with precision(dtype):
            self._rounded_X = jax.device_put(pad_rows(self.X).astype(dtype))
        self._basis: Any = basis

    def _rounded(self, kernel: Kernel) -> PairedBasis:
        return self._basis.with_kernel(as_dtype(kernel, self._dtype))

    def _sums(self, kernel: Kernel, noise_variance: float) -> str:
        """Return the precision of sums whose rounding is far below the noise."""
        if self._dtype == "float64":
            return self._dtype
        rounding = float(np.finfo(np.float32).eps) * float(kernel.total_variance())
        narrow = rounding * self.num_rows**0.5 <= _MOST_ROUNDING * noise_variance
        return "float32" if narrow else "float64"

    def _covariance(self, kernel: Kernel, noise_variance: float = 0.0) -> np.ndarray:
        sums = self._sums(kernel, noise_variance)
        with precision(sums):
            stored = self._rounded(kernel).stored(self.num_features, self._rounded_X.dtype)
            gram = gram_of_rows(BlockedBasis.cut(stored), self._rounded_X, sums)
        return np.asarray(gram, np.float64)[: self.num_rows, : self.num_rows]

    def _upper(self, kernel: Kernel, noise_variance: float) -> ToFactorize:
        return self._covariance(kernel, noise_variance)

    def _by_kernel(self, kernel: Kernel, inverse: np.ndarray, weights: np.ndarray) -> Kernel:
        # d log p / d A; the inverse holds one triangle
        upper = np.triu(inverse)
        full = upper + np.triu(inverse, 1).T
        extra = len(self._rounded_X) - self.num_rows  # zeros are no part of any gradient
        cotangent = np.pad(0.5 * (np.outer(weights, weights) - full), (0, extra))
        # the inverse is at most one over the noise
        sums = self._sums(kernel, 1.0 / float(np.max(np.diagonal(inverse))))
        with precision(sums):
            blocks = BlockedBasis.cut(self._rounded(kernel))
            slope = _pull_back(blocks, self._rounded_X, jax.device_put(cotangent.astype(sums)))
        return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), slope)


class BasisEvidence(_BasisRows, ExactEvidence):
    """The log evidence of ``y ~ N(0, Phi Phi^T + noise_variance I)`` with random Fourier features.

    It differs from the exact one where there are not many more features than rows. The part of a kernel whose
    correlations reach no other row is a multiple of the identity; with m features its spectrum spreads over ``(1 +-
    sqrt(n / m))^2`` (Marchenko and Pastur 1967), and the model believes that the other rows explain ``n / m`` of it:
    its variance starves. Its own evidence says how much of that the data bear, and shifts that part into the noise.
    As only the ratio matters, a few rows with as many features per row as the whole speak for the whole.
    """


class BasisDualEvidence(_BasisRows, DualEvidence):
    """The evidence lower bound of any likelihood, the function being ``Phi w`` with random Fourier features."""


@program(work=features_made)
def _pull_back(
    blocks: BlockedBasis, X: Float[Array, "n d"], cotangent: Float[Array, "n n"]
) -> Kernel:
    """Return the gradient of ``<cotangent, Phi Phi^T>``, which is ``2 <cotangent Phi, dPhi>``."""

    def of_block(held: BlockedBasis, which: Any) -> Array:
        phi = held.features(X, which).astype(cotangent.dtype)
        return (2.0 * (phi @ cotangent)).astype(X.dtype)

    return slope_through_features(blocks, X, of_block)
