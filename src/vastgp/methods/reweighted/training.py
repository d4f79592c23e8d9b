"""Inference of the hyperparameters of a fixed basis: by their highest evidence, or by Markov chains."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import precision
from vastgp.fitting.lbfgs import LbfgsResult, maximise
from vastgp.linalg.cholesky import FactorizationError
from vastgp.methods.reweighted.chain_diagnosis import Chains
from vastgp.methods.reweighted.hyperparameter_chains import ChainPlan, HyperPosterior, run_chains

# Chains begin around the mode, at normal distances of so many of the prior's standard deviations: wider than the
# posterior, so that chains which agree have found it, and no wider than where it can be found from.
_OVERDISPERSED = 1.0
_MODE_ITERATIONS = 200


def maximise_hyperparameters(
    target: HyperPosterior,
    start: np.ndarray,
    *,
    noise_floor: float,
    with_prior: bool,
    max_iter: int,
    tol: float,
    max_seconds: float | None = None,
    on_iteration: Callable[[int, float], None] | None = None,
) -> LbfgsResult:
    """Return the hyperparameters of highest evidence (type II), or of highest posterior density.

    Parameters
    ----------
    target : HyperPosterior
    start : ndarray of shape (D,)
    noise_floor : float
        Least noise variance.
    with_prior : bool
        Whether the hyper-prior counts.
    max_iter, tol, max_seconds, on_iteration
        As in `maximise`; ``tol`` is per row.

    Returns
    -------
    LbfgsResult
        ``params`` is ``theta``.
    """
    lower, upper = target.prior.bounds(noise_floor)
    with precision("float64"):
        own = jax.tree.map(jnp.asarray, target)

    def objective(positive: np.ndarray) -> tuple[float, np.ndarray]:
        with precision("float64"):
            value, slope = _value_and_slope(own, jnp.log(jnp.asarray(positive)), with_prior)
        if not np.isfinite(float(value)):
            raise FactorizationError("the evidence is not finite at these hyperparameters")
        return float(value), np.asarray(slope) / positive

    # `maximise` is for positive numbers and moves their logarithms: theta is the logarithms
    found = maximise(
        objective,
        np.exp(np.clip(start, lower, upper)),
        lower=np.exp(lower),
        upper=np.exp(upper),
        max_iter=max_iter,
        tol=tol,
        scale=max(float(target.data.num_rows), 1.0),
        max_seconds=max_seconds,
        on_iteration=on_iteration,
    )
    return LbfgsResult(
        np.log(found.params), found.value, found.num_iter, found.num_evaluations, found.converged,
        found.message, found.history,
    )  # fmt: skip


@eqx.filter_jit
def _value_and_slope(
    target: HyperPosterior, theta: Float[Array, " D"], with_prior: bool
) -> tuple[Array, Array]:
    def value(theta: Array) -> Array:
        return target(theta) if with_prior else target.prior.log_evidence(target.data, theta)

    return jax.value_and_grad(value)(theta)


def draw_hyperparameters(
    target: HyperPosterior,
    start: np.ndarray,
    plan: ChainPlan,
    *,
    noise_floor: float,
    seed: int,
    max_seconds: float | None = None,
    on_chunk: Callable[[float], None] | None = None,
) -> Chains:
    """Return draws of the hyperparameters (type I): chains that begin around the mode of their posterior density.

    Parameters
    ----------
    target : HyperPosterior
    start : ndarray of shape (D,)
        Where the search of the mode begins.
    plan : ChainPlan
    noise_floor : float
        For the search alone: chains have the hyper-prior.
    seed, max_seconds, on_chunk
        As in `run_chains`.
    """
    began = time.perf_counter()
    mode = maximise_hyperparameters(
        target, start, noise_floor=noise_floor, with_prior=True, max_iter=_MODE_ITERATIONS, tol=1e-4,
        max_seconds=None if max_seconds is None else 0.2 * max_seconds,
    )  # fmt: skip
    generator = np.random.default_rng(seed)
    scale = target.prior.scale(target.data)
    scatter = generator.normal(size=(plan.num_chains, target.prior.size))
    starts = mode.params + _OVERDISPERSED * scale * scatter
    with precision("float64"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of libraries
        if max_seconds is not None:
            max_seconds = max(max_seconds - (time.perf_counter() - began), 0.0)
        return run_chains(
            target, starts, scale, plan, seed=seed, max_seconds=max_seconds, on_chunk=on_chunk
        )
