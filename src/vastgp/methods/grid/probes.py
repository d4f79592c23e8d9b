"""Unbiased log-determinants and traces on a grid with gaps, by random probes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from vastgp._programs import program
from vastgp.methods.grid.gaps import FilledGaps, GapSystem
from vastgp.methods.grid.lanczos import quadrature_of
from vastgp.methods.grid.selected_spectrum import spectrum_of
from vastgp.methods.grid.solver import GridSolver, GridSystem, mostly_gaps

# Numbers in the probes of one product.
_BATCH_ENTRIES = 1 << 25


class ProbeEstimate(NamedTuple):
    """An unbiased estimate.

    Attributes
    ----------
    value, standard_error : float
    """

    value: float
    standard_error: float


class PairTerm(NamedTuple):
    """Derivatives of an estimate as bilinear forms: ``sum_c w_c left_c^T dA right_c`` plus a spectral part.

    Attributes
    ----------
    left, right : Array of shape (C, M)
    weight : float
        The same for every pair.
    full_spectrum : ndarray of shape (M,), optional
        Derivative by every eigenvalue of the whole grid's ``K + noise I``.
    values : ndarray of shape (C,), optional
        The estimate of every probe.
    """

    left: jax.Array
    right: jax.Array
    weight: float
    full_spectrum: np.ndarray | None = None
    values: np.ndarray = np.zeros(0)


def probe_batch(num_probes: int, num_points: int) -> int:
    """Return how many probes go through a product together: vectors of the grid's length are what memory is for."""
    return max(1, min(num_probes, _BATCH_ENTRIES // num_points))


class GridProbes:
    """Random signs on the smaller of the two parts of a grid, the same in every call.

    ``log |K_XX + noise I| = log |K + noise I| + log |[(K + noise I)^-1]_ZZ|``, by Schur's complement: the first is
    known exactly from the eigenvalues of the factors, and only the second, a matrix of the gaps' size, needs probes.
    Where gaps are many enough to be ignored by solvers, the probes are put on the observed points and the matrix itself
    instead. Elsewhere that matrix is the worse conditioned one, for which Lanczos' iteration takes more steps.

    With known errors, ``s`` the least noise, ``R`` what points have more (infinite in the gaps), ``U`` the points where
    that is not zero and ``B = (K + s I)^-1``, it is ``log |B^-1| + log |(B + R^-1)_UU| + sum_(observed U) log R_i``.
    Either matrix is divided by its mean diagonal ``J`` first: probes of one near the identity have little variance.

    Parameters
    ----------
    solver : GridSolver
    num_probes : int
    num_steps : int
        Of Lanczos' iteration.
    seed : int
    """

    def __init__(self, solver: GridSolver, num_probes: int, num_steps: int, seed: int) -> None:
        self.solver = solver
        self.num_probes = num_probes
        observed = solver.observed
        self.on_gaps = not mostly_gaps(observed)
        self._kind = "fill-gaps" if self.on_gaps else "ignore-gaps"
        self._num_steps = num_steps
        self._seed = seed

    def log_determinant(self, system: GridSystem) -> ProbeEstimate:
        """Return an unbiased estimate of ``log |K_XX + noise I|`` by stochastic Lanczos quadrature."""
        spectrum = spectrum_of(system.eigen) + system.noise
        whole = float(np.sum(np.log(spectrum))) if self.on_gaps else 0.0
        mask, diagonal = system.unknowns(self._kind), system.mean_diagonal(self._kind)
        if not mask.any():
            return ProbeEstimate(whole, 0.0)
        # Lanczos' iteration has no preconditioner
        matrix: Any = system.gaps(self._kind)
        if diagonal is not None:
            matrix = _Scaled(matrix, jax.device_put(np.asarray(diagonal**-0.5, self.solver.dtype)))
            whole += float(np.sum(np.log(diagonal[mask])))
            if self.on_gaps and system.excess is not None:
                whole += float(np.sum(np.log(system.excess[mask & self.solver.observed])))
        steps = min(self._num_steps, int(mask.sum()))
        each = [quadrature_of(np.log, matrix, probes, steps) for probes in self._batches(mask)]
        return estimate_of(np.concatenate(each), whole)

    def log_determinant_pairs(self, system: GridSystem) -> Iterator[PairTerm]:
        """Yield unbiased derivatives of the log-determinant, ``tr((K_XX + noise I)^-1 dA)``, batch by batch.

        With known errors ``z^T J^(1/2) A^-1 dA J^(-1/2) z``, whose mean is the same.
        """
        mask, diagonal = system.unknowns(self._kind), system.mean_diagonal(self._kind)
        if not self.on_gaps:
            for probes in self._batches(mask):
                left, right = _divided(probes, diagonal)
                yield PairTerm(system.solve(left).weights, right, 1.0 / self.num_probes)
            return
        # d log|B_ZZ| = tr(B_ZZ^-1 V dB V^T), dB = -B dA B, B = (K + noise I)^-1; the solution alpha of
        # the observed points with z as the gaps' right-hand side is not needed: u solves B_ZZ u = z
        spectral: np.ndarray | None = 1.0 / (spectrum_of(system.eigen) + system.noise)
        gaps = system.gaps("fill-gaps")
        assert isinstance(gaps, FilledGaps)
        for probes in self._batches(mask):
            left, right = _divided(probes, diagonal)
            left, right = _inverse_products(gaps, system.fill(left), right)
            yield PairTerm(left, right, -1.0 / self.num_probes, spectral)
            spectral = None

    def inverse_trace(self, system: GridSystem) -> Iterator[PairTerm]:
        """Yield Hutchinson's estimates of ``tr (K_XX + noise I)^-1`` and derivatives of their mean, batch by batch."""
        for probes in self._batches(self.solver.observed):
            solution = system.solve(probes).weights
            each = np.asarray(_row_products(solution, probes), dtype=np.float64)
            # d z^T A^-1 z = -(A^-1 z)^T dA (A^-1 z)
            yield PairTerm(solution, solution, -1.0 / self.num_probes, values=each)

    def _batches(self, mask: np.ndarray) -> Iterator[jax.Array]:
        """Yield random signs on a mask, drawn anew as they are as long as the grid; each by its own number."""
        size = probe_batch(self.num_probes, mask.size)
        for start in range(0, self.num_probes, size):
            signs = np.zeros((min(size, self.num_probes - start), mask.size), self.solver.dtype)
            for row, number in zip(signs, range(start, self.num_probes), strict=False):
                draws = np.random.default_rng([self._seed, number])
                row[:] = np.where(mask, 2 * draws.integers(0, 2, mask.size, np.int8) - 1, 0)
            yield jax.device_put(signs)


def estimate_of(each: np.ndarray, shift: float = 0.0) -> ProbeEstimate:
    """Return the mean over probes, moved by a known number, and its standard error."""
    error = float(np.std(each, ddof=1) / np.sqrt(len(each))) if len(each) > 1 else float("nan")
    return ProbeEstimate(shift + float(np.mean(each)), error)


class _Scaled(eqx.Module):
    """``D A D`` of a system's matrix ``A`` and a diagonal ``D``.

    Attributes
    ----------
    system : GapSystem
    roots : Array of shape (M,)
        ``D``.
    """

    system: GapSystem
    roots: jax.Array

    def product(self, vectors: jax.Array) -> jax.Array:
        """Return ``D A D v`` for every row."""
        return self.roots * self.system.product(self.roots * vectors)


def _divided(probes: jax.Array, diagonal: np.ndarray | None) -> tuple[jax.Array, jax.Array]:
    """Return ``J^(1/2) z`` and ``J^(-1/2) z``."""
    if diagonal is None:
        return probes, probes
    roots = np.asarray(diagonal**0.5, probes.dtype)
    return probes * roots, probes / roots


@program(filtered=True)
def _inverse_products(
    system: FilledGaps, found: jax.Array, probes: jax.Array
) -> tuple[jax.Array, jax.Array]:
    return system.inverse_product(found), system.inverse_product(probes)


@program
def _row_products(left: jax.Array, right: jax.Array) -> jax.Array:
    return jnp.sum(left * right, axis=1)
