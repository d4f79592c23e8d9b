"""Log evidence and generalised cross validation of a Gaussian process on a grid with gaps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from vastgp._precision import precision
from vastgp._programs import program
from vastgp.kernels import GridKernel
from vastgp.kernels.matrices import grid_factors
from vastgp.linalg.cholesky import factorize
from vastgp.linalg.kronecker import Known, KroneckerEigen, kron_eigen, kron_product
from vastgp.methods.grid.gaps import GapSolution
from vastgp.methods.grid.noise import OutputNoise, common_noise
from vastgp.methods.grid.probes import GridProbes, PairTerm
from vastgp.methods.grid.solver import GridSolver, GridSystem
from vastgp.methods.grid.spectrum import (
    SPECTRAL_TERMS,
    Term,
    along_factors,
    compressed_log_determinant,
)

# Kernel, and the noise variance: one, or one for each output.
Params = tuple[GridKernel, Any]


class GridFit(NamedTuple):
    """A solve at given hyperparameters.

    Attributes
    ----------
    system : GridSystem
        With the eigendecomposition of the kernel matrix, and the noise: that of all outputs, brought to one.
    targets : Array of shape (1, M)
        Values, zero in the gaps.
    solution : GapSolution
    misfit : float
        ``y^T alpha``.
    log_units : float
        What the units of the values take from the log evidence.
    """

    system: GridSystem
    targets: Array
    solution: GapSolution
    misfit: float
    log_units: float = 0.0

    def filled(self) -> np.ndarray:
        """Return ``(K + noise I) alpha``, of shape (M,): the values, filled in where they are missing."""
        with precision(self.system.solver.dtype):
            return np.asarray(self.system.filled(self.targets, self.solution))[0]


class GridObjective:
    """The criterion of hyperparameters, with derivatives by each of them.

    ``criterion="evidence"``: ``-1/2 y^T alpha - 1/2 log |K_XX + noise I| - N/2 log(2 pi)`` (thesis, equation (3.1)).
    ``criterion="gcv"``: ``-N/2 log(N |alpha|^2 / tr[(K_XX + noise I)^-1]^2)``, generalised cross validation (equation
    (B.8), whose print lacks the square; docs/errata.md) turned over and brought to the size of an evidence.

    One eigendecomposition of every factor and one solve make a value; derivatives need no further eigendecomposition
    (and one more solve for ``"gcv"``). The evidence of one group without gaps takes a Cholesky factor and its inverse
    for both, a quarter of the time at 2,000 points. A value depends on the hyperparameters alone, and not on those
    tried before.

    Parameters
    ----------
    axes : sequence of ndarray of shape (m_l, d_l)
    y : ndarray of shape (M,)
        Standardised values, anything in the gaps.
    solver : GridSolver
    criterion : {"evidence", "gcv"}
    probes : GridProbes, optional
        Unbiased log-determinants (traces) by these.
    spectrum : {"free-compression", "nystrom"}, default "free-compression"
        From which eigenvalues they are computed without probes.
    outputs : int, optional
        Which group is that of outputs, where each has a noise variance of its own.
    tol : float, optional
        Relative residual of the solves behind derivatives, the solver's by default. Values of the evidence have errors
        of its square, and derivatives are those of the values.
    known : Known, optional
        Eigendecompositions that other fits began with; those that this one begins with are added.
    """

    def __init__(
        self,
        axes: Sequence[np.ndarray],
        y: np.ndarray,
        solver: GridSolver,
        criterion: str = "evidence",
        probes: GridProbes | None = None,
        spectrum: str = "free-compression",
        outputs: int | None = None,
        tol: float | None = None,
        known: Known | None = None,
    ) -> None:
        self.axes = tuple(np.asarray(axis, dtype=np.float64) for axis in axes)
        self.solver = solver
        self.criterion = criterion
        self.probes = probes
        self.spectrum = spectrum
        shape = tuple(len(axis) for axis in self.axes)
        self.outputs = None if outputs is None else OutputNoise.of(outputs, shape, solver.observed)
        self.num_observed = solver.num_observed
        self.tol = tol
        self.known, self._begun = known, False
        with precision(solver.dtype):
            y = np.where(solver.observed, y, 0.0)[None, :]
            self.y = jax.device_put(y.astype(solver.dtype))

    # ------------------------------------------------------------ pieces

    def eigen(self, kernel: GridKernel, ratios: np.ndarray | None = None) -> KroneckerEigen:
        """Return the eigendecomposition of the kernel matrix of the whole grid.

        Parameters
        ----------
        kernel : GridKernel
        ratios : ndarray of shape (k,), optional
            Units of the outputs.
        """
        factors = self._factors(kernel)
        if ratios is not None and self.outputs is not None:
            position = self.outputs.position
            factors[position] = self.outputs.factor(factors[position], ratios)
        # hyperparameters that were tried do not come again, in this fit or another
        keep, self._begun = not self._begun, True
        return kron_eigen(factors, float(kernel.variance), self.known, keep=keep)

    def _factors(self, kernel: GridKernel) -> list[np.ndarray]:
        with precision("float64"):
            return [np.asarray(factor) for factor in grid_factors(_traced(kernel), self.axes)]

    def solve(self, kernel: GridKernel, noise: Any, tol: float | None = None) -> GridFit:
        """Return ``alpha`` at given hyperparameters: one noise variance, or one for each output.

        To a relative residual ``tol``, the solver's by default.
        """
        ratios, log_units = None, 0.0
        if np.ndim(noise) and self.outputs is not None:
            noise, ratios = common_noise(np.asarray(noise))
            log_units = self.outputs.log_units(ratios)
        noise = float(noise)
        eigen = self.eigen(kernel, ratios)
        with precision(self.solver.dtype):
            targets = self.y
            if ratios is not None and self.outputs is not None:
                targets = self.outputs.scaled(self.y, ratios.astype(self.solver.dtype))
            system = self.solver.at(eigen, noise)
            found = system.solve(targets, tol)
            terms = system.misfit_terms(targets, found)
        return GridFit(system, targets, found, _total(terms), log_units)

    def spectral_term(self, system: GridSystem) -> Term:
        """Return the log-determinant (evidence) or the trace of the inverse (GCV)."""
        evidence = self.criterion == "evidence"
        if self.probes is None:
            return self.by_eigenvalues(system, self.criterion)
        traces: list[np.ndarray] = []
        with precision(self.solver.dtype):
            value = self.probes.log_determinant(system).value if evidence else 0.0
            total = Term(value, tuple(np.zeros((m, m)) for m in system.eigen.shape), 0.0, 0.0)
            pairs = self.probes.log_determinant_pairs if evidence else self.probes.inverse_trace
            # batch by batch, as a batch is as long as its probes times the grid
            for each in pairs(system):
                traces.append(each.values)
                total = total.plus(self._from_pairs(system.eigen, each))
        return total if evidence else total._replace(value=float(np.mean(np.concatenate(traces))))

    def by_eigenvalues(self, system: GridSystem, criterion: str) -> Term:
        """Return that of a criterion from the eigenvalues of the whole grid, as ``spectrum`` says."""
        numbers = system.eigen, system.noise, self.num_observed
        if system.excess is not None:  # free compression alone has an answer
            return compressed_log_determinant(*numbers, system.excess[self.solver.observed])
        return SPECTRAL_TERMS[self.spectrum][0 if criterion == "evidence" else 1](*numbers)

    # ------------------------------------------------------------ value and gradient

    def __call__(self, kernel: GridKernel, noise: Any) -> float:
        """Return the criterion."""
        fit = self.solve(kernel, noise)
        return self.value(fit, self.spectral_term(fit.system).value)

    def value(self, fit: GridFit, spectral: float) -> float:
        """Return the criterion from a solve and the log-determinant (evidence) or the trace (GCV)."""
        n = self.num_observed
        if self.criterion == "evidence":
            evidence = -0.5 * (fit.misfit + spectral + n * math.log(2.0 * math.pi))
            return evidence - fit.log_units
        alpha = self._observed_weights(fit)
        squares = _total(alpha, alpha)
        return -0.5 * n * math.log(n * squares / spectral**2)

    def objective(self, params: Params) -> tuple[float, Params]:
        """Return the criterion and its derivatives by every hyperparameter, a pytree like ``params``."""
        kernel, noises = params[0], np.asarray(params[1], dtype=np.float64)
        if self.is_one_matrix:
            both = one_matrix_evidence(self._factors(kernel)[0], kernel, float(noises), self.y[0])
            value, each, by_noises = both.value, list(both.by_factors), np.asarray(both.by_noise)
        else:
            value, both, each, by_noises = self._by_eigenvectors(kernel, noises)
        with precision("float64"):
            by_kernel = _pull_back(_traced(kernel), self.axes, tuple(each))
        by_kernel = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), by_kernel)
        by_kernel = _with_variance(by_kernel, both.by_scale)
        return value, (by_kernel, by_noises)

    @property
    def is_one_matrix(self) -> bool:
        """Whether the log evidence is that of one matrix, all of whose rows were observed with one noise."""
        plain = self.criterion == "evidence" and self.probes is None and self.outputs is None
        return plain and self.solver.uniform and len(self.axes) == 1

    def _by_eigenvectors(
        self, kernel: GridKernel, noises: np.ndarray
    ) -> tuple[float, Term, list[np.ndarray], np.ndarray]:
        """Return the criterion, its derivatives, and those by factors and noises in the units of the values."""
        fit = self.solve(kernel, noises, self.tol)
        spectral = self.spectral_term(fit.system)
        value = self.value(fit, spectral.value)
        with precision(self.solver.dtype):
            pairs, of_spectral = self._data_pairs(fit, spectral.value)
            both = self._from_pairs(fit.system.eigen, pairs).plus(spectral, of_spectral)
        each, by_noises = list(both.by_factors), np.asarray(both.by_noise)
        if noises.ndim and self.outputs is not None:
            by_noises = self._by_noises(fit, noises, both.by_noise, each)
        return value, both, each, by_noises

    def _by_noises(
        self, fit: GridFit, noises: np.ndarray, by_common: float, by_factors: list[np.ndarray]
    ) -> np.ndarray:
        """Return derivatives by the noise of every output; that by their factor becomes one in the values' units."""
        assert self.outputs is not None
        position = self.outputs.position
        Q, t = (np.asarray(part[position]) for part in fit.system.eigen[:2])
        _, ratios = common_noise(noises)
        products = np.asarray(fit.targets, np.float64) * np.asarray(
            fit.solution.weights, np.float64
        )
        factor, by_factor = (Q * t) @ Q.T, by_factors[position]
        by_factors[position] = self.outputs.factor(by_factor, ratios)
        return self.outputs.by_each(noises, ratios, by_common, by_factor, factor, products)

    def _data_pairs(self, fit: GridFit, spectral: float) -> tuple[PairTerm, float]:
        """Return the derivative of what depends on the data, and the factor of the spectral term's."""
        n = self.num_observed
        if self.criterion == "evidence":
            # d(-1/2 y^T A^-1 y) = 1/2 alpha^T dA alpha, exactly that of the value at an approximate solution
            return PairTerm(fit.solution.weights, fit.solution.weights, 0.5, None), -0.5
        # d |alpha|^2 = -2 beta^T dA alpha with beta = A^-1 alpha
        alpha = self._observed_weights(fit)
        beta = fit.system.solve(alpha).weights
        return PairTerm(beta, alpha, n / _total(alpha, alpha), None), n / spectral

    def _observed_weights(self, fit: GridFit) -> Array:
        """Return ``alpha`` without what filling left of it in the gaps."""
        with precision(self.solver.dtype):
            return _masked(self.solver.observed, fit.solution.weights)

    def _from_pairs(self, eigen: KroneckerEigen, pairs: PairTerm) -> Term:
        """Return the derivatives that bilinear forms stand for."""
        scale = float(eigen.scale)
        factors = eigen._replace(scale=1.0).factors()
        cast = tuple(np.asarray(factor, self.solver.dtype) for factor in factors)
        value, slopes = _pair_gradients(cast, pairs.left, pairs.right)
        by_scale = pairs.weight * float(value)
        by_factors = [pairs.weight * scale * np.asarray(slope, np.float64) for slope in slopes]
        by_noise = pairs.weight * _total(pairs.left, pairs.right)
        if pairs.full_spectrum is not None:
            slopes_of_whole = pairs.full_spectrum
            by_scale += _by_scale(slopes_of_whole, eigen)
            by_noise += float(np.sum(slopes_of_whole))
            each = along_factors(scale * slopes_of_whole, eigen)
            for i, (Q, g) in enumerate(zip(eigen.vectors, each, strict=True)):
                by_factors[i] = by_factors[i] + (Q * g) @ Q.T
        return Term(0.0, tuple(by_factors), by_scale, by_noise)


def one_matrix_evidence(K: np.ndarray, kernel: GridKernel, noise: float, y: Any) -> Term:
    """Return ``log p(y)`` with ``A = s K + noise I`` and its derivatives, by a Cholesky factor, in float64.

    ``d log p = 1/2 sum_ij (alpha alpha^T - A^-1)_ij dA_ij`` (Rasmussen and Williams 2006, equation 5.9).
    """
    scale, y = float(kernel.variance), np.asarray(y, np.float64)
    factor = factorize(scale * K, noise, what="the kernel matrix of the grid, with its noise,")
    alpha = factor.solve(y)
    value = y @ alpha + factor.log_determinant + len(y) * math.log(2.0 * math.pi)
    by_matrix = 0.5 * (np.outer(alpha, alpha) - factor.into_whole_inverse())
    by_scale = float(np.vdot(by_matrix, K))
    return Term(-0.5 * float(value), (scale * by_matrix,), by_scale, float(np.trace(by_matrix)))


def best_amplitude(objective: GridObjective, kernel: GridKernel, noise: float) -> float:
    """Return the factor of kernel and noise together that maximises the evidence: ``y^T alpha / N``.

    Generalised cross validation does not depend on it, and predictive variances do.
    """
    return objective.solve(kernel, noise).misfit / objective.num_observed


def _by_scale(slopes: np.ndarray, eigen: KroneckerEigen) -> float:
    tensor = slopes.reshape(eigen.shape)
    for values in reversed(eigen.values):
        tensor = tensor @ np.asarray(values)
    return float(tensor)


def _total(*factors: Array) -> float:
    """Return the sum of all products, gathered in float64."""
    with precision("float64"):
        return float(_sum_of_products(factors))


@program
def _sum_of_products(factors: tuple[Array, ...]) -> Array:
    return jnp.sum(reduce(jnp.multiply, factors), dtype=jnp.float64)


@program
def _masked(mask: Any, vectors: Array) -> Array:
    return jnp.where(mask, vectors, 0.0)


@program
def _pair_gradients(
    factors: tuple[Array, ...], left: Array, right: Array
) -> tuple[Array, tuple[Array, ...]]:
    """Return ``sum_c left_c^T (K_1 (x) ... (x) K_d) right_c`` and its derivatives by every factor."""
    return jax.value_and_grad(lambda matrices: jnp.sum(left * kron_product(matrices, right)))(
        factors
    )


def _traced(kernel: GridKernel) -> GridKernel:
    """Return a kernel of arrays: numbers, which a user gives, would be another program."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), kernel)


@program
def _pull_back(kernel: GridKernel, axes: Any, slopes: Any) -> GridKernel:
    _, pull = jax.vjp(lambda k: k.factors(axes), kernel)
    return pull(slopes)[0]


def _with_variance(by_kernel: GridKernel, by_scale: float) -> GridKernel:
    return eqx.tree_at(lambda k: k.variance, by_kernel, np.float64(by_scale))
