"""The end of a fit at inducing points: E-steps on all rows, hyperparameters held."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vastgp._precision import as_dtype, precision
from vastgp.data import Rows as DataRows
from vastgp.data import Standardizer
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian, Likelihood
from vastgp.objectives.dual_evidence import most_rate
from vastgp.objectives.svgp_bound import Rows, SiteSums, posterior_of, prior_factor
from vastgp.training.loop import OUT_OF_TIME, LoopResult
from vastgp.training.svgp_steps import Params, tile_sums

# Rows of a tile of a pass; batches are padded to a multiple of _PAD, so that sizes share compiled code.
_TILE, _PAD = 4096, 64
_LEAST_PASS_RATE = 1.0 / 64.0
# Passes end at this share of the gain at which steps on minibatches do: they converge far faster.
_FINER = 1e-2


@dataclass(frozen=True)
class InducingOptions:
    """How to fit.

    Attributes
    ----------
    optimizer : {"natural", "adam"}
        What moves ``q``: natural gradients (E-steps), or Adam together with the hyperparameters.
    hold : {"sites", "whitened", "unwhitened"}
        What the M-step holds: see `vastgp.objectives.svgp_bound.held`. With Adam: the coordinates of ``q``.
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
class InducingFit:
    """What was found, in float64.

    Attributes
    ----------
    kernel : Kernel
    likelihood : Likelihood
    Z, lower : ndarray
        Inducing points and the Cholesky factor of ``K_uu``.
    sums : SiteSums
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
    lower: np.ndarray
    sums: SiteSums
    bound: float
    loop: LoopResult
    damped: int
    num_passes: int


def padded_rows(X: np.ndarray, y: np.ndarray, weight: float, dtype: Any) -> Rows:
    """Return rows that count ``weight`` each, padded with copies of the last one that count nothing."""
    n = len(y)
    extra = -n % _PAD
    weights = np.pad(np.full(n, weight), (0, extra))
    X = np.pad(X, ((0, extra), (0, 0)), mode="edge")
    return Rows(*(jnp.asarray(p, dtype) for p in (X, np.pad(y, (0, extra), mode="edge"), weights)))


def run_passes(
    rows: DataRows,
    standardizer: Standardizer,
    params: Params,
    sums: SiteSums,
    options: InducingOptions,
    loop: LoopResult,
    tol: float,
    max_seconds: float | None,
    damped: int,
    trained: bool,
) -> InducingFit:
    """Do E-steps on all rows, in float64, until the bound no longer grows."""
    began = time.perf_counter()
    with precision("float64"):
        params, sums = as_dtype((params, sums), np.float64)
        kernel, likelihood = params.positive()
        lower = prior_factor(kernel, params.Z, options.jitter)

        def evaluate(sums: SiteSums) -> tuple[float, SiteSums]:
            total, better = 0.0, _nothing(sums)
            for X, y in rows.batches(_TILE):
                assert y is not None
                tile = padded_rows(
                    standardizer.transform_X(X), standardizer.transform_y(y), 1.0, "float64"
                )
                fit, part = tile_sums(params, lower, sums, tile)
                total, better = total + float(fit), better.plus(part)
            return total - float(posterior_of(sums).divergence()), better

        def spent() -> bool:
            return max_seconds is not None and time.perf_counter() - began >= max_seconds

        history, done = loop.history, 0
        if not options.passes or (spent() and trained):
            return finish(params, sums, lower, np.nan, loop, damped, 0)
        bound, better = evaluate(sums)
        rate = most = most_rate(likelihood)
        settled = False
        while done < options.passes and not settled and not (done and spent()):
            candidate = sums.toward(better, rate)
            found, next_better = evaluate(candidate)
            done += 1
            gain = found - bound
            if np.isfinite(found) and gain >= 0.0:
                sums, bound, better, rate = candidate, found, next_better, min(most, 2.0 * rate)
                settled = gain <= _FINER * tol * rows.n or isinstance(likelihood, Gaussian)
            else:
                settled = -gain <= _FINER * tol * rows.n or rate <= _LEAST_PASS_RATE
                damped, rate = damped + 1, 0.5 * rate
            history.append(
                loop.num_iter + done, loop.seconds + time.perf_counter() - began,
                {"objective": bound, "objective_se": 0.0, "damped": damped},
            )  # fmt: skip
        reason, converged = loop.reason, loop.converged and settled
        if loop.converged and not settled:
            reason = (
                OUT_OF_TIME
                if spent()
                else f"stopped after {done} passes over all rows, sites still moving"
            )
        elif not trained:
            reason = f"the sites settled in {done} passes over all rows"
        loop = replace(
            loop, num_iter=loop.num_iter + done, converged=converged, reason=reason,
            seconds=loop.seconds + time.perf_counter() - began,
        )  # fmt: skip
        return finish(params, sums, lower, bound, loop, damped, done)


def finish(
    params: Params,
    sums: SiteSums,
    lower: Any,
    bound: float,
    loop: LoopResult,
    damped: int,
    passes: int,
) -> InducingFit:
    """Return what was found, in float64."""
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (params, sums, lower))
    params, sums, lower = wide
    kernel, likelihood = jax.tree.map(np.exp, (params.kernel, params.likelihood))
    return InducingFit(
        kernel, likelihood, params.Z, lower, sums, float(bound), loop, damped, passes
    )


def _nothing(like: SiteSums) -> SiteSums:
    return SiteSums(*(jnp.zeros_like(part) for part in like))
