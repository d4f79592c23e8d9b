"""The posterior of the weights of an inducing basis, with a basis function added at every test input."""

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
from vastgp.methods.qsgp.inducing.objective import BlockedInputs, function_values, moments
from vastgp.solvers.prior_draws import PriorDraws

# Rows evaluated at a time: a panel of kernel values with one block of inputs stays small.
_TILE = 512


class InducingPosterior:
    """Mean and diagonal covariance of the weights, and the augmentation of the predictive variance.

    Parameters
    ----------
    basis : InducingBasis
    mean : Array of shape (m,)
    diagonal : Array of shape (m,)
        ``c_rr`` of the covariance's Cholesky factor.
    noise_variance : float
    augment : bool
        Whether a basis function is added at each test input (Proposition 4): far from all rows the variance is then
        the prior's, instead of zero.
    rows : Array of shape (s, d), optional
        Rows that stand for the training rows in the augmentation; None: the inducing inputs, which are among them.
    num_rows : int
        Number of training rows.
    """

    def __init__(
        self,
        basis: InducingBasis,
        mean: Float[Array, " m"],
        diagonal: Float[Array, " m"],
        *,
        noise_variance: float,
        augment: bool,
        num_rows: int,
        rows: Float[Array, "s d"] | None = None,
    ) -> None:
        self.basis = basis
        self.mean_weights = mean
        self.diagonal = diagonal
        self.noise_variance = float(noise_variance)
        self.augment = bool(augment)
        self.num_rows = int(num_rows)
        self.rows = rows
        self._blocks = BlockedInputs.cut(basis)
        self._row_blocks = (
            None if rows is None else BlockedInputs.cut(InducingBasis(basis.kernel, rows))
        )

    @property
    def dense_columns(self) -> int:
        """Number of dense columns of the covariance's factor: none."""
        return 0

    def mean(self, X: np.ndarray) -> np.ndarray:
        """Return the posterior mean of the function at the rows of ``X``."""
        return self._values(X, self.mean_weights)

    def mean_and_latent_variance(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return posterior mean and variance of the function at the rows of ``X``."""
        mean, variance, added = self._moments(X)
        return mean, variance + added

    def _moments(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return mean, variance without augmentation, and what augmentation adds."""
        mean, variance, squares = self._sums(
            X, self._blocks, self.mean_weights, np.square(self.diagonal)
        )
        if not self.augment:
            return mean, variance, np.zeros(len(X))
        seen = self.basis.num_basis
        if self._row_blocks is not None:
            ones = np.ones(self._row_blocks.size, self.mean_weights.dtype)
            squares = self._sums(X, self._row_blocks, ones, ones)[2]
            seen = self._row_blocks.size
        prior, noise = float(self.basis.kernel.total_variance()), self.noise_variance
        # Proposition 4: sigma^2 k(x, x)^2 / (k(x)^T k(x) + sigma^2 k(x, x)), k(x) at the training rows
        squares = squares * (self.num_rows / seen)
        return mean, variance, noise * prior**2 / (squares + noise * prior)

    def samples(self, X: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
        """Return joint samples of the function, shape (n, num_samples).

        ``Phi (mu + c * eps)``, ``eps ~ N(0, I)``, and for the augmentation a draw of the prior scaled at every row to
        the variance that is added there: the functions at close inputs are not independent of each other.
        """
        generator = np.random.default_rng(seed)
        draws = []
        for _ in range(num_samples):
            normals = generator.standard_normal(self.diagonal.shape)
            weights = self.mean_weights + self.diagonal * jnp.asarray(normals, self.diagonal.dtype)
            draws.append(self._values(X, weights))
        drawn = np.stack(draws, axis=1)
        if not self.augment:
            return drawn
        kernel = self.basis.kernel
        share = np.sqrt(self._moments(X)[2] / float(kernel.total_variance()))
        prior = PriorDraws(kernel, num_samples, X.shape[1], generator)
        return drawn + share[:, None] * prior(X)

    def _values(self, X: np.ndarray, weights: Array) -> np.ndarray:
        """Return the function of given weights at the rows of ``X``, float64."""
        values = partial(function_values, self._blocks, v=weights)
        tiles = over_tiles(values, X.astype(self.mean_weights.dtype), most=_TILE)
        return np.concatenate([np.zeros(0), *tiles])

    def _sums(self, X: np.ndarray, blocks: BlockedInputs, mean: Any, scales: Any) -> Any:
        """Return the three sums of `moments` at the rows of ``X``, float64."""
        found = partial(moments, blocks, mean=mean, variances=scales)
        tiles = over_tiles(found, X.astype(self.mean_weights.dtype), most=_TILE)
        return np.concatenate([np.zeros((3, 0)), *map(np.stack, tiles)], axis=1)

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the posterior as JSON-able data and arrays; the inducing inputs are among them."""
        kernel, arrays = to_spec(self.basis.kernel)
        arrays = above("basis/", arrays)
        arrays |= {
            "basis/inputs": np.asarray(self.basis.inputs),
            "mean": np.asarray(self.mean_weights),
            "diagonal": np.asarray(self.diagonal),
        }
        if self.rows is not None:
            arrays["rows"] = np.asarray(self.rows)
        state = {
            "kernel": kernel,
            "noise_variance": self.noise_variance,
            "augment": self.augment,
            "num_rows": self.num_rows,
        }
        return state, arrays

    @classmethod
    def from_state(cls, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> InducingPosterior:
        """Return the posterior that `to_state` described."""
        own = below("basis/", arrays)
        kernel: Any = jax.tree.map(jnp.asarray, from_spec(state["kernel"], own))
        return cls(
            InducingBasis(kernel, jnp.asarray(own["inputs"])),
            jnp.asarray(arrays["mean"]),
            jnp.asarray(arrays["diagonal"]),
            noise_variance=state["noise_variance"],
            augment=state["augment"],
            num_rows=state["num_rows"],
            rows=jnp.asarray(arrays["rows"]) if "rows" in arrays else None,
        )
