"""How sparse variational Gaussian processes are fitted: E-steps and M-steps on minibatches, then passes over all rows.

Minibatches find hyperparameters and inducing points. The sites that they leave are averages over the last some
thousand rows, so the fit ends with E-steps on all rows, hyperparameters held: with Gaussian noise the first one is
exact, elsewhere they converge as Newton's method does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vastgp._precision import as_dtype, precision
from vastgp.data import Rows as DataRows
from vastgp.data import Standardizer
from vastgp.data.minibatch import chunk_of_minibatches
from vastgp.fitting.candidates import bounds_of
from vastgp.fitting.checkpoint import Phase
from vastgp.fitting.dual_evidence import most_rate
from vastgp.fitting.history import History
from vastgp.fitting.loop import OUT_OF_TIME, LoopResult, run_chunks
from vastgp.fitting.no_gain import no_gain
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.methods.svgp.bound import Coordinates, Rows, SiteSums, held
from vastgp.methods.svgp.passes import (
    SVGPFit,
    SVGPOptions,
    finish,
    padded_rows,
    run_passes,
    seconds_of_a_pass,
)
from vastgp.methods.svgp.steps import (
    Moments,
    Params,
    Setting,
    adam_step,
    coordinates_of,
    e_step,
    m_step,
    mended,
    start_optimizer,
    sums_of,
    sums_of_rows,
    untied_e_step,
    untied_m_step,
)

# Iterations between two records.
_CHUNK = 10
# A step that ends in no posterior is tried again this often, half as long each time.
_MOST_HALVINGS = 6
# Natural-gradient steps on minibatches average over as many rows as there are, or 50 batches where those are fewer. On
# pol an average over a fifth of the rows ended 370 nats lower after as many steps.
_LEAST_RATE = 0.02
# Share of max_seconds that is kept for the passes over all rows, at least and at most; in between, that of one pass and
# some more. With Gaussian noise there is one pass.
_FOR_PASSES, _FOR_ONE, _MOST_FOR_PASSES, _LONGER = 0.2, 0.05, 0.6, 1.3
# Parameters on minibatches are averaged with weights that grow as the cube of the step, so that the last quarter of
# the steps has two thirds of them (Shamir and Zhang 2013).
_LATE = 3.0


class State(NamedTuple):
    """All that decides the next step.

    Attributes
    ----------
    params : Params
    here : Coordinates
        Of the parameters.
    q : SiteSums, Moments, or a pair of arrays with a site a row
    optimizer : pytree
        Of Adam.
    average : Params
        Weighted average of the parameters so far.
    e_steps, damped : int
        E-steps done, and steps that were shortened.
    """

    params: Params
    here: Coordinates
    q: Any
    optimizer: Any
    average: Params
    e_steps: Any
    damped: Any


@dataclass(frozen=True)
class Budget:
    """How long to work, what to show, where to save.

    Attributes
    ----------
    max_iter : int
        Iterations of E-steps and M-steps at most.
    tol : float
        See `vastgp.fitting.no_gain.no_gain`; passes over all rows end at a hundredth of it.
    max_seconds : float or None
    checkpoints : callable
        ``checkpoints(suffix)`` gives where to save a part of the fit, or None.
    verbose : bool
    """

    max_iter: int = 2000
    tol: float = 1e-4
    max_seconds: float | None = None
    checkpoints: Callable[[str], Phase | None] = field(default=lambda _: None)
    verbose: bool = False


def fit_svgp(
    rows: DataRows,
    standardizer: Standardizer,
    kernel: Kernel,
    likelihood: Likelihood,
    Z: np.ndarray,
    options: SVGPOptions,
    budget: Budget,
    *,
    seed: int = 0,
    dtype: str = "float64",
) -> SVGPFit:
    """Fit ``q``, hyperparameters and inducing points.

    Parameters
    ----------
    rows : Rows
        Training rows with targets, of any number.
    standardizer : Standardizer
        Their scaling.
    kernel, likelihood
        In standardised units: where learning starts.
    Z : ndarray of shape (m, d)
        Where inducing points start, in standardised units.
    options : SVGPOptions
    budget : Budget
    seed, dtype
        As in the estimators.

    Raises
    ------
    FloatingPointError
        When a step has no posterior however short it is, with what to change.
    """
    began = time.perf_counter()
    kernel, likelihood = jax.tree.map(
        lambda leaf: np.asarray(leaf, np.float64), (kernel, likelihood)
    )
    adam = options.optimizer == "adam"
    trained = options.learn or options.move or adam
    limit, before = budget.max_seconds, 0.0
    with precision(dtype):
        trainer = _Trainer(rows, standardizer, likelihood, options, seed, dtype)
        state = trainer.start(kernel, likelihood, Z)
        loop = LoopResult(0, 0.0, True, "hyperparameters were given", History())
        if trained:
            stop = no_gain(
                budget.tol,
                rows.n,
                rows.n if trainer.full else options.row_batch,
                chunk=_CHUNK,
                max_iter=budget.max_iter,
            )
            here = time.perf_counter()
            state, loop = run_chunks(
                trainer.chunk,
                state,
                max_iter=budget.max_iter,
                chunk=_CHUNK,
                max_seconds=limit
                if adam or limit is None
                else trainer.seconds_of_steps(state, limit),
                checkpoint=budget.checkpoints("" if adam else ".steps"),
                should_stop=stop,
                label="inducing points",
                verbose=budget.verbose,
            )
            before = loop.seconds - (time.perf_counter() - here)
        params, sums = trainer.result(state)
        leaves = jax.tree.leaves(params.likelihood)
        # steps may have had a rougher one
        accurate = jax.tree.unflatten(jax.tree.structure(likelihood), leaves)
        params = params._replace(likelihood=accurate)
    if adam:
        return finish(params, sums, np.nan, loop, int(state.damped), 0)
    # what was found in time is not the end of the fit: a larger budget goes on from the steps
    ended = loop.reason != OUT_OF_TIME
    # seconds before a resume count
    spent = time.perf_counter() - began + max(before, 0.0)
    left = None if limit is None else max(limit - spent, 0.0)
    return run_passes(
        rows, standardizer, params, sums, options, loop, int(state.damped), trained,
        tol=budget.tol, max_seconds=left, checkpoint=budget.checkpoints("") if ended else None,
        verbose=budget.verbose,
    )  # fmt: skip


class _Trainer:
    """Iterations as functions of `State`; what stays the same during a fit."""

    def __init__(
        self,
        rows: DataRows,
        standardizer: Standardizer,
        likelihood: Likelihood,
        options: SVGPOptions,
        seed: int,
        dtype: str,
    ) -> None:
        self.rows, self.standardizer, self.options = rows, standardizer, options
        self.seed, self.dtype = seed, dtype
        self.full = options.untied or options.row_batch >= rows.n
        self.whole = padded_rows(*self._all(), 1.0, dtype) if self.full else None
        self.rate = self._rate(likelihood)
        # On minibatches, where an E-step is short, the first M-step takes the rows of the last E-step, and what was
        # computed from them. Steps of length one on all rows go one after the other.
        self.shares = not self.full and options.optimizer == "natural"

    def start(self, kernel: Kernel, likelihood: Likelihood, Z: np.ndarray) -> State:
        """Return the state before the first step: the posterior is the prior."""
        likelihood = likelihood if self.full else likelihood.rough()
        options, dtype, functions = self.options, self.dtype, likelihood.num_latent
        lower, upper = bounds_of((kernel, likelihood), options.noise_floor)
        logs = jax.tree.map(np.log, (kernel, likelihood, lower, upper))
        params: Params = as_dtype(Params(logs[0], logs[1], np.asarray(Z, np.float64)), dtype)
        self.setting = Setting(
            jnp.asarray(options.jitter, dtype), *(as_dtype(side, dtype) for side in logs[2:])
        )
        here = coordinates_of(params, self.setting.jitter)
        optimizer: Any = start_optimizer(params)
        q: Any = SiteSums.none(functions, len(Z), jnp.dtype(dtype))
        if options.untied:
            assert self.whole is not None
            nothing = jnp.zeros((functions, len(self.whole.y)), dtype)
            q = (nothing, nothing)
        if options.optimizer == "adam":
            whiten = options.hold == "whitened"
            q = Moments.prior(functions, jnp.eye(len(Z), dtype=dtype) if whiten else here.lower)
            optimizer = (optimizer, start_optimizer(q))
        return State(params, here, q, optimizer, params, np.int64(0), np.int64(0))

    def seconds_of_steps(self, state: State, limit: float) -> float:
        """Return how much of a budget is for steps; the passes are worth more than the last of them."""
        if self.options.untied:
            return (1.0 - _FOR_PASSES) * limit
        params, sums = state.params, state.q
        of_pass = seconds_of_a_pass(self.rows, self.standardizer, params, sums, self.options)
        least = _FOR_ONE if isinstance(params.likelihood, Gaussian) else _FOR_PASSES
        return limit - min(max(_LONGER * of_pass, least * limit), _MOST_FOR_PASSES * limit)

    def _rate(self, likelihood: Likelihood) -> float:
        if self.options.step_rate is not None:
            return float(self.options.step_rate)
        if self.full:
            return most_rate(likelihood)
        share = self.options.row_batch / self.rows.n
        return min(most_rate(likelihood), max(_LEAST_RATE, share))

    def _all(self) -> tuple[np.ndarray, np.ndarray]:
        X, y = self.rows.take(np.arange(self.rows.n))
        assert y is not None
        return self.standardizer.transform_X(X), self.standardizer.transform_y(y)

    def chunk(self, state: State, first: int, count: int) -> tuple[State, Mapping[str, Any]]:
        """Do iterations ``first`` to ``first + count - 1``."""
        options = self.options
        natural = options.optimizer == "natural"
        each = options.num_e_steps + options.num_m_steps - int(self.shares) if natural else 1
        batches: list[Rows] = []
        if self.whole is None:
            X, y = chunk_of_minibatches(
                self.rows, self.standardizer, self.seed, first * each, count * each,
                options.row_batch, self.dtype,
            )  # fmt: skip
            # all of one size, which needs no padding
            weight = self.rows.n / options.row_batch
            batches = [padded_rows(*one, weight, self.dtype, 1) for one in zip(X, y, strict=True)]
        values = []
        for t in range(count):
            if self.whole is not None:
                of_iteration = [self.whole] * each
            else:
                of_iteration = batches[t * each : (t + 1) * each]
            state, value = (
                self._iteration(state, of_iteration)
                if natural
                else self._adam(state, of_iteration[0])
            )
            values.append(value)
            state = state._replace(average=self._averaged(state, first + t))
        spread = float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else np.nan
        return state, {
            "objective": float(np.mean(values)),
            "objective_se": 0.0 if self.full else spread,
            "damped": int(state.damped),
        }

    def _averaged(self, state: State, step: int) -> Params:
        if self.full:
            return state.params
        weight = (_LATE + 1.0) / (step + 1.0 + _LATE)
        return _toward(state.average, state.params, jnp.asarray(weight, self.dtype))

    def _iteration(self, state: State, batches: list[Rows]) -> tuple[State, float]:
        options, value = self.options, np.nan
        alone = options.num_e_steps - int(self.shares)
        if not alone and not state.e_steps:
            # what the prior asks of the hyperparameters says little, and Adam would remember it
            state, _ = self._e_step(state, batches[0])
        for rows in batches[:alone]:
            state, value = self._e_step(state, rows)
        for number, rows in enumerate(batches[alone:]):
            state, value = self._m_step(state, rows, self.shares and number == 0)
        return state, value

    def _length(self, state: State) -> float:
        # the first steps average what has been seen: 1, 1/2, 1/3, ...
        return self.rate if self.full else max(self.rate, 1.0 / (1.0 + int(state.e_steps)))

    def _e_step(self, state: State, rows: Rows) -> tuple[State, float]:
        step, length = untied_e_step if self.options.untied else e_step, self._length(state)

        def attempt(state: State, share: float) -> tuple[State, Any, Any]:
            rate = jnp.asarray(share * length, self.dtype)
            q, value, good = step(state.params, state.here, state.q, rows, rate)
            return state._replace(q=q, e_steps=state.e_steps + 1), value, good

        return self._tried("E-step", attempt, state)

    def _m_step(self, state: State, rows: Rows, with_e_step: bool) -> tuple[State, float]:
        options, length = self.options, self._length(state)

        def attempt(state: State, share: float) -> tuple[State, Any, Any]:
            rate = jnp.asarray(share * options.learning_rate, self.dtype)
            q = state.q
            if options.untied:
                params, here, optimizer, value, good = untied_m_step(
                    state.params, q, state.optimizer, rows, rate, self.setting, move=options.move
                )
            else:
                step_rate = jnp.asarray(share * length, self.dtype) if with_e_step else None
                params, here, q, optimizer, value, good = m_step(
                    state.params, state.here, q, state.optimizer, rows, step_rate, rate, self.setting,
                    hold=options.hold, move=options.move,
                )  # fmt: skip
            e_steps = state.e_steps + int(with_e_step)
            moved = state._replace(
                params=params, here=here, q=q, optimizer=optimizer, e_steps=e_steps
            )
            return moved, value, good

        return self._tried("M-step", attempt, state)

    def _adam(self, state: State, rows: Rows) -> tuple[State, float]:
        options = self.options

        def attempt(state: State, share: float) -> tuple[State, Any, Any]:
            params, q, optimizer, value, good = adam_step(
                state.params, state.q, state.optimizer, rows,
                jnp.asarray(share * options.learning_rate, self.dtype), self.setting,
                whiten=options.hold == "whitened", learn=options.learn, move=options.move,
            )  # fmt: skip
            return state._replace(params=params, q=q, optimizer=optimizer), value, good

        return self._tried("step of Adam", attempt, state)

    def _tried(
        self, what: str, attempt: Callable[[State, float], tuple[State, Any, Any]], state: State
    ) -> tuple[State, float]:
        """Take a step, or as much of it as leaves a posterior."""
        for halvings in range(_MOST_HALVINGS):
            found, value, good = attempt(state, 0.5**halvings)
            if bool(good):
                return found._replace(damped=found.damped + halvings), float(value)
            if not halvings and isinstance(state.q, SiteSums):
                state = state._replace(q=mended(state.q))
        raise FloatingPointError(
            f"an {what} gave no finite posterior, however short it was made, in {self.dtype}. Raise jitter or "
            "noise_floor, lower learning_rate, or set dtype='float64'."
        )

    def result(self, state: State) -> tuple[Params, SiteSums]:
        """Return parameters and sites."""
        if self.options.optimizer == "adam":
            here = coordinates_of(state.params, self.setting.jitter)
            whiten = self.options.hold == "whitened"
            return state.params, sums_of(state.q.whitened(None if whiten else here.inverse))
        if self.options.untied:
            assert self.whole is not None
            return state.params, sums_of_rows(state.params, state.here, state.q, self.whole)
        if self.full:
            return state.params, state.q
        after = coordinates_of(state.average, self.setting.jitter)
        return state.average, held("sites", state.q, state.here, after)


@jax.jit
def _toward(average: Params, params: Params, weight: Any) -> Params:
    return jax.tree.map(lambda a, b: (1.0 - weight) * a + weight * b, average, params)
