"""The variational posterior of the stochastic solver: a mean and a chevron-shaped Cholesky factor."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp._programs import program
from vastgp.bases import RandomFourierBasis
from vastgp.solvers.least_squares import BlockedBasis, evaluate, evaluate_one, features_made
from vastgp.solvers.weight_space import basis_from_state, basis_to_state


class ChevronPosterior:
    """``w ~ N(mu, C C^T)`` where the first columns of ``C`` are dense (lower triangular) and the rest diagonal.

    Without dense columns it is mean-field. The variance of the function at ``x`` is
    ``sum_r (phi(x)^T c_r)^2``: one term for each dense column and ``sum_r phi_r(x)^2 c_rr^2`` for the rest.

    Several functions (of classes) have means of their own and the same covariance; they are independent. Their values
    have them as the first axis.

    Parameters
    ----------
    basis : RandomFourierBasis
    mean : Array of shape (2, P), or (C, 2, P)
        Weights of the cosines and sines of each pair.
    columns : Array of shape (q, 2, P), or None
        Dense columns.
    diagonal : Array of shape (2, P)
        Entries of the diagonal columns, zero where the column is dense.
    """

    def __init__(
        self,
        basis: RandomFourierBasis,
        mean: Float[Array, "*c 2 P"],
        columns: Float[Array, "q 2 P"] | None,
        diagonal: Float[Array, "2 P"],
    ) -> None:
        self.basis = basis
        self.mean_weights = mean
        self.columns = (
            jax.device_put(np.zeros((0, *diagonal.shape), mean.dtype))
            if columns is None
            else columns
        )
        self.diagonal = diagonal

    @property
    def dense_columns(self) -> int:
        """Number of dense columns q."""
        return int(self.columns.shape[0])

    def mean(self, X: np.ndarray) -> np.ndarray:
        """Return the posterior mean of the function at the rows of ``X``, shape (n,) or (C, n)."""
        return self._evaluate(X, self.mean_weights)

    def mean_and_latent_variance(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return posterior mean and variance of the function at the rows of ``X``, shape (n,) or (C, n)."""
        blocks, rows = BlockedBasis.cut(self.basis), jnp.asarray(X, self.mean_weights.dtype)
        means = self.mean_weights.reshape(-1, *self.diagonal.shape)
        weights = (blocks.pad(part) for part in (means, self.columns, self.diagonal))
        mean, dense, diagonal = _moments(blocks, rows, *weights)
        variance = np.asarray(diagonal, np.float64) + np.sum(
            np.asarray(dense, np.float64) ** 2, axis=0
        )
        shape = (*self.mean_weights.shape[:-2], len(X))
        return np.asarray(mean, np.float64).reshape(shape), np.broadcast_to(variance, shape)

    def samples(self, X: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
        """Return joint samples of the function: ``Phi (mu + C eps)``, ``eps ~ N(0, I)``.

        Of shape (n, num_samples), or (n, C, num_samples).
        """
        generator = np.random.default_rng(seed)
        functions = self.mean_weights.shape[:-2]
        dense = generator.standard_normal((num_samples, *functions, self.dense_columns))
        key = jax.random.key(int(generator.integers(2**31)), impl="threefry2x32")
        # weights of one sample at a time: a matrix of them is what large bases cannot afford
        draws = []
        for s in range(num_samples):
            mix = dense[s].astype(self.mean_weights.dtype)
            weights = _drawn(key, s, self.mean_weights, self.diagonal, self.columns, mix)
            draws.append(self._evaluate(X, weights))
        return np.moveaxis(np.stack(draws, axis=-1), -2, 0)

    def _evaluate(self, X: np.ndarray, weights: Any) -> np.ndarray:
        """Return functions of given weights (*c, 2, P) at the rows of ``X``, float64 (*c, n)."""
        blocks, rows = BlockedBasis.cut(self.basis), jnp.asarray(X, weights.dtype)
        if weights.ndim == 2:
            return np.asarray(evaluate_one(blocks, rows, blocks.pad(weights)), dtype=np.float64)
        return np.asarray(evaluate(blocks, rows, blocks.pad(weights)), dtype=np.float64)

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


@program
def _drawn(
    key: Array,
    number: Any,
    means: Float[Array, "*c 2 P"],
    diagonal: Float[Array, "2 P"],
    columns: Float[Array, "q 2 P"],
    mix: Float[Any, "*c q"],
) -> Float[Array, "*c 2 P"]:
    """Return the weights of one sample; ``mix`` is the noise of the dense columns."""
    noise = jax.random.normal(jax.random.fold_in(key, number), means.shape, diagonal.dtype)
    weights = means + diagonal * noise
    return weights + jnp.tensordot(mix, columns, axes=1) if len(columns) else weights


@program(work=features_made)
def _moments(
    blocks: BlockedBasis,
    X: Float[Array, "n d"],
    means: Float[Array, "c 2 padded"],
    columns: Float[Array, "q 2 padded"],
    diagonal: Float[Array, "2 padded"],
) -> tuple[Float[Array, "c n"], Float[Array, "q n"], Float[Array, " n"]]:
    """Return ``Phi mu``, ``Phi c`` of the dense columns, and ``sum_r phi_r^2 c_rr^2``, in one pass.

    No copy of the weights is made, each as long as the basis.
    """

    def body(which: Any, totals: tuple[Array, Array]) -> tuple[Array, Array]:
        values, variance = totals
        phi = blocks.features(X, which)
        weights = jnp.concatenate([blocks.take(means, which), blocks.take(columns, which)])
        scales = blocks.take(diagonal[None], which)[0] ** 2
        return values + weights @ phi, variance + scales @ phi**2

    n = X.shape[0]
    start = (jnp.zeros((means.shape[0] + columns.shape[0], n), X.dtype), jnp.zeros(n, X.dtype))
    values, variance = jax.lax.fori_loop(0, blocks.num_blocks, body, start)
    return values[: means.shape[0]], values[means.shape[0] :], variance
