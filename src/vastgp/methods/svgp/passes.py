"""The end of a fit at inducing points: E-steps on all rows, hyperparameters held."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vastgp._precision import as_dtype, precision
from vastgp.data import Rows as DataRows
from vastgp.data import Standardizer
from vastgp.data.padding import repeat_last
from vastgp.fitting.checkpoint import Checkpoint
from vastgp.fitting.dual_evidence import most_rate
from vastgp.fitting.history import History
from vastgp.fitting.loop import OUT_OF_TIME, LoopResult, Stop, run_chunks
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.methods.svgp.bound import (
    Rows,
    SiteSums,
    Whitened,
    posterior_of,
    posterior_under,
    quadratic_fit,
)
from vastgp.methods.svgp.steps import Params, coordinates_of, mended, tile_sums

# Rows of a tile of a pass; tiles are padded to a multiple of _PAD, so that sizes share compiled code.
_TILE, _PAD = 4096, 64
_LEAST_PASS_RATE = 1.0 / 64.0
# Passes end at this share of the gain at which steps on minibatches do: they converge far faster.
_FINER = 1e-2


@dataclass(frozen=True)
class SVGPOptions:
    """How to fit.

    Attributes
    ----------
    optimizer : {"natural", "adam"}
        What moves ``q``: natural gradients (E-steps), or Adam together with the hyperparameters.
    hold : {"sites", "whitened", "unwhitened"}
        What the M-step holds: see `vastgp.methods.svgp.bound.held`. With Adam: the coordinates of ``q``.
    untied : bool
        One site a row, for as many rows as fit into a batch.
    num_e_steps, num_m_steps : int
        In an iteration.
    step_rate : float or None
        Of E-steps, 0 to 1.
    learning_rate : float
        Of Adam.
    learn, move : bool
        Whether hyperparameters and inducing points are learned.
    row_batch : int
    jitter : float
        Relative to the prior variance.
    passes : int
        E-steps on all rows in the end, at most.
    noise_floor : float
    """

    optimizer: str = "natural"
    hold: str = "sites"
    untied: bool = False
    num_e_steps: int = 1
    num_m_steps: int = 1
    step_rate: float | None = None
    learning_rate: float = 0.02
    learn: bool = True
    move: bool = True
    row_batch: int = 500
    jitter: float = 1e-8
    passes: int = 10
    noise_floor: float = 1e-3


@dataclass(frozen=True)
class SVGPFit:
    """What was found, in float64.

    Attributes
    ----------
    kernel : Kernel
    likelihood : Likelihood
    Z : ndarray of shape (m, d)
        Inducing points.
    sums : SiteSums
        In their whitened coordinates.
    bound : float
        Lower bound of the log evidence by the last pass over all rows, NaN where there was none.
    loop : LoopResult
    damped : int
        Steps that were shortened because they would have left no posterior.
    num_passes : int
        E-steps on all rows.
    """

    kernel: Kernel
    likelihood: Likelihood
    Z: np.ndarray
    sums: SiteSums
    bound: float
    loop: LoopResult
    damped: int
    num_passes: int


def padded_rows(
    X: np.ndarray, y: np.ndarray, weight: float, dtype: Any, multiple: int = _PAD
) -> Rows:
    """Return rows that count ``weight`` each, padded with copies of the last one that count nothing."""
    size = -(-len(y) // multiple) * multiple
    weights = np.pad(np.full(len(y), weight), (0, size - len(y)))
    parts = repeat_last(X, size), repeat_last(y, size), weights
    return Rows(*(jnp.asarray(part, dtype) for part in parts))


class PassState(NamedTuple):
    """Sites, those that their posterior asks for, the bound, and the length of the next step.

    Attributes
    ----------
    sums, better : SiteSums
    bound : float
    rate : float
    damped : int
    settled : bool
    """

    sums: SiteSums
    better: SiteSums
    bound: Any
    rate: Any
    damped: Any
    settled: Any


class _Passes:
    """E-steps on all rows, in float64."""

    def __init__(
        self,
        rows: DataRows,
        standardizer: Standardizer,
        params: Params,
        options: SVGPOptions,
        least: float,
    ) -> None:
        self.rows, self.standardizer, self.params, self.least = rows, standardizer, params, least
        self.likelihood = params.positive()[1]
        self.here = coordinates_of(params, options.jitter)
        self.most = most_rate(self.likelihood)

    def start(self, sums: SiteSums) -> PassState:
        """Return the state at given sites."""
        sums, bound, better = self._evaluate(sums)
        start = np.float64(self.most), np.int64(0), np.bool_(False)
        return PassState(sums, better, np.float64(bound), *start)

    def _evaluate(self, sums: SiteSums) -> tuple[SiteSums, float, SiteSums]:
        sums, q = _posterior(self.likelihood, sums)
        total = 0.0
        better = SiteSums(*(jnp.zeros_like(part) for part in sums))
        for X, y in self.rows.batches(_TILE):
            assert y is not None
            scaled = self.standardizer.transform_X(X), self.standardizer.transform_y(y)
            tile = padded_rows(*scaled, 1.0, "float64")
            fit, part = tile_sums(self.params, self.here, q, tile)
            total, better = total + float(fit), better.plus(part)
        return sums, total - float(q.divergence()), better

    def chunk(
        self, state: PassState, first: int, count: int
    ) -> tuple[PassState, Mapping[str, Any]]:
        """Do one pass."""
        if isinstance(self.likelihood, Gaussian):
            gain = float(_gain_of_exact_step(state.sums, state.better))
            state = state._replace(
                sums=state.better, bound=state.bound + gain, settled=np.bool_(True)
            )
        else:
            state = self._step(state)
        return state, {
            "objective": state.bound,
            "objective_se": 0.0,
            "damped": state.damped,
            "settled": state.settled,
        }

    def _step(self, state: PassState) -> PassState:
        sums, bound, better = self._evaluate(state.sums.toward(state.better, float(state.rate)))
        gain = bound - float(state.bound)
        if np.isfinite(bound) and gain >= 0.0:
            rate = min(self.most, 2.0 * float(state.rate))
            settled = gain <= self.least
            return PassState(
                sums, better, np.float64(bound), np.float64(rate), state.damped, np.bool_(settled)
            )
        settled = -gain <= self.least or state.rate <= _LEAST_PASS_RATE
        return state._replace(
            rate=np.float64(0.5 * state.rate), damped=state.damped + 1, settled=np.bool_(settled)
        )


def _sound(sums: SiteSums) -> SiteSums:
    """Return sums that have a posterior: those of single precision may have none, see `mended`."""
    with precision("float64"):
        root = posterior_of(as_dtype(sums, np.float64)).root
    return sums if bool(jnp.all(jnp.isfinite(root))) else mended(sums)


def seconds_of_a_pass(
    rows: DataRows, standardizer: Standardizer, params: Params, sums: SiteSums, options: SVGPOptions
) -> float:
    """Return about how long a pass over all rows takes: the time of a tile, times their number."""
    with precision("float64"):
        params, sums = as_dtype((params, sums), np.float64)
        _, q = _posterior(params.positive()[1], sums)
        here = coordinates_of(params, options.jitter)
        X, y = rows.take(np.arange(min(rows.n, _TILE)))
        assert y is not None
        tile = padded_rows(standardizer.transform_X(X), standardizer.transform_y(y), 1.0, "float64")
        jax.block_until_ready(tile_sums(params, here, q, tile))
        began = time.perf_counter()
        jax.block_until_ready(tile_sums(params, here, q, tile))
    return (time.perf_counter() - began) * rows.n / len(X)


@jax.jit
def _posterior(likelihood: Likelihood, sums: SiteSums) -> tuple[SiteSums, Whitened]:
    return posterior_under(likelihood, sums)


@jax.jit
def _gain_of_exact_step(sums: SiteSums, better: SiteSums) -> Any:
    """Return what the bound gains where the log-likelihood is that of the sites, without another pass."""
    before, after = posterior_of(sums), posterior_of(better)
    fit = quadratic_fit(better, after) - quadratic_fit(better, before)
    return fit - (after.divergence() - before.divergence())


def run_passes(
    rows: DataRows,
    standardizer: Standardizer,
    params: Params,
    sums: SiteSums,
    options: SVGPOptions,
    loop: LoopResult,
    damped: int,
    trained: bool,
    *,
    tol: float,
    max_seconds: float | None,
    checkpoint: Checkpoint | None,
    verbose: bool,
) -> SVGPFit:
    """Do E-steps on all rows, in float64, until the bound no longer grows.

    Parameters
    ----------
    params, sums
        Where they start.
    loop : LoopResult
        Of the steps before; ``trained`` says whether there were any.
    damped : int
        Steps that were shortened so far.
    tol, max_seconds, checkpoint, verbose
        As in `vastgp.methods.svgp.training.Budget`.
    """
    if trained and max_seconds is not None and max_seconds <= 0.0:
        return finish(params, sums, np.nan, loop, damped, 0)
    repaired = _sound(sums)
    damped, sums = damped + int(repaired is not sums), repaired
    with precision("float64"):
        params, sums = as_dtype((params, sums), np.float64)
        passes = _Passes(rows, standardizer, params, options, _FINER * tol * rows.n)
        state, end = run_chunks(
            passes.chunk,
            passes.start(sums),
            max_iter=options.passes,
            chunk=1,
            max_seconds=max_seconds,
            checkpoint=checkpoint,
            should_stop=lambda found, _: Stop("settled") if found["settled"] else None,
            label="passes over all rows",
            verbose=verbose,
        )
    history = History.from_dict(loop.history.to_dict())
    for k, (step, seconds) in enumerate(zip(end.history.steps, end.history.seconds, strict=True)):
        values = {name: column[k] for name, column in end.history.values.items()}
        values["damped"] += damped
        del values["settled"]
        history.append(loop.num_iter + step, loop.seconds + seconds, values)
    reason, converged = loop.reason, loop.converged and end.converged
    if loop.converged and not end.converged:
        ended = f"stopped after {end.num_iter} passes over all rows, sites still moving"
        reason = OUT_OF_TIME if end.reason == OUT_OF_TIME else ended
    elif not trained:
        reason = f"the sites settled in {end.num_iter} passes over all rows"
    loop = replace(
        loop, num_iter=loop.num_iter + end.num_iter, converged=converged, reason=reason,
        seconds=loop.seconds + end.seconds, history=history,
    )  # fmt: skip
    return finish(
        params, state.sums, float(state.bound), loop, damped + int(state.damped), end.num_iter
    )  # fmt: skip


def finish(
    params: Params,
    sums: SiteSums,
    bound: float,
    loop: LoopResult,
    damped: int,
    passes: int,
) -> SVGPFit:
    """Return what was found, in float64."""
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (params, sums))
    params, sums = wide
    kernel, likelihood = jax.tree.map(np.exp, (params.kernel, params.likelihood))
    return SVGPFit(kernel, likelihood, params.Z, sums, float(bound), loop, damped, passes)
