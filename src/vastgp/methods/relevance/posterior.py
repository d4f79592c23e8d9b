"""The posterior of a relevance vector machine: a few kernel functions and the covariance of their weights."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp.data.archive import above, below
from vastgp.data.tiles import over_tiles
from vastgp.kernels import Kernel, from_spec, to_spec

_TILE = 2048


class RelevancePosterior:
    """Function ``sum_j w_j k(x, z_j)``, ``w ~ N(mean, C C^T)``, in standardised units.

    Parameters
    ----------
    kernel : Kernel
    inputs : ndarray of shape (k, d)
        Relevance vectors; there may be none, and the function is zero.
    mean : ndarray of shape (k,)
    factor : ndarray of shape (k, k)
        ``C``, lower triangular.
    precision : ndarray of shape (k,)
        Prior precisions of the weights.
    """

    def __init__(
        self,
        kernel: Kernel,
        inputs: np.ndarray,
        mean: np.ndarray,
        factor: np.ndarray,
        precision: np.ndarray,
    ) -> None:
        self.kernel = kernel
        self.inputs = inputs
        self.mean_weights = mean
        self.factor = factor
        self.precision = precision

    def mean(self, X: np.ndarray) -> np.ndarray:
        """Return the posterior mean of the function at the rows of ``X``."""
        return self._values(X, self.mean_weights[:, None])[:, 0]

    def mean_and_latent_variance(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return posterior mean and variance of the function at the rows of ``X``."""
        values = self._values(X, np.column_stack([self.mean_weights, self.factor]))
        return values[:, 0], np.sum(values[:, 1:] ** 2, axis=1)

    def samples(self, X: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
        """Return joint samples of the function, shape (n, num_samples): ``Phi (mu + C eps)``, ``eps ~ N(0, I)``."""
        normals = np.random.default_rng(seed).standard_normal((len(self.mean_weights), num_samples))
        return self._values(X, self.mean_weights[:, None] + self.factor @ normals)

    def _values(self, X: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the functions of some weights, float64, by tiles of one size."""
        if len(weights) == 0 or len(X) == 0:
            return np.zeros((len(X), weights.shape[1]))
        Z, W = (jnp.asarray(part, X.dtype) for part in (self.inputs, weights))
        values = partial(_evaluate, self.kernel, Z, W)
        return np.concatenate(list(over_tiles(values, X, most=_TILE))).astype(np.float64)

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the posterior as JSON-able data and arrays."""
        kernel, arrays = to_spec(self.kernel)
        arrays = above("basis/", arrays)
        arrays |= {
            "inputs": self.inputs,
            "mean": self.mean_weights,
            "factor": self.factor,
            "precision": self.precision,
        }
        return {"kernel": kernel}, arrays

    @classmethod
    def from_state(cls, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> RelevancePosterior:
        """Return the posterior that `to_state` described."""
        own = below("basis/", arrays)
        parts = (arrays[name] for name in ("inputs", "mean", "factor", "precision"))
        return cls(from_spec(state["kernel"], own), *parts)


@jax.jit
def _evaluate(
    kernel: Any, Z: Float[Array, "k d"], W: Float[Array, "k c"], X: Float[Array, "n d"]
) -> Float[Array, "n c"]:
    return kernel(X, Z) @ W
