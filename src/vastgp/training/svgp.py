"""How sparse variational Gaussian processes are fitted: E-steps and M-steps on minibatches, then passes over all rows.

Minibatches find hyperparameters and inducing points. The sites that they leave are averages over the last some
thousand rows, so the fit ends with E-steps on all rows, hyperparameters held: with Gaussian noise the first one is
exact, elsewhere they converge as Newton's method does.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vastgp._precision import as_dtype, precision
from vastgp.data import Rows as DataRows
from vastgp.data import Standardizer
from vastgp.data.minibatch import chunk_of_minibatches
from vastgp.kernels import Kernel
from vastgp.likelihoods import Likelihood
from vastgp.objectives.dual_evidence import most_rate
from vastgp.objectives.svgp_bound import Rows, SiteSums, prior_factor
from vastgp.training.history import History
from vastgp.training.loop import LoopResult, Stop, run_chunks
from vastgp.training.start import bounds_of
from vastgp.training.svgp_passes import (
    InducingFit,
    InducingOptions,
    finish,
    padded_rows,
    run_passes,
)
from vastgp.training.svgp_steps import (
    Moments,
    Params,
    Setting,
    adam_step,
    e_step,
    m_step,
    start_optimizer,
    untied_e_step,
    untied_m_step,
)

_CHUNK = 10
# Records whose mean is compared with that of as many before.
_WINDOW = 10
# A step that ends in no posterior is tried again this often, half as long each time.
_MOST_HALVINGS = 6
# Natural-gradient steps on minibatches average over this many times the rows of a batch, at most and by their share.
_LEAST_RATE, _RATE_PER_SHARE = 0.02, 5.0
# Share of max_seconds that is kept for the passes over all rows.
_FOR_PASSES = 0.2


def fit_inducing(
    rows: DataRows,
    standardizer: Standardizer,
    kernel: Kernel,
    likelihood: Likelihood,
    Z: np.ndarray,
    options: InducingOptions,
    *,
    max_iter: int = 2000,
    tol: float = 1e-4,
    max_seconds: float | None = None,
    seed: int = 0,
    dtype: str = "float64",
    verbose: bool = False,
) -> InducingFit:
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
    options : InducingOptions
    max_iter : int
        Iterations of E-steps and M-steps at most.
    tol : float
        Converged when 100 iterations gain less of the bound than this, in nats per row, or than its noise; passes over
        all rows end at the same gain.
    max_seconds, seed, dtype, verbose
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
    needs_steps = options.learn or options.move or options.optimizer == "adam"
    with precision(dtype):
        trainer = _Trainer(rows, standardizer, kernel, likelihood, Z, options, seed, dtype)
        loop = LoopResult(0, 0.0, True, "hyperparameters were given", History())
        if needs_steps:
            share = 1.0 if options.optimizer == "adam" else 1.0 - _FOR_PASSES
            _, loop = run_chunks(
                trainer.chunk,
                np.zeros(0),
                max_iter=max_iter,
                chunk=_CHUNK,
                max_seconds=None if max_seconds is None else share * max_seconds,
                should_stop=_no_gain(tol * rows.n),
                label="inducing points",
                verbose=verbose,
            )
        params, sums, lower = trainer.result()
    left = None if max_seconds is None else max_seconds - (time.perf_counter() - began)
    if options.optimizer == "adam":
        return finish(params, sums, lower, np.nan, loop, trainer.damped, 0)
    return run_passes(
        rows, standardizer, params, sums, options, loop, tol, left, trainer.damped, needs_steps
    )


class _Trainer:
    """The state of a fit between chunks of iterations."""

    def __init__(
        self,
        rows: DataRows,
        standardizer: Standardizer,
        kernel: Kernel,
        likelihood: Likelihood,
        Z: np.ndarray,
        options: InducingOptions,
        seed: int,
        dtype: str,
    ) -> None:
        self.rows, self.standardizer, self.options = rows, standardizer, options
        self.seed, self.dtype, self.damped, self.e_steps = seed, dtype, 0, 0
        lower, upper = bounds_of((kernel, likelihood), options.noise_floor)
        logs = jax.tree.map(np.log, (kernel, likelihood, lower, upper))
        start = as_dtype(Params(logs[0], logs[1], np.asarray(Z, np.float64)), dtype)
        self.setting = Setting(
            jnp.asarray(options.jitter, dtype), *(as_dtype(side, dtype) for side in logs[2:])
        )
        self.params: Params = start
        self.full = options.untied or options.row_batch >= rows.n
        self.whole = self._batch(*self._all()) if self.full else None
        self.rate = self._rate(likelihood)
        functions = likelihood.num_latent
        self.sums = SiteSums.none(functions, len(Z), jnp.dtype(dtype))
        self.optimizer: Any = start_optimizer(start)
        if options.untied:
            assert self.whole is not None
            nothing = jnp.zeros((functions, len(self.whole.y)), dtype)
            self.sites = (nothing, nothing)
        if options.optimizer == "adam":
            L = prior_factor(start.positive()[0], start.Z, self.setting.jitter)
            whiten = options.hold == "whitened"
            self.q = Moments.prior(functions, jnp.eye(len(Z), dtype=L.dtype) if whiten else L)
            self.optimizer = (start_optimizer(start), start_optimizer(self.q))

    def _rate(self, likelihood: Likelihood) -> float:
        if self.options.step_rate is not None:
            return float(self.options.step_rate)
        if self.full:
            return most_rate(likelihood)
        share = self.options.row_batch / self.rows.n
        return min(most_rate(likelihood), max(_LEAST_RATE, _RATE_PER_SHARE * share))

    def _all(self) -> tuple[np.ndarray, np.ndarray]:
        X, y = self.rows.take(np.arange(self.rows.n))
        assert y is not None
        return self.standardizer.transform_X(X), self.standardizer.transform_y(y)

    def _batch(self, X: np.ndarray, y: np.ndarray) -> Rows:
        return padded_rows(X, y, self.rows.n / len(y), self.dtype)

    def chunk(self, state: Any, first: int, count: int) -> tuple[Any, Mapping[str, Any]]:
        """Do iterations ``first`` to ``first + count - 1``."""
        options = self.options
        natural = options.optimizer == "natural"
        each = options.num_e_steps + options.num_m_steps if natural else 1
        batches: list[Rows] = []
        if self.whole is None:
            X, y = chunk_of_minibatches(
                self.rows, self.standardizer, self.seed, first * each, count * each,
                options.row_batch, self.dtype,
            )  # fmt: skip
            batches = [self._batch(*one) for one in zip(X, y, strict=True)]
        values = []
        for t in range(count):
            of_iteration = batches[t * each : (t + 1) * each]
            if self.whole is not None:
                of_iteration = [self.whole] * each
            values.append(self._iteration(of_iteration) if natural else self._adam(of_iteration[0]))
        spread = float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else np.nan
        return state, {
            "objective": float(np.mean(values)),
            "objective_se": 0.0 if self.full else spread,
            "damped": self.damped,
        }

    def _iteration(self, batches: list[Rows]) -> float:
        options, value = self.options, np.nan
        for rows in batches[: options.num_e_steps]:
            value = self._e_step(rows)
        if not (options.learn or options.move):
            return value
        values = [self._m_step(rows) for rows in batches[options.num_e_steps :]]
        return values[-1] if values else value

    def _e_step(self, rows: Rows) -> float:
        # the first steps average what has been seen: 1, 1/2, 1/3, ...
        rate = max(self.rate, 1.0 / (1.0 + self.e_steps)) if not self.full else self.rate
        self.e_steps += 1
        for _ in range(_MOST_HALVINGS):
            step = jnp.asarray(rate, self.dtype)
            if self.options.untied:
                found = untied_e_step(self.params, self.sites, rows, step, self.setting.jitter)
                sites, sums, value, good = found
            else:
                sites = None
                sums, value, good = e_step(self.params, self.sums, rows, step, self.setting.jitter)
            if bool(good):
                self.sums = sums
                if sites is not None:
                    self.sites = sites
                return float(value)
            self.damped += 1
            rate *= 0.5
        raise FloatingPointError(_NO_POSTERIOR.format(what="E-step", dtype=self.dtype))

    def _m_step(self, rows: Rows) -> float:
        rate, options = options_rate(self.options), self.options
        for _ in range(_MOST_HALVINGS):
            step = jnp.asarray(rate, self.dtype)
            if options.untied:
                found = untied_m_step(
                    self.params, self.optimizer, self.sites, rows, step, self.setting,
                    move=options.move,
                )  # fmt: skip
            else:
                found = m_step(
                    self.params, self.optimizer, self.sums, rows, step, self.setting,
                    hold=options.hold, move=options.move,
                )  # fmt: skip
            params, optimizer, sums, value, good = found
            if bool(good):
                self.params, self.optimizer, self.sums = params, optimizer, sums
                return float(value)
            self.damped += 1
            rate *= 0.5
        raise FloatingPointError(_NO_POSTERIOR.format(what="M-step", dtype=self.dtype))

    def _adam(self, rows: Rows) -> float:
        rate, options = options_rate(self.options), self.options
        for _ in range(_MOST_HALVINGS):
            params, q, optimizer, value, good = adam_step(
                self.params, self.q, self.optimizer, rows, jnp.asarray(rate, self.dtype),
                self.setting, whiten=options.hold == "whitened", learn=options.learn,
                move=options.move,
            )  # fmt: skip
            if bool(good):
                self.params, self.q, self.optimizer = params, q, optimizer
                return float(value)
            self.damped += 1
            rate *= 0.5
        raise FloatingPointError(_NO_POSTERIOR.format(what="step of Adam", dtype=self.dtype))

    def result(self) -> tuple[Params, SiteSums, Any]:
        """Return parameters, sites and the factor of ``K_uu``."""
        L = prior_factor(self.params.positive()[0], self.params.Z, self.setting.jitter)
        if self.options.optimizer == "adam":
            self.sums = self.q.whitened(None if self.options.hold == "whitened" else L).sums()
        return self.params, self.sums, L


_NO_POSTERIOR = (
    "an {what} gave no finite posterior, however short it was made, in {dtype}. Raise jitter or noise_floor, lower "
    "learning_rate, or set dtype='float64'."
)


def options_rate(options: InducingOptions) -> float:
    """Return the learning rate of Adam."""
    return float(options.learning_rate)


def _no_gain(least: float) -> Any:
    """Return the rule that ends a fit when the bound no longer grows by more than ``least``, or than its noise."""

    def rule(_: Mapping[str, float], history: History) -> Stop | None:
        values = np.asarray(history.objective)
        if len(values) < 2 * _WINDOW:
            return None
        last, before = values[-_WINDOW:], values[-2 * _WINDOW : -_WINDOW]
        noise = ((np.var(last, ddof=1) + np.var(before, ddof=1)) / _WINDOW) ** 0.5
        gain = float(np.mean(last) - np.mean(before))
        if gain < max(least, noise):
            return Stop(
                f"the bound gained {gain:.3g} nats in {_WINDOW * _CHUNK} steps, which is less than tol allows or its "
                "noise tells"
            )
        return None

    return rule
