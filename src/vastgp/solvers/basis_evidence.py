"""Log evidence of the model with random features, for few rows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp.bases import PairedBasis
from vastgp.fitting.dual_evidence import DualEvidence
from vastgp.fitting.exact_evidence import ExactEvidence, RowEvidence
from vastgp.kernels import Kernel
from vastgp.solvers.least_squares import BlockedBasis, gram_of_rows, slope_through_features


class _BasisRows(RowEvidence):
    """Rows whose covariance is ``Phi Phi^T`` of random Fourier features.

    Features and their Gram matrix are made in float32, which leaves ``1e-6`` of the variance; factorisations are in
    float64.

    Parameters
    ----------
    X, y
        As in `RowEvidence`.
    basis : PairedBasis
        Its frequencies; its kernel is not used.
    """

    def __init__(self, X: Any, y: Any, basis: PairedBasis) -> None:
        super().__init__(X, y)
        self._narrow_X = jnp.asarray(self._padded_X, jnp.float32)
        self._basis = basis

    def _blocks(self, kernel: Kernel) -> BlockedBasis:
        narrow = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), kernel)
        return BlockedBasis.cut(self._basis.with_kernel(narrow))

    def _covariance(self, kernel: Kernel) -> np.ndarray:
        return np.asarray(gram_of_rows(self._blocks(kernel), self._narrow_X), np.float64)

    def _by_kernel(self, kernel: Kernel, inverse: np.ndarray, weights: np.ndarray) -> Kernel:
        # d log p / d A; the inverse holds one triangle
        upper = np.triu(inverse)
        full = upper + np.triu(inverse, 1).T
        cotangent = 0.5 * (np.outer(weights, weights) - full)
        slope = _pull_back(
            self._blocks(kernel), self._narrow_X, jnp.asarray(cotangent, jnp.float32)
        )
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


@jax.jit
def _pull_back(
    blocks: BlockedBasis, X: Float[Array, "n d"], cotangent: Float[Array, "n n"]
) -> Kernel:
    """Return the gradient of ``<cotangent, Phi Phi^T>``, which is ``2 <cotangent Phi, dPhi>``."""
    return slope_through_features(
        blocks, X, lambda which: 2.0 * (blocks.features(X, which) @ cotangent)
    )
