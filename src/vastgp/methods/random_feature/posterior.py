"""Posterior of the weights of a few thousand random features, with their full covariance."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Float

from vastgp.bases import RandomFourierBasis
from vastgp.solvers.least_squares import BlockedBasis
from vastgp.solvers.weight_space import basis_from_state, basis_to_state


class FeaturePosterior:
    """``w ~ N(mean, sigma^2 A^-1)``, ``A = Phi^T Phi + sigma^2 I = L L^T``.

    Weights are ordered by pairs: cosine and sine of one frequency after another.

    Parameters
    ----------
    basis : RandomFourierBasis
    mean : ndarray of shape (m,)
    factor : ndarray of shape (m, m)
        ``L``.
    noise_variance : float
    """

    def __init__(
        self,
        basis: RandomFourierBasis,
        mean: Float[np.ndarray, " m"],
        factor: Float[np.ndarray, "m m"],
        noise_variance: float,
    ) -> None:
        self.basis, self.weights, self.factor = basis, mean, factor
        self.noise_variance = float(noise_variance)

    def mean(self, X: np.ndarray) -> np.ndarray:
        """Return the posterior mean of the function at the rows of ``X``."""
        return self.weights @ self._features(X)

    def mean_and_latent_variance(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance ``sigma^2 |L^-1 phi|^2`` of the function at the rows of ``X``."""
        phi = self._features(X)
        half = scipy.linalg.solve_triangular(self.factor, phi, lower=True, check_finite=False)
        return self.weights @ phi, self.noise_variance * np.einsum("mn,mn->n", half, half)

    def samples(self, X: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
        """Return joint samples of the function, shape (n, num_samples)."""
        normals = np.random.default_rng(seed).standard_normal((len(self.weights), num_samples))
        half = scipy.linalg.solve_triangular(self.factor, normals, lower=True, trans=1)
        draws = self.weights[:, None] + self.noise_variance**0.5 * half
        return self._features(X).T @ draws

    def _features(self, X: np.ndarray) -> np.ndarray:
        """Return the features at the rows of ``X``, float64, shape (m, n)."""
        dtype = jnp.result_type(*jax.tree.leaves(self.basis.kernel))
        phi = _features(BlockedBasis(self.basis, self.basis.num_pairs), jnp.asarray(X, dtype))
        return np.asarray(phi, np.float64)

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the posterior as JSON-able data and arrays."""
        state, arrays = basis_to_state(self.basis)
        packed = self.factor[np.tril_indices(len(self.factor))]
        arrays |= {"weights": self.weights, "factor": packed}
        return state | {"noise_variance": self.noise_variance}, arrays

    @classmethod
    def from_state(cls, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> FeaturePosterior:
        """Return the posterior that `to_state` described."""
        m = len(arrays["weights"])
        factor = np.zeros((m, m))
        factor[np.tril_indices(m)] = arrays["factor"]
        basis = basis_from_state(state, arrays)
        return cls(basis, arrays["weights"], factor, state["noise_variance"])


@jax.jit
def _features(blocks: BlockedBasis, X: Any) -> Any:
    """Return the features ordered by pairs, (m, n)."""
    phi = blocks.features(X, 0)
    return jnp.swapaxes(phi.reshape(2, -1, len(X)), 0, 1).reshape(phi.shape)
