"""Log evidence of grid eigenfunctions as a function of the kernel: the functions move, so rows are read each time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import eigh

from vastgp._precision import precision
from vastgp.bases.grid_eigenfunctions import GridEigenfunctionBasis
from vastgp.data.padding import repeat_last
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
        self._y, self._axes, self._num_basis = y, axes, num_basis
        size = min(_BLOCK_ROWS, 1 << max(5, (len(y) - 1).bit_length()))
        self._blocks = [
            (repeat_last(X[start : start + size], size), repeat_last(y[start : start + size], size),
             (np.arange(size) < len(y) - start).astype(np.float64))
            for start in range(0, len(y), size)
        ]  # fmt: skip

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
            moments = self._sums(kernel, fixed, active)
            value, by_noise, weights, inverse = self._solve(moments, noise)
            sigma2 = jnp.asarray(noise)  # a number would be compiled in
            slopes = [
                _pull_back(kernel, fixed, active, X, y, mask, weights, inverse, sigma2)
                for X, y, mask in self._blocks
            ]
            slope = jax.tree.map(lambda *parts: np.asarray(sum(parts)), *slopes)
        return value, (slope, by_noise)

    def scaled(
        self, kernel: Kernel, noise: float, noise_floor: float
    ) -> tuple[float, Kernel, float]:
        """Return the highest log evidence of all amplitudes and noise variances, and what has it: one pass."""
        with precision("float64"):
            moments = self._sums(*self._held(kernel))
        eigenvalues, E = eigh(moments[:-1, :-1], driver="evd")
        projected = E.T @ moments[:-1, -1]
        parts = np.maximum(eigenvalues, 0.0), projected, float(self._y @ self._y), self.num_rows
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

    def _sums(self, kernel: Kernel, fixed: GridEigenfunctionBasis, active: Array) -> np.ndarray:
        return np.asarray(
            sum(_moments(kernel, fixed, active, X, y, mask) for X, y, mask in self._blocks)
        )

    def _solve(self, moments: np.ndarray, noise: float) -> tuple[float, float, Array, Array]:
        """Return the evidence, its derivative by the noise variance, ``w`` and ``P^-1``."""
        A, r, n, m = moments[:-1, :-1], moments[:-1, -1], self.num_rows, self._num_basis
        square = float(self._y @ self._y)
        factor = factorize(A, noise, what="the precision of the weights")
        weights = factor.solve(r)
        log_det = factor.log_determinant + (n - m) * math.log(noise)
        inverse = factor.into_whole_inverse()
        value = -0.5 * ((square - r @ weights) / noise + log_det + n * math.log(2.0 * math.pi))
        left = square - 2.0 * r @ weights + weights @ A @ weights
        by_noise = 0.5 * (left / noise**2 - (n - m + noise * np.trace(inverse)) / noise)
        return float(value), float(by_noise), jnp.asarray(weights), jnp.asarray(inverse)


def _features(kernel: Kernel, basis: Any, active: Array, X: Any, mask: Any) -> Array:
    own = basis.with_kernel(kernel)
    return own.features(jnp.asarray(X), jnp.arange(own.num_basis)) * active * mask[:, None]


@eqx.filter_jit
def _moments(
    kernel: Kernel, basis: Any, active: Array, X: Any, y: Any, mask: Any
) -> Float[Array, "q q"]:
    """Return ``[Phi y]^T [Phi y]``."""
    phi = _features(kernel, basis, active, X, mask)
    wide = jnp.concatenate([phi, (y * mask)[:, None]], axis=1)
    return jnp.matmul(wide.T, wide, precision="highest")


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
    phi, pull = jax.vjp(lambda k: _features(k, basis, active, X, mask), kernel)
    misfit = (y * mask - phi @ weights) / noise
    return pull(jnp.outer(misfit, weights) - phi @ inverse)[0]
