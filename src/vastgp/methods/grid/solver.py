"""Which system of a grid with gaps is solved, and by how much work before its matrix is factorised."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import numpy as np

from vastgp._programs import program
from vastgp.linalg.kronecker import KroneckerEigen, kron_flops
from vastgp.methods.grid.dense_gaps import InverseOnMask, inverse_on_mask
from vastgp.methods.grid.gaps import (
    Diagonal,
    FilledGaps,
    GapSolution,
    GapSystem,
    IgnoredGaps,
    PenalisedGaps,
    solve_gaps,
)
from vastgp.methods.grid.known_errors import KnownErrors
from vastgp.methods.grid.selected_spectrum import (
    LowRankPlusDiagonal,
    fill_preconditioner,
    ignore_preconditioner,
    spectrum_of,
)

# Share of gaps up to which filling them is faster; see benchmarks/grid_sweep.py and docs/methods/grid_gp.md.
MOST_FILLED = 0.8
# A system of so few unknowns may be factorised: its matrix is made by so many operations at most.
_MOST_DIRECT, _DIRECT_FLOPS = 2048, 2e10
# That takes about as long as half as many iterations (of one right-hand side) as there are unknowns. So many are tried
# first, so that no solve takes more than twice the time of the better way; and never fewer than these.
_TRIED_SHARE, _LEAST_TRIED = 0.5, 50
# A preconditioner of eigenvectors pays from this many points on. Its factorisation may take as long as this many
# products of the system, and its rank be no more than that.
_LEAST_PRECONDITIONED, _PRODUCTS_A_FACTOR, _MOST_RANK = 2000, 50, 4096


def mostly_gaps(observed: np.ndarray) -> bool:
    """Return whether ignoring the gaps is faster than filling them."""
    return 1.0 - float(observed.mean()) > MOST_FILLED


@dataclass
class GridSolver:
    """How ``(K_XX + noise I) alpha_X = y_X`` is solved, at any hyperparameters.

    Attributes
    ----------
    observed : ndarray of bool, shape (M,)
    solver : {"fill-gaps", "ignore-gaps", "penalize-gaps"}
    dtype : {"float32", "float64"}
        Of vectors; the caller has set it as JAX's precision.
    tol : float
        Relative residual to reach.
    max_products : int
        Most iterations of a solve.
    rank : int or None
        Eigenvectors in the preconditioner, 0 for none. None: for ``"ignore-gaps"`` as many as have eigenvalues above
        the noise, at most 4096 and no more than are factorised in the time of 50 products; none for the others. But
        where either has few unknowns (at most 2048) and iterations do not end soon, their matrix is factorised.
    penalty : float
        Noise variance of the gaps for ``"penalize-gaps"``, relative to the prior variance.
    deadline : float or None
        Value of `vastgp.fitting.clock.now` at which iterations end.
    iterations, solves, factorisations : int
        Done so far.
    known : KnownErrors
        What is known of the errors of observed points.
    """

    observed: np.ndarray
    solver: str
    dtype: str = "float64"
    tol: float = 1e-6
    max_products: int = 1000
    rank: int | None = None
    penalty: float = 1e5
    deadline: float | None = None
    iterations: int = 0
    solves: int = 0
    factorisations: int = 0
    known: KnownErrors = field(default_factory=KnownErrors)

    @property
    def num_observed(self) -> int:
        """Number of observed points."""
        return int(self.observed.sum())

    @property
    def uniform(self) -> bool:
        """Whether all points are observed, with one noise: the eigenvectors of the grid solve the system."""
        return bool(self.observed.all()) and self.known.excess is None

    def at(self, eigen: KroneckerEigen, noise: float) -> GridSystem:
        """Return the system for a kernel matrix (float64, on the host) and a noise variance beside known errors."""
        return GridSystem(self, eigen, noise + self.known.least)


@dataclass
class GridSystem:
    """The system of one kernel matrix and noise variance. What it is made of is made once, and only when needed.

    Attributes
    ----------
    solver : GridSolver
    eigen : KroneckerEigen
        In float64, on the host.
    noise : float
        The least of any point.
    excess : ndarray of shape (M,), optional
        What points have beyond that, zero in the gaps; None where that is nothing but rounding.
    """

    solver: GridSolver
    eigen: KroneckerEigen
    noise: float
    excess: np.ndarray | None = field(init=False, repr=False)
    _made: dict[str, GapSystem] = field(default_factory=dict, repr=False)
    _ready_made: dict[str, GapSystem] = field(default_factory=dict, repr=False)
    _factors: set[str] = field(default_factory=set, repr=False)

    def __post_init__(self) -> None:
        self.excess = self.solver.known.above(self.noise, self.solver.dtype)

    def gaps(self, kind: str) -> GapSystem:
        """Return the system of a kind without a preconditioner, on the device."""
        if kind not in self._made:
            self._made[kind] = self._plain(kind)
        return self._made[kind]

    def unknowns(self, kind: str) -> np.ndarray:
        """Return which points are unknowns of the system of a kind, of shape (M,)."""
        observed = self.solver.observed
        if kind != "fill-gaps":
            return observed
        return ~observed if self.excess is None else ~observed | (self.excess > 0.0)

    def mean_diagonal(self, kind: str) -> np.ndarray | None:
        """Return what the system of a kind has on its diagonal, on average over points of equal noise.

        ``lambda + noise + R``, or ``1 / (lambda + noise)`` on average plus ``1 / R``; None where all have the same.
        """
        more = self._more(kind)
        if more is None:
            return None
        shifted = spectrum_of(self.eigen) + self.noise
        return float(np.mean(1.0 / shifted if kind == "fill-gaps" else shifted)) + more

    def solve(self, targets: jax.Array, tol: float | None = None) -> GapSolution:
        """Solve for every row of targets, zero in the gaps, to a relative residual, the solver's by default."""
        return self._solve(self.solver.solver, targets, tol or self.solver.tol, own=False)

    def fill(self, right: jax.Array) -> jax.Array:
        """Return ``u`` with ``[(K + noise I)^-1]_ZZ u = right``: both zero but in the gaps."""
        return self._solve("fill-gaps", right, self.solver.tol, own=True).unknown

    def _solve(self, kind: str, targets: jax.Array, tol: float, own: bool) -> GapSolution:
        solver = self.solver
        run = partial(solve_gaps, targets=targets, tol=tol, deadline=solver.deadline, own=own)
        system, limit = self._ready(kind, len(targets))
        found = run(system, most=min(limit, solver.max_products))
        done = found.iterations
        if not found.converged and limit <= done < solver.max_products:
            left = solver.max_products - done
            found = run(self._factorised(kind), start=found.unknown, most=left)
            found = found._replace(iterations=done + found.iterations)
        solver.iterations += found.iterations
        solver.solves += 1
        return found

    def coefficients(self, targets: jax.Array, found: GapSolution) -> jax.Array:
        """Return ``Q^T alpha`` of a solution.

        Predictions are made of these and not of ``alpha``: the parts along the eigenvectors of the largest eigenvalues
        are small, and in single precision they would drown in the rounding of the others.
        """
        system = self.gaps(self.solver.solver)
        if isinstance(system, FilledGaps):
            return _filled_coefficients(system, found.unknown, targets)
        return _rotated(self.eigen.astype(self.solver.dtype), found.weights)

    def filled(self, targets: jax.Array, found: GapSolution) -> jax.Array:
        """Return ``(K + noise I) alpha`` on the whole grid, of which `coefficients` are a product and a division."""
        if isinstance(self.gaps(self.solver.solver), FilledGaps):
            return targets + found.unknown
        eigen = self.eigen.astype(self.solver.dtype)
        return _shifted_products(eigen, found.weights, jax.device_put(self._number(self.noise)))

    def misfit_terms(self, targets: jax.Array, found: GapSolution) -> jax.Array:
        """Return what sums to ``y^T alpha``, to second order in the error where the system gives that."""
        return _misfit_terms(self.gaps(self.solver.solver), found.unknown, targets)

    # ------------------------------------------------------------ pieces

    def _plain(self, kind: str) -> GapSystem:
        observed, noise = jax.device_put((self.solver.observed, self._number(self.noise)))
        more = self._more(kind)
        if kind == "fill-gaps":
            eigen = self.eigen.astype(self.solver.dtype)
            if more is not None:
                more = jax.device_put(self._number(more))
            return FilledGaps(eigen, noise, observed, precision=more)
        if more is not None:
            noise = jax.device_put(self._number(self.noise + more))
        factors = jax.device_put(
            tuple(np.asarray(factor, self.solver.dtype) for factor in self.eigen.factors())
        )
        if kind == "ignore-gaps":
            return IgnoredGaps(factors, noise, observed)
        penalty = jax.device_put(self._number(self.solver.penalty * float(self.eigen.scale)))
        return PenalisedGaps(factors, noise, observed, penalty)

    def _more(self, kind: str) -> np.ndarray | None:
        """Return what known errors add to the diagonal of a system: ``R``, or its inverse where gaps are filled."""
        if self.excess is None or kind != "fill-gaps":
            return self.excess
        return np.divide(1.0, self.excess, out=np.zeros(self.excess.size), where=self.excess > 0.0)

    def _number(self, value: Any) -> np.ndarray:
        return np.asarray(value, self.solver.dtype)

    def _ready(self, kind: str, rows: int) -> tuple[GapSystem, int]:
        """Return the system to iterate with, and after how many iterations it is to be factorised instead."""
        if kind not in self._ready_made:
            self._ready_made[kind] = self.gaps(kind)
            rank = 0 if self._direct(kind) else self._rank(kind)
            diagonal = None if self._direct(kind) else self.mean_diagonal(kind)
            if rank:
                make = fill_preconditioner if kind == "fill-gaps" else ignore_preconditioner
                unknowns, dtype = self.unknowns(kind), self.solver.dtype
                more = self._more(kind)
                self._precondition(kind, make(self.eigen, self.noise, unknowns, rank, dtype, more))
            elif diagonal is not None:
                self._precondition(kind, Diagonal(jax.device_put(self._number(diagonal))))
        return self._ready_made[kind], self._tried(kind, rows)

    def _direct(self, kind: str) -> bool:
        """Return whether nothing is iterated: the preconditioner of penalised gaps is their own."""
        return kind == "penalize-gaps" or (self.excess is None and bool(self.solver.observed.all()))

    def _tried(self, kind: str, rows: int) -> int:
        count = int(self.unknowns(kind).sum())
        flops = 2 * count * kron_flops(self.eigen.shape)
        never = kind in self._factors or self._direct(kind) or self.solver.rank is not None
        if never or count > _MOST_DIRECT or flops > _DIRECT_FLOPS:
            return self.solver.max_products + 1
        return max(_LEAST_TRIED, int(_TRIED_SHARE * count / rows))

    def _factorised(self, kind: str) -> GapSystem:
        shifted = spectrum_of(self.eigen) + self.noise
        function = 1.0 / shifted if kind == "fill-gaps" else shifted
        self.solver.factorisations += 1
        self._factors.add(kind)
        unknowns, dtype, more = self.unknowns(kind), self.solver.dtype, self._more(kind)
        inverse = inverse_on_mask(self.eigen, function, unknowns, dtype, more)
        return self._precondition(kind, inverse)

    def _precondition(
        self, kind: str, by: LowRankPlusDiagonal | InverseOnMask | Diagonal
    ) -> GapSystem:
        system = self.gaps(kind)
        assert isinstance(system, (FilledGaps, IgnoredGaps))
        self._ready_made[kind] = replace(system, preconditioner=by)
        return self._ready_made[kind]

    def _rank(self, kind: str) -> int:
        solver, shape = self.solver, self.eigen.shape
        if solver.rank is not None:
            return min(solver.rank, solver.num_observed)
        if kind == "fill-gaps" or solver.observed.size < _LEAST_PRECONDITIONED:
            return 0
        # shares of the points, those of much noise in proportion
        counts = solver.observed / (1.0 if self.excess is None else 1.0 + self.excess / self.noise)
        share = float(np.mean(counts))
        above = int(np.count_nonzero(share * spectrum_of(self.eigen) > self.noise))
        most = (_PRODUCTS_A_FACTOR * kron_flops(shape)) ** (1 / 3)
        most = min(1 << int(math.log2(most)), _MOST_RANK)
        # powers of four: hyperparameters change, and compiled programs stay
        bits = max(above - 1, 15).bit_length()
        return min(1 << (bits + bits % 2), most, solver.num_observed)


@program(filtered=True)
def _filled_coefficients(system: FilledGaps, unknown: jax.Array, targets: jax.Array) -> jax.Array:
    return system.coefficients(unknown, targets)


@program
def _rotated(eigen: KroneckerEigen, vectors: jax.Array) -> jax.Array:
    return eigen.rotate(vectors)


@program
def _shifted_products(eigen: KroneckerEigen, vectors: jax.Array, shift: jax.Array) -> jax.Array:
    return eigen.apply(eigen.spectrum() + shift, vectors)


@program(filtered=True)
def _misfit_terms(system: GapSystem, unknown: jax.Array, targets: jax.Array) -> jax.Array:
    return system.misfit_terms(unknown, targets)
