"""Log evidence and generalised cross validation of a Gaussian process on a grid with gaps."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from vastgp._precision import precision
from vastgp.kernels import GridKernel
from vastgp.kernels.matrices import grid_factors
from vastgp.likelihoods import Gaussian
from vastgp.linalg.kronecker import KroneckerEigen, kron_eigen, kron_product
from vastgp.objectives.grid_probes import GridProbes, PairTerm
from vastgp.objectives.grid_solver import GridSolver
from vastgp.objectives.grid_spectrum import (
    SpectralTerm,
    along_factors,
    nystrom_inverse_trace,
    nystrom_log_determinant,
)

Params = tuple[GridKernel, Gaussian]


class GridFit(NamedTuple):
    """A solve at given hyperparameters.

    Attributes
    ----------
    eigen : KroneckerEigen
        Of the kernel matrix, float64.
    weights : Array of shape (1, M)
        ``alpha``.
    residual : float
    converged : bool
    """

    eigen: KroneckerEigen
    weights: Array
    residual: float
    converged: bool


class GridObjective:
    """The criterion of hyperparameters, with derivatives by each of them.

    ``criterion="evidence"``: ``-1/2 y^T alpha - 1/2 log |K_XX + noise I| - N/2 log(2 pi)`` (thesis, equation (3.1)).
    ``criterion="gcv"``: ``-N/2 log(N |alpha|^2 / tr[(K_XX + noise I)^-1]^2)``, generalised cross validation (equation
    (B.8), whose print lacks the square; docs/errata.md) turned over and brought to the size of an evidence.

    One eigendecomposition of every factor and one solve make a value; derivatives need no further eigendecomposition
    (and one more solve for ``"gcv"``). Solves start where the last ones ended.

    Parameters
    ----------
    axes : sequence of ndarray of shape (m_l, d_l)
    y : ndarray of shape (M,)
        Standardised values, anything in the gaps.
    solver : GridSolver
    criterion : {"evidence", "gcv"}
    probes : GridProbes, optional
        Unbiased log-determinants (traces) by these instead of Nystrom's.
    """

    def __init__(
        self,
        axes: Sequence[np.ndarray],
        y: np.ndarray,
        solver: GridSolver,
        criterion: str = "evidence",
        probes: GridProbes | None = None,
    ) -> None:
        self.axes = tuple(np.asarray(axis, dtype=np.float64) for axis in axes)
        self.solver = solver
        self.criterion = criterion
        self.probes = probes
        self.num_observed = solver.num_observed
        with precision(solver.dtype):
            self.y = jnp.asarray(np.where(solver.observed, y, 0.0)[None, :], solver.dtype)
        self.eigen_seconds = self.solve_seconds = 0.0

    # ------------------------------------------------------------ pieces

    def eigen(self, kernel: GridKernel) -> KroneckerEigen:
        """Return the eigendecomposition of the kernel matrix of the whole grid."""
        began = time.perf_counter()
        with precision("float64"):
            factors = [np.asarray(factor) for factor in grid_factors(kernel, self.axes)]
        result = kron_eigen(factors, float(kernel.variance))
        self.eigen_seconds += time.perf_counter() - began
        return result

    def solve(self, kernel: GridKernel, noise: float) -> GridFit:
        """Return ``alpha`` at given hyperparameters."""
        eigen = self.eigen(kernel)
        began = time.perf_counter()
        with precision(self.solver.dtype):
            system = self.solver.system(eigen, noise)
            found = self.solver.solve(system, self.y, remember="targets")
        self.solve_seconds += time.perf_counter() - began
        return GridFit(eigen, found.weights, found.residual, found.converged)

    def spectral_term(self, eigen: KroneckerEigen, noise: float) -> SpectralTerm:
        """Return the log-determinant (evidence) or the trace of the inverse (GCV)."""
        evidence = self.criterion == "evidence"
        if self.probes is None:
            nystrom = nystrom_log_determinant if evidence else nystrom_inverse_trace
            return nystrom(eigen, noise, self.num_observed)
        with precision(self.solver.dtype):
            if evidence:
                estimate = self.probes.log_determinant(eigen, noise)
                pairs = self.probes.log_determinant_pairs(eigen, noise)
            else:
                estimate, pairs = self.probes.inverse_trace(eigen, noise)
            by_factors, by_scale, by_noise = self._from_pairs(eigen, pairs)
        return SpectralTerm(estimate.value, by_factors, by_scale, by_noise, estimate.standard_error)

    def misfit(self, fit: GridFit) -> float:
        """Return ``y^T alpha``."""
        return _dot(self.y, fit.weights)

    # ------------------------------------------------------------ value and gradient

    def __call__(self, kernel: GridKernel, noise: float) -> float:
        """Return the criterion."""
        fit = self.solve(kernel, noise)
        return self.value(fit, self.spectral_term(fit.eigen, noise).value)

    def value(self, fit: GridFit, spectral: float) -> float:
        """Return the criterion from a solve and the log-determinant (evidence) or the trace (GCV)."""
        n = self.num_observed
        if self.criterion == "evidence":
            return -0.5 * (self.misfit(fit) + spectral + n * math.log(2.0 * math.pi))
        squares = _dot(fit.weights, fit.weights)
        return -0.5 * n * math.log(n * squares / spectral**2)

    def objective(self, params: Params) -> tuple[float, tuple[GridKernel, Gaussian]]:
        """Return the criterion and its derivatives by every hyperparameter, a pytree like ``params``."""
        kernel, likelihood = params
        noise = float(likelihood.noise_variance)
        fit = self.solve(kernel, noise)
        spectral = self.spectral_term(fit.eigen, noise)
        value = self.value(fit, spectral.value)
        with precision(self.solver.dtype):
            pairs, of_spectral = self._data_pairs(fit, noise, spectral.value)
            by_factors, by_scale, by_noise = self._from_pairs(fit.eigen, pairs)
        by_factors = tuple(
            data + of_spectral * other
            for data, other in zip(by_factors, spectral.by_factors, strict=True)
        )
        by_scale += of_spectral * spectral.by_scale
        by_noise += of_spectral * spectral.by_noise
        with precision("float64"):
            by_kernel = _pull_back(kernel, self.axes, by_factors)
        by_kernel = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), by_kernel)
        by_kernel = _with_variance(by_kernel, by_scale)
        return value, (by_kernel, _gaussian(by_noise))

    def _data_pairs(self, fit: GridFit, noise: float, spectral: float) -> tuple[PairTerm, float]:
        """Return the derivative of what depends on the data, and the factor of the spectral term's."""
        n = self.num_observed
        if self.criterion == "evidence":
            # d(-1/2 y^T A^-1 y) = 1/2 alpha^T dA alpha
            return PairTerm(fit.weights, fit.weights, 0.5, None), -0.5
        # d |alpha|^2 = -2 beta^T dA alpha with beta = A^-1 alpha
        system = self.solver.system(fit.eigen, noise)
        beta = self.solver.solve(system, fit.weights, remember="weights").weights
        squares = _dot(fit.weights, fit.weights)
        return PairTerm(beta, fit.weights, n / squares, None), n / spectral

    def _from_pairs(
        self, eigen: KroneckerEigen, pairs: PairTerm
    ) -> tuple[tuple[np.ndarray, ...], float, float]:
        """Return derivatives by the unscaled factors, the scale and the noise."""
        scale = float(eigen.scale)
        cast = eigen._replace(scale=np.float64(1.0)).astype(self.solver.dtype)
        value, slopes = _pair_gradients(cast.factors(), pairs.left, pairs.right)
        by_scale = pairs.weight * float(value)
        by_factors = [pairs.weight * scale * np.asarray(slope, np.float64) for slope in slopes]
        by_noise = pairs.weight * _dot(pairs.left, pairs.right)
        if pairs.full_spectrum is not None:
            slopes_of_whole = pairs.full_spectrum
            by_scale += _by_scale(slopes_of_whole, eigen)
            by_noise += float(np.sum(slopes_of_whole))
            each = along_factors(scale * slopes_of_whole, eigen)
            for i, (Q, g) in enumerate(zip(eigen.vectors, each, strict=True)):
                by_factors[i] = by_factors[i] + (Q * g) @ Q.T
        return tuple(by_factors), by_scale, by_noise


def best_amplitude(objective: GridObjective, kernel: GridKernel, noise: float) -> float:
    """Return the factor of kernel and noise together that maximises the evidence: ``y^T alpha / N``.

    Generalised cross validation does not depend on it, and predictive variances do.
    """
    return objective.misfit(objective.solve(kernel, noise)) / objective.num_observed


def _by_scale(slopes: np.ndarray, eigen: KroneckerEigen) -> float:
    tensor = slopes.reshape(eigen.shape)
    for values in reversed(eigen.values):
        tensor = tensor @ np.asarray(values)
    return float(tensor)


def _dot(left: Array, right: Array) -> float:
    """Return the sum of all products, gathered in float64."""
    with precision("float64"):
        return float(_sum_of_products(left, right))


@jax.jit
def _sum_of_products(left: Array, right: Array) -> Array:
    return jnp.sum(left * right, dtype=jnp.float64)


@jax.jit
def _pair_gradients(
    factors: tuple[Array, ...], left: Array, right: Array
) -> tuple[Array, tuple[Array, ...]]:
    """Return ``sum_c left_c^T (K_1 (x) ... (x) K_d) right_c`` and its derivatives by every factor."""
    return jax.value_and_grad(lambda matrices: jnp.sum(left * kron_product(matrices, right)))(
        factors
    )


@jax.jit
def _pull_back(kernel: GridKernel, axes: Any, slopes: Any) -> GridKernel:
    _, pull = jax.vjp(lambda k: k.factors(axes), kernel)
    return pull(slopes)[0]


def _with_variance(by_kernel: GridKernel, by_scale: float) -> GridKernel:
    return eqx.tree_at(lambda k: k.variance, by_kernel, np.float64(by_scale))


def _gaussian(by_noise: float) -> Gaussian:
    """Return a likelihood that holds a derivative, which may be negative, in its leaf's place."""
    _, structure = jax.tree.flatten(Gaussian(1.0))
    return jax.tree.unflatten(structure, [np.float64(by_noise)])
