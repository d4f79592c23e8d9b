"""The posterior's linear system in the space of the rows: a product is a pass over blocks of basis functions."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import precision
from vastgp._programs import program
from vastgp.bases import PairedBasis, seed_key
from vastgp.data import processes
from vastgp.solvers.distinct_rows import ObservedRows
from vastgp.solvers.least_squares import (
    BlockedBasis,
    evaluate,
    evidence_slope,
    features_made,
    gram_of_rows,
    gram_product,
    project,
    row_noise,
)
from vastgp.solvers.preconditioners import (
    NarrowPreconditioner,
    Preconditioner,
    dense_preconditioner,
    precision_of_matrix,
)
from vastgp.solvers.row_preconditioner import low_rank_of_rows
from vastgp.solvers.systems import (
    LANDMARKS,
    PANEL,
    Solution,
    System,
    evidence_signs,
    prior_weights_of,
)


class RowSystem(System):
    """``(Phi Phi^T + sigma^2 I) [alpha, u_1, ..., u_S] = [y, Phi w0_s + eps_s]``.

    Rows of features and targets are scaled by the root of their weight (see `ObservedRows`); one of weight zero is
    filling, whose part of every column is zero.

    Parameters
    ----------
    basis : PairedBasis
        In the precision of the rows.
    noise_variance : float
    observed : ObservedRows
        Standardised, in memory.
    num_samples : int
        S, the number of posterior samples.
    seed : int
        Of the prior draws, the noise draws and the landmarks.
    rank : int
        Of the preconditioner; as many as there are rows, filling aside, means an exact one.
    precondition : Preconditioner, optional
        One made before, for nearby hyperparameters; None makes one.
    widen : bool
        Whether vectors may be float64 where the features are float32: amplitudes far above the noise need it.
    draws : Array of shape (S, n), optional
        `prior_draws` of the same rows and seed, where they are known.
    """

    def __init__(
        self,
        basis: PairedBasis,
        noise_variance: float,
        observed: ObservedRows,
        *,
        num_samples: int,
        seed: int,
        rank: int,
        precondition: Preconditioner | None = None,
        widen: bool = False,
        draws: Float[Array, "S n"] | None = None,
    ) -> None:
        self.X, self.observed = jax.device_put(observed.X), observed
        dtype = np.dtype(self.X.dtype)
        self.basis = basis
        self.blocks = _row_blocks(basis, self.X)
        self.noise_variance, self.num_rows = float(noise_variance), observed.num_rows
        self.seed, self.num_samples = seed_key(seed), num_samples
        self.noise = np.asarray(noise_variance, dtype)
        if draws is None:
            draws = _draws(self.blocks, self.X, self.seed, num_samples)
        weights = jax.device_put(np.asarray(observed.weights).astype(dtype))
        self.scale, self.right = right_sides(
            jax.device_put(observed.y), draws, weights, self.noise, self.seed
        )
        self.vector_dtype = self._vectors(dtype, float(np.sum(observed.weights)), widen)
        with precision(self.vector_dtype):
            self.right = jax.device_put(np.asarray(self.right, self.vector_dtype))
        self.precondition = precondition or self._make_preconditioner(rank, seed)

    def _make_preconditioner(self, rank: int, seed: int) -> Preconditioner:
        scale = np.asarray(self.scale)
        if rank < np.count_nonzero(scale):
            mismatch = self._prior_to_noise(float(np.sum(scale**2))) / self.basis.num_pairs**0.5
            generator = np.random.default_rng([seed, LANDMARKS])
            made = low_rank_of_rows(
                self.basis.kernel, self.X, scale, self.noise_variance, rank, generator,
                gram=partial(self._gram, 0.0),
                mismatch=mismatch,
            )  # fmt: skip
            return made if self.vector_dtype == str(scale.dtype) else NarrowPreconditioner(made)
        dtype = precision_of_matrix(len(self.X), self.vector_dtype)
        with precision(dtype):
            gram = np.array(gram_of_rows(self.blocks, self.X, dtype))
            gram *= scale
            gram *= scale[:, None]
            return dense_preconditioner(gram, self.noise_variance)

    def product(self, V: Array) -> Array:
        """Return ``Phi Phi^T v + sigma^2 v``."""
        return self._gram(self.noise, V)

    def _gram(self, noise: Any, V: Array) -> Array:
        """Return ``S Phi Phi^T S v + noise v``."""
        return shared_row_product(self.blocks, self.X, self.scale, noise, V)

    def prior(self) -> Array:
        """Return the weights of the prior draws behind the samples."""
        return prior_weights_of(self.blocks, self.seed, self.num_samples, str(self.X.dtype))

    def weights(self, solution: Array) -> Solution:
        """Return ``Phi^T alpha`` and ``w0 - Phi^T u``."""
        return _row_weights(self.blocks, self.X, self.scale, self.prior(), solution)

    def slopes(self, solution: Array) -> tuple[Any, Any]:
        """Return pathwise slopes of the log evidence, see `evidence_slope`."""
        whole = BlockedBasis(self.basis, self.blocks.block)
        shares = self.observed.noise_shares
        if shares is not None:
            shares = jax.device_put(np.asarray(shares, self.vector_dtype))
        by_kernel, by_noise = _row_slopes(whole, self.X, self.scale, shares, solution)
        return by_kernel, by_noise + self.observed.noise_slope(self.noise_variance)


@program
def right_sides(
    y: Float[Array, " n"],
    draws: Float[Array, "S n"],
    weights: Float[Array, " n"],
    noise_variance: Any,
    seed: Any,
) -> tuple[Float[Array, " n"], Float[Array, "C n"]]:
    """Return the root of the rows' weights, and ``scale [y, draws] + [0, sigma eps]``, zero where the weight is."""
    scale = jnp.sqrt(weights)
    noise = row_noise(seed, jnp.arange(len(y)), len(draws), draws.dtype)
    right = jnp.concatenate([y[None], draws]) * scale
    noise = jnp.where(weights > 0, jnp.sqrt(noise_variance) * noise, 0.0)
    return scale, right.at[1:].add(noise)


def prior_draws(
    basis: PairedBasis, X: Float[Array, "n d"], num_samples: int, seed: int
) -> Float[Array, "S n"]:
    """Return ``Phi w0`` of each sample's prior draw."""
    return _draws(_row_blocks(basis, X), X, seed_key(seed), num_samples)


def _row_blocks(basis: PairedBasis, X: Array) -> BlockedBasis:
    """Return the basis in blocks whose features of all rows are a panel."""
    most = max(16, min(512, PANEL // (2 * len(X))))
    return BlockedBasis.cut(basis.stored(X.shape[1], X.dtype), most)


def _draws(blocks: BlockedBasis, X: Array, seed: Any, num_samples: int) -> Array:
    return evaluate(blocks, X, prior_weights_of(blocks, seed, num_samples, str(X.dtype)))


@program(work=features_made)
def row_product(
    blocks: BlockedBasis,
    X: Array,
    scale: Array,
    noise: Any,
    V: Array,
    some: tuple[Any, Any] | None = None,
) -> Array:
    """Return ``S Phi Phi^T S v + noise v`` of each row of ``V``; ``scale`` is that of the rows, or of each column.

    With ``some`` blocks of functions alone, see `gram_product`.
    """
    return gram_product(blocks, X, V * scale, some) * scale + noise * V


def shared_row_product(blocks: BlockedBasis, X: Array, scale: Array, noise: Any, V: Array) -> Array:
    """Return `row_product`; several processes take some of the basis functions each."""
    if processes.count() == 1:
        return row_product(blocks, X, scale, noise, V)
    some = tuple(np.int32(end) for end in processes.share_of(blocks.num_blocks))
    own_noise = noise if processes.number() == 0 else np.zeros_like(noise)
    return processes.summed(row_product(blocks, X, scale, own_noise, V, some))


@program(work=features_made)
def _row_weights(
    blocks: BlockedBasis, X: Array, scale: Array, prior: Array, solution: Array
) -> Solution:
    W = project(blocks, X, solution * scale).astype(X.dtype)
    pairs = blocks.basis.num_pairs
    return Solution(W[0, :, :pairs], (prior - W[1:])[..., :pairs])


@program(work=features_made)
def _row_slopes(
    blocks: BlockedBasis, X: Array, scale: Array, shares: Array | None, solution: Array
) -> tuple[Any, Array]:
    signs, V = evidence_signs(solution), solution * scale
    by_kernel = evidence_slope(blocks, X, V, project(blocks, X, V), signs)
    # d/d sigma^2: dA = I, or diag(shares)
    square = solution**2 if shares is None else shares * solution**2
    return by_kernel, 0.5 * jnp.sum(signs * jnp.sum(square, axis=1))
