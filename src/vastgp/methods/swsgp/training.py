"""Training of sparse-within-sparse Gaussian processes (Tran et al. 2021, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vastgp._memory import return_freed_memory
from vastgp._precision import precision
from vastgp.data import Rows, Standardizer, processes
from vastgp.data.devices import devices_for
from vastgp.data.joint_programs import Own
from vastgp.data.minibatch import SharedMinibatches, fixed_indices, generator, minibatch_indices
from vastgp.data.neighbours import (
    NeighbourIndex,
    NeighbourTable,
    nearest,
    nearest_predecessors,
    overlap,
)
from vastgp.fitting.candidates import bounds_of
from vastgp.fitting.loop import LoopResult
from vastgp.fitting.minibatch_runner import MinibatchRunner, mean_and_error
from vastgp.fitting.no_gain import no_gain
from vastgp.fitting.run import Run
from vastgp.kernels import Kernel
from vastgp.kernels.metric import metric_lengthscales
from vastgp.likelihoods import Likelihood
from vastgp.methods.swsgp.options import SwsgpOptions
from vastgp.methods.swsgp.state import SwsgpState, factor_rows, start_state
from vastgp.methods.swsgp.step import Batch, Constants, StepPlan, one_step

# Steps between two visits of Python, and between two where inducing inputs move among few.
_CHUNK, _SHORT_CHUNK = 50, 20
# Up to so many inducing inputs that move, neighbours are searched again after every chunk.
_ALWAYS_SEARCHED = 2048
# Rows whose neighbours are compared with the true ones, and chunks between two comparisons.
_PROBES, _PROBED_EVERY = 64, 4
# What numbers drawn for a step are for, beside its minibatch; and which fixed rows are probes.
_OWN, _PROBED = 7, 3
# Steps in which `tol` counts.
_PER = 1000


@dataclass(frozen=True)
class SwsgpFit:
    """What training found, in float64.

    Attributes
    ----------
    kernel : Kernel
    likelihood : Likelihood
    Z : ndarray of shape (M, d)
    mean : ndarray of shape (M, C)
    spread : ndarray of shape (M, C), or (M, C, M)
        Variances, or rows of the lower factor of the covariance.
    loop : LoopResult
    searches : int
        How often neighbours were searched anew.
    recall : float
        Share of true neighbours that the index finds.
    stale : float
        Share of neighbours that had changed at the last comparison.
    """

    kernel: Kernel
    likelihood: Likelihood
    Z: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    loop: LoopResult
    searches: int
    recall: float
    stale: float


def fit_swsgp(
    rows: Rows,
    standardizer: Standardizer,
    kernel: Kernel,
    likelihood: Likelihood,
    Z: np.ndarray,
    options: SwsgpOptions,
    run: Run,
    *,
    dtype: str = "float64",
    share: float = 1.0,
    start: tuple[np.ndarray, np.ndarray] | None = None,
) -> SwsgpFit:
    """Maximise the bound over variables, hyperparameters and inducing inputs by stochastic gradients.

    Parameters
    ----------
    rows : Rows
    standardizer : Standardizer
    kernel, likelihood
        First hyperparameters, in standardised units.
    Z : ndarray of shape (M, d)
        Inducing inputs. With the ordered prior their order matters: each depends on those before it.
    options : SwsgpOptions
    run : Run
    dtype : {"float32", "float64"}
    share : float, default 1.0
        Of what is left of the budget.
    start : tuple of ndarray of shape (M, C), optional
        Mean and variances to start from. None: zero, and what the prior alone would choose.

    Returns
    -------
    SwsgpFit
    """
    with precision("float64"):
        metric = metric_lengthscales(kernel, rows.d)
        start64 = start_state(kernel, likelihood, Z, options, metric, "float64")
        if start is not None:
            mean, variances = (jnp.asarray(part) for part in start)
            started = start64.variables._replace(mean=mean, spread=jnp.log(variances))
            start64 = start64._replace(variables=started)
    with precision(dtype):
        state = jax.tree.map(
            lambda leaf: jnp.asarray(np.asarray(leaf), dtype if leaf.dtype.kind == "f" else None),
            start64,
        )
        del start64
        most = options.max_steps
        chunks = Chunks(
            rows, standardizer, (kernel, likelihood), options, run.seed, dtype, len(Z), most
        )
        rule = no_gain(
            options.tol, rows.n, options.row_batch, chunk=chunks.chunk, per=_PER, max_steps=most
        )
        with chunks.runner:
            state, loop = run.steps(
                "steps", chunks, state, max_iter=most, chunk=chunks.chunk, should_stop=rule, share=share
            )  # fmt: skip
        state = processes.of_first(state)
    with precision("float64"):
        kernel, likelihood = jax.tree.map(
            lambda leaf: np.exp(np.asarray(leaf, np.float64)), state.hyper
        )
        spread = np.asarray(state.variables.spread, np.float64)
        if options.covariance == "full":
            spread = np.asarray(factor_rows(jnp.asarray(spread), jnp.arange(len(spread))))
        else:
            spread = np.exp(spread)
    return SwsgpFit(
        kernel,
        likelihood,
        np.asarray(state.variables.Z, np.float64),
        np.asarray(state.variables.mean, np.float64),
        spread,
        loop,
        int(state.searches),
        chunks.recall,
        float(state.stale),
    )


class Drawn(NamedTuple):
    """Minibatches of some steps (first axis): numbers of rows, the rows, inducing inputs whose divergence counts.

    Where several processes share the rows: those of a process, numbered among these, and which of them are no filling.
    """

    numbers: np.ndarray
    X: np.ndarray
    y: np.ndarray
    own: np.ndarray
    counts: np.ndarray | None = None


class Chunks:
    """Runs chunks of steps, and searches neighbours anew when too many have changed."""

    def __init__(
        self,
        rows: Rows,
        standardizer: Standardizer,
        params: tuple[Kernel, Likelihood],
        options: SwsgpOptions,
        seed: int,
        dtype: str,
        size: int,
        last: int | None = None,
    ) -> None:
        self.rows, self.standardizer, self.options = rows, standardizer, options
        self.seed, self.dtype, self.size = seed, dtype, size
        self.parts = None
        if processes.count() > 1:
            self.parts = SharedMinibatches(rows, standardizer, seed, options.row_batch)
        self.sees = min(options.num_neighbors, size)
        # one neighbour more says where the border is
        self.taper = options.taper and self.sees < size
        ordered = options.prior == "ordered"
        self.devices = 1
        if self.parts is None:
            batch = min(options.row_batch, rows.n)
            # inducing inputs whose divergence counts are dealt out, too
            others = min(batch, size) if ordered else batch
            self.devices = devices_for(batch * self.sees**3, batch, others)
        self.plan = StepPlan(
            options.covariance == "full", ordered, self.taper, options.learn, options.move,
            processes.count(), self.devices,
        )  # fmt: skip
        numbers = (rows.n, size, options.learning_rate, options.half_life)
        self.constants = Constants(
            *(jnp.asarray(number, dtype) for number in (*numbers, options.least_jitter(dtype))),
            *(
                jax.tree.map(lambda value: jnp.log(jnp.asarray(value, dtype)), side)
                for side in bounds_of(params, options.noise_floor)
            ),
        )
        self.always = options.move and size <= _ALWAYS_SEARCHED
        self.chunk = _SHORT_CHUNK if self.always else _CHUNK
        self.table = NeighbourTable(rows.local.n, self.sees + self.taper)
        self.probe_rows = np.sort(fixed_indices(seed, _PROBED, rows.n, _PROBES))
        self.probes = standardizer.transform_X(rows.take(self.probe_rows)[0])
        self.index: NeighbourIndex | None = None
        self.before = np.zeros((0, 0), np.int32)
        self.recall = 1.0
        self.runner = MinibatchRunner(
            one_step,
            self.plan,
            self.constants,
            chunk=self.chunk,
            draw=self.draw,
            complete=self.touching,
            summarise=_summary,
            last=last,
            factorises=self.sees,
            shared=self.parts is not None,
            devices=self.devices,
        )
        self._first = True

    def __call__(
        self, state: SwsgpState, first_iter: int, num_iters: int
    ) -> tuple[SwsgpState, Mapping[str, Any]]:
        if self.index is None:
            # of the state: a resumed fit goes on with the neighbours that it had
            self.make_index(state)
        if first_iter and (self.options.learn or self.options.move):
            state = self._refresh(state, first_iter // self.chunk)
        found = self.runner(state, first_iter, num_iters)
        if self._first:
            self._first = False
            return_freed_memory()
        return found

    # ------------------------------------------------------------ neighbours

    def _refresh(self, state: SwsgpState, chunk: int) -> SwsgpState:
        """Search neighbours anew where more of them have changed than may."""
        options = self.options
        if not self.always and chunk % _PROBED_EVERY:
            return state
        kernel = jax.tree.map(lambda leaf: np.exp(np.asarray(leaf, np.float64)), state.hyper[0])
        metric = metric_lengthscales(kernel, self.rows.d)
        if not self.always:
            assert self.index is not None
            Z = np.asarray(state.variables.Z, np.float64)
            truth = nearest(self.probes / metric, Z / metric, self.sees)
            stale = 1.0 - overlap(truth, self.index.query(self.probes, self.sees))
            state = state._replace(stale=jnp.asarray(stale, self.dtype))
            # what an approximate index misses is no news
            if processes.agreed(stale <= options.stale_share + (1.0 - self.recall)):
                return state
        anchors = jnp.array(state.variables.Z) if options.move else state.anchors
        state = state._replace(
            metric=jnp.asarray(metric, self.dtype), anchors=anchors, searches=state.searches + 1
        )
        self.make_index(state)
        return state

    def make_index(self, state: SwsgpState) -> None:
        """Make the index of the inducing inputs, as the state has them, and forget what was found by the last one."""
        Z = np.asarray(state.anchors if self.options.move else state.variables.Z, np.float64)
        metric = np.asarray(state.metric, np.float64)
        self.index = NeighbourIndex(Z, metric, self.options.search)
        self.recall = self.index.recall
        self.table.forget()
        if self.plan.ordered:
            self.before = nearest_predecessors(Z, metric, self.sees, self.options.search)

    # ------------------------------------------------------------ minibatches

    def draw(self, first: int, count: int) -> Drawn:
        """Return the minibatches of some steps."""
        rows, steps = self.rows, range(first, first + count)
        batch = self.options.row_batch
        own = np.zeros((count, 0), np.int32)
        if self.plan.ordered:
            some = min(batch, self.size)
            chosen = [_some(self.seed, step, self.size, some) for step in steps]
            own = np.stack(chosen).astype(np.int32)
        if self.parts is not None:
            part = self.parts.draw(first, count)
            return Drawn(part.numbers, part.X, part.y, own, part.counts)
        numbers = np.stack([minibatch_indices(self.seed, step, rows.n, batch) for step in steps])
        X, y = rows.take(numbers.ravel())
        assert y is not None
        X, y = self.standardizer.transform_X(X), self.standardizer.transform_y(y)
        return Drawn(
            numbers, X.reshape(*numbers.shape, -1), y.reshape(*numbers.shape, *y.shape[1:]), own
        )

    def touching(self, drawn: Drawn) -> Batch:
        """Return minibatches with what they touch, by the neighbours as they are now."""
        assert self.index is not None
        numbers, X, y, own, counts = drawn
        count = len(numbers)
        near, X = self._neighbours(numbers, X, counts)
        before = np.zeros((count, 0, self.sees), np.int32)
        if self.plan.ordered:
            before = self.before[own]
        parts = [near.reshape(count, -1), own, before.reshape(count, -1)]
        touched = np.concatenate(parts, axis=1)
        most = min(touched.shape[1], self.size)
        which = np.full((count, most), self.size, np.int32)
        places = np.empty(touched.shape, np.int32)
        for t in range(count):
            # absent predecessors stand for the first inducing input, and are masked
            unique, places[t] = np.unique(np.maximum(touched[t], 0), return_inverse=True)
            which[t, : len(unique)] = unique
        cuts = np.cumsum([part.shape[1] for part in parts])[:-1]
        at_near, at_own, at_before = np.split(places, cuts, axis=1)
        at_near = at_near.reshape(near.shape)
        batch = Batch(
            X.astype(self.dtype),
            y.astype(self.dtype),
            which,
            at_near[..., : self.sees],
            at_near[..., -1],
            at_own,
            at_before.reshape(before.shape),
            before >= 0,
        )
        if self.devices > 1:
            # what is touched is the same for all
            return Batch(*map(Own, batch))._replace(rows=batch.rows, counts=None, own_counts=None)
        return batch if counts is None else self._part_of(batch, counts)

    def _neighbours(
        self, numbers: np.ndarray, X: np.ndarray, counts: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the neighbours of the rows of minibatches, of all processes one after the other, and own rows."""
        assert self.index is not None
        rows = np.ones(numbers.shape, bool) if counts is None else counts
        found = np.full((*numbers.shape, self.sees + self.taper), -1, np.int32)
        found[rows] = self.table.lookup(numbers[rows], X[rows], self.index)
        if counts is None:
            return found, X
        found = np.concatenate(processes.gathered(found), axis=1)
        absent = found[:, :, 0] < 0
        # filling sees what a row of the step sees, so that nothing else is touched, and is where the nearest of it is
        some = found[np.arange(len(found)), np.argmin(absent, axis=1)]
        places = self.index.points[some[:, 0]] * self.index.scales
        X = np.where(counts[:, :, None], X, places[:, None])
        return np.where(absent[:, :, None], some[:, None], found), X

    def _part_of(self, batch: Batch, counts: np.ndarray) -> Batch:
        """Return what this process works on: its rows, and its share of the divergences."""
        steps, rows = counts.shape
        here = slice(processes.number() * rows, (processes.number() + 1) * rows)
        some = batch.own.shape[1]
        first, last = processes.share_of(some)
        own = first + np.arange(-(-some // processes.count()))
        own_counts = (own < last) * (self.size / max(some, 1))
        own = np.minimum(own, some - 1)
        weight = self.rows.n / min(self.options.row_batch, self.rows.n)
        return Batch(
            Own(batch.X),
            Own(batch.y),
            # what is touched is the same in all
            batch.rows,
            Own(batch.near[:, here]),
            Own(batch.border[:, here]),
            Own(batch.own[:, own]),
            Own(batch.before[:, own]),
            Own(batch.present[:, own]),
            Own((counts * weight).astype(self.dtype)),
            Own(np.tile(own_counts.astype(self.dtype), (steps, 1))),
        )


def _summary(state: SwsgpState, records: Mapping[str, Any], done: int) -> dict[str, float]:
    told = {"stale": float(state.stale), "searches": float(state.searches)}
    return mean_and_error(records["objective"]) | told


def _some(seed: int, step: int, size: int, count: int) -> np.ndarray:
    if count >= size:
        return np.arange(size)
    return generator(seed, step, _OWN).choice(size, size=count, replace=False, shuffle=False)
