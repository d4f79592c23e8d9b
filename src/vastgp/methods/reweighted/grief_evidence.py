"""Log evidence of grid eigenfunctions as a function of the kernel: the functions move, so rows are read each time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import precision
from vastgp.bases.grid_eigenfunctions import GridEigenfunctionBasis
from vastgp.data.devices import rows_over_devices
from vastgp.data.processes import from_first
from vastgp.data.tiles import array_tiles, tile_size
from vastgp.fitting.accumulate import Moments, accumulate
from vastgp.fitting.best_fit import climb_each, fit_evidence, log_density
from vastgp.fitting.candidates import default_values
from vastgp.fitting.clock import now, seconds_until
from vastgp.fitting.lbfgs import LbfgsResult, best_of
from vastgp.fitting.run import Run
from vastgp.fitting.scaled_evidence import ScaledEvidence
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian
from vastgp.linalg.alone import run_alone
from vastgp.linalg.cholesky import factorize
from vastgp.linalg.eigen import symmetric_eigen
from vastgp.linalg.gram import gram

# Rows whose features are made at a time.
_BLOCK_ROWS = 2048
# Lengthscales that are tried first, relative to those of an exact process and to equal ones, on so many rows; how many
# of them are compared on all rows. On kegg type-I inference has an RMSE of 0.31 with the process's own, and of 0.15
# with the best.
_LENGTHSCALES, _FEW_ROWS, _COMPARED = (1.0, 2.0, 4.0, 8.0, 16.0), 500, 4
# How many of these learning starts from, and iterations before the best is chosen: on slump, yacht and concrete the
# first start alone ended up to 600 nats below the best of several. Climbs on few rows lead away from what is good for
# all of them: of wine those of 500 rows went from -866 nats of all to -898.
_STARTS, _FIRST_ITERATIONS = 2, 10
# Climbs of the best start, each with the functions that lead where the last one ended, at most.
_MOST_ROUNDS = 5
_ELSEWHERE = "other eigenfunctions do better where a climb with those that led has ended"
# Share of what is left of the budget that the comparison may use, and of the whole one that is kept for what follows:
# the pass over all rows, and the posterior.
_COMPARISON, _KEPT = 0.25, 0.15


class GriefEvidence:
    """``log N(y; 0, Phi Phi^T + sigma^2 I)`` with the leading eigenfunctions of the kernel at hand (Algorithm 4.2).

    With ``P = Phi^T Phi + sigma^2 I``, ``w = P^-1 Phi^T y`` and ``a = (y - Phi w) / sigma^2`` the gradient by the
    features is ``a w^T - Phi P^-1``: a second pass over the rows pulls it back to the hyperparameters, block by block.
    Both passes take O(n p^2) time. Of fewer rows than functions ``B = Phi Phi^T + sigma^2 I`` is solved instead, in
    O(n^2 p): with ``a = B^-1 y`` the gradient by the features is ``a (Phi^T a)^T - B^-1 Phi``. Which eigenfunctions are
    the leading ones is decided anew at every evaluation, where the evidence jumps; but see `led_by`.

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
        self.num_rows, self.num_features = X.shape
        self._axes, self._num_basis = axes, num_basis
        self._y = y
        self._tiles = list(array_tiles(X, y, tile_size(len(y), _BLOCK_ROWS)))
        self._few_rows = len(self._tiles) == 1 and len(y) < num_basis
        self._leading: tuple[GridEigenfunctionBasis, Array] | None = None

    def led_by(self, kernel: Kernel) -> GriefEvidence:
        """Return the evidence with the eigenfunctions that lead under one kernel, whatever the kernel: it is smooth."""
        found = copy(self)
        with precision("float64"):
            found._leading = self._leading_under(kernel)
        return found

    def leads_under(self, kernel: Kernel) -> bool:
        """Whether the eigenfunctions that it is `led_by` lead under another kernel, too."""
        assert self._leading is not None
        with precision("float64"):
            found = self._leading, self._leading_under(kernel)
        chosen = [{*map(tuple, basis.selection[np.asarray(on) > 0.0])} for basis, on in found]
        return chosen[0] == chosen[1]

    def functions_at(self, kernel: Kernel) -> GridEigenfunctionBasis:
        """Return the eigenfunctions that it is `led_by`, under a kernel."""
        assert self._leading is not None
        basis, on = self._leading
        selection = basis.selection[np.asarray(on) > 0.0]
        return GridEigenfunctionBasis.build(kernel, self._axes, len(selection), selection)

    def objective(self, params: tuple[Kernel, Gaussian]) -> tuple[float, tuple[Kernel, float]]:
        """Return the log evidence of ``(kernel, likelihood)`` and its derivatives.

        Raises
        ------
        FactorizationError
            When ``P`` or ``B`` cannot be factorised.
        """
        kernel, likelihood = params
        noise = float(likelihood.noise_variance)
        with precision("float64"):
            kernel, fixed, active = self._held(kernel)
            if self._few_rows:
                phi = self._phi(kernel, fixed, active)
                value, by_noise, by_features = self._solve_rows(phi, noise)
                slope = _pull_back_rows(kernel, fixed, active, self._tiles[0][0], by_features)
                return value, (jax.tree.map(np.asarray, slope), by_noise)
            sums = self._sums(kernel, fixed, active)
            value, by_noise, weights, inverse = self._solve(sums, noise)
            sigma2 = jnp.asarray(noise)  # a number would be compiled in
            slopes = [
                _pull_back(
                    kernel, fixed, active, *rows_over_devices(tile[:3], float(self._num_basis) ** 2),
                    weights, inverse, sigma2,
                )
                for tile in self._tiles
            ]  # fmt: skip
            slope = jax.tree.map(lambda *parts: np.asarray(sum(parts)), *slopes)
        return value, (slope, by_noise)

    def scaled(
        self, kernel: Kernel, noise: float, noise_floor: float
    ) -> tuple[float, Kernel, float]:
        """Return the highest log evidence of all amplitudes and noise variances, and what has it: one pass."""
        with precision("float64"):
            held = self._held(kernel)
            if self._few_rows:
                phi = self._phi(*held)
                matrix, target = gram(phi.T), self._y
            else:
                sums = self._sums(*held)
                matrix, target = sums.gram, sums.target
        eigenvalues, E = symmetric_eigen(matrix)
        eigenvalues, projected = np.maximum(eigenvalues, 0.0), E.T @ target
        if self._few_rows:
            # of Phi Phi^T = U diag(lambda) U^T: eigenvectors of Phi^T Phi are Phi^T U lambda^-1/2
            projected *= np.sqrt(eigenvalues)
        parts = eigenvalues, projected, float(self._y @ self._y), self.num_rows
        s, noise, value = ScaledEvidence(*parts).best(noise, noise_floor)
        return value, kernel.in_units(1.0, s**0.5), noise

    def _held(self, kernel: Kernel) -> tuple[Kernel, GridEigenfunctionBasis, Array]:
        """Return a basis of all ``num_basis`` functions, those beyond the real ones marked: one compilation."""
        fixed, active = self._leading or self._leading_under(kernel)
        return jax.device_put(jax.tree.map(np.asarray, kernel)), fixed, active

    def _leading_under(self, kernel: Kernel) -> tuple[GridEigenfunctionBasis, Array]:
        basis = GridEigenfunctionBasis.build(kernel, self._axes, self._num_basis)
        extra = self._num_basis - basis.num_basis
        selection = np.pad(basis.selection, ((0, extra), (0, 0)))
        logs = np.pad(basis.log_eigenvalues, (0, extra))
        fixed = GridEigenfunctionBasis(
            basis.kernel, basis.grid, selection, basis.transforms, logs, basis.sizes
        )
        active = jax.device_put((np.arange(self._num_basis) < basis.num_basis).astype(float))
        return fixed, active

    def _sums(self, kernel: Kernel, fixed: GridEigenfunctionBasis, active: Array) -> Moments:
        return accumulate(partial(_features, kernel, fixed, active), self._tiles, self._num_basis)

    def _phi(self, kernel: Kernel, fixed: GridEigenfunctionBasis, active: Array) -> np.ndarray:
        """Return the features of all rows, which are few."""
        return np.asarray(_features(kernel, fixed, active, self._tiles[0][0]))[: self.num_rows]

    def _solve_rows(self, phi: np.ndarray, noise: float) -> tuple[float, float, np.ndarray]:
        """Return the evidence and its derivatives by the noise variance and by the features, of few rows."""
        n = self.num_rows
        factor = factorize(gram(phi.T), noise, what="the covariance matrix of the observations")
        a = factor.solve(self._y)
        value = -0.5 * (self._y @ a + factor.log_determinant + n * math.log(2.0 * math.pi))
        solved = factor.solve(np.asfortranarray(phi))
        by_noise = 0.5 * (a @ a - np.trace(factor.into_inverse()))
        by_features = np.zeros((self._num_basis, len(self._tiles[0][0])))
        by_features[:, :n] = np.outer(phi.T @ a, a) - solved.T
        return float(value), float(by_noise), by_features

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


class GriefLearning(NamedTuple):
    """Some rows, and the grid: what kernel and noise of the eigenfunctions are learned on.

    Attributes
    ----------
    X : ndarray of shape (n, d)
        Standardised, in random order.
    y : ndarray of shape (n,)
    axes : sequence of ndarray
    num_basis : int
    noise_floor : float
    """

    X: np.ndarray
    y: np.ndarray
    axes: Sequence[np.ndarray]
    num_basis: int
    noise_floor: float

    def evidence(self, most: int | None = None) -> GriefEvidence:
        """Return the evidence of all of the rows, or of ``most``."""
        return GriefEvidence(self.X[:most], self.y[:most], self.axes, self.num_basis)

    def best_lengthscales(
        self, kernel: Kernel, noise: float, run: Run
    ) -> list[tuple[Kernel, float]]:
        """Return kernels of several lengthscales and noise variances, that of highest evidence first.

        A kernel of few functions is smoother than the process with all of them, whose hyperparameters are given.

        Parameters
        ----------
        kernel : Kernel
            Of one part for each input.
        noise : float
        run : Run
        """

        late = False

        def compare() -> list[tuple[Kernel, float]]:
            nonlocal late
            least = run.seconds_left(1.0 - _COMPARISON)
            equal = default_values(kernel, self.X.shape[1])
            tried = [
                (start.in_units(factor, 1.0), noise)
                for start in (kernel, equal)
                for factor in _LENGTHSCALES
            ]
            for rows in (_FEW_ROWS, None) if len(self.y) > _FEW_ROWS else (None,):
                evidence = self.evidence(rows)
                found: list[tuple[float, Kernel, float]] = []
                for kernel_, noise_ in tried:
                    if found and least is not None and (run.seconds_left() or 0.0) < least:
                        late = True
                        break
                    found.append(evidence.scaled(kernel_, noise_, self.noise_floor))
                ranked = [each[1:] for each in sorted(found, key=lambda each: -each[0])]
                tried = ranked[:_COMPARED]
            return ranked

        return run.once("lengthscales", compare, is_cut=lambda _: late)

    def learn(
        self, starts: Sequence[tuple[Kernel, float]], how: Any, run: Run
    ) -> tuple[LbfgsResult, GridEigenfunctionBasis]:
        """Return kernel and likelihood of highest evidence, and the functions that it is the evidence of.

        Some iterations from each start, the best to its end. Where another function comes to lead the evidence jumps,
        and at such an edge a step gains nothing, however steep it is: climbs ended there, after hundreds of
        evaluations, tens of nats below where they end when the functions stay those that led where the climb began
        (concrete: 626 evaluations and 29, airfoil 20 nats). Then those that lead at its end may do better.
        """
        deadline = run.deadline
        if deadline is not None and run.max_seconds is not None:
            deadline -= _KEPT * run.max_seconds
        late = deadline is not None and now() > deadline
        evidence = self.evidence(_FEW_ROWS if late else None)
        first = climb_each(
            [(kernel, Gaussian(noise)) for kernel, noise in starts[:_STARTS]],
            lambda start: evidence.led_by(start[0]),
            noise_floor=self.noise_floor, max_iter=min(_FIRST_ITERATIONS, how.max_iter), tol=how.tol,
            deadline=deadline, record=lambda name: run.evaluations(f"functions, {name}"),
        )  # fmt: skip
        return self._rounds(evidence, best_of(first), how, run, deadline)

    def _rounds(
        self,
        evidence: GriefEvidence,
        start: LbfgsResult,
        how: Any,
        run: Run,
        deadline: float | None,
    ) -> tuple[LbfgsResult, GridEigenfunctionBasis]:
        """Climb with the functions that lead where a climb begins, and again while those at its end do better."""
        found = start
        for number in range(_MOST_ROUNDS):
            held = evidence.led_by(found.params[0])
            climbed = fit_evidence(
                held, found.params, noise_floor=self.noise_floor,
                max_iter=max(how.max_iter - found.num_iter, 1), tol=how.tol,
                max_seconds=seconds_until(deadline),
                record=run.evaluations(f"functions, round {number + 1}"),
            )  # fmt: skip
            found = replace(climbed, num_iter=found.num_iter + climbed.num_iter)
            if not climbed.converged:
                break
            stays = held.leads_under(found.params[0])
            led = found.value if stays else log_density(evidence, found.params)
            # that of process 0, where several fit one model: it decides what follows
            if float(from_first(np.float64(led))) <= found.value + how.tol * evidence.num_rows:
                break
        else:
            found = replace(found, converged=False, message=_ELSEWHERE)
        return found, held.functions_at(found.params[0])


@run_alone
@eqx.filter_jit
def _features(kernel: Kernel, basis: Any, active: Array, X: Any) -> Float[Array, "n m"]:
    own = basis.with_kernel(kernel)
    return own.features(jnp.asarray(X), jnp.arange(own.num_basis)) * active


@run_alone
@eqx.filter_jit
def _pull_back_rows(kernel: Kernel, basis: Any, active: Array, X: Any, by_features: Any) -> Kernel:
    """Return the gradient by the kernel of what has a gradient by the features, of shape (m, n)."""
    return jax.vjp(lambda k: _features(k, basis, active, X).T, kernel)[1](by_features)[0]


@run_alone
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
    # rows last, as the functions are made: turning them round takes as long as all else that is no matrix product
    phi, pull = jax.vjp(lambda k: _features(k, basis, active, X).T, kernel)
    misfit = (y - weights @ phi) / noise
    return pull((jnp.outer(weights, misfit) - inverse @ phi) * mask)[0]
