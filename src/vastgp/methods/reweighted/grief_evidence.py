"""Log evidence of grid eigenfunctions as a function of the kernel: the functions move, so rows are read each time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import eigh

from vastgp._precision import precision
from vastgp.bases.grid_eigenfunctions import GridEigenfunctionBasis
from vastgp.data.tiles import array_tiles, tile_size
from vastgp.fitting.accumulate import Moments, accumulate
from vastgp.fitting.scaled_evidence import ScaledEvidence
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian
from vastgp.linalg.cholesky import factorize

# Rows whose features are made at a time.
_BLOCK_ROWS = 2048


class GriefEvidence:
    """``log N(y; 0, Phi Phi^T + sigma^2 I)`` with the leading eigenfunctions of the kernel at hand (Algorithm 4.2).

    With ``P = Phi^T Phi + sigma^2 I``, ``w = P^-1 Phi^T y`` and ``a = (y - Phi w) / sigma^2`` the gradient by the
    features is ``a w^T - Phi P^-1``: a second pass over the rows pulls it back to the hyperparameters, block by block.
    Both passes take O(n p^2) time. Which eigenfunctions are the leading ones is decided anew at every evaluation.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Standardised.
    y : ndarray of shape (n,)
    axes : sequence of ndarray
        Inducing points of every input.
    num_basis : int
    """

    def __init__(
        self, X: np.ndarray, y: np.ndarray, axes: Sequence[np.ndarray], num_basis: int
    ) -> None:
        self.num_rows = len(y)
        self._axes, self._num_basis = axes, num_basis
        self._tiles = list(array_tiles(X, y, tile_size(len(y), _BLOCK_ROWS)))

    def objective(self, params: tuple[Kernel, Gaussian]) -> tuple[float, tuple[Kernel, float]]:
        """Return the log evidence of ``(kernel, likelihood)`` and its derivatives.

        Raises
        ------
        FactorizationError
            When ``P`` cannot be factorised.
        """
        kernel, likelihood = params
        noise = float(likelihood.noise_variance)
        with precision("float64"):
            kernel, fixed, active = self._held(kernel)
            sums = self._sums(kernel, fixed, active)
            value, by_noise, weights, inverse = self._solve(sums, noise)
            sigma2 = jnp.asarray(noise)  # a number would be compiled in
            slopes = [
                _pull_back(kernel, fixed, active, X, y, mask, weights, inverse, sigma2)
                for X, y, mask, _ in self._tiles
            ]
            slope = jax.tree.map(lambda *parts: np.asarray(sum(parts)), *slopes)
        return value, (slope, by_noise)

    def scaled(
        self, kernel: Kernel, noise: float, noise_floor: float
    ) -> tuple[float, Kernel, float]:
        """Return the highest log evidence of all amplitudes and noise variances, and what has it: one pass."""
        with precision("float64"):
            sums = self._sums(*self._held(kernel))
        eigenvalues, E = eigh(sums.gram, driver="evd")
        parts = np.maximum(eigenvalues, 0.0), E.T @ sums.target, sums.square, self.num_rows
        s, noise, value = ScaledEvidence(*parts).best(noise, noise_floor)
        return value, kernel.in_units(1.0, s**0.5), noise

    def _held(self, kernel: Kernel) -> tuple[Kernel, GridEigenfunctionBasis, Array]:
        """Return a basis of all ``num_basis`` functions, those beyond the real ones marked: one compilation."""
        basis = GridEigenfunctionBasis.build(kernel, self._axes, self._num_basis)
        extra = self._num_basis - basis.num_basis
        selection = np.pad(basis.selection, ((0, extra), (0, 0)))
        logs = np.pad(basis.log_eigenvalues, (0, extra))
        fixed = GridEigenfunctionBasis(
            basis.kernel, basis.grid, selection, basis.transforms, logs, basis.sizes
        )
        active = jnp.asarray((np.arange(self._num_basis) < basis.num_basis).astype(float))
        return jax.tree.map(jnp.asarray, kernel), fixed, active

    def _sums(self, kernel: Kernel, fixed: GridEigenfunctionBasis, active: Array) -> Moments:
        return accumulate(partial(_features, kernel, fixed, active), self._tiles, self._num_basis)

    def _solve(self, sums: Moments, noise: float) -> tuple[float, float, Array, Array]:
        """Return the evidence, its derivative by the noise variance, ``w`` and ``P^-1``."""
        A, r, square = sums.gram, sums.target, sums.square
        n, m = self.num_rows, self._num_basis
        factor = factorize(A, noise, what="the precision of the weights")
        weights = factor.solve(r)
        log_det = factor.log_determinant + (n - m) * math.log(noise)
        inverse = factor.into_whole_inverse()
        value = -0.5 * ((square - r @ weights) / noise + log_det + n * math.log(2.0 * math.pi))
        left = square - 2.0 * r @ weights + weights @ A @ weights
        by_noise = 0.5 * (left / noise**2 - (n - m + noise * np.trace(inverse)) / noise)
        return float(value), float(by_noise), jnp.asarray(weights), jnp.asarray(inverse)


@eqx.filter_jit
def _features(kernel: Kernel, basis: Any, active: Array, X: Any) -> Float[Array, "n m"]:
    own = basis.with_kernel(kernel)
    return own.features(jnp.asarray(X), jnp.arange(own.num_basis)) * active


@eqx.filter_jit
def _pull_back(
    kernel: Kernel,
    basis: Any,
    active: Array,
    X: Any,
    y: Any,
    mask: Any,
    weights: Array,
    inverse: Array,
    noise: Any,
) -> Kernel:
    """Return what a block of rows adds to the gradient by the kernel."""
    phi, pull = jax.vjp(lambda k: _features(k, basis, active, X), kernel)
    misfit = (y - phi @ weights) / noise
    return pull((jnp.outer(misfit, weights) - phi @ inverse) * mask[:, None])[0]
