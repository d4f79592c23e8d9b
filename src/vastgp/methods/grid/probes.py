"""Unbiased log-determinants and traces on a grid with gaps, by random probes."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vastgp.linalg.kronecker import KroneckerEigen
from vastgp.methods.grid.gaps import FillGaps, GapSystem, solve_right_side
from vastgp.methods.grid.lanczos import quadrature_of
from vastgp.methods.grid.selected_spectrum import spectrum_of
from vastgp.methods.grid.solver import GridSolver

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
    full_spectrum : ndarray of shape (M,) or None
        Derivative by every eigenvalue of the whole grid's ``K + noise I``.
    """

    left: jax.Array
    right: jax.Array
    weight: float
    full_spectrum: np.ndarray | None


def probe_batch(num_probes: int, num_points: int) -> int:
    """Return how many probes go through a product together: vectors of the grid's length are what memory is for."""
    return max(1, min(num_probes, _BATCH_ENTRIES // num_points))


class GridProbes:
    """Random signs on the smaller of the two parts of a grid, the same in every call.

    ``log |K_XX + noise I| = log |K + noise I| + log |[(K + noise I)^-1]_ZZ|``, by Schur's complement: the first is
    known exactly from the eigenvalues of the factors, and only the second, a matrix of the gaps' size, needs probes.
    Where more points are gaps than not, the probes are put on the observed points and the matrix itself instead.

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
        self.on_gaps = 2 * solver.num_observed > observed.size
        self._mask = ~observed if self.on_gaps else observed
        self.num_steps = min(num_steps, max(int(self._mask.sum()), 1))
        self._seed = seed

    def _signs(self, numbers: range, mask: np.ndarray) -> jax.Array:
        # drawn anew where they are needed, as they are as long as the grid; each by its own number
        signs = np.stack(
            [
                np.random.default_rng([self._seed, number]).integers(0, 2, mask.size, np.int8)
                for number in numbers
            ]
        )
        return jnp.asarray(np.where(mask, 2 * signs - 1, 0), self.solver.dtype)

    def log_determinant(self, eigen: KroneckerEigen, noise: float) -> ProbeEstimate:
        """Return an unbiased estimate of ``log |K_XX + noise I|`` by stochastic Lanczos quadrature."""
        whole = float(np.sum(np.log(spectrum_of(eigen) + noise))) if self.on_gaps else 0.0
        if not self._mask.any():
            return ProbeEstimate(whole, 0.0)
        kind = "fill-gaps" if self.on_gaps else "ignore-gaps"
        system = _plain(self.solver, eigen, noise, kind)
        size = probe_batch(self.num_probes, self._mask.size)
        every = range(self.num_probes)
        each = np.concatenate(
            [
                quadrature_of(
                    np.log,
                    system,
                    self._signs(every[start : start + size], self._mask),
                    self.num_steps,
                )
                for start in range(0, self.num_probes, size)
            ]
        )
        return ProbeEstimate(whole + float(np.mean(each)), _standard_error(each))

    def log_determinant_pairs(self, eigen: KroneckerEigen, noise: float) -> PairTerm:
        """Return unbiased derivatives of the log-determinant, ``tr((K_XX + noise I)^-1 dA)``."""
        spectral = 1.0 / (spectrum_of(eigen) + noise) if self.on_gaps else None
        probes = self._signs(range(self.num_probes), self._mask)
        if self.on_gaps:
            # d log|B_ZZ| = tr(B_ZZ^-1 V dB V^T), dB = -B dA B, B = (K + noise I)^-1; the solution alpha of
            # the observed points with z as the gaps' right-hand side is not needed: u solves B_ZZ u = z
            system = self.solver.system(eigen, noise, "fill-gaps")
            assert isinstance(system, FillGaps)
            found = _solve_right_side(self.solver, system, probes)
            both = _inverse_products(system, jnp.concatenate([found, probes]))
            left, right = jnp.split(both, 2)
            return PairTerm(left, right, -1.0 / self.num_probes, spectral)
        system = self.solver.system(eigen, noise)
        solution = self.solver.solve(system, probes, remember="probes").weights
        return PairTerm(solution, probes, 1.0 / self.num_probes, None)

    def inverse_trace(self, eigen: KroneckerEigen, noise: float) -> tuple[ProbeEstimate, PairTerm]:
        """Return an unbiased estimate of ``tr (K_XX + noise I)^-1`` and its derivatives (Hutchinson)."""
        probes = self._signs(range(self.num_probes), self.solver.observed)
        system = self.solver.system(eigen, noise)
        solution = self.solver.solve(system, probes, remember="trace").weights
        each = np.asarray(jnp.sum(solution * probes, axis=1), dtype=np.float64)
        # d z^T A^-1 z = -(A^-1 z)^T dA (A^-1 z)
        pairs = PairTerm(solution, solution, -1.0 / self.num_probes, None)
        return ProbeEstimate(float(np.mean(each)), _standard_error(each)), pairs


def _plain(solver: GridSolver, eigen: KroneckerEigen, noise: float, kind: str) -> GapSystem:
    """Return a system without a preconditioner: Lanczos' iteration has none."""
    rank, solver.rank = solver.rank, 0
    try:
        return solver.system(eigen, noise, kind)
    finally:
        solver.rank = rank


def _solve_right_side(solver: GridSolver, system: FillGaps, right: jax.Array) -> jax.Array:
    """Return ``u`` with ``B_ZZ u = right``."""
    found, iterations = solve_right_side(
        system, right, tol=solver.tol, max_iter=solver.max_iter, deadline=solver.deadline
    )
    solver.iterations += iterations
    return found


@jax.jit
def _inverse_products(system: FillGaps, vectors: jax.Array) -> jax.Array:
    return system.inverse_product(vectors)


def _standard_error(each: np.ndarray) -> float:
    return float(np.std(each, ddof=1) / np.sqrt(len(each))) if len(each) > 1 else float("nan")
