"""The posterior's linear system in the space of the basis functions: a product is a pass over tiles of rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array

from vastgp._precision import precision
from vastgp.bases import PairedBasis, seed_key
from vastgp.data import observations, processes
from vastgp.data.devices import devices_for, on_every_device, on_first_device, over_devices
from vastgp.data.rows import Rows
from vastgp.data.scaling import Standardizer
from vastgp.data.tiles import Tile, row_tiles, tile_size
from vastgp.solvers.least_squares import (
    BlockedBasis,
    evaluate,
    evidence_slope,
    normal_product,
    prior_targets,
    row_noise,
)
from vastgp.solvers.preconditioners import (
    Preconditioner,
    dense_preconditioner,
    precision_of_matrix,
)
from vastgp.solvers.systems import (
    LANDMARKS,
    PANEL,
    Measures,
    Solution,
    System,
    evidence_signs,
    prior_weights_of,
)

# Standardised rows of at most so many bytes are kept between passes; more are read again.
_MOST_KEPT = 2**29


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
        self._local = rows.local
        self.seed, self.num_samples = seed_key(seed), num_samples
        # A power of two of rows where all fit in one tile: data of similar sizes share compiled code.
        most = max(64, 1 << ((PANEL // basis.num_basis).bit_length() - 1))
        self.tile = tile_size(rows.n, most, 1)
        self._devices = devices_for(self.tile * basis.num_basis * (1 + num_samples), self.tile)
        self._kept: list[Any] | None = None
        self.vector_dtype = self._vectors(dtype, rows.n, widen)
        self._prior = prior_weights_of(self.blocks, self.seed, num_samples, dtype)
        self.precondition = precondition or self._make_preconditioner(rank, seed)
        with precision(self.vector_dtype):
            shape = (1 + num_samples, basis.num_basis)
            right = self._whole(jax.device_put(np.zeros(shape, self.vector_dtype)))
            draws = self._whole(_flat(self._prior))
            for tile, targets in self._targets():
                right = prior_targets(
                    self.blocks, tile.X, tile.weights, targets, draws, right, self.vector_dtype
                )
            self.right = processes.summed(on_first_device(right))

    def _whole(self, tree: Any) -> Any:
        return on_every_device(tree, self._devices)

    def _tiles(self) -> Iterator[_RowTile]:
        """Yield all rows that this process has, standardised, in tiles of one shape."""
        if self._kept is not None:
            yield from self._kept
            return
        size = self.dtype.itemsize * (self._local.n + self.tile) * (self._local.d + 2)
        kept: list[Any] | None = [] if size <= _MOST_KEPT else None
        for tile in self._read():
            parts = over_devices(self._weighted(tile), self._devices)
            if kept is not None:
                kept.append(parts)
            yield parts
        self._kept = kept

    def _read(self) -> Iterator[Tile]:
        """Yield the rows that this process has as they are read; where it has none, filling alone."""
        if self._local.n == 0:
            nothing = np.zeros(self.tile, self.dtype)
            yield Tile(np.zeros((self.tile, self._local.d), self.dtype), nothing, nothing, 0)
        yield from row_tiles(self._local, self.standardizer, self.tile, self.dtype)

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
            first = np.asarray(self.rows.first + number * self.tile, np.int32)
            yield tile, _noisy(tile.y, first, tile.noise, self.seed, self.num_samples)

    def _make_preconditioner(self, sampled: int, seed: int) -> Preconditioner:
        """Factorise ``(n / R) Phi_R^T Phi_R + sigma^2 I`` of R random rows."""
        n, m = self.rows.n, self.basis.num_basis
        dtype = precision_of_matrix(m, self.vector_dtype)
        (syrk,) = scipy.linalg.get_blas_funcs(("syrk",), dtype=np.dtype(dtype))
        gram = np.zeros((m, m), dtype=dtype, order="F")
        generator = np.random.default_rng([seed, LANDMARKS])
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
        # sigma^2 v is one of the terms: that of process 0
        noise = self.noise_variance if processes.number() == 0 else 0.0
        V = self._whole(V)
        total = _times(np.asarray(noise, self.vector_dtype), V)
        for tile in self._tiles():
            total = normal_product(self.blocks, tile.X, tile.weights, V, total)
        return processes.summed(on_first_device(total))

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
        prior, solution = self._whole((self._prior, solution))
        for tile, targets in self._targets():
            slopes = _basis_slopes(whole, tile, targets, prior, solution, noise)
            total = slopes if total is None else jax.tree.map(np.add, total, slopes)
        assert total is not None
        return processes.summed(on_first_device(total))


@partial(jax.jit, static_argnames="num_samples")
def _noisy(y: Array, first: Array, noise_variance: Array, seed: Any, num_samples: int) -> Array:
    """Return targets and the samples' noise of rows from number ``first`` on, (1 + S, n)."""
    numbers = first + jnp.arange(len(y))
    noise = row_noise(seed, numbers, num_samples, y.dtype)
    return jnp.concatenate([y[None], jnp.sqrt(noise_variance) * noise])


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
    signs = evidence_signs(solution)
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
