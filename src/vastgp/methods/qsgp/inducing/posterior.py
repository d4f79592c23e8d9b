"""The posterior of a function that is a sum of kernel functions at inducing inputs: its mean, and what it is off by."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp.bases import InducingBasis
from vastgp.data.archive import above, below
from vastgp.data.tiles import over_tiles
from vastgp.kernels import from_spec, to_spec
from vastgp.methods.qsgp.inducing.diagonal_variances import DiagonalVariances
from vastgp.methods.qsgp.inducing.nearest_variances import NearestVariances
from vastgp.methods.qsgp.inducing.objective import BlockedInputs, function_values

# Rows evaluated at a time: a panel of kernel values with one block of inputs stays small.
_TILE = 512

Variances = NearestVariances | DiagonalVariances


class InducingPosterior:
    """Mean of the weights, and variances of the function.

    Parameters
    ----------
    basis : InducingBasis
    mean : Array of shape (m,)
    variances : Variances
    """

    def __init__(
        self, basis: InducingBasis, mean: Float[Array, " m"], variances: Variances
    ) -> None:
        self.basis, self.mean_weights, self.variances = basis, mean, variances
        self._blocks = BlockedInputs.cut(basis)

    @property
    def dense_columns(self) -> int:
        """Number of dense columns of the covariance's factor: none."""
        return 0

    def mean(self, X: np.ndarray) -> np.ndarray:
        """Return the posterior mean of the function at the rows of ``X``."""
        values = partial(function_values, self._blocks, v=self.mean_weights)
        tiles = over_tiles(values, X.astype(self.mean_weights.dtype), most=_TILE)
        return np.concatenate([np.zeros(0), *tiles])

    def mean_and_latent_variance(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return posterior mean and variance of the function at the rows of ``X``."""
        return self.mean(X), self.variances.of(X)

    def samples(self, X: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
        """Return joint samples of the function, shape (n, num_samples)."""
        return self.mean(X)[:, None] + self.variances.draws(X, num_samples, seed)

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the posterior as JSON-able data and arrays; the inducing inputs are among them."""
        kernel, arrays = to_spec(self.basis.kernel)
        state, own = self.variances.to_state()
        arrays = above("basis/", arrays)
        arrays |= {
            "basis/inputs": np.asarray(self.basis.inputs),
            "mean": np.asarray(self.mean_weights),
        }
        return state | {"kernel": kernel}, arrays | own

    @classmethod
    def from_state(cls, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> InducingPosterior:
        """Return the posterior that `to_state` described."""
        own = below("basis/", arrays)
        kernel: Any = jax.tree.map(jnp.asarray, from_spec(state["kernel"], own))
        basis = InducingBasis(kernel, jnp.asarray(own["inputs"]))
        made = NearestVariances if state["variance"] == "nearest" else DiagonalVariances
        variances: Variances = made.from_state(basis, state, arrays)
        return cls(basis, jnp.asarray(arrays["mean"]), variances)
