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

from vastgp._precision import precision as in_precision
from vastgp.data import Rows, Standardizer
from vastgp.data.minibatch import generator, minibatch_indices
from vastgp.data.padding import pad_rows
from vastgp.data.tiles import row_tiles, tile_size
from vastgp.fitting.accumulate import accumulate
from vastgp.fitting.loop import STEPS_DONE, LoopResult, Stop
from vastgp.fitting.run import Run
from vastgp.kernels import Kernel
from vastgp.kernels.matrices import kernel_matrix
from vastgp.methods.relevance.evidence import (
    BestPosterior,
    Statistics,
    best_posterior,
    left_to_gain,
)
from vastgp.methods.relevance.options import Pruning

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
    """What decides the next iteration, by candidate."""

    members: np.ndarray  # whether it was in the present set at its beginning
    active: np.ndarray  # whether it still is
    log_precision: np.ndarray
    log_noise: np.float64
    seen: np.int64  # functions that have been in a set
    rough: np.int64  # iterations on this set


def fit_relevance(
    rows: Rows,
    standardizer: Standardizer,
    kernel: Kernel,
    inputs: np.ndarray,
    noise_variance: float,
    options: Pruning,
    run: Run,
    *,
    noise_floor: float,
    tol: float,
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
    options : Pruning
    run : Run
    noise_floor : float
        Least noise variance, in variances of the target.
    tol : float
        Converged when all functions have been seen, the bound moves by less than so many nats in ten iterations that
        take none out, and by its slopes and curvatures no more is left to gain: small steps leave a saddle slowly.
        With the exact posterior a function that adds less to it is taken out. Precisions of neighbours
        can go on trading long after.

    Returns
    -------
    RelevanceFit
    """
    search = _Search(rows, standardizer, kernel, inputs, options, run, (noise_floor, tol))
    state, loop = run.steps(
        "relevance vectors",
        search.chunk,
        search.start(noise_variance),
        max_iter=options.max_steps,
        chunk=_CHUNK,
        should_stop=lambda diagnostics, _: search.stop(diagnostics),
    )
    active = np.flatnonzero(state.active)
    data = search.sums(state)
    if data.num_rows < rows.n:
        data = search.sums_of(active)
    noise, precision = float(np.exp(state.log_noise)), np.exp(state.log_precision[active])
    posterior = best_posterior(data, precision, noise, options.dense_columns)
    return RelevanceFit(active, precision, noise, posterior, loop)


class _Search:
    """The iterations, and the sums over rows of the present set."""

    def __init__(
        self,
        rows: Rows,
        standardizer: Standardizer,
        kernel: Kernel,
        inputs: np.ndarray,
        options: Pruning,
        run: Run,
        limits: tuple[float, float],
    ) -> None:
        self.rows, self.standardizer, self.kernel = rows, standardizer, kernel
        self.inputs, self.options, self.run, self.seed = inputs, options, run, run.seed
        self.noise_floor, self.tol = limits
        self.order = generator(run.seed, 0, _ORDER).permutation(len(inputs))
        self._kept: tuple[int, Statistics] | None = None

    def start(self, noise_variance: float) -> _State:
        """Return the state before the first iteration: the first set, all functions equally relevant."""
        nobody = np.zeros(len(self.inputs), bool)
        log_noise = np.log(max(noise_variance, self.noise_floor))
        zero = np.int64(0)
        state = _State(nobody, nobody, np.zeros(len(nobody)), np.float64(log_noise), zero, zero)
        return self._next_set(state)

    def chunk(self, state: _State, first: int, count: int) -> tuple[_State, Mapping[str, Any]]:
        """Do some iterations; a new set begins when the present one is settled."""
        change, bound, first_bound, before = np.inf, np.nan, np.nan, state.active
        done = 0
        while done < count and not (done and self.run.out_of_time):
            done += 1
            settled = change < _ROUGH or state.rough >= _MOST_ROUGH or not state.active.any()
            if settled and state.seen < len(self.inputs):
                state = self._next_set(state)
            state, change, bound = self._iterate(state)
            first_bound = bound if np.isnan(first_bound) else first_bound
        sampled = state.seen < len(self.inputs) or state.rough == 0
        settling = not sampled and done > 1 and np.array_equal(before, state.active)
        gain = abs(bound - first_bound) if settling else np.inf
        if gain < self.tol:
            gain = max(gain, self._left_to_gain(state))
        return state, {
            "objective": bound,
            "change": np.inf if sampled else change,
            "gain": gain,
            "relevant": np.count_nonzero(state.active),
            "noise_variance": float(np.exp(state.log_noise)),
            STEPS_DONE: done,
        }

    def stop(self, diagnostics: Mapping[str, float]) -> Stop | None:
        """Stop when all functions have been seen and nothing moves."""
        gain = diagnostics["gain"]
        if gain < self.tol:
            return Stop(
                f"converged: {gain:.1g} nats at most were gained in {_CHUNK} iterations and are left to gain",
                True,
            )
        return None

    def _left_to_gain(self, state: _State) -> float:
        index, data = np.flatnonzero(state.active), self.sums(state)
        precision, noise = np.exp(state.log_precision[index]), float(np.exp(state.log_noise))
        best = best_posterior(data, precision, noise, self.options.dense_columns)
        return left_to_gain(
            data, best, precision, noise,
            noise_is_free=noise > 1.001 * max(self.noise_floor, 1e-12), most_move=_MOST_MOVE,
        )  # fmt: skip

    def _next_set(self, state: _State) -> _State:
        """Return the state with new functions beside those that are left."""
        size, m = self.options.basis_batch, len(self.inputs)
        new: int = max(size - int(np.count_nonzero(state.active)), size // _LEAST_NEW, 1)
        if m - state.seen - new < new // 2:
            new = m - int(state.seen)  # no small set at the end
        added = self.order[state.seen : state.seen + new]
        members, log_precision = state.active.copy(), state.log_precision.copy()
        members[added] = True
        state = state._replace(
            members=members, active=members, seen=np.int64(state.seen + new), rough=np.int64(0)
        )
        data = self.sums(state)
        # the prior variance of the function is that of the target, were all functions alike
        alike = np.trace(data.gram) / data.num_rows
        log_precision[added] = np.log(max(min(alike, _START * self.options.max_precision), 1e-12))
        return state._replace(log_precision=log_precision)

    def _iterate(self, state: _State) -> tuple[_State, float, float]:
        """Take one step of the fixed point, and take out what has become irrelevant."""
        data, index = self.sums(state), np.flatnonzero(state.active)
        log_precision = state.log_precision[index]
        noise, precision = float(np.exp(state.log_noise)), np.exp(log_precision)
        best = best_posterior(data, precision, noise, self.options.dense_columns)
        target = np.log(best.determined) - np.log(np.maximum(best.mean**2, 1e-300))
        move = np.clip(target - log_precision, -_MOST_MOVE, _MOST_MOVE)
        least_useful = None
        if self.options.dense_columns is None and len(precision):
            gain, unsupported = gains(best, precision)
            move = np.where(unsupported, np.maximum(move, _LEAST_MOVE), move)
            # one at a time, so that the others take over
            if state.rough >= _UNTOUCHED:
                merged = self._merge(data, precision, noise, best.bound)
                if merged is not None:
                    least_useful, heir, of_heir = merged
                    move[heir] = of_heir - log_precision[heir]
                elif np.min(gain) < self.tol:
                    least_useful = int(np.argmin(gain))
        left = max(data.num_rows - float(np.sum(best.determined)), 1.0)
        log_noise = np.log(max(best.residual / left, self.noise_floor, 1e-12))
        moved = log_precision + move
        keep = moved <= np.log(self.options.max_precision)
        if least_useful is not None:
            keep[least_useful] = False
        change = max(
            float(np.max(np.abs(move[keep]), initial=0.0)), abs(log_noise - state.log_noise)
        )
        active, everywhere = state.active.copy(), state.log_precision.copy()
        active[index], everywhere[index] = keep, moved
        state = state._replace(
            active=active, log_precision=everywhere, log_noise=np.float64(log_noise),
            rough=np.int64(state.rough + 1),
        )  # fmt: skip
        return state, change if np.all(keep) else np.inf, best.bound

    def _merge(
        self, data: Statistics, precision: np.ndarray, noise: float, bound: float
    ) -> tuple[int, int, float] | None:
        """Return a function that can go, its heir, and the logarithm of the heir's precision then.

        Close neighbours share a weight among them: the bound hardly depends on how, and the fixed point leaves it so.
        One of two equal functions can leave its prior variance to the other without any loss. Of the most correlated
        pairs the first is taken that loses less than ``tol`` nats.
        """
        root = np.sqrt(np.maximum(np.diagonal(data.gram), 1e-300))
        correlation = np.tril(np.abs(data.gram) / np.outer(root, root), -1)
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
            found = best_posterior(data.of(others), changed[others], noise, None)
            if found.bound > bound - self.tol:
                return goes, heir, float(np.log(changed[heir]))
        return None

    def sums(self, state: _State) -> Statistics:
        """Return the sums of the active functions: over all rows once all have been in a set, else over random ones.

        They are those of the whole set as it began, of which some have gone: whatever has been computed before.
        """
        members = np.flatnonzero(state.members)
        if self._kept is None or self._kept[0] != state.seen:
            step, size = int(state.seen), min(self.options.row_batch, self.rows.n)
            chosen = None
            if step < len(self.inputs) and size < self.rows.n:
                chosen = np.sort(minibatch_indices(self.seed, step, self.rows.n, size))
            self._kept = step, self.sums_of(members, chosen)
        return self._kept[1].of(np.flatnonzero(state.active[members]))

    def sums_of(self, members: np.ndarray, chosen: np.ndarray | None = None) -> Statistics:
        """Return the sums of some functions over all rows, or some."""
        # compiled code is shared between numbers of functions
        Z = pad_rows(self.inputs[members])
        size = tile_size(self.rows.n if chosen is None else len(chosen), _TILE)

        def features(X: Any) -> np.ndarray:
            with in_precision("float64"):
                made = kernel_matrix(self.kernel, jnp.asarray(X), jnp.asarray(Z))
            return np.asarray(made)[:, : len(members)]

        tiles = row_tiles(self.rows, self.standardizer, size, "float64", chosen)
        found = accumulate(features, tiles, len(members))
        return Statistics(found.gram, found.target, found.square, found.num_rows)


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
