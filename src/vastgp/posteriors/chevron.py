"""The variational posterior of the stochastic solver: a mean and a chevron-shaped Cholesky factor."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp.bases import RandomFourierBasis
from vastgp.objectives.least_squares import BlockedBasis
from vastgp.posteriors.weight_space import basis_from_state, basis_to_state

_BLOCK = 512


class ChevronPosterior:
    """``w ~ N(mu, C C^T)`` where the first columns of ``C`` are dense (lower triangular) and the rest diagonal.

    Without dense columns it is mean-field. The variance of the function at ``x`` is
    ``sum_r (phi(x)^T c_r)^2``: one term for each dense column and ``sum_r phi_r(x)^2 c_rr^2`` for the rest.

    Parameters
    ----------
    basis : RandomFourierBasis
    mean : Array of shape (2, P)
        Weights of the cosines and sines of each pair.
    columns : Array of shape (q, 2, P), or None
        Dense columns.
    diagonal : Array of shape (2, P)
        Entries of the diagonal columns, zero where the column is dense.
    """

    def __init__(
        self,
        basis: RandomFourierBasis,
        mean: Float[Array, "2 P"],
        columns: Float[Array, "q 2 P"] | None,
        diagonal: Float[Array, "2 P"],
    ) -> None:
        self.basis = basis
        self.mean_weights = mean
        self.columns = jnp.zeros((0, *mean.shape), mean.dtype) if columns is None else columns
        self.diagonal = diagonal

    @property
    def dense_columns(self) -> int:
        """Number of dense columns q."""
        return int(self.columns.shape[0])

    def mean(self, X: np.ndarray) -> np.ndarray:
        """Return the posterior mean of the function at the rows of ``X``."""
        values, _ = self._evaluate(X, self.mean_weights[None])
        return values[0]

    def mean_and_latent_variance(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return posterior mean and variance of the function at the rows of ``X``."""
        weights = jnp.concatenate([self.mean_weights[None], self.columns])
        values, diagonal = self._evaluate(X, weights, with_diagonal=True)
        return values[0], diagonal + np.sum(values[1:] ** 2, axis=0)

    def samples(self, X: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
        """Return joint samples of the function, shape (n, num_samples): ``Phi (mu + C eps)``, ``eps ~ N(0, I)``."""
        generator = np.random.default_rng(seed)
        dense = generator.standard_normal((num_samples, self.dense_columns))
        key = jax.random.key(int(generator.integers(2**31)), impl="threefry2x32")
        # weights of one sample at a time: a matrix of them is what large bases cannot afford
        draws = []
        for s in range(num_samples):
            noise = jax.random.normal(
                jax.random.fold_in(key, s), self.diagonal.shape, self.diagonal.dtype
            )
            weights = self.mean_weights + self.diagonal * noise
            if self.dense_columns:
                mix = jnp.asarray(dense[s], weights.dtype)
                weights = weights + jnp.tensordot(mix, self.columns, axes=1)
            draws.append(self._evaluate(X, weights[None])[0][0])
        return np.stack(draws, axis=1)

    def _evaluate(
        self, X: np.ndarray, weights: Any, with_diagonal: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return functions of given weights, and the diagonal columns' variance, at the rows of ``X``."""
        dtype = self.mean_weights.dtype
        blocks = BlockedBasis(self.basis, min(_BLOCK, self.basis.num_pairs))
        extra = blocks.padded - self.basis.num_pairs
        padded = jnp.pad(weights, ((0, 0), (0, 0), (0, extra))) if extra else weights
        scales = self.diagonal[None] ** 2 if with_diagonal else jnp.zeros((0, 2, 0), dtype)
        if with_diagonal and extra:
            scales = jnp.pad(scales, ((0, 0), (0, 0), (0, extra)))
        values, variance = _pass(blocks, jnp.asarray(X, dtype), padded, scales)
        return np.asarray(values, np.float64), np.asarray(variance, np.float64)

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the posterior as JSON-able data and arrays."""
        state, arrays = basis_to_state(self.basis)
        arrays |= {
            "mean": np.asarray(self.mean_weights),
            "columns": np.asarray(self.columns),
            "diagonal": np.asarray(self.diagonal),
        }
        return state, arrays

    @classmethod
    def from_state(cls, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> ChevronPosterior:
        """Return the posterior that `to_state` described."""
        return cls(
            basis_from_state(state, arrays),
            jnp.asarray(arrays["mean"]),
            jnp.asarray(arrays["columns"]),
            jnp.asarray(arrays["diagonal"]),
        )


@jax.jit
def _pass(
    blocks: BlockedBasis,
    X: Float[Array, "n d"],
    W: Float[Array, "C 2 padded"],
    squares: Float[Array, "D 2 scaled"],
) -> tuple[Float[Array, "C n"], Float[Array, " n"]]:
    """Return ``Phi w`` of each row of weights, and ``Phi^2 s`` of the squares (if any), in one pass."""

    def body(which: Any, totals: tuple[Array, Array]) -> tuple[Array, Array]:
        values, variance = totals
        phi = blocks.features(X, which)
        values = values + blocks.take(W, which) @ phi
        if squares.shape[0]:
            variance = variance + (blocks.take(squares, which) @ phi**2)[0]
        return values, variance

    n = X.shape[0]
    start = (jnp.zeros((W.shape[0], n), X.dtype), jnp.zeros(n, X.dtype))
    return jax.lax.fori_loop(0, blocks.num_blocks, body, start)
