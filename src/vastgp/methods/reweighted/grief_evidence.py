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
from vastgp.fitting.best_fit import fit_evidence, fit_from_best, log_density
from vastgp.fitting.candidates import default_values
from vastgp.fitting.clock import now, seconds_until
from vastgp.fitting.lbfgs import LbfgsResult
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.fitting.run import Run
from vastgp.fitting.scaled_evidence import ScaledEvidence
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian
from vastgp.linalg.alone import run_alone
from vastgp.linalg.cholesky import factorize
from vastgp.linalg.eigen import symmetric_eigen

# Rows whose features are made at a time.
_BLOCK_ROWS = 2048
# Rows on which starts are compared; more of them on which the best are, where learning does not go on from there.
_FEW_ROWS = 1000
# Lengthscales that are tried first, relative to those of an exact process and to equal ones; how many of them learning
# starts from, and iterations before the best is chosen: on slump, yacht and concrete the first start alone ended up to
# 600 nats below the best of several. On kegg type-I inference has an RMSE of 0.31 with the process's own, of 0.15 with
# the best.
_LENGTHSCALES, _TRIED, _FIRST_ITERATIONS = (1.0, 2.0, 4.0, 8.0, 16.0), 4, 10
# Climbs on with other leading functions, where one ended at an edge, at most.
_MOST_EDGES = 3
_ELSEWHERE = "other eigenfunctions lead where a climb with those that led has ended"
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
                matrix, target = phi @ phi.T, self._y
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
        factor = factorize(phi @ phi.T, noise, what="the covariance matrix of the observations")
        a = factor.solve(self._y)
        value = -0.5 * (self._y @ a + factor.log_determinant + n * math.log(2.0 * math.pi))
        solved = factor.solve(np.asfortranarray(phi))
        by_noise = 0.5 * (a @ a - np.trace(factor.into_inverse()))
        by_features = np.zeros((len(self._tiles[0][0]), self._num_basis))
        by_features[:n] = np.outer(a, phi.T @ a) - solved
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
        self, kernel: Kernel, noise: float, run: Run, *, refined: bool
    ) -> list[tuple[Kernel, float]]:
        """Return kernels of several lengthscales and noise variances, that of highest evidence first.

        A kernel of few functions is smoother than the process with all of them, whose hyperparameters are given.

        Parameters
        ----------
        kernel : Kernel
            Of one part for each input.
        noise : float
        run : Run
        refined : bool
            Whether the best of few rows are compared on all rows again.
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
            for rows in (_FEW_ROWS, None) if refined and len(self.y) > _FEW_ROWS else (_FEW_ROWS,):
                evidence = self.evidence(rows)
                found: list[tuple[float, Kernel, float]] = []
                for kernel_, noise_ in tried:
                    if found and least is not None and (run.seconds_left() or 0.0) < least:
                        late = True
                        break
                    found.append(evidence.scaled(kernel_, noise_, self.noise_floor))
                ranked = [each[1:] for each in sorted(found, key=lambda each: -each[0])]
                tried = ranked[:_TRIED]
            return ranked

        return run.once("lengthscales", compare, is_cut=lambda _: late)

    def learn(self, starts: Sequence[tuple[Kernel, float]], how: Any, run: Run) -> LbfgsResult:
        """Return kernel and likelihood of highest evidence: some iterations from each start, the best to its end."""
        coarse, deadline = self.evidence(_FEW_ROWS), run.deadline
        if deadline is not None and run.max_seconds is not None:
            deadline -= _KEPT * run.max_seconds

        whole = coarse

        def fine() -> GriefEvidence:
            nonlocal whole
            late = deadline is not None and now() > deadline
            whole = coarse if len(self.y) <= _FEW_ROWS or late else self.evidence()
            return whole

        found = fit_from_best(
            [(kernel, Gaussian(noise)) for kernel, noise in starts[:_TRIED]], coarse, fine,
            noise_floor=self.noise_floor, max_iter=how.max_iter, tol=how.tol,
            first_iter=min(_FIRST_ITERATIONS, how.max_iter), deadline=deadline,
            record=lambda name: run.evaluations(f"functions, {name}"),
        )  # fmt: skip
        if found.converged or found.cut or len(found.history) >= how.max_iter:
            return found
        return self._across_jumps(found, whole, how, run, deadline)

    def _across_jumps(
        self,
        found: LbfgsResult,
        evidence: GriefEvidence,
        how: Any,
        run: Run,
        deadline: float | None,
    ) -> LbfgsResult:
        """Climb on with the functions that lead where a climb ended, and look which lead then, while that gains.

        Where another function comes to lead the evidence jumps, and no step gains anything at the edge, however steep
        it is: five of thirty fits ended so, some of them nats below where this ends.
        """
        for number in range(_MOST_EDGES):
            held = evidence.led_by(found.params[0])
            smooth = fit_evidence(
                held, found.params, noise_floor=self.noise_floor,
                max_iter=how.max_iter, tol=how.tol, max_seconds=seconds_until(deadline),
                record=run.evaluations(f"functions, edge {number + 1}"),
            )  # fmt: skip
            # that of process 0, where several fit one model: it decides what follows
            told = log_density(evidence, smooth.params), held.leads_under(smooth.params[0])
            value, stays = from_first(np.array(told, np.float64)).tolist()
            if value <= found.value:
                return found  # less is beyond the edge; along it there may be more
            found = replace(
                smooth, value=value, num_iter=found.num_iter + smooth.num_iter,
                converged=smooth.converged and bool(stays), cut=smooth.message == OUT_OF_TIME,
                message=smooth.message if stays or not smooth.converged else _ELSEWHERE,
            )  # fmt: skip
            if stays or found.cut:
                break
        return found


@run_alone
@eqx.filter_jit
def _features(kernel: Kernel, basis: Any, active: Array, X: Any) -> Float[Array, "n m"]:
    own = basis.with_kernel(kernel)
    return own.features(jnp.asarray(X), jnp.arange(own.num_basis)) * active


@run_alone
@eqx.filter_jit
def _pull_back_rows(kernel: Kernel, basis: Any, active: Array, X: Any, by_features: Any) -> Kernel:
    """Return the gradient by the kernel of what has a gradient by the features."""
    return jax.vjp(lambda k: _features(k, basis, active, X), kernel)[1](by_features)[0]


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
    phi, pull = jax.vjp(lambda k: _features(k, basis, active, X), kernel)
    misfit = (y - phi @ weights) / noise
    return pull((jnp.outer(misfit, weights) - phi @ inverse) * mask[:, None])[0]
