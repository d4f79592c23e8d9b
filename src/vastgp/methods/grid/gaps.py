"""Systems of a Kronecker product plus a multiple of the identity, on a grid with gaps.

Wanted is ``alpha`` with ``(K_XX + noise I) alpha_X = y_X`` and ``alpha_Z = 0``: ``X`` are the observed points of the
grid and ``Z`` its gaps. Three systems have it as their solution (thesis, section 3.3); all work on rows of the grid's
length, in which points that are no unknowns of theirs stay zero, so that no index lists are needed. Points with known
errors have a diagonal ``noise I + R`` in place of the multiple of the identity (`vastgp.methods.grid.known_errors`).
"""

from __future__ import annotations

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from vastgp._programs import program
from vastgp.fitting.clock import now
from vastgp.fitting.loop import steps_of_chunk
from vastgp.linalg.kronecker import KroneckerEigen, kron_flops, kron_product
from vastgp.methods.grid.dense_gaps import InverseOnMask
from vastgp.methods.grid.selected_spectrum import LowRankPlusDiagonal
from vastgp.solvers.cg import CGState, cg_start, numbers_of_steps, run_cg

# Steps between two looks at the clock: at most this many, and as many as take a second or so.
_CHUNK, _CHUNK_FLOPS = 50, 1e11
# Passes, each to a tenth of the last one's goal or less, that leave more than this share of the true residual: after
# so many in a row the limit of the precision is met.
_NO_PROGRESS, _MOST_WITHOUT = 0.7, 3


class GapSystem(eqx.Module):
    """A system and what of it `solve_gaps` needs, each for all rows of an array; here as where gaps are ignored."""

    @abc.abstractmethod
    def flops(self) -> int:
        """Return the operations of a product with one vector."""

    @abc.abstractmethod
    def product(self, vectors: Float[Array, "C M"]) -> Float[Array, "C M"]:
        """Return the system's matrix times every row."""

    def right_side(self, targets: Float[Array, "C M"]) -> Float[Array, "C M"]:
        """Return the right-hand side for targets that are zero in the gaps."""
        return targets

    def precondition(self, vectors: Float[Array, "C M"]) -> Float[Array, "C M"]:
        """Return an approximate inverse times every row."""
        preconditioner = getattr(self, "preconditioner", None)
        return vectors if preconditioner is None else preconditioner.solve(vectors)

    def weights(self, unknown: Array, targets: Array) -> Float[Array, "C M"]:
        """Return ``alpha`` from the unknowns of the system."""
        return unknown

    def misfit_terms(self, unknown: Array, targets: Array) -> Float[Array, "C M"]:
        """Return what sums to ``y^T A^-1 y`` to second order in the error: ``2 y^T alpha - alpha^T A alpha``."""
        return unknown * (2.0 * targets - self.product(unknown))

    def errors(self, unknown: Array, weights: Array, targets: Array) -> Float[Array, " C"]:
        """Return the relative residuals."""
        return _relative(targets - self.product(unknown), targets)


class Diagonal(eqx.Module):
    """A preconditioner: numbers that divide the entries.

    Attributes
    ----------
    entries : Array of shape (M,)
    """

    entries: Float[Array, " M"]

    def solve(self, vectors: Float[Array, "C M"]) -> Float[Array, "C M"]:
        """Return every row divided by the entries."""
        return vectors / self.entries


class IgnoredGaps(GapSystem):
    """``W (K + noise I) W^T alpha_X = y_X`` (thesis, Proposition 3.2): the unknowns are the observed points.

    Attributes
    ----------
    factors : tuple of Array of shape (m_l, m_l)
    noise : scalar Array, or of shape (M,)
        One for all points, or that of each.
    observed : Array of bool, shape (M,)
    preconditioner : LowRankPlusDiagonal, InverseOnMask, Diagonal or None
        Equation (3.7), the system's inverse, or what it has on its diagonal on average.
    """

    factors: tuple[Array, ...]
    noise: Array
    observed: Bool[Array, " M"]
    preconditioner: LowRankPlusDiagonal | InverseOnMask | Diagonal | None = None

    def flops(self) -> int:
        return kron_flops([len(factor) for factor in self.factors])

    def product(self, vectors: Float[Array, "C M"]) -> Float[Array, "C M"]:
        products = kron_product(self.factors, vectors) + self.noise * vectors
        return jnp.where(self.observed, products, 0.0)


class FilledGaps(GapSystem):
    """``V (K + noise I)^-1 V^T y_Z = -V (K + noise I)^-1 W^T y_X`` (Proposition 3.3): the unknowns are the gaps.

    So are, where points have more noise than the least, the values ``z = f + e`` that these would have with the least.
    With ``B = (K + noise I)^-1`` and ``R`` the variance of ``y - z``, infinite in the gaps, the posterior mode of ``z``
    is the least of ``z^T B z + (y - z)^T R^-1 (y - z)``, and its departure ``u = z - y`` from the values (zeros in the
    gaps) solves ``(B + R^-1)_UU u = -(B y)_U``. Then ``alpha = B (y + u)``.

    Attributes
    ----------
    eigen : KroneckerEigen
    noise : scalar Array
        The least of all points.
    observed : Array of bool, shape (M,)
    preconditioner : LowRankPlusDiagonal, InverseOnMask, Diagonal or None
        Equation (3.8), the system's inverse, or what it has on its diagonal on average.
    precision : Array of shape (M,), optional
        ``R^-1``: zero in the gaps, and where the noise is the least. None where it is that everywhere.
    """

    eigen: KroneckerEigen
    noise: Array
    observed: Bool[Array, " M"]
    preconditioner: LowRankPlusDiagonal | InverseOnMask | Diagonal | None = None
    precision: Float[Array, " M"] | None = None

    def _unknown(self, vectors: Float[Array, "C M"]) -> Float[Array, "C M"]:
        """Return the unknowns' entries of every row, zero elsewhere."""
        known = self.observed
        if self.precision is not None:
            known = known & (self.precision == 0.0)
        return jnp.where(known, 0.0, vectors)

    def flops(self) -> int:
        return 2 * kron_flops(self.eigen.shape)

    def inverse_product(self, vectors: Float[Array, "C M"]) -> Float[Array, "C M"]:
        """Return ``(K + noise I)^-1 v`` on the whole grid."""
        return self.eigen.apply(1.0 / (self.eigen.spectrum() + self.noise), vectors)

    def right_side(self, targets: Float[Array, "C M"]) -> Float[Array, "C M"]:
        return self._unknown(-self.inverse_product(targets))

    def product(self, vectors: Float[Array, "C M"]) -> Float[Array, "C M"]:
        products = self.inverse_product(vectors)
        if self.precision is not None:
            products = products + self.precision * vectors
        return self._unknown(products)

    def weights(self, unknown: Array, targets: Array) -> Float[Array, "C M"]:
        """Return ``alpha``, the filled grid's, with what is left of it in the gaps."""
        return self.inverse_product(targets + unknown)

    def coefficients(self, unknown: Array, targets: Array) -> Float[Array, "C M"]:
        """Return ``Q^T alpha``, each entry to its own precision."""
        return self.eigen.solved_coefficients(targets + unknown, self.noise)

    def misfit_terms(self, unknown: Array, targets: Array) -> Float[Array, "C M"]:
        """Return what sums to ``z^T B z + u^T R^-1 u`` of the filled grid, least at the true values of the unknowns."""
        coefficients = self.coefficients(unknown, targets)
        terms = coefficients**2 * (self.eigen.spectrum() + self.noise)
        return terms if self.precision is None else terms + self.precision * unknown**2

    def errors(self, unknown: Array, weights: Array, targets: Array) -> Float[Array, " C"]:
        """Return the relative residuals at the observed points; in single precision those of the system itself.

        There ``alpha`` is no solution to better than rounding times the condition of ``K``, whatever ``y_Z`` is.
        Predictions come from ``y_Z`` by `coefficients`, which do not suffer.
        """
        if targets.dtype == jnp.float32:
            right = self.right_side(targets)
            return _relative(right - self.product(unknown), right)
        # K alpha by the eigenvectors that are at hand, with zeros in the gaps as it should have
        alpha = jnp.where(self.observed, weights, 0.0)
        left = targets - self.eigen.apply(self.eigen.spectrum(), alpha) - self.noise * alpha
        if self.precision is not None:
            more = self.precision > 0.0
            left = left - jnp.where(more, alpha / jnp.where(more, self.precision, 1.0), 0.0)
        return _relative(jnp.where(self.observed, left, 0.0), targets)


class PenalisedGaps(GapSystem):
    """``(K + penalty R + noise I) alpha = y``, ``R_ZZ = I`` (Proposition 3.1, with ``R_XX`` in print: docs/errata.md).

    An approximation: the gaps are observed as zeros with noise ``penalty``. The preconditioner is the diagonal
    ``penalty R + noise I`` (section 3.3.1).

    Attributes
    ----------
    factors : tuple of Array of shape (m_l, m_l)
    noise : scalar Array, or of shape (M,)
        As of `IgnoredGaps`.
    observed : Array of bool, shape (M,)
    penalty : scalar Array
    """

    factors: tuple[Array, ...]
    noise: Array
    observed: Bool[Array, " M"]
    penalty: Array

    def flops(self) -> int:
        return kron_flops([len(factor) for factor in self.factors])

    def _diagonal(self) -> Float[Array, " M"]:
        return self.noise + jnp.where(self.observed, 0.0, self.penalty)

    def product(self, vectors: Float[Array, "C M"]) -> Float[Array, "C M"]:
        return kron_product(self.factors, vectors) + self._diagonal() * vectors

    def precondition(self, vectors: Float[Array, "C M"]) -> Float[Array, "C M"]:
        return vectors / self._diagonal()

    def weights(self, unknown: Array, targets: Array) -> Float[Array, "C M"]:
        """Return ``alpha``: what the penalty left in the gaps is dropped."""
        return jnp.where(self.observed, unknown, 0.0)

    def misfit_terms(self, unknown: Array, targets: Array) -> Float[Array, "C M"]:
        """Return what sums to ``y^T alpha``."""
        return targets * unknown


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
    most: int,
    deadline: float | None = None,
    own: bool = False,
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
    most : int
        Most iterations.
    deadline : float, optional
        Value of `vastgp.fitting.clock.now` after which no more steps are taken.
    own : bool, default False
        Whether ``targets`` are right-hand sides of the system itself, whose unknowns are wanted.
    """
    right, norms, state = _begin(system, targets, _zeros(targets) if start is None else start, own)
    scale = np.asarray(norms)
    goal, done, last, without = tol * np.where(scale > 0, scale, 1.0), 0, np.inf, 0
    while True:
        state, weights, errors, taken, out = _iterate(
            system, state, targets, own, goal, most - done, deadline
        )
        done += taken
        residual = float(np.max(np.asarray(errors)))
        without = without + 1 if residual > _NO_PROGRESS * last else 0
        if residual <= tol or out or without == _MOST_WITHOUT:
            return GapSolution(weights, state.solution, residual, done, residual <= tol)
        last = residual
        goal = goal * float(np.clip(0.1 * tol / residual, 1e-3, 0.1))
        if without:
            # the recurrence's residual may have drifted from the true one: begin again from the solution
            *_, state = _begin(system, right, state.solution, True)


def _iterate(
    system: GapSystem,
    state: CGState,
    targets: Array,
    own: bool,
    goal: np.ndarray,
    most: int,
    deadline: float | None,
) -> tuple[CGState, Array, Array, int, bool]:
    """Take steps until the recurrence's residuals reach a goal.

    Return ``alpha`` and its residuals beside the state, the steps, and whether they or time ran out.
    """
    chunk = steps_of_chunk(_CHUNK, _CHUNK_FLOPS, system.flops())
    done, late = 0, False
    while True:
        steps = 0 if late else min(chunk, most - done)
        last = late or done + steps >= most
        # arrays: numbers would be compiled in
        limits = jax.device_put(
            (goal.astype(state.solution.dtype), np.asarray(steps), np.asarray(last))
        )
        state, taken, weights, errors = _steps(system, state, targets, own, *limits)
        done += int(taken)
        late = late or (deadline is not None and now() > deadline)
        if last or int(taken) < steps:
            return state, weights, errors, done, done >= most or late


def _zeros(like: Array) -> Array:
    return jax.device_put(np.zeros(like.shape, like.dtype))


def _relative(left: Array, size: Array) -> Array:
    norms = jnp.linalg.norm(size, axis=1)
    return jnp.linalg.norm(left, axis=1) / jnp.where(norms > 0, norms, 1.0)


@program(filtered=True)
def _begin(
    system: GapSystem, targets: Array, start: Array, own: bool
) -> tuple[Array, Array, CGState]:
    """Return right-hand sides, their lengths, and the state of a start."""
    right = targets if own else system.right_side(targets)
    state = cg_start(start, right - system.product(start), system.precondition)
    return right, jnp.linalg.norm(right, axis=1), state


@program(filtered=True, work=numbers_of_steps)
def _steps(
    system: GapSystem,
    state: CGState,
    targets: Array,
    own: bool,
    goal: Array,
    most: Array,
    last: Array,
) -> tuple[CGState, Array, Array, Array]:
    """Return the state after steps, and how many; where they ended before ``most``, or are the last, what they found.

    That is ``alpha`` and its relative residuals at the points that the system answers for. All is one program, whose
    compilation is most of the time of a small grid.
    """
    state, taken = run_cg(system, system.precondition, state, goal, most)

    def found() -> tuple[Array, Array]:
        if own:
            return state.solution, _relative(targets - system.product(state.solution), targets)
        weights = system.weights(state.solution, targets)
        return weights, system.errors(state.solution, weights, targets)

    def nothing() -> tuple[Array, Array]:
        return jnp.zeros_like(targets), jnp.zeros_like(goal)

    return state, taken, *jax.lax.cond((taken < most) | last, found, nothing)
