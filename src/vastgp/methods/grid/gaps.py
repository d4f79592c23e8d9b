"""Systems of a Kronecker product plus a multiple of the identity, on a grid with gaps.

Wanted is ``alpha`` with ``(K_XX + noise I) alpha_X = y_X`` and ``alpha_Z = 0``: ``X`` are the observed points of the
grid and ``Z`` its gaps. Three systems have it as their solution (thesis, section 3.3); all work on rows of the grid's
length, in which points that are no unknowns of theirs stay zero, so that no index lists are needed.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from vastgp.linalg.kronecker import KroneckerEigen, kron_flops, kron_product
from vastgp.methods.grid.dense_gaps import InverseOnMask
from vastgp.methods.grid.selected_spectrum import LowRankPlusDiagonal
from vastgp.solvers.cg import CGState, cg_start, run_cg

# Steps between two looks at clock and true residual: at most this many, and as many as take a second or so.
_CHUNK, _CHUNK_FLOPS = 50, 1e11
# Passes, each to a tenth of the last one's goal or less, that leave more than this share of the true residual: after
# so many in a row the limit of the precision is met.
_NO_PROGRESS, _MOST_WITHOUT = 0.7, 3


class IgnoredGaps(eqx.Module):
    """``W (K + noise I) W^T alpha_X = y_X`` (thesis, Proposition 3.2): the unknowns are the observed points.

    Attributes
    ----------
    factors : tuple of Array of shape (m_l, m_l)
    noise : scalar Array
    observed : Array of bool, shape (M,)
    preconditioner : LowRankPlusDiagonal, InverseOnMask or None
        Equation (3.7), or the system's inverse.
    """

    factors: tuple[Array, ...]
    noise: Array
    observed: Bool[Array, " M"]
    preconditioner: LowRankPlusDiagonal | InverseOnMask | None = None

    def right_side(self, targets: Float[Array, "C M"]) -> Float[Array, "C M"]:
        """Return the right-hand side for targets that are zero in the gaps."""
        return targets

    def product(self, vectors: Float[Array, "C M"]) -> Float[Array, "C M"]:
        """Return the system's matrix times every row."""
        products = kron_product(self.factors, vectors) + self.noise * vectors
        return jnp.where(self.observed, products, 0.0)

    def precondition(self, vectors: Float[Array, "C M"]) -> Float[Array, "C M"]:
        """Return an approximate inverse times every row."""
        return vectors if self.preconditioner is None else self.preconditioner.solve(vectors)

    def weights(self, unknown: Array, targets: Array) -> Float[Array, "C M"]:
        """Return ``alpha`` from the unknowns of the system."""
        return unknown

    def misfit_terms(self, unknown: Array, targets: Array) -> Float[Array, "C M"]:
        """Return what sums to ``y^T A^-1 y`` to second order in the error: ``2 y^T alpha - alpha^T A alpha``."""
        return unknown * (2.0 * targets - self.product(unknown))


class FilledGaps(eqx.Module):
    """``V (K + noise I)^-1 V^T y_Z = -V (K + noise I)^-1 W^T y_X`` (Proposition 3.3): the unknowns are the gaps.

    Attributes
    ----------
    eigen : KroneckerEigen
    noise : scalar Array
    observed : Array of bool, shape (M,)
    preconditioner : LowRankPlusDiagonal, InverseOnMask or None
        Equation (3.8), or the system's inverse.
    """

    eigen: KroneckerEigen
    noise: Array
    observed: Bool[Array, " M"]
    preconditioner: LowRankPlusDiagonal | InverseOnMask | None = None

    def inverse_product(self, vectors: Float[Array, "C M"]) -> Float[Array, "C M"]:
        """Return ``(K + noise I)^-1 v`` on the whole grid."""
        return self.eigen.apply(1.0 / (self.eigen.spectrum() + self.noise), vectors)

    def right_side(self, targets: Float[Array, "C M"]) -> Float[Array, "C M"]:
        """Return the right-hand side for targets that are zero in the gaps."""
        return jnp.where(self.observed, 0.0, -self.inverse_product(targets))

    def product(self, vectors: Float[Array, "C M"]) -> Float[Array, "C M"]:
        """Return the system's matrix times every row."""
        return jnp.where(self.observed, 0.0, self.inverse_product(vectors))

    def precondition(self, vectors: Float[Array, "C M"]) -> Float[Array, "C M"]:
        """Return an approximate inverse times every row."""
        return vectors if self.preconditioner is None else self.preconditioner.solve(vectors)

    def weights(self, unknown: Array, targets: Array) -> Float[Array, "C M"]:
        """Return ``alpha``, the filled grid's, with what is left of it in the gaps."""
        return self.inverse_product(targets + unknown)

    def misfit_terms(self, unknown: Array, targets: Array) -> Float[Array, "C M"]:
        """Return what sums to ``y^T A^-1 y`` to second order in the error: ``y^T (K + noise I)^-1 y``, gaps filled.

        The true values of the gaps are where that is least.
        """
        coefficients = self.coefficients(unknown, targets)
        return coefficients**2 * (self.eigen.spectrum() + self.noise)

    def coefficients(self, unknown: Array, targets: Array) -> Float[Array, "C M"]:
        """Return ``Q^T alpha``, each entry to its own precision."""
        filled = self.eigen.rotate(targets + unknown)
        return filled / (self.eigen.spectrum() + self.noise)


class PenalisedGaps(eqx.Module):
    """``(K + penalty R + noise I) alpha = y``, ``R_ZZ = I`` (Proposition 3.1, with ``R_XX`` in print: docs/errata.md).

    An approximation: the gaps are observed as zeros with noise ``penalty``. The preconditioner is the diagonal
    ``penalty R + noise I`` (section 3.3.1).

    Attributes
    ----------
    factors : tuple of Array of shape (m_l, m_l)
    noise : scalar Array
    observed : Array of bool, shape (M,)
    penalty : scalar Array
    """

    factors: tuple[Array, ...]
    noise: Array
    observed: Bool[Array, " M"]
    penalty: Array

    def _diagonal(self) -> Float[Array, " M"]:
        return self.noise + jnp.where(self.observed, 0.0, self.penalty)

    def right_side(self, targets: Float[Array, "C M"]) -> Float[Array, "C M"]:
        """Return the right-hand side: any value may stand in the gaps, and zeros do."""
        return targets

    def product(self, vectors: Float[Array, "C M"]) -> Float[Array, "C M"]:
        """Return the system's matrix times every row."""
        return kron_product(self.factors, vectors) + self._diagonal() * vectors

    def precondition(self, vectors: Float[Array, "C M"]) -> Float[Array, "C M"]:
        """Return an approximate inverse times every row."""
        return vectors / self._diagonal()

    def weights(self, unknown: Array, targets: Array) -> Float[Array, "C M"]:
        """Return ``alpha``: what the penalty left in the gaps is dropped."""
        return jnp.where(self.observed, unknown, 0.0)

    def misfit_terms(self, unknown: Array, targets: Array) -> Float[Array, "C M"]:
        """Return what sums to ``y^T alpha``."""
        return targets * unknown


GapSystem = IgnoredGaps | FilledGaps | PenalisedGaps


class GapSolution(NamedTuple):
    """What `solve_gaps` found.

    Attributes
    ----------
    weights : Array of shape (C, M)
        ``alpha``: zero in the gaps, or what filling left of it there.
    unknown : Array of shape (C, M)
        Unknowns of the system.
    residual : float
        Largest ``|(K_XX + noise I) alpha_X - y_X| / |y_X|``. Of their own system for penalised gaps, and for filled
        ones in single precision.
    iterations : int
    converged : bool
    """

    weights: Array
    unknown: Array
    residual: float
    iterations: int
    converged: bool


def solve_gaps(
    system: GapSystem,
    targets: Float[Array, "C M"],
    start: Float[Array, "C M"] | None = None,
    *,
    tol: float,
    max_iter: int,
    deadline: float | None = None,
) -> GapSolution:
    """Solve by conjugate gradients until the residual of the observed points, checked by a product, is below ``tol``.

    The three systems have residuals of different meaning, so each is iterated until its own recurrence promises
    the tolerance, the residual of ``alpha`` is computed, and the iteration goes on where that is too large.

    Parameters
    ----------
    system : IgnoredGaps, FilledGaps or PenalisedGaps
    targets : Array of shape (C, M)
        Zero in the gaps.
    start : Array of shape (C, M), optional
        Unknowns to start from.
    tol : float
        Relative residual.
    max_iter : int
        Most iterations.
    deadline : float, optional
        Value of ``time.perf_counter()`` after which no more steps are taken.
    """
    start = _zeros(targets) if start is None else start
    right, norms, state = _begin(system, targets, start)
    scale = np.asarray(norms)
    goal = tol * np.where(scale > 0, scale, 1.0)
    chunk, done, last, without = _chunk(system), 0, np.inf, 0
    while True:
        steps = min(chunk, max_iter - done)
        # arrays: numbers would be compiled in
        limits = jax.device_put((goal.astype(right.dtype), np.asarray(steps)))
        state, taken = run_cg(system, system.precondition, state, *limits)
        done += int(taken)
        out = done >= max_iter or (deadline is not None and time.perf_counter() > deadline)
        if int(taken) == steps and not out:
            continue
        weights, errors = _finish(system, state.solution, targets)
        residual = float(np.max(np.asarray(errors)))
        without = without + 1 if residual > _NO_PROGRESS * last else 0
        if residual <= tol or out or without == _MOST_WITHOUT:
            return GapSolution(weights, state.solution, residual, done, residual <= tol)
        last = residual
        goal = goal * float(np.clip(0.1 * tol / residual, 1e-3, 0.1))
        if without:
            # the recurrence's residual may have drifted from the true one: begin again from the solution
            state = _again(system, right, state.solution)


def solve_right_side(
    system: GapSystem,
    right: Float[Array, "C M"],
    *,
    tol: float,
    max_iter: int,
    deadline: float | None = None,
) -> tuple[Float[Array, "C M"], int]:
    """Return the unknowns for a right-hand side of the system itself, to a relative residual, and the iterations."""
    state = _again(system, right, _zeros(right))
    goal = jax.device_put(tol * np.asarray(_norms(right)))
    chunk, done = _chunk(system), 0
    while done < max_iter and not (deadline is not None and time.perf_counter() > deadline):
        steps = min(chunk, max_iter - done)
        limit = jax.device_put(np.asarray(steps))
        state, taken = run_cg(system, system.precondition, state, goal, limit)
        done += int(taken)
        if int(taken) < steps:
            break
    return state.solution, done


def _chunk(system: GapSystem) -> int:
    """Return how many steps to take between two looks at the clock."""
    if isinstance(system, FilledGaps):
        flops = 2 * kron_flops([len(vectors) for vectors in system.eigen.vectors])
    else:
        flops = kron_flops([len(factor) for factor in system.factors])
    return int(np.clip(_CHUNK_FLOPS / flops, 1, _CHUNK))


def _zeros(like: Array) -> Array:
    return jax.device_put(np.zeros(like.shape, like.dtype))


def _unknowns(system: GapSystem) -> Array:
    if isinstance(system, IgnoredGaps):
        return system.observed
    if isinstance(system, FilledGaps):
        return ~system.observed
    return jnp.ones_like(system.observed)


@jax.jit
def _norms(vectors: Array) -> Array:
    return jnp.sqrt(jnp.sum(vectors**2, axis=1))


@eqx.filter_jit
def _begin(system: GapSystem, targets: Array, start: Array) -> tuple[Array, Array, CGState]:
    """Return the right-hand side, its norms, and the state of a start whose points of no unknown do not count."""
    right = system.right_side(targets)
    start = jnp.where(_unknowns(system), start, 0.0)
    state = cg_start(start, right - system.product(start), system.precondition)
    return right, _norms(right), state


@eqx.filter_jit
def _again(system: GapSystem, right: Array, start: Array) -> CGState:
    return cg_start(start, right - system.product(start), system.precondition)


@eqx.filter_jit
def _finish(system: GapSystem, unknown: Array, targets: Array) -> tuple[Array, Array]:
    """Return ``alpha`` and its relative residual at the points that the system answers for."""
    weights = system.weights(unknown, targets)
    if isinstance(system, PenalisedGaps):
        left = targets - system.product(unknown)
    elif isinstance(system, FilledGaps) and targets.dtype == jnp.float32:
        # alpha in single precision is no solution to better than rounding times the condition of K, whatever y_Z is;
        # predictions come from y_Z by `FilledGaps.coefficients`, which do not suffer
        right = system.right_side(targets)
        left, size = right - system.product(unknown), _norms(right)
        return weights, _norms(left) / jnp.where(size > 0, size, 1.0)
    elif isinstance(system, FilledGaps):
        # K alpha by the eigenvectors that are at hand, with zeros in the gaps as it should have
        alpha = jnp.where(system.observed, weights, 0.0)
        left = targets - system.eigen.apply(system.eigen.spectrum(), alpha)
        left = jnp.where(system.observed, left - system.noise * alpha, 0.0)
    else:
        left = targets - system.product(weights)
    size = _norms(targets)
    return weights, _norms(left) / jnp.where(size > 0, size, 1.0)
