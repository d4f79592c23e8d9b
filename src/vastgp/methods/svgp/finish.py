"""The end of learning where every step takes all rows: L-BFGS on the bound with the best ``q``.

Where rows are few the best sites at given hyperparameters and inducing inputs are found at every evaluation, by one
E-step with Gaussian noise and by some elsewhere. What is left is a function without noise of hyperparameters and
inducing inputs alone, whose slope is that of any of the bounds (see `vastgp.methods.svgp.bound.held`). Steps of Adam
lead to where its maximum is; in its long flat valleys each of them gains so little that none can tell what is left.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from vastgp._precision import as_dtype, precision
from vastgp._programs import program
from vastgp.data import Rows as DataRows
from vastgp.data import Standardizer
from vastgp.data.tiles import row_tiles, tile_size
from vastgp.fitting.candidates import bounds_of
from vastgp.fitting.damped_updates import next_rate, toward
from vastgp.fitting.dual_evidence import most_rate
from vastgp.fitting.history import History
from vastgp.fitting.lbfgs import LbfgsResult, maximise_inside
from vastgp.fitting.loop import OUT_OF_TIME, LoopResult
from vastgp.fitting.run import Run
from vastgp.likelihoods import Gaussian
from vastgp.linalg.cholesky import FactorizationError
from vastgp.methods.svgp.bound import (
    Rows,
    SiteSums,
    better_sums,
    posterior_under,
    whitened_features,
)
from vastgp.methods.svgp.options import SVGPOptions
from vastgp.methods.svgp.slope import bound_slope_and_sites
from vastgp.methods.svgp.steps import Params

# What an E-step gains once the sites are at their best, as a share of `tol`: the slope errs by about the root of it.
_SITES, _LEAST = 1e-6, 1e-12
_MOST_E_STEPS, _LEAST_RATE = 100, 2.0**-10


class BoundOfFew:
    """The bound with the best sites as a function of hyperparameters and inducing inputs, and its slope; float64.

    Sites stay from one evaluation to the next in whitened coordinates: few E-steps are needed where these move little.

    Parameters
    ----------
    rows : Rows
        Few enough to be in memory at once.
    standardizer : Standardizer
    params : Params
        Where the search starts.
    sums : SiteSums
        Sites there.
    options : SVGPOptions
    """

    def __init__(
        self,
        rows: DataRows,
        standardizer: Standardizer,
        params: Params,
        sums: SiteSums,
        options: SVGPOptions,
    ) -> None:
        n = rows.n
        (tile,) = row_tiles(rows, standardizer, tile_size(n, 1 << n.bit_length()))
        self._rows = Rows(*(jnp.asarray(part, jnp.float64) for part in tile[:3]))
        self.sums = sums
        self._jitter = options.jitter
        self._least = max(_SITES * options.tol, _LEAST) * n
        likelihood = params.on_host()[1]
        self._exact, self._most = isinstance(likelihood, Gaussian), most_rate(likelihood)

    def __call__(self, params: Params) -> tuple[float, Params]:
        """Return value and slope.

        Raises
        ------
        FactorizationError
            Where there is no finite posterior.
        """
        value, slope, sums = _value_and_slope(
            as_dtype(params, np.float64), self.sums, self._rows, self._jitter, self._most, self._least,
            exact=self._exact,
        )  # fmt: skip
        if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((value, slope))):
            raise FactorizationError("no finite posterior at inducing inputs: raise jitter")
        self.sums = sums
        return float(value), Params(*slope)


@partial(program, static_argnames="exact")
def _value_and_slope(
    params: Params,
    sums: SiteSums,
    rows: Rows,
    jitter: Any,
    most: Any,
    least: Any,
    *,
    exact: bool,
) -> tuple[Array, Any, SiteSums]:
    kernel, likelihood = params.positive()
    here = params.coordinates(jitter)
    psi = whitened_features(kernel, params.Z, here.inverse, rows.X)
    prior = kernel.diag(rows.X)

    def at(sums: SiteSums) -> tuple[SiteSums, Array, SiteSums]:
        sums, q = posterior_under(likelihood, sums)
        moments = q.moments(psi, prior)
        fit, better = better_sums(likelihood, rows.y, rows.weights, psi, *moments)
        return sums, fit - q.divergence(), better

    if exact:  # the sites do not depend on the posterior
        nothing = jax.tree.map(jnp.zeros_like, sums)
        best = at(nothing)[2]
    else:
        best = _best_sums(at, sums, most, least)
    best, q = posterior_under(likelihood, best)
    value, slope, _ = bound_slope_and_sites(*params, jitter, "sites", q, here, rows)
    return value, slope, best


def _best_sums(at: Any, sums: SiteSums, most: Any, least: Any) -> SiteSums:
    """Return the sums after damped E-steps: `vastgp.fitting.damped_updates.DampedUpdates` within a program."""
    found = at(sums)
    # from no sites where those have no bound here
    found = jax.lax.cond(
        jnp.isfinite(found[1]),
        lambda: found,
        lambda: at(jax.tree.map(jnp.zeros_like, sums)),
    )

    def goes_on(carry: Any) -> Any:
        _, rate, settled, tries = carry
        return ~settled & (rate >= _LEAST_RATE) & (tries < _MOST_E_STEPS)

    def once(carry: Any) -> Any:
        (sums, bound, better), rate, _, tries = carry
        trial = at(toward(sums, better, rate))
        gain = jnp.where(jnp.isfinite(bound), trial[1] - bound, jnp.inf)
        good = jnp.isfinite(trial[1]) & (gain >= 0.0)
        settled = jnp.isfinite(trial[1]) & (jnp.abs(gain) <= least * rate / most)
        kept = jax.tree.map(
            lambda new, old: jnp.where(good, new, old), trial, (sums, bound, better)
        )
        return kept, next_rate(rate, good, most, where=jnp), settled, tries + 1

    first = found, jnp.asarray(most, found[1].dtype), jnp.array(False), jnp.zeros((), jnp.int32)
    return jax.lax.while_loop(goes_on, once, first)[0][0]


def climb_bound(
    rows: DataRows,
    standardizer: Standardizer,
    params: Params,
    sums: SiteSums,
    options: SVGPOptions,
    loop: LoopResult,
    run: Run,
    share: float,
) -> tuple[Params, SiteSums, LoopResult]:
    """Return parameters and sites at the maximum of the bound of few rows, float64, and how all of learning ended.

    Parameters
    ----------
    params, sums
        Where the steps before ended.
    options : SVGPOptions
        ``max_steps`` counts these steps and iterations of L-BFGS together.
    loop : LoopResult
        Of the steps before.
    share : float
        Of what is left of the budget.
    """
    params, sums = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (params, sums))

    def climb() -> dict[str, Any]:
        with precision("float64"):
            bound = BoundOfFew(rows, standardizer, params, sums, options)
            found = _climbed(bound, params, options, rows.n, loop.num_iter, run.seconds_left(share))
            bound(Params(*found.params))
        told = {"converged": found.converged, "message": found.message}
        told |= {"history": found.history.to_dict(), "sums": tuple(map(np.asarray, bound.sums))}
        return told | {"params": jax.tree.leaves(found.params)}

    # the sites go from one evaluation to the next: of one that is resumed in its midst they would be others
    found = run.once("end of learning", climb, is_cut=lambda told: told["message"] == OUT_OF_TIME)
    best = jax.tree.unflatten(jax.tree.structure(params), found["params"])
    history = History.from_dict(found["history"])
    ended = _both(loop, history, found["converged"], found["message"], options)
    return best, SiteSums(*found["sums"]), ended


def _climbed(
    bound: BoundOfFew, start: Params, options: SVGPOptions, n: int, done: int, limit: float | None
) -> LbfgsResult:
    sides = bounds_of(start.on_host(), options.noise_floor)
    low, high = jax.tree.map(np.log, sides)
    lower = Params(low[0], low[1], np.full_like(start.Z, -np.inf))
    upper = Params(high[0], high[1], np.full_like(start.Z, np.inf))
    return maximise_inside(
        bound if options.move else _holding_inputs(bound), start, lower=lower, upper=upper,
        max_iter=max(options.max_steps - done, 1), tol=options.tol, scale=n, max_seconds=limit,
    )  # fmt: skip


def _holding_inputs(bound: BoundOfFew) -> Any:
    def held(params: Params) -> tuple[float, Params]:
        value, slope = bound(params)
        return value, slope._replace(Z=np.zeros_like(slope.Z))

    return held


def _both(
    loop: LoopResult, climb: History, converged: bool, reason: str, options: SVGPOptions
) -> LoopResult:
    """Return how steps and climb ended, as one."""
    history = History.from_dict(loop.history.to_dict())
    before = {name: column[-1] for name, column in history.values.items()}
    for step, seconds, value in zip(climb.steps, climb.seconds, climb.objective, strict=True):
        told = before | {"objective": value, "objective_se": 0.0}
        history.append(loop.num_iter + step, loop.seconds + seconds, told)
    num_iter = loop.num_iter + len(climb)
    if not converged and num_iter >= options.max_steps:
        reason = f"stopped after max_steps = {options.max_steps} steps"
    seconds = history.seconds[-1] if len(history) else loop.seconds
    return replace(
        loop,
        num_iter=num_iter,
        converged=converged,
        reason=reason,
        seconds=seconds,
        history=history,
    )
