"""Relevance vector machines: one prior precision per basis function, by empirical Bayes (Evans and Nair 2020, I.3).

At the best mean and covariance the derivatives of the bound are

    dELBO/dlog s_i = 1/2 (gamma_i - s_i mu_i^2),        gamma_i = 1 - s_i Sigma_ii,
    dELBO/dlog sigma^2 = 1/2 (||y - Phi mu||^2 / sigma^2 - n + sum_i gamma_i),

for any number of dense columns of the covariance. Both are set to zero with gamma held (MacKay's fixed point, a step in
log space that is longer than the gradient's where the bound is flat): ``s_i = gamma_i / mu_i^2`` and
``sigma^2 = ||y - Phi mu||^2 / (n - sum gamma)``. Most precisions grow without end; a function beyond
``max_precision`` is taken out.

Basis functions come in random sets: those that are left of earlier sets and new ones are fitted together to random
rows, to a rough tolerance, and the irrelevant ones fall out. A set of ``k`` functions and ``b`` rows costs ``O(b k^2)``
whatever the numbers of rows and functions are. Those that are left at the end are fitted to all rows, to the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.linalg import blas

from vastgp._precision import precision as in_precision
from vastgp.data import Rows, Standardizer
from vastgp.data.minibatch import generator, minibatch_indices
from vastgp.fitting.loop import LoopResult, Stop, run_chunks
from vastgp.kernels import Kernel
from vastgp.kernels.matrices import kernel_matrix
from vastgp.methods.relevance.evidence import BestPosterior, Statistics, best_posterior

_TILE = 2048
_CHUNK = 10
# A set is left when no logarithm of a precision moves by more, or after so many iterations.
_ROUGH, _MOST_ROUGH = 0.1, 60
# New functions in a set are at least this share of it, however many are left of earlier ones.
_LEAST_NEW = 4
_ORDER = 5  # purpose of random numbers
# Precisions start at most at this share of the largest one.
_START = 0.1
# Logarithms of precisions move at most this far in one iteration.
_MOST_MOVE = 3.0
# and at least this far where the bound grows with the precision without end.
_LEAST_MOVE = 0.5
# Iterations on a set before functions that add hardly anything to the bound are taken out one by one.
_UNTOUCHED = 10
# Pairs that are tried for merging in an iteration, and the least correlation of their functions at the rows.
_PAIRS, _CLOSE = 3, 0.9


@dataclass(frozen=True)
class RelevanceOptions:
    """How relevance vectors are found.

    Parameters
    ----------
    dense_columns : int, optional
        Full columns of the covariance's factor. None: all, the exact posterior; 0: mean-field.
    max_precision : float, default 1e4
        A function with a larger prior precision is taken out (standardised target).
    noise_floor : float, default 1e-6
        Least noise variance, in variances of the target.
    row_batch : int, default 10,000
        Rows that a set of basis functions is judged by.
    basis_batch : int, default 1000
        Basis functions in a set.
    """

    dense_columns: int | None = None
    max_precision: float = 1e4
    noise_floor: float = 1e-6
    row_batch: int = 10_000
    basis_batch: int = 1000


@dataclass(frozen=True)
class RelevanceFit:
    """What was found.

    Attributes
    ----------
    indices : ndarray of shape (k,)
        Relevant ones among the inputs, in their order.
    precision : ndarray of shape (k,)
    noise_variance : float
    posterior : BestPosterior
        Of their weights.
    loop : LoopResult
    """

    indices: np.ndarray
    precision: np.ndarray
    noise_variance: float
    posterior: BestPosterior
    loop: LoopResult


class _State(NamedTuple):
    """What decides the next iteration."""

    active: np.ndarray  # functions in the present set
    log_precision: np.ndarray  # theirs
    log_noise: float
    seen: int  # functions that have been in a set
    rough: int  # iterations on this set


def fit_relevance(
    rows: Rows,
    standardizer: Standardizer,
    kernel: Kernel,
    inputs: np.ndarray,
    noise_variance: float,
    options: RelevanceOptions | None = None,
    *,
    tol: float = 0.01,
    max_iter: int | None = 2000,
    max_seconds: float | None = None,
    seed: int = 0,
    verbose: bool = False,
) -> RelevanceFit:
    """Find the relevant ones of some basis functions, their precisions and the noise.

    Parameters
    ----------
    rows : Rows
        Training rows with targets.
    standardizer : Standardizer
        Their scaling.
    kernel : Kernel
        Basis functions are ``k(x, z_j)``, in standardised units.
    inputs : ndarray of shape (m, d)
        ``z_j``, standardised.
    noise_variance : float
        Where learning starts.
    options : RelevanceOptions, optional
    tol : float, default 0.01
        Converged when all functions have been seen and the bound moves by less than so many nats in ten iterations that
        take none out. With the exact posterior a function that adds less to it is taken out. Precisions of neighbours
        can go on trading long after.
    max_iter, max_seconds, verbose
        As in `vastgp.fitting.loop.run_chunks`.
    seed : int, default 0

    Returns
    -------
    RelevanceFit
    """
    options = options or RelevanceOptions()
    search = _Search(rows, standardizer, kernel, inputs, options, seed, tol)
    state, loop = run_chunks(
        search.chunk,
        search.start(noise_variance),
        max_iter=max_iter,
        chunk=_CHUNK,
        max_seconds=max_seconds,
        should_stop=lambda diagnostics, _: search.stop(diagnostics),
        label="relevance vectors",
        verbose=verbose,
    )
    data = search.statistics_of_all(state.active)
    noise, precision = float(np.exp(state.log_noise)), np.exp(state.log_precision)
    posterior = best_posterior(data, precision, noise, options.dense_columns)
    return RelevanceFit(state.active, precision, noise, posterior, loop)


class _Search:
    """The iterations, and the sums over rows of the present set."""

    def __init__(
        self,
        rows: Rows,
        standardizer: Standardizer,
        kernel: Kernel,
        inputs: np.ndarray,
        options: RelevanceOptions,
        seed: int,
        tol: float,
    ) -> None:
        self.rows, self.standardizer, self.kernel = rows, standardizer, kernel
        self.inputs, self.options, self.seed, self.tol = inputs, options, seed, tol
        self.order = generator(seed, 0, _ORDER).permutation(len(inputs))
        self.data: Statistics | None = None
        self.columns = np.zeros(0, np.int64)

    def start(self, noise_variance: float) -> _State:
        """Return the state before the first iteration: the first set, all functions equally relevant."""
        nothing = np.zeros(0)
        log_noise = float(np.log(max(noise_variance, self.options.noise_floor)))
        return self._next_set(_State(np.zeros(0, np.int64), nothing, log_noise, 0, 0))

    def chunk(self, state: _State, first: int, count: int) -> tuple[_State, Mapping[str, Any]]:
        """Do some iterations; a new set begins when the present one is settled."""
        change, bound, first_bound, before = np.inf, np.nan, np.nan, state.active
        for _ in range(count):
            settled = change < _ROUGH or state.rough >= _MOST_ROUGH or len(state.active) == 0
            if settled and state.seen < len(self.inputs):
                state = self._next_set(state)
            state, change, bound = self._iterate(state)
            first_bound = bound if np.isnan(first_bound) else first_bound
        sampled = state.seen < len(self.inputs) or state.rough == 0
        settling = not sampled and count > 1 and np.array_equal(before, state.active)
        return state, {
            "objective": bound,
            "change": np.inf if sampled else change,
            "gain": abs(bound - first_bound) if settling else np.inf,
            "relevant": len(state.active),
            "noise_variance": float(np.exp(state.log_noise)),
        }

    def stop(self, diagnostics: Mapping[str, float]) -> Stop | None:
        """Stop when all functions have been seen and nothing moves."""
        gain = diagnostics["gain"]
        if gain < self.tol:
            return Stop(
                f"converged: the bound moved by {gain:.1g} nats in {_CHUNK} iterations", True
            )
        return None

    def _next_set(self, state: _State) -> _State:
        """Return the state with new functions beside those that are left."""
        size = self.options.basis_batch
        new = max(size - len(state.active), size // _LEAST_NEW, 1)
        if len(self.inputs) - state.seen - new < new // 2:
            new = len(self.inputs) - state.seen  # no small set at the end
        added = self.order[state.seen : state.seen + new]
        active = np.concatenate([state.active, added])
        order = np.argsort(active)
        active, seen = active[order], state.seen + len(added)
        last = seen == len(self.inputs)
        self.columns = active
        self.data = self.statistics_of_all(active) if last else self._of_sample(active, seen)
        # the prior variance of the function is that of the target, were all functions alike
        alike = np.trace(self.data.gram) / self.data.num_rows
        alike = min(alike, _START * self.options.max_precision)
        known = np.concatenate(
            [state.log_precision, np.full(len(added), np.log(max(alike, 1e-12)))]
        )
        return _State(active, known[order], state.log_noise, seen, 0)

    def _iterate(self, state: _State) -> tuple[_State, float, float]:
        """Take one step of the fixed point, and take out what has become irrelevant."""
        assert self.data is not None
        noise, precision = float(np.exp(state.log_noise)), np.exp(state.log_precision)
        best = best_posterior(self.data, precision, noise, self.options.dense_columns)
        target = np.log(best.determined) - np.log(np.maximum(best.mean**2, 1e-300))
        move = np.clip(target - state.log_precision, -_MOST_MOVE, _MOST_MOVE)
        least_useful = None
        if self.options.dense_columns is None and len(precision):
            gain, unsupported = gains(best, precision)
            move = np.where(unsupported, np.maximum(move, _LEAST_MOVE), move)
            # one at a time, so that the others take over
            if state.rough >= _UNTOUCHED:
                merged = self._merge(precision, noise, best.bound)
                if merged is not None:
                    least_useful, heir, log_precision = merged
                    move[heir] = log_precision - state.log_precision[heir]
                elif np.min(gain) < self.tol:
                    least_useful = int(np.argmin(gain))
        left = max(self.data.num_rows - float(np.sum(best.determined)), 1.0)
        least = max(self.options.noise_floor, 1e-12)
        log_noise = float(np.log(max(best.residual / left, least)))
        moved = state.log_precision + move
        keep = moved <= np.log(self.options.max_precision)
        if least_useful is not None:
            keep[least_useful] = False
        change = max(
            float(np.max(np.abs(move[keep]), initial=0.0)), abs(log_noise - state.log_noise)
        )
        if not np.all(keep):
            self.data, self.columns = self.data.of(np.flatnonzero(keep)), self.columns[keep]
            change = np.inf
        state = _State(state.active[keep], moved[keep], log_noise, state.seen, state.rough + 1)
        return state, change, best.bound

    def _merge(
        self, precision: np.ndarray, noise: float, bound: float
    ) -> tuple[int, int, float] | None:
        """Return a function that can go, its heir, and the logarithm of the heir's precision then.

        Close neighbours share a weight among them: the bound hardly depends on how, and the fixed point leaves it so.
        One of two equal functions can leave its prior variance to the other without any loss. Of the most correlated
        pairs the first is taken that loses less than ``tol`` nats.
        """
        assert self.data is not None
        root = np.sqrt(np.maximum(np.diagonal(self.data.gram), 1e-300))
        correlation = np.tril(np.abs(self.data.gram) / np.outer(root, root), -1)
        for pair in np.argsort(correlation, axis=None)[::-1][:_PAIRS]:
            i, j = np.unravel_index(pair, correlation.shape)
            if i == j or correlation[i, j] < _CLOSE:
                return None
            goes, heir = (int(i), int(j)) if precision[i] > precision[j] else (int(j), int(i))
            # phi_heir takes over the prior variance that the other gave the function
            share = (root[goes] / root[heir]) ** 2
            others = np.delete(np.arange(len(precision)), goes)
            changed = precision.copy()
            changed[heir] = 1.0 / (1.0 / precision[heir] + share / precision[goes])
            found = best_posterior(self.data.of(others), changed[others], noise, None)
            if found.bound > bound - self.tol:
                return goes, heir, float(np.log(changed[heir]))
        return None

    def statistics_of_all(self, active: np.ndarray) -> Statistics:
        """Return the sums over all rows; those at hand, where they are of these functions and all rows."""
        known = self.data is not None and np.array_equal(active, self.columns)
        if known and self.data is not None and self.data.num_rows == self.rows.n:
            return self.data
        tiles = ((X, y) for X, y in self.rows.batches(_TILE))
        return self._statistics(active, tiles, self.rows.n)

    def _of_sample(self, active: np.ndarray, step: int) -> Statistics:
        """Return the sums over random rows of their own for every set."""
        size = min(self.options.row_batch, self.rows.n)
        chosen = np.sort(minibatch_indices(self.seed, step, self.rows.n, size))
        parts = np.array_split(chosen, -(-size // _TILE))
        return self._statistics(active, (self.rows.take(part) for part in parts), size)

    def _statistics(self, active: np.ndarray, tiles: Any, num_rows: int) -> Statistics:
        k, Z = len(active), self.inputs[active]
        gram, target, square = np.zeros((k, k), order="F"), np.zeros(k), 0.0
        for X, y in tiles:
            values = self.standardizer.transform_y(y)
            square += float(values @ values)
            if k:
                phi = kernel_values(self.kernel, Z, self.standardizer.transform_X(X))
                gram = blas.dsyrk(1.0, phi, beta=1.0, c=gram, lower=1, overwrite_c=1)
                target += phi @ values
        return Statistics(np.tril(gram) + np.tril(gram, -1).T, target, square, num_rows)


def gains(best: BestPosterior, precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what every function adds to the bound, and whether it would add most at infinite precision.

    With the exact posterior the bound depends on one precision alone by
    ``1/2 [Q^2 / (s + S) - log((s + S) / s)]``, zero without the function; ``S = 1 / Sigma_ii - s_i`` and
    ``Q = mu_i / Sigma_ii`` do not depend on ``s_i``. It has a maximum where ``Q^2 > S`` and grows with ``s_i``
    without end otherwise (Tipping and Faul 2003).
    """
    variance = np.sum(best.factor**2, axis=1)
    sparsity, quality = np.maximum(1.0 / variance - precision, 0.0), best.mean / variance
    gain = 0.5 * (quality**2 * variance + np.log(precision * variance))
    return gain, quality**2 <= sparsity


def kernel_values(kernel: Kernel, Z: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return ``k(z_j, x_l)`` in float64, padded while it is made so that compiled code is shared between sizes."""

    def padded(rows: np.ndarray) -> np.ndarray:
        size = 1 << max(len(rows) - 1, 7).bit_length()
        return np.pad(rows, ((0, size - len(rows)), (0, 0)))

    with in_precision("float64"):
        made = kernel_matrix(kernel, jnp.asarray(padded(Z)), jnp.asarray(padded(X)))
        return np.asarray(made)[: len(Z), : len(X)]
