"""How sparse variational Gaussian processes are fitted: E-steps and M-steps on minibatches, then passes over all rows.

Minibatches find hyperparameters and inducing points. The sites that they leave are averages over the last some
thousand rows, so the fit ends with E-steps on all rows, hyperparameters held: with Gaussian noise the first one is
exact, elsewhere they converge as Newton's method does.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from vastgp._precision import as_dtype, precision
from vastgp._programs import options_of_steps, program
from vastgp.data import Rows as DataRows
from vastgp.data import Standardizer, processes
from vastgp.data.devices import devices_for
from vastgp.data.joint_programs import Own
from vastgp.data.minibatch import SharedMinibatches, chunk_of_minibatches
from vastgp.data.tiles import row_tiles, tile_size
from vastgp.fitting.candidates import bounds_of
from vastgp.fitting.history import History
from vastgp.fitting.loop import LoopResult
from vastgp.fitting.minibatch_runner import MinibatchRunner, mean_and_error
from vastgp.fitting.no_gain import no_gain
from vastgp.fitting.run import Run
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.methods.svgp.bound import Coordinates, Rows, SiteSums, Whitened, held, least_jitter
from vastgp.methods.svgp.finish import climb_bound
from vastgp.methods.svgp.iteration import FAILED, Constants, Plan, Record, State, iteration
from vastgp.methods.svgp.options import SVGPOptions
from vastgp.methods.svgp.passes import seconds_of_a_pass
from vastgp.methods.svgp.steps import (
    Moments,
    Params,
    Setting,
    coordinates_of,
    start_optimizer,
    sums_of_rows,
)

# Iterations of a compiled program, and between two records.
_CHUNK = 10
# Natural-gradient steps on minibatches average over as many rows as there are, or 50 batches where those are fewer. On
# pol an average over a fifth of the rows ended 370 nats lower after as many steps.
_LEAST_RATE = 0.02
# Sites of other likelihoods than the Gaussian go to where the derivatives at the present posterior point. From a
# prior of large variance, which classes far apart have, a whole step goes far beyond, and the next one comes back.
# 280 rows of two circles, 30 inducing inputs: after 2000 steps of length one the bound was -316 (and a line was
# kept), after 221 of a third it is -15.15; with 1/2 sites still moved in the end.
_MOST_RATE = 1.0 / 3.0
# Share of max_seconds that is kept for the passes over all rows, at least and at most; in between, that of those that
# are needed and some more. With Gaussian noise there is one; elsewhere a first one finds the bound, a second moves the
# sites. Where these would take more than the most, steps have all of the time.
_FOR_PASSES, _FOR_ONE, _MOST_FOR_PASSES, _LONGER = 0.2, 0.05, 0.6, 1.3

# On all rows Adam goes on until 100 of its steps gain less than this for each row, so many steps at most; L-BFGS
# ends what they begin. It does so in a third of the time, but alone it ends lower where the start is far off: yacht by
# 0.06 nats a row, slump by 0.14. Of any `tol` and `max_steps`, so that a longer fit goes the same way.
_NEAR, _MOST_BEFORE = 3e-3, 1000


def hyperparameters_given() -> LoopResult:
    """Return how steps ended that were none."""
    return LoopResult(0, 0.0, True, "hyperparameters were given", History())


def learn(
    rows: DataRows,
    standardizer: Standardizer,
    params: tuple[Kernel, Likelihood, np.ndarray],
    options: SVGPOptions,
    run: Run,
    dtype: str,
) -> tuple[Params, SiteSums | Whitened, LoopResult, int, float]:
    """Take steps on minibatches; return parameters, sites, how the steps ended and how many were shortened.

    Adam has moments in the place of sites. The last number is about how many seconds the passes take that are needed
    after the steps, zero where that is not known.

    Parameters
    ----------
    params : tuple
        Kernel, likelihood and inducing inputs to start from, in standardised units.
    dtype : {"float32", "float64"}
        Of the steps.

    Raises
    ------
    FloatingPointError
        When a step has no posterior however short it is, with what to change.
    """
    kernel, likelihood = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params[:2])
    adam = options.optimizer == "adam"
    loop, of_passes = hyperparameters_given(), 0.0
    finish = False
    with precision(dtype):
        trainer = Trainer(rows, standardizer, likelihood, options, run.seed, dtype)
        state = trainer.start(kernel, likelihood, params[2])
        if options.learn or adam:
            share = 1.0
            if run.max_seconds is not None and not adam:
                share, of_passes = run.once(
                    "share of the steps", lambda: trainer.share_of_steps(state, run)
                )
            finish = trainer.full and options.learn and not adam
            most = min(-(-options.max_steps // 2), _MOST_BEFORE) if finish else options.max_steps
            with trainer.runner(most) as runner:
                state, loop = run.steps(
                    "inducing inputs",
                    runner,
                    state,
                    max_iter=most,
                    chunk=_CHUNK,
                    share=0.5 * share if finish else share,
                    should_stop=no_gain(
                        max(options.tol, _NEAR) if finish else options.tol,
                        rows.n,
                        rows.n if trainer.full else options.row_batch,
                        chunk=_CHUNK,
                        max_steps=most,
                    ),
                )
        found, sums = processes.of_first(trainer.result(state))
    # steps may have had a rougher one
    found = trainer.accurate(found)
    if finish:
        assert isinstance(sums, SiteSums)
        found, sums, loop = climb_bound(rows, standardizer, found, sums, options, loop, run, share)
    return found, sums, loop, int(state.damped), of_passes


class Trainer:
    """What stays the same during the steps of a fit, where they start, and what they end in."""

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
        self._kind = jax.tree.structure(likelihood)
        self.full = options.untied or options.row_batch >= rows.n
        self.rate = self._rate(likelihood)
        # sites of their own for all rows are no sums: every process has them all
        self.shared = processes.count() > 1 and not options.untied
        self.parts = None
        if self.shared:
            self.parts = SharedMinibatches(rows, standardizer, seed, options.row_batch, dtype)
        self.plan = Plan(
            options.optimizer,
            options.hold,
            options.untied,
            self.full,
            options.num_e_steps,
            options.num_m_steps,
            options.learn,
            options.move,
            processes.count() if self.shared else 1,
        )

    def start(self, kernel: Kernel, likelihood: Likelihood, Z: np.ndarray) -> State:
        """Return the state before the first step: the posterior is the prior."""
        likelihood = likelihood if self.full else likelihood.rough()
        options, dtype, functions = self.options, self.dtype, likelihood.num_latent
        lower, upper = bounds_of((kernel, likelihood), options.noise_floor)
        logs = jax.tree.map(np.log, (kernel, likelihood, lower, upper))
        params: Params = as_dtype(Params(logs[0], logs[1], np.asarray(Z, np.float64)), dtype)
        setting = Setting(
            _number(options.jitter, dtype), *(as_dtype(side, dtype) for side in logs[2:])
        )
        whole = self._whole() if self.full else None
        self.constants = Constants(
            setting,
            step_rate=_number(self.rate, dtype),
            learning_rate=_number(options.learning_rate, dtype),
            weight=_number(self.rows.n / options.row_batch, dtype),
            whole=whole,
        )
        rows = min(self.options.row_batch, self.rows.n) if self.parts is None else self.parts.size
        self._work, self._num_inducing = rows * len(Z), len(Z)
        self._devices = 1
        if not self.shared:
            size = len(whole.y) if whole is not None else rows
            self._devices = devices_for(functions * size * len(Z) ** 2, size)
        here = coordinates_of(params, setting.jitter)
        optimizer: Any = start_optimizer(params)
        q: Any = SiteSums.none(functions, len(Z), jnp.dtype(dtype))
        if options.untied:
            assert whole is not None
            nothing = np.zeros((functions, len(whole.y)), dtype)
            q = (nothing, nothing)
        if options.optimizer == "adam":
            whiten = options.hold == "whitened"
            q = Moments.prior(functions, jnp.eye(len(Z), dtype=dtype) if whiten else here.lower)
            optimizer = (optimizer, start_optimizer(q))
        zero = np.zeros((), np.int32)
        # each an array of its own, as all are given away together
        state = State(params, here, q, optimizer, params, zero, zero)
        return jax.tree.map(lambda leaf: jax.device_put(np.array(leaf)), state)

    def runner(self, last: int) -> MinibatchRunner:
        """Return what does the iterations, ``last`` of them."""
        constants = self.constants
        if self._devices > 1:
            whole: Any = Own(constants.whole)
            constants = constants._replace(whole=whole)
        return MinibatchRunner(
            iteration,
            self.plan,
            constants,
            chunk=_CHUNK,
            draw=None if self.full else self._draw,
            summarise=self._summary,
            last=last,
            compiler_options=options_of_steps(self._work),
            factorises=self._num_inducing,
            shared=self.shared,
            devices=self._devices,
            axis=2,
        )

    def _draw(self, first: int, count: int) -> Any:
        each = self.plan.batches
        if self.parts is not None:
            own = self._own(*self.parts.draw(first * each, count * each)[1:])
            return Own(tuple(part.reshape(count, each, *part.shape[1:]) for part in own))
        X, y = chunk_of_minibatches(
            self.rows, self.standardizer, self.seed, first * each, count * each,
            self.options.row_batch, self.dtype,
        )  # fmt: skip
        of_step = count, each
        drawn = X.reshape(*of_step, *X.shape[1:]), y.reshape(*of_step, *y.shape[1:])
        return drawn if self._devices == 1 else Own(drawn)

    def _summary(self, state: State, records: Record, done: int) -> dict[str, float]:
        failed = records.failed[records.failed > 0]
        if len(failed):
            raise FloatingPointError(
                f"{FAILED[failed[0]]} gave no finite posterior, however short it was made, in {self.dtype}. Raise "
                "jitter or noise_floor, lower the rate of learning, or set dtype='float64'."
            )
        told = mean_and_error(records.objective) | {"damped": float(state.damped)}
        return told | {"objective_se": 0.0} if self.full else told

    def accurate(self, params: Params) -> Params:
        """Return parameters with the likelihood's kind that the fit was given: that of steps may be a rougher one."""
        leaves = jax.tree.leaves(params.likelihood)
        return params._replace(likelihood=jax.tree.unflatten(self._kind, leaves))

    def share_of_steps(self, state: State, run: Run) -> list[float]:
        """Return how much of the budget is for steps, and about how many seconds the passes take that are needed.

        The passes are worth more than the last of the steps.
        """
        if self.options.untied:
            return [1.0 - _FOR_PASSES, 0.0]
        params, sums = self.accurate(state.params), state.q
        of_pass = seconds_of_a_pass(self.rows, self.standardizer, params, sums, self.options)
        limit = max(run.seconds_left() or 0.0, 1e-3)
        one = isinstance(params.likelihood, Gaussian)
        needed, least = (of_pass, _FOR_ONE) if one else (2.0 * of_pass, _FOR_PASSES)
        if not one and needed > _MOST_FOR_PASSES * limit:
            return [1.0, needed]
        share = min(max(_LONGER * needed / limit, least), _MOST_FOR_PASSES)
        return [1.0 - share, 0.0 if one else needed]

    def _rate(self, likelihood: Likelihood) -> float:
        if self.options.step_rate is not None:
            return float(self.options.step_rate)
        most = 1.0 if isinstance(likelihood, Gaussian) else _MOST_RATE
        if self.full:
            return most
        return min(most, max(_LEAST_RATE, self.options.row_batch / self.rows.n))

    def _own(self, X: np.ndarray, y: np.ndarray, counts: np.ndarray) -> Rows:
        """Return rows that the process has of minibatches, with what they count."""
        return Rows(
            X, y, counts * np.asarray(max(self.rows.n / self.options.row_batch, 1.0), self.dtype)
        )

    def _whole(self) -> Any:
        if self.parts is not None:
            return Own(self._own(*(part[0] for part in self.parts.draw(0, 1)[1:])))
        n = self.rows.n
        (tile,) = row_tiles(self.rows, self.standardizer, tile_size(n, 1 << n.bit_length()))
        return Rows(*(jnp.asarray(part, self.dtype) for part in tile[:3]))

    def result(self, state: State) -> tuple[Params, SiteSums | Whitened]:
        """Return parameters and sites, or the moments that Adam has."""
        if self.options.optimizer == "adam":
            return state.params, self._moments(state)
        if self.options.untied:
            whole = self.constants.whole
            return state.params, sums_of_rows(state.params, state.here, state.q, whole)
        if self.full:
            return state.params, state.q
        after = coordinates_of(state.average, self.constants.setting.jitter)
        return state.average, _held_sites(state.q, state.here, after)

    def _moments(self, state: State) -> Whitened:
        """Return Adam's moments in float64, in the coordinates that its steps had.

        As sites they would be inverses, of which single precision keeps nothing where variances are small.
        """
        m = len(state.params.Z)
        with precision("float64"):
            params, q = as_dtype((state.params, state.q), np.float64)
            here = coordinates_of(params, max(self.options.jitter, least_jitter(m, self.dtype)))
            whiten = self.options.hold == "whitened"
            return Whitened(*map(np.asarray, q.whitened(None if whiten else here.inverse)))


@program
def _held_sites(sums: SiteSums, before: Coordinates, after: Coordinates) -> SiteSums:
    return held("sites", sums, before, after)


def _number(value: float, dtype: str) -> Array:
    """Return a number as an array that is put there as it is: ``jnp.asarray`` compiles a program for its conversion."""
    return jax.device_put(np.asarray(value, dtype))
