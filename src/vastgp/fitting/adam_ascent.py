"""Adam on noisy gradients of the log evidence, over the logarithms of kernel and noise variance."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import optax

from vastgp.fitting.candidates import Params, bounds_of
from vastgp.fitting.checkpoint import Phase
from vastgp.fitting.loop import LoopResult, Stop, run_chunks
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian

# Steps between two anchors, and the share of the last steps whose average is the result.
_REFRESH, _AVERAGED = 8, 1.0 / 3.0
_MOMENTUM, _LAST_RATE = 0.8, 0.1


class Estimate(NamedTuple):
    """An estimate of the log evidence and its slope.

    Attributes
    ----------
    by_kernel : Kernel
        Derivatives by the hyperparameters themselves.
    by_noise : float
        By the noise variance.
    diagnostics : dict of str to float
        ``objective`` and ``objective_se`` among them.
    """

    by_kernel: Any
    by_noise: float
    diagnostics: dict[str, float]


@runtime_checkable
class Estimator(Protocol):
    """Estimates the slope at a step; what is random is a function of the step's number."""

    def __call__(self, params: Any, anchor: Any, step: int, /) -> Estimate:
        """Return an estimate at ``(kernel, likelihood)``; ``anchor`` are those of a few steps before."""


class _State(NamedTuple):
    """Logarithms of kernel and noise, where they were at the last anchor, Adam's moments, and the running average."""

    logs: Any
    anchor: Any
    adam: Any
    average: Any
    averaged: Any


def climb_evidence(
    estimate: Estimator,
    start: Params,
    *,
    steps: int,
    rate: float,
    noise_floor: float,
    num_rows: int,
    dtype: str,
    tol: float | None = None,
    max_seconds: float | None = None,
    checkpoint: Phase | None = None,
    verbose: bool = False,
) -> tuple[Kernel, float, LoopResult]:
    """Climb, and return the average of the logarithms over the last third of the steps.

    The rate falls along a cosine to a tenth, and the average takes out what is left of the noise of the slopes.

    Parameters
    ----------
    estimate : callable
        See `Estimator`.
    start : (Kernel, Gaussian)
        In standardised units.
    steps : int
    rate : float
        Of Adam at the start: about the change of a logarithm in one step.
    noise_floor : float
        Least noise variance.
    num_rows : int
        By which slopes are divided.
    dtype : str
    tol : float, optional
        Ends where the slope, per row and by the logarithms, is shorter: for slopes without noise.
    """
    lower, upper = bounds_of(start, noise_floor)
    low, high = jax.tree.map(np.log, lower), jax.tree.map(np.log, upper)
    adam = optax.adam(optax.cosine_decay_schedule(rate, steps, alpha=_LAST_RATE), b1=_MOMENTUM)
    logs = jax.tree.map(lambda leaf: jnp.log(jnp.asarray(leaf, dtype)), start)
    first_averaged = steps - max(1, round(_AVERAGED * steps))

    def step_chunk(state: _State, first: int, count: int) -> tuple[_State, dict[str, float]]:
        for number in range(first, first + count):
            if number % _REFRESH == 0:
                state = state._replace(anchor=state.logs)
            params, anchor = (_numbers(part) for part in (state.logs, state.anchor))
            found = estimate(params, anchor, number)
            slopes = (found.by_kernel, Gaussian(jnp.asarray(found.by_noise, dtype)))
            # d/d log h = h d/dh; Adam goes downhill
            down = jax.tree.map(
                lambda h, g: jnp.asarray(-h * np.asarray(g, np.float64) / num_rows, dtype),
                params, slopes,
            )  # fmt: skip
            updates, moments = adam.update(down, state.adam)
            logs = jax.tree.map(
                lambda a, b, lo, hi: jnp.clip(a + b, jnp.asarray(lo, dtype), jnp.asarray(hi, dtype)),
                state.logs, updates, low, high,
            )  # fmt: skip
            average, averaged = state.average, state.averaged
            if number >= first_averaged:
                averaged = averaged + 1
                average = jax.tree.map(lambda a, b, c=averaged: a + (b - a) / c, average, logs)
            state = _State(logs, state.anchor, moments, average, averaged)
        size = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(down)))
        noise = float(jnp.exp(state.logs[1].noise_variance))
        return state, found.diagnostics | {"slope": float(size), "noise_variance": noise}

    def ended(now: Any, history: Any) -> Stop | None:
        if not np.isfinite(now["slope"]):
            return Stop("the slope of the log evidence is not finite", converged=False)
        if tol is not None and now["slope"] <= tol:
            return Stop(f"converged: slope {now['slope']:.2g} <= tol = {tol:g}", True)
        # The file stays for a run killed later in the same fit, which then need not learn again.
        done = history.steps[-1] >= steps
        return Stop(f"{steps} steps of learning") if done else None

    zeros = jax.tree.map(jnp.zeros_like, logs)
    begin = _State(logs, logs, adam.init(logs), zeros, jnp.zeros((), dtype))
    state, loop = run_chunks(
        step_chunk,
        begin,
        max_iter=steps + 1,
        chunk=1,
        max_seconds=max_seconds,
        checkpoint=checkpoint,
        should_stop=ended,
        label="hyperparameters",
        verbose=verbose,
    )
    kernel, likelihood = _numbers(state.average if float(state.averaged) else state.logs)
    return kernel, float(likelihood.noise_variance), loop


def _numbers(logs: Any) -> Any:
    """Return the hyperparameters of their logarithms, as float64 of NumPy."""
    return jax.tree.map(lambda leaf: np.exp(np.asarray(leaf, np.float64)), logs)
