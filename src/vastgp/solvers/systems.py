"""The block solver's linear system, in the space of the rows or in that of the basis functions.

Both give the same posterior. In the space of the rows each product costs one pass over blocks of basis
functions; in that of the basis functions one pass over tiles of rows, which may come from disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float

from vastgp._precision import precision
from vastgp.bases import PairedBasis, seed_key
from vastgp.bases.draws import typed_key
from vastgp.data.rows import Rows
from vastgp.data.scaling import Standardizer
from vastgp.kernels.matrices import kernel_matrix
from vastgp.solvers.cg import CGState
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
)
from vastgp.solvers.preconditioners import (
    NarrowPreconditioner,
    Preconditioner,
    balanced_preconditioner,
    dense_preconditioner,
    landmark_factor,
    leading_directions,
    low_rank_preconditioner,
    sketch_factor,
)

# Entries of one panel of features: 128 MB in float32, made once and used twice.
_PANEL = 2**25
# Directions whose image corrects a preconditioner made from the exact kernel: their pass costs that of five products.
# It is made where the two kernels differ by more than _MOST_MISMATCH noise variances (kin40k, at 7e4, gains nothing by
# it; kegg does not converge without: at 3e5 96 directions do, at 2e6 those are not enough, and 400 take 11 products),
# and suffices alone where what it leaves is below _MOST_BEYOND of them. As directions take memory too, there are no
# more than a third of the landmarks.
_DIRECTIONS, _MOST_MISMATCH, _MOST_BEYOND = 384, 1e5, 10.0
# Rounding of float32 products, relative to the noise, from which on the vectors of conjugate gradients are float64: a
# product then takes 1.7 times as long. The bound is of the worst case (kin40k, at 0.5, converges to a tenth of the
# noise without; kegg at 3.5 only just, at 20 not).
_MOST_ROUNDING = 2.0
_PRIOR, _NOISE, _LANDMARKS = 1, 2, 3


class Solution(NamedTuple):
    """Weights of the posterior: ``mean`` (2, P) and ``deviations`` (S, 2, P) of its samples from the mean.

    Of C functions, each has them as its first axis.
    """

    mean: Float[Array, "*c 2 P"]
    deviations: Float[Array, "*c S 2 P"]


@runtime_checkable
class LinearSystem(Protocol):
    """A symmetric positive definite system ``A x = right`` with columns [mean, samples]."""

    right: Array
    precondition: Preconditioner
    vector_dtype: str
    """Precision of solutions and residuals; work on them is done inside ``precision(vector_dtype)``."""

    def product(self, V: Array) -> Array:
        """Return ``A v`` of each row of ``V``."""

    def errors(self, state: CGState) -> Array:
        """Return how far each column's function is from solved, rms over the rows, in noise standard deviations."""


@runtime_checkable
class System(LinearSystem, Protocol):
    """One whose solution stands for weights of a basis."""

    blocks: BlockedBasis

    def weights(self, solution: Array) -> Solution:
        """Return the weights that a solution stands for."""

    def slopes(self, solution: Array) -> tuple[Any, float]:
        """Return the slopes of the log evidence by the kernel and by the noise variance."""


class RowSystem:
    """``(Phi Phi^T + sigma^2 I) [alpha, u_1, ..., u_S] = [y, Phi w0_s + eps_s]``.

    Rows of features and targets are scaled by the root of their weight (see `ObservedRows`).

    Parameters
    ----------
    basis : PairedBasis
    noise_variance : float
    observed : ObservedRows
        Standardised, in memory.
    num_samples : int
        S, the number of posterior samples.
    seed : int
        Of the prior draws, the noise draws and the landmarks.
    rank : int
        Of the preconditioner; ``rank >= n`` means an exact one.
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
        X = jnp.asarray(observed.X)
        n, dtype = len(X), X.dtype
        self.blocks = BlockedBasis(basis, _block_size(basis, n))
        self.noise_variance = jnp.asarray(noise_variance, dtype)
        self.X, self.observed, self.seed, self.num_samples = X, observed, seed, num_samples
        self.scale = jnp.sqrt(jnp.asarray(observed.weights, dtype))
        noise = jax.random.normal(_stream(seed, _NOISE), (num_samples, n), dtype=dtype)
        draws = prior_draws(basis, X, num_samples, seed) if draws is None else draws
        targets = jnp.concatenate([jnp.asarray(observed.y)[None], draws]) * self.scale
        self.right = targets.at[1:].add(jnp.sqrt(self.noise_variance) * noise)
        self.precondition = precondition or self._make_preconditioner(rank)
        self.vector_dtype = str(X.dtype)
        rounding = float(np.finfo(X.dtype).eps) * self._prior_to_noise()
        if widen and dtype == jnp.float32 and rounding > _MOST_ROUNDING:
            self._widen()

    def _prior_to_noise(self) -> float:
        """Return the trace of the weighted ``Phi Phi^T`` in noise variances: its largest eigenvalue can be near it."""
        variance = float(self.blocks.basis.kernel.total_variance())
        return float(np.sum(self.observed.weights)) * variance / float(self.noise_variance)

    def _widen(self) -> None:
        with precision("float64"):
            self.right = self.right.astype(jnp.float64)
        self.precondition = NarrowPreconditioner(self.precondition)
        self.vector_dtype = "float64"

    def prior(self) -> Array:
        """Return the weights of the prior draws behind the samples."""
        return _prior_weights(self.blocks, self.seed, self.num_samples, self.X.dtype)

    def _make_preconditioner(self, rank: int) -> Preconditioner:
        n, noise = len(self.X), float(self.noise_variance)
        if rank < n:
            return self._low_rank(rank, noise)
        gram = np.array(gram_of_rows(self.blocks, self.X))
        scale = np.asarray(self.scale)
        gram *= scale
        gram *= scale[:, None]
        return dense_preconditioner(gram, noise)

    def _low_rank(self, rank: int, noise: float) -> Preconditioner:
        """Return a Nystrom preconditioner, of the matrix itself in its leading directions where that matters.

        Landmarks stand for the exact kernel, from which ``Phi Phi^T`` differs by about ``n variance / sqrt(P)`` in its
        leading directions. Where that is far above the noise, the image of those directions is computed and corrects
        the preconditioner; where what lies beyond them is below some noise variances, it takes the landmarks' place.
        """
        kernel, scale = self.blocks.basis.kernel, np.asarray(self.scale)
        variance = float(kernel.total_variance())
        generator = np.random.default_rng([self.seed, _LANDMARKS])
        landmarks = generator.choice(len(self.X), rank, replace=False)

        def make(landmarks: np.ndarray) -> np.ndarray:
            factor = landmark_factor(
                partial(kernel_matrix, kernel), variance, self.X, self.X[landmarks]
            )
            factor *= scale
            return factor

        variances = variance * scale**2
        mismatch = self._prior_to_noise() / self.blocks.basis.num_pairs**0.5
        count = min(_DIRECTIONS, rank // 3)
        if mismatch <= _MOST_MISMATCH or count == 0:
            return low_rank_preconditioner(make(landmarks), variances, noise)
        few = make(landmarks[: 8 * count])
        directions = leading_directions(few, count, self.seed)
        del few
        image = np.asarray(self._gram_product(jnp.asarray(directions)))
        sketch = sketch_factor(directions, image)
        enough = float(np.sum(sketch[-1] ** 2)) <= _MOST_BEYOND * noise
        # also balanced where the sketch is enough: by itself it cancels in float32
        inner = low_rank_preconditioner(sketch if enough else make(landmarks), variances, noise)
        return balanced_preconditioner(inner, directions, image, noise)

    def product(self, V: Array) -> Array:
        """Return ``Phi Phi^T v + sigma^2 v``."""
        return self._gram_product(V) + self.noise_variance * V

    def _gram_product(self, V: Array) -> Array:
        return gram_product(self.blocks, self.X, V * self.scale) * self.scale

    def errors(self, state: CGState) -> Array:
        """Return ``|r| / (sigma sqrt(n))``: the function's error is ``K A^-1 r``, which is no larger than ``r``."""
        size = jnp.linalg.norm(state.residual, axis=1)
        return size / jnp.sqrt(self.noise_variance * self.observed.num_rows)

    def weights(self, solution: Array) -> Solution:
        """Return ``Phi^T alpha`` and ``w0 - Phi^T u``."""
        pairs = self.blocks.basis.num_pairs
        W = project(self.blocks, self.X, solution * self.scale)
        dtype = self.X.dtype
        mean, deviations = W[0].astype(dtype), (self.prior() - W[1:]).astype(dtype)
        return Solution(mean[:, :pairs], deviations[:, :, :pairs])

    def slopes(self, solution: Array) -> tuple[Any, float]:
        """Return pathwise slopes of the log evidence, see `evidence_slope`."""
        signs = _signs(self.num_samples, solution.dtype)
        V = solution * self.scale
        W = project(self.blocks, self.X, V)
        by_kernel = evidence_slope(self.blocks, self.X, V, W, signs)
        # d/d sigma^2: dA = I
        by_noise = 0.5 * jnp.sum(signs * jnp.sum(solution**2, axis=1))
        return by_kernel, float(by_noise) + self.observed.noise_slope(float(self.noise_variance))


class BasisSystem:
    """``(Phi^T Phi + sigma^2 I) [w, v_1, ..., v_S] = Phi^T [y, Phi w0_s + eps_s]``, rows in tiles.

    By the push-through identity ``v_s = Phi^T u_s`` of the system in the space of the rows. Weights are flat
    vectors of length m. Parameters as in `RowSystem`, with the rows wherever they are stored.
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
    ) -> None:
        self.blocks = BlockedBasis(basis, basis.num_pairs)
        self.vector_dtype = dtype
        self.noise_variance = jnp.asarray(noise_variance, dtype)
        self.rows, self.standardizer, self.dtype = rows, standardizer, np.dtype(dtype)
        self.seed, self.num_samples = seed, num_samples
        # A power of two of rows where all fit in one tile: data of similar sizes share compiled code.
        most = max(64, 1 << ((_PANEL // basis.num_basis).bit_length() - 1))
        self.tile = min(1 << (rows.n - 1).bit_length(), most)
        self.prior = _prior_weights(self.blocks, seed, num_samples, self.dtype)
        right = self.blocks.zeros(1 + num_samples, self.dtype)
        for X, y, mask, noise in self._noisy_tiles():
            right = right + prior_targets(self.blocks, X, mask, y, noise, self.prior)
        self.right = right.reshape(1 + num_samples, -1)
        self.precondition = precondition or self._make_preconditioner(rank)

    def _tiles(self) -> Iterator[tuple[Array, Array, Array]]:
        """Yield standardised inputs, targets and the mask of real rows, all tiles of one shape."""
        for X, y in self.rows.batches(self.tile):
            count = len(X)
            padding = self.tile - count
            inputs = np.pad(self.standardizer.transform_X(X, self.dtype), ((0, padding), (0, 0)))
            assert y is not None
            targets = np.pad(self.standardizer.transform_y(y, self.dtype), (0, padding))
            mask = (np.arange(self.tile) < count).astype(self.dtype)
            yield jnp.asarray(inputs), jnp.asarray(targets), jnp.asarray(mask)

    def _noisy_tiles(self) -> Iterator[tuple[Array, Array, Array, Array]]:
        """Yield the tiles with each sample's noise."""
        key = _stream(self.seed, _NOISE)
        for number, (X, y, mask) in enumerate(self._tiles()):
            noise = jax.random.normal(
                jax.random.fold_in(key, number), (self.num_samples, self.tile), dtype=self.dtype
            )
            yield X, y, mask, jnp.sqrt(self.noise_variance) * noise

    def _make_preconditioner(self, sampled: int) -> Preconditioner:
        """Factorise ``(n / R) Phi_R^T Phi_R + sigma^2 I`` of R random rows."""
        n, m = self.rows.n, self.blocks.basis.num_basis
        (syrk,) = scipy.linalg.get_blas_funcs(("syrk",), dtype=self.dtype)
        gram = np.zeros((m, m), dtype=self.dtype, order="F")
        generator = np.random.default_rng([self.seed, _LANDMARKS])
        chosen = (
            np.sort(generator.choice(n, sampled, replace=False)) if sampled < n else np.arange(n)
        )
        for start in range(0, sampled, self.tile):
            X, _ = self.rows.take(chosen[start : start + self.tile])
            inputs = jnp.asarray(self.standardizer.transform_X(X, self.dtype))
            phi = np.asarray(_all_features(self.blocks, inputs))
            gram = syrk(n / sampled, phi.T, beta=1.0, c=gram, trans=1, lower=1, overwrite_c=1)
        return dense_preconditioner(gram, float(self.noise_variance))

    def product(self, V: Array) -> Array:
        """Return ``Phi^T Phi v + sigma^2 v``."""
        W = V.reshape(V.shape[0], 2, -1)
        total = self.noise_variance * W
        for X, _, mask in self._tiles():
            total = total + normal_product(self.blocks, X, mask, W)
        return total.reshape(V.shape)

    def errors(self, state: CGState) -> Array:
        """Return ``sqrt(r^T P^-1 r / (sigma^2 n))``.

        Where ``P = A`` this is the norm ``(|Phi e|^2 + sigma^2 |e|^2)^1/2`` of the error ``e`` of the weights.
        """
        return jnp.sqrt(jnp.maximum(state.energy, 0.0) / (self.noise_variance * self.rows.n))

    def weights(self, solution: Array) -> Solution:
        """Return ``w`` and ``w0 - v``."""
        W = solution.reshape(self.right.shape[0], 2, -1)
        return Solution(W[0], self.prior - W[1:])

    def slopes(self, solution: Array) -> tuple[Any, float]:
        """Return pathwise slopes of the log evidence; the residuals are ``sigma^2`` times alpha and u."""
        signs = _signs(self.num_samples, self.dtype)
        W = solution.reshape(self.right.shape[0], 2, -1)
        by_kernel, by_noise = None, jnp.zeros((), self.dtype)
        for X, y, mask, noise in self._noisy_tiles():
            targets = jnp.concatenate([y[None], evaluate(self.blocks, X, self.prior) + noise])
            V = (targets - evaluate(self.blocks, X, W)) * mask / self.noise_variance
            slope = evidence_slope(self.blocks, X, V, W, signs)
            by_kernel = slope if by_kernel is None else jax.tree.map(jnp.add, by_kernel, slope)
            by_noise = by_noise + 0.5 * jnp.sum(signs * jnp.sum(V**2, axis=1))
        return by_kernel, float(by_noise)


def prior_draws(
    basis: PairedBasis, X: Float[Array, "n d"], num_samples: int, seed: int
) -> Float[Array, "S n"]:
    """Return ``Phi w0`` of each sample's prior draw."""
    blocks = BlockedBasis(basis, _block_size(basis, len(X)))
    return evaluate(blocks, X, _prior_weights(blocks, seed, num_samples, X.dtype))


def _block_size(basis: PairedBasis, num_rows: int) -> int:
    return max(16, min(512, basis.num_pairs, _PANEL // (2 * num_rows)))


def _prior_weights(blocks: BlockedBasis, seed: int, num_samples: int, dtype: Any) -> Array:
    return prior_weights(blocks, _stream(seed, _PRIOR), num_samples, dtype)


@jax.jit
def _all_features(blocks: BlockedBasis, X: Array) -> Array:
    return blocks.features(X, 0)


def _signs(num_samples: int, dtype: Any) -> Array:
    return jnp.concatenate([jnp.ones(1, dtype), jnp.full(num_samples, -1.0 / num_samples, dtype)])


def _stream(seed: int, purpose: int) -> Array:
    return jax.random.fold_in(typed_key(seed_key(seed)), purpose)
