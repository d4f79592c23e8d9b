"""Linear systems of the posterior: mean and samples as the columns of one solution.

In the space of the rows each product costs one pass over blocks of basis functions (`RowSystem`); in that of the basis
functions one pass over tiles of rows, which may come from disk (`BasisSystem`). Both give the same posterior.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float

from vastgp._precision import precision
from vastgp.bases import PairedBasis, seed_key
from vastgp.data import observations
from vastgp.data.rows import Rows
from vastgp.data.scaling import Standardizer
from vastgp.data.tiles import Tile, row_tiles, tile_size
from vastgp.solvers.distinct_rows import ObservedRows
from vastgp.solvers.least_squares import (
    BlockedBasis,
    evaluate,
    evidence_slope,
    gram_of_rows,
    gram_product,
    normal_product,
    prior_targets,
    prior_weights,
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

# Entries of one panel of features: 128 MB in float32, made once and used twice.
_PANEL = 2**25
# Standardised rows of at most so many bytes are kept between passes; more are read again.
_MOST_KEPT = 2**29
# Rounding of float32 products, relative to the noise, from which on the vectors of conjugate gradients are float64: a
# product then takes 1.7 times as long. The bound is of the worst case (kin40k, at 0.5, converges to a tenth of the
# noise without; kegg at 3.5 only just, at 20 not).
_MOST_ROUNDING = 2.0
_LANDMARKS = 3


class Solution(NamedTuple):
    """Weights of the posterior: ``mean`` (2, P) and ``deviations`` (S, 2, P) of its samples from the mean.

    Of C functions, each has them as its first axis.
    """

    mean: Float[Array, "*c 2 P"]
    deviations: Float[Array, "*c S 2 P"]


class Measures(NamedTuple):
    """What is known of each column of a solution ``x`` with residual ``r``.

    Attributes
    ----------
    value : Array of shape (C,)
        ``x^T (b + r)``: what is left of ``b^T A^-1 b`` to it is the squared error in the norm of ``A``, which
        conjugate gradients make smaller at every step but for rounding (the size of a residual may rise).
    size : Array of shape (C,)
        ``|r|``.
    energy, longest : Array of shape (C,)
        As in `CGState`.
    """

    value: Any
    size: Any
    energy: Any
    longest: Any


class LinearSystem(abc.ABC):
    """A symmetric positive definite system ``A x = right`` with columns [mean, samples].

    Attributes
    ----------
    right : Array of shape (C, p)
    precondition : Preconditioner
    vector_dtype : str
        Precision of solutions and residuals; work on them is done inside ``precision(vector_dtype)``.
    noise_variance : float
    num_rows : int
        Of the data.
    """

    right: Array
    precondition: Preconditioner
    vector_dtype: str
    noise_variance: float
    num_rows: int

    @abc.abstractmethod
    def product(self, V: Array) -> Array:
        """Return ``A v`` of each row of ``V``."""

    def errors(self, measures: Measures) -> np.ndarray:
        """Return how far each column's function is from solved, rms over the rows, in noise standard deviations.

        Here ``|r| / (sigma sqrt(n))``: the error of the function is ``K A^-1 r``, which is no larger than ``r``.
        """
        return self._in_noise(np.asarray(measures.size, np.float64))

    def _in_noise(self, size: np.ndarray) -> np.ndarray:
        return size / (self.noise_variance * self.num_rows) ** 0.5


class System(LinearSystem):
    """One whose solution stands for weights of a basis."""

    basis: PairedBasis
    blocks: BlockedBasis

    @abc.abstractmethod
    def weights(self, solution: Array) -> Solution:
        """Return the weights that a solution stands for."""

    @abc.abstractmethod
    def slopes(self, solution: Array) -> tuple[Any, Any]:
        """Return the slopes of the log evidence by the kernel and by the noise variance."""

    def _prior_to_noise(self, num_rows: float) -> float:
        """Return the trace of ``Phi Phi^T`` in noise variances: its largest eigenvalue can be near it."""
        return num_rows * float(self.basis.kernel.total_variance()) / self.noise_variance

    def _vectors(self, dtype: Any, num_rows: float, widen: bool) -> str:
        """Return the precision of vectors for features of one: wide where that would drown the noise."""
        rounding = float(np.finfo(dtype).eps) * self._prior_to_noise(num_rows)
        return "float64" if widen and rounding > _MOST_ROUNDING else str(np.dtype(dtype))


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
            generator = np.random.default_rng([seed, _LANDMARKS])
            made = low_rank_of_rows(
                self.basis.kernel, self.X, scale, self.noise_variance, rank, generator,
                gram=lambda V: row_product(self.blocks, self.X, self.scale, 0.0, V),
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
        return row_product(self.blocks, self.X, self.scale, self.noise, V)

    def prior(self) -> Array:
        """Return the weights of the prior draws behind the samples."""
        return _prior_weights(self.blocks, self.seed, self.num_samples, str(self.X.dtype))

    def weights(self, solution: Array) -> Solution:
        """Return ``Phi^T alpha`` and ``w0 - Phi^T u``."""
        return _row_weights(self.blocks, self.X, self.scale, self.seed, solution)

    def slopes(self, solution: Array) -> tuple[Any, Any]:
        """Return pathwise slopes of the log evidence, see `evidence_slope`."""
        whole = BlockedBasis(self.basis, self.blocks.block)
        shares = self.observed.noise_shares
        if shares is not None:
            shares = jax.device_put(np.asarray(shares, self.vector_dtype))
        by_kernel, by_noise = _row_slopes(whole, self.X, self.scale, shares, solution)
        return by_kernel, by_noise + self.observed.noise_slope(self.noise_variance)


class _RowTile(NamedTuple):
    """Rows of a tile as `BasisSystem` keeps them.

    Attributes
    ----------
    X, y : Array
        Standardised inputs and targets.
    weights : Array of shape (n,)
        ``sigma^2 / v_i``, one where all rows are alike, zero for filling.
    noise : Array of shape (n,), or ()
        ``v_i``.
    inverse_weights : Array of shape (n,), or None
        ``d v_i / d sigma^2``; None: all are one.
    """

    X: Any
    weights: Any
    y: Any
    noise: Any
    inverse_weights: Any


class BasisSystem(System):
    """``(Phi^T Phi + sigma^2 I) [w, v_1, ..., v_S] = Phi^T [y, Phi w0_s + eps_s]``, rows in tiles.

    By the push-through identity ``v_s = Phi^T u_s`` of the system in the space of the rows. Weights are flat vectors of
    length m. Rows with noise ``v_i`` of their own count ``sigma^2 / v_i`` in every sum over rows. Parameters as in
    `RowSystem`, with the rows wherever they are stored; ``rank`` is the number of rows that the preconditioner is made
    of.
    """

    def __init__(
        self,
        basis: PairedBasis,
        noise_variance: float,
        rows: Rows,
        standardizer: Standardizer,
        *,
        num_samples: int,
        seed: int,
        rank: int,
        dtype: str,
        precondition: Preconditioner | None = None,
        widen: bool = False,
    ) -> None:
        self.basis = basis
        self.blocks = BlockedBasis(basis.stored(rows.d, dtype), basis.num_pairs)
        self.noise_variance, self.num_rows = float(noise_variance), rows.n
        self.rows, self.standardizer, self.dtype = rows, standardizer, np.dtype(dtype)
        self.seed, self.num_samples = seed_key(seed), num_samples
        # A power of two of rows where all fit in one tile: data of similar sizes share compiled code.
        most = max(64, 1 << ((_PANEL // basis.num_basis).bit_length() - 1))
        self.tile = tile_size(rows.n, most, 1)
        self._kept: list[Any] | None = None
        self.vector_dtype = self._vectors(dtype, rows.n, widen)
        self._prior = _prior_weights(self.blocks, self.seed, num_samples, dtype)
        self.precondition = precondition or self._make_preconditioner(rank, seed)
        with precision(self.vector_dtype):
            shape = (1 + num_samples, basis.num_basis)
            right = jax.device_put(np.zeros(shape, self.vector_dtype))
            draws = _flat(self._prior)
            for tile, targets in self._targets():
                right = prior_targets(
                    self.blocks, tile.X, tile.weights, targets, draws, right, self.vector_dtype
                )
            self.right = right

    def _tiles(self) -> Iterator[_RowTile]:
        """Yield all rows, standardised, in tiles of one shape."""
        if self._kept is not None:
            yield from self._kept
            return
        size = self.dtype.itemsize * (self.rows.n + self.tile) * (self.rows.d + 2)
        kept: list[Any] | None = [] if size <= _MOST_KEPT else None
        for tile in row_tiles(self.rows, self.standardizer, self.tile, self.dtype):
            parts = jax.device_put(self._weighted(tile))
            if kept is not None:
                kept.append(parts)
            yield parts
        self._kept = kept

    def _weighted(self, tile: Tile) -> _RowTile:
        """Return a tile with what its rows count."""
        y = observations.targets(tile.y).astype(self.dtype)
        noise, inverse, weights = self.noise_variance, None, tile.weight
        if observations.has_own_noise(tile.y):
            noise = observations.noise_variances(tile.y, self.noise_variance)
            weights = weights * (self.noise_variance / noise)
            inverse = observations.inverse_weights(tile.y).astype(self.dtype)
        return _RowTile(
            tile.X, weights.astype(self.dtype), y, np.asarray(noise, self.dtype), inverse
        )

    def _targets(self) -> Iterator[tuple[_RowTile, Array]]:
        """Yield the tiles and ``[y, eps_s]``."""
        for number, tile in enumerate(self._tiles()):
            first = np.asarray(number * self.tile, np.int32)
            yield tile, _noisy(tile.y, first, tile.noise, self.seed, self.num_samples)

    def _make_preconditioner(self, sampled: int, seed: int) -> Preconditioner:
        """Factorise ``(n / R) Phi_R^T Phi_R + sigma^2 I`` of R random rows."""
        n, m = self.rows.n, self.basis.num_basis
        dtype = precision_of_matrix(m, self.vector_dtype)
        (syrk,) = scipy.linalg.get_blas_funcs(("syrk",), dtype=np.dtype(dtype))
        gram = np.zeros((m, m), dtype=dtype, order="F")
        generator = np.random.default_rng([seed, _LANDMARKS])
        index = np.sort(generator.choice(n, sampled, replace=False)) if sampled < n else None
        tile: Tile
        for tile in row_tiles(self.rows, self.standardizer, self.tile, self.dtype, index):
            phi = np.asarray(_all_features(self.blocks, jax.device_put(tile.X)), dtype)
            if observations.has_own_noise(tile.y):
                phi = phi * np.sqrt(self._weighted(tile).weights)
            phi = phi[:, : tile.num_rows].T
            gram = syrk(n / sampled, phi, beta=1.0, c=gram, trans=1, lower=1, overwrite_c=1)
        with precision(dtype):
            return dense_preconditioner(gram, self.noise_variance)

    def product(self, V: Array) -> Array:
        """Return ``Phi^T Phi v + sigma^2 v``."""
        total = _times(np.asarray(self.noise_variance, self.vector_dtype), V)
        for tile in self._tiles():
            total = normal_product(self.blocks, tile.X, tile.weights, V, total)
        return total

    def errors(self, measures: Measures) -> np.ndarray:
        """Return an estimate of ``sqrt(r^T A^-1 r / (sigma^2 n))``.

        That is the norm ``(|Phi e|^2 + sigma^2 |e|^2)^1/2`` of the error ``e`` of the weights, beside the noise. It is
        ``r^T P^-1 r`` where the preconditioner is the matrix itself. One of sampled rows may be larger than that in
        some directions; by how much, the longest step of conjugate gradients tells.
        """
        energy = np.maximum(np.asarray(measures.energy, np.float64), 0.0)
        return self._in_noise((energy * np.maximum(measures.longest, 1.0)) ** 0.5)

    def weights(self, solution: Array) -> Solution:
        """Return ``w`` and ``w0 - v``."""
        return _basis_weights(self._prior, solution)

    def slopes(self, solution: Array) -> tuple[Any, Any]:
        """Return pathwise slopes of the log evidence; the residuals are ``sigma^2`` times alpha and u."""
        whole = BlockedBasis(self.basis, self.blocks.block)
        noise = np.asarray(self.noise_variance, self.dtype)
        total = None
        for tile, targets in self._targets():
            slopes = _basis_slopes(whole, tile, targets, self._prior, solution, noise)
            total = slopes if total is None else jax.tree.map(np.add, total, slopes)
        assert total is not None
        return total


@partial(jax.jit, static_argnames="num_samples")
def _noisy(y: Array, first: Array, noise_variance: Array, seed: Any, num_samples: int) -> Array:
    """Return targets and the samples' noise of rows from number ``first`` on, (1 + S, n)."""
    numbers = first + jnp.arange(len(y))
    noise = row_noise(seed, numbers, num_samples, y.dtype)
    return jnp.concatenate([y[None], jnp.sqrt(noise_variance) * noise])


@jax.jit
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
    size = max(16, min(512, basis.num_pairs, _PANEL // (2 * len(X))))
    return BlockedBasis(basis.stored(X.shape[1], X.dtype), size)


@partial(jax.jit, static_argnames="num_samples")
def _draws(blocks: BlockedBasis, X: Array, seed: Any, num_samples: int) -> Array:
    return evaluate(blocks, X, prior_weights(blocks, seed, num_samples, X.dtype))


@partial(jax.jit, static_argnames=("num_samples", "dtype"))
def _prior_weights(blocks: BlockedBasis, seed: Any, num_samples: int, dtype: str) -> Array:
    return prior_weights(blocks, seed, num_samples, jnp.dtype(dtype))


@jax.jit
def row_product(blocks: BlockedBasis, X: Array, scale: Array, noise: Any, V: Array) -> Array:
    """Return ``S Phi Phi^T S v + noise v`` of each row of ``V``; ``scale`` is that of the rows, or of each column."""
    return gram_product(blocks, X, V * scale) * scale + noise * V


@jax.jit
def _row_weights(
    blocks: BlockedBasis, X: Array, scale: Array, seed: Any, solution: Array
) -> Solution:
    W = project(blocks, X, solution * scale).astype(X.dtype)
    prior = prior_weights(blocks, seed, len(W) - 1, X.dtype)
    pairs = blocks.basis.num_pairs
    return Solution(W[0, :, :pairs], (prior - W[1:])[..., :pairs])


@jax.jit
def _row_slopes(
    blocks: BlockedBasis, X: Array, scale: Array, shares: Array | None, solution: Array
) -> tuple[Any, Array]:
    signs, V = _signs(solution), solution * scale
    by_kernel = evidence_slope(blocks, X, V, project(blocks, X, V), signs)
    # d/d sigma^2: dA = I, or diag(shares)
    square = solution**2 if shares is None else shares * solution**2
    return by_kernel, 0.5 * jnp.sum(signs * jnp.sum(square, axis=1))


@jax.jit
def _basis_weights(prior: Array, solution: Array) -> Solution:
    W = solution.reshape(-1, *prior.shape[1:]).astype(prior.dtype)
    return Solution(W[0], prior - W[1:])


@jax.jit
def _basis_slopes(
    blocks: BlockedBasis,
    tile: _RowTile,
    targets: Array,
    prior: Array,
    solution: Array,
    noise_variance: Array,
) -> tuple[Any, Array]:
    X = tile.X
    W = solution.reshape(-1, *prior.shape[1:])
    signs = _signs(solution)
    targets = targets.at[1:].add(evaluate(blocks, X, prior))
    V = (targets - evaluate(blocks, X, W)) * tile.weights / noise_variance
    by_kernel = evidence_slope(blocks, X, V, W, signs)
    square = V**2 if tile.inverse_weights is None else tile.inverse_weights * V**2
    return by_kernel, 0.5 * jnp.sum(signs * jnp.sum(square, axis=1))


@jax.jit
def _times(noise: Any, V: Array) -> Array:
    return noise * V


@jax.jit
def _flat(W: Array) -> Array:
    return W.reshape(len(W), -1)


@jax.jit
def _all_features(blocks: BlockedBasis, X: Array) -> Array:
    return blocks.features(X, 0)


def _signs(solution: Array) -> Array:
    """Return the signs of mean and samples in the slope of the evidence."""
    samples = len(solution) - 1
    return jnp.concatenate([jnp.ones(1), jnp.full(samples, -1.0 / samples)]).astype(solution.dtype)
