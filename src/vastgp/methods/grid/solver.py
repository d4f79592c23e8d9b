"""Which system of a grid with gaps is solved, and the solutions that the next one starts from."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from vastgp.linalg.kronecker import KroneckerEigen, kron_flops
from vastgp.methods.grid.dense_gaps import InverseOnMask, inverse_on_mask
from vastgp.methods.grid.gaps import (
    FillGaps,
    GapSolution,
    GapSystem,
    IgnoreGaps,
    PenaliseGaps,
    solve_gaps,
)
from vastgp.methods.grid.selected_spectrum import (
    LowRankPlusDiagonal,
    fill_preconditioner,
    ignore_preconditioner,
    spectrum_of,
)

SOLVERS = ("fill-gaps", "ignore-gaps", "penalize-gaps")
# Share of gaps up to which filling them is faster; see benchmarks/grid_sweep.py and docs/methods/grid_gp.md.
MOST_FILLED = 0.8
# A system of so few unknowns is factorised: its matrix is made by so many operations at most, half a second or so.
_MOST_DIRECT, _DIRECT_FLOPS = 2048, 2e10
# A preconditioner of eigenvectors pays from this many points on. Its factorisation may take as long as this many
# products of the system, and its rank be no more than that.
_LEAST_PRECONDITIONED, _PRODUCTS_A_FACTOR, _MOST_RANK = 2000, 50, 4096


def choose_solver(solver: str, gap_share: float) -> str:
    """Return the solver that ``"auto"`` stands for, others as they are."""
    if solver != "auto":
        return solver
    return "fill-gaps" if gap_share <= MOST_FILLED else "ignore-gaps"


@dataclass
class GridSolver:
    """Solves ``(K_XX + noise I) alpha_X = y_X`` by one of the three systems; remembers where it ended.

    Attributes
    ----------
    observed : ndarray of bool, shape (M,)
    solver : {"fill-gaps", "ignore-gaps", "penalize-gaps"}
    dtype : {"float32", "float64"}
        Of vectors; the caller has set it as JAX's precision.
    tol : float
        Relative residual to reach.
    max_iter : int
        Most iterations of a solve.
    rank : int or None
        Eigenvectors in the preconditioner, 0 for none. None: for ``"ignore-gaps"`` as many as have eigenvalues above
        the noise, at most 4096 and no more than are factorised in the time of 50 products; none for the others. But
        where either has few unknowns (at most 2048), their matrix is factorised and no iteration needed.
    penalty : float
        Noise variance of the gaps for ``"penalize-gaps"``, relative to the prior variance.
    deadline : float or None
        Value of ``time.perf_counter()`` at which iterations end.
    iterations, solves : int
        Done so far.
    """

    observed: np.ndarray
    solver: str
    dtype: str = "float64"
    tol: float = 1e-6
    max_iter: int = 1000
    rank: int | None = None
    penalty: float = 1e5
    deadline: float | None = None
    iterations: int = 0
    solves: int = 0
    _last: dict[str, jax.Array] = field(default_factory=dict, repr=False)

    @property
    def num_observed(self) -> int:
        """Number of observed points."""
        return int(self.observed.sum())

    def system(self, eigen: KroneckerEigen, noise: float, kind: str | None = None) -> GapSystem:
        """Return the system for a kernel matrix and a noise variance.

        Parameters
        ----------
        eigen : KroneckerEigen
            In float64, on the host.
        noise : float
        kind : str, optional
            Another system than that of the solver.
        """
        kind = self.solver if kind is None else kind
        cast = eigen.astype(self.dtype)
        observed, sigma2 = jnp.asarray(self.observed), jnp.asarray(noise, self.dtype)
        if kind == "fill-gaps":
            return FillGaps(cast, sigma2, observed, self._preconditioner(kind, eigen, cast, noise))
        if kind == "ignore-gaps":
            pre = self._preconditioner(kind, eigen, cast, noise)
            return IgnoreGaps(cast.factors(), sigma2, observed, pre)
        penalty = jnp.asarray(self.penalty * float(eigen.scale), self.dtype)
        return PenaliseGaps(cast.factors(), sigma2, observed, penalty)

    def solve(
        self, system: GapSystem, targets: jax.Array, remember: str | None = None
    ) -> GapSolution:
        """Solve for every row of targets (zero in the gaps).

        Parameters
        ----------
        system : GapSystem
        targets : Array of shape (C, M)
        remember : str, optional
            Name of these targets: the solve starts where the last one of that name ended.
        """
        start = self._last.get(remember) if remember is not None else None
        if start is not None and start.shape != targets.shape:
            start = None
        found = solve_gaps(
            system,
            targets,
            start,
            tol=self.tol,
            max_iter=self.max_iter,
            deadline=self.deadline,
        )
        if remember is not None:
            self._last[remember] = found.unknown
        self.iterations += found.iterations
        self.solves += 1
        return found

    def coefficients(
        self, eigen: KroneckerEigen, system: GapSystem, targets: jax.Array, found: GapSolution
    ) -> jax.Array:
        """Return ``Q^T alpha`` of a solution.

        Predictions are made of these and not of ``alpha``: the parts along the eigenvectors of the largest eigenvalues
        are small, and in single precision they would drown in the rounding of the others.
        """
        if isinstance(system, FillGaps):
            return _filled_coefficients(system, found.unknown, targets)
        return _rotated(eigen.astype(self.dtype), found.weights)

    def forget(self) -> None:
        """Let go of the vectors that later solves would start from."""
        self._last.clear()

    def _preconditioner(
        self, kind: str, eigen: KroneckerEigen, cast: KroneckerEigen, noise: float
    ) -> LowRankPlusDiagonal | InverseOnMask | None:
        if self.observed.all():
            return None
        fill = kind == "fill-gaps"
        unknowns = ~self.observed if fill else self.observed
        flops = 2 * int(unknowns.sum()) * kron_flops(eigen.shape)
        if self.rank is None and unknowns.sum() <= _MOST_DIRECT and flops <= _DIRECT_FLOPS:
            shifted = spectrum_of(eigen) + noise
            return inverse_on_mask(eigen, 1.0 / shifted if fill else shifted, unknowns, self.dtype)
        rank = self._rank(kind, eigen, noise)
        if not rank:
            return None
        make = fill_preconditioner if fill else ignore_preconditioner
        return make(cast, noise, jnp.asarray(self.observed), rank)

    def _rank(self, kind: str, eigen: KroneckerEigen, noise: float) -> int:
        if self.rank is not None:
            return min(self.rank, int(self.observed.sum()))
        if kind == "fill-gaps" or self.observed.size < _LEAST_PRECONDITIONED:
            return 0
        share = self.num_observed / self.observed.size
        above = int(np.count_nonzero(share * spectrum_of(eigen) > noise))
        # powers of two: hyperparameters change, and compiled programs stay
        most = (_PRODUCTS_A_FACTOR * kron_flops(eigen.shape)) ** (1 / 3)
        most = min(1 << int(math.log2(most)), _MOST_RANK)
        return min(1 << max(above - 1, 15).bit_length(), most, self.num_observed)


@jax.jit
def _filled_coefficients(system: FillGaps, unknown: jax.Array, targets: jax.Array) -> jax.Array:
    return system.coefficients(unknown, targets)


@jax.jit
def _rotated(eigen: KroneckerEigen, vectors: jax.Array) -> jax.Array:
    return eigen.rotate(vectors)
