"""The end of a fit at inducing points: E-steps on all rows, hyperparameters held."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from vastgp._precision import as_dtype, precision
from vastgp._programs import program
from vastgp.data import Rows as DataRows
from vastgp.data import Standardizer, processes
from vastgp.data.devices import on_host, rows_over_devices
from vastgp.data.tiles import row_tiles, tile_size
from vastgp.fitting.clock import now
from vastgp.fitting.damped_updates import (
    SETTLED,
    STUCK,
    Ascent,
    DampedUpdates,
    Found,
    decide,
)
from vastgp.fitting.dual_evidence import most_rate
from vastgp.fitting.history import History
from vastgp.fitting.loop import LoopResult
from vastgp.fitting.run import Run
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.methods.svgp.bound import (
    Rows,
    SiteSums,
    Whitened,
    least_jitter,
    posterior_of,
    posterior_under,
    quadratic_fit,
)
from vastgp.methods.svgp.first_sites import first_sums
from vastgp.methods.svgp.options import SVGPOptions
from vastgp.methods.svgp.steps import Params, coordinates_of, mended, sums_of_rows, tile_sums

# Rows of a tile of a pass, at most.
_TILE = 2048
# Passes end where this share is left of what steps on minibatches gain at their end: they converge far faster.
_FINER = 1e-3


@dataclass(frozen=True)
class SVGPFit:
    """What was found, in float64.

    Attributes
    ----------
    kernel : Kernel
    likelihood : Likelihood
    Z : ndarray of shape (m, d)
        Inducing points.
    sums : SiteSums, or Whitened
        In their whitened coordinates; mean and covariance there where Adam found them.
    bound : float
        Lower bound of the log evidence by the last pass over all rows, NaN where there was none.
    loop : LoopResult
    damped : int
        Steps that were shortened because they would have left no posterior.
    num_passes : int
        E-steps on all rows.
    jitter : float
        On the diagonal of ``K_uu``, relative to the prior variance, in the coordinates of the sums.
    """

    kernel: Kernel
    likelihood: Likelihood
    Z: np.ndarray
    sums: SiteSums | Whitened
    bound: float
    loop: LoopResult
    damped: int
    num_passes: int
    jitter: float


class Passes:
    """E-steps on all rows, in float64, of a state `Ascent`: one evaluation each.

    Attributes
    ----------
    likelihood : Likelihood
    updates : DampedUpdates
        Of sites, as `SiteSums`.
    """

    likelihood: Likelihood
    updates: DampedUpdates

    def start(self, sums: SiteSums) -> Ascent:
        """Return the state at given sites, or at none where these have no bound: steps that diverged."""
        state = self.updates.start(sums)
        if np.isfinite(state.found.bound):
            return state
        nothing = jax.tree.map(np.zeros_like, sums)
        return self.updates.start(nothing)._replace(shortened=np.int64(1))

    def chunk(self, state: Ascent, first: int, count: int) -> tuple[Ascent, Mapping[str, Any]]:
        """Do one pass."""
        if isinstance(self.likelihood, Gaussian):
            state = _exact(state)
        else:
            state = self.updates.step(state)
        return state, {
            "objective": state.found.bound,
            "objective_se": 0.0,
            "damped": state.shortened,
            "end": state.end,
        }


class _Passes(Passes):
    """Passes by tiles of the rows, in compiled programs."""

    def __init__(
        self,
        rows: DataRows,
        standardizer: Standardizer,
        params: Params,
        options: SVGPOptions,
        least: float,
    ) -> None:
        self.rows, self.standardizer, self.params = rows, standardizer, params
        self.size = tile_size(rows.n, _TILE)
        self.likelihood = _likelihood(params)
        self.here = coordinates_of(params, options.jitter)
        self.updates = DampedUpdates(
            self._evaluate, most=most_rate(self.likelihood), least_gain=least
        )

    def sums_of_some(self, X: np.ndarray, linear: np.ndarray, precision: np.ndarray) -> SiteSums:
        """Return the sums of sites of some rows, (C, n) each."""
        some = Rows(X, np.zeros(len(X)), np.ones(len(X)))
        return sums_of_rows(self.params, self.here, (linear, precision), some)

    def _evaluate(self, sums: SiteSums) -> Found:
        sums, q = _posterior(self.likelihood, sums)
        found: Any = np.zeros(()), jax.tree.map(np.zeros_like, sums)
        for tile in tiles(self.rows.local, self.standardizer, self.size, len(self.params.Z)):
            found = tile_sums(self.params, self.here, q, tile, *found)
        found = processes.summed(on_host(found))
        # read once: the rows of a tile are prepared while those before are at work
        bound = processes.from_first(np.float64(found[0]) - np.float64(_divergence(q)))
        return Found(sums, np.float64(bound), found[1])


def _exact(state: Ascent) -> Ascent:
    """Return the optimum under Gaussian noise: where the sites do not depend on the posterior, a step finds it."""
    sums, bound, better = state.found
    after = np.float64(bound) + np.float64(_gain_of_exact_step(sums, better))
    end = np.int64(SETTLED if np.isfinite(after) else STUCK)
    return state._replace(found=Found(better, after, better), end=end)


def tiles(
    rows: DataRows, standardizer: Standardizer, size: int, num_inducing: int
) -> Iterator[Rows]:
    """Yield rows in float64, by tiles of one size, over the devices of this process where these are worth it."""
    for tile in row_tiles(rows, standardizer, size):
        yield Rows(*rows_over_devices(tile[:3], float(num_inducing) ** 2))


def _sound(sums: SiteSums) -> SiteSums:
    """Return sums that have a posterior: those of single precision may have none, see `mended`."""
    with precision("float64"):
        wide = as_dtype(sums, np.float64)
        if bool(_has_posterior(wide)):
            return sums
        return mended(wide, float(np.finfo(sums.precision.dtype).eps))


def seconds_of_a_pass(
    rows: DataRows, standardizer: Standardizer, params: Params, sums: SiteSums, options: SVGPOptions
) -> float:
    """Return about how long a pass over all rows takes: the time of a tile, times their number."""
    with precision("float64"):
        params, sums = as_dtype((params, sums), np.float64)
        _, q = _posterior(params.likelihood, sums)  # its kind is all that counts
        here = coordinates_of(params, options.jitter)
        tile = next(tiles(rows, standardizer, tile_size(rows.n, _TILE), len(params.Z)))
        given = params, here, q, tile, np.zeros(()), jax.tree.map(np.zeros_like, sums)
        jax.block_until_ready(tile_sums(*given))
        began = now()
        jax.block_until_ready(tile_sums(*given))
    return (now() - began) * -(-rows.n // len(tile.y))


@program
def _likelihood(params: Params) -> Likelihood:
    return params.positive()[1]


@program
def _has_posterior(sums: SiteSums) -> Array:
    return jnp.all(jnp.isfinite(posterior_of(sums).root))


@program
def _divergence(q: Whitened) -> Array:
    return q.divergence()


@program
def _posterior(likelihood: Likelihood, sums: SiteSums) -> tuple[SiteSums, Whitened]:
    return posterior_under(likelihood, sums)


@program
def _gain_of_exact_step(sums: SiteSums, better: SiteSums) -> Any:
    """Return what the bound gains where the log-likelihood is that of the sites, without another pass."""
    before, after = posterior_of(sums), posterior_of(better)
    fit = quadratic_fit(better, after) - quadratic_fit(better, before)
    return fit - (after.divergence() - before.divergence())


def left_to_gain(options: SVGPOptions, n: int) -> float:
    """Return what passes over n rows leave to gain, in nats."""
    return _FINER * options.tol * n


def run_passes(
    rows: DataRows,
    standardizer: Standardizer,
    params: Params,
    sums: SiteSums,
    options: SVGPOptions,
    loop: LoopResult,
    damped: int,
    run: Run,
) -> SVGPFit:
    """Do E-steps on all rows, in float64, until the bound no longer grows.

    Parameters
    ----------
    params, sums
        Where they start.
    loop : LoopResult
        Of the steps before.
    damped : int
        Steps that were shortened so far.
    """
    repaired = _sound(sums)
    damped, sums = damped + int(repaired is not sums), repaired
    with precision("float64"):
        params, sums = as_dtype((params, sums), np.float64)
        passes = _Passes(rows, standardizer, params, options, left_to_gain(options, rows.n))
        if not (isinstance(passes.likelihood, Gaussian) or np.any(np.asarray(sums.linear))):
            # of no rows, as no steps came before
            model = params.on_host()
            sums = first_sums(rows, standardizer, model, sums, passes.sums_of_some, run.seed)
        return passed(passes, params, sums, options, loop, damped, run)


def passed(
    passes: Passes,
    params: Params,
    sums: SiteSums,
    options: SVGPOptions,
    loop: LoopResult,
    damped: int,
    run: Run,
) -> SVGPFit:
    """Do the passes; arguments as for `run_passes`."""
    state, end = run.steps(
        "passes over all rows",
        passes.chunk,
        passes.start(sums),
        max_iter=options.passes,
        chunk=1,
        should_stop=lambda now, _: decide(now["end"], now["objective"]),
    )
    history = History.from_dict(loop.history.to_dict())
    for k, (step, seconds) in enumerate(zip(end.history.steps, end.history.seconds, strict=True)):
        values = {name: column[k] for name, column in end.history.values.items()}
        values["damped"] += damped
        del values["end"]
        history.append(loop.num_iter + step, loop.seconds + seconds, values)
    reason, converged = loop.reason, loop.converged and end.converged
    if end.converged and not options.learn:
        reason = f"the sites settled in {end.num_iter} passes over all rows"
    elif not end.converged and (loop.converged or state.end == STUCK):
        moving = f"stopped after {end.num_iter} passes over all rows, sites still moving"
        reason = moving if end.num_iter == options.passes and not state.end else end.reason
    loop = replace(
        loop, num_iter=loop.num_iter + end.num_iter, converged=converged, reason=reason,
        seconds=loop.seconds + end.seconds, history=history,
    )  # fmt: skip
    return finish(
        params, state.found.sites, state.found.bound, loop, damped + int(state.shortened), end.num_iter,
        options.jitter,
    )  # fmt: skip


def without_passes(
    params: Params,
    sums: SiteSums | Whitened,
    options: SVGPOptions,
    loop: LoopResult,
    damped: int,
    dtype: str,
) -> SVGPFit:
    """Return what steps found as it is, in coordinates of their precision, which may ask for more jitter."""
    sound = _sound(sums) if isinstance(sums, SiteSums) else sums
    jitter = max(options.jitter, least_jitter(len(params.Z), dtype))
    return finish(params, sound, np.nan, loop, damped + int(sound is not sums), 0, jitter)


def finish(
    params: Params,
    sums: SiteSums | Whitened,
    bound: float,
    loop: LoopResult,
    damped: int,
    passes: int,
    jitter: float,
) -> SVGPFit:
    """Return what was found, in float64."""
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (params, sums))
    params, sums = wide
    kernel, likelihood = params.on_host()
    return SVGPFit(kernel, likelihood, params.Z, sums, float(bound), loop, damped, passes, jitter)
