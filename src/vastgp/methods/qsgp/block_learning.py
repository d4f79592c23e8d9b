"""Hyperparameters by the evidence of all rows, from the same solutions that give the posterior."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from vastgp.bases import RandomFourierBasis
from vastgp.data.rows import Rows
from vastgp.data.scaling import Standardizer
from vastgp.fitting.candidates import bounds_of
from vastgp.fitting.checkpoint import Phase
from vastgp.fitting.loop import LoopResult, Stop, run_chunks
from vastgp.kernels import Kernel
from vastgp.likelihoods import Gaussian
from vastgp.solvers.block import advance, begin, build_system, choose_space
from vastgp.solvers.preconditioners import Preconditioner
from vastgp.solvers.systems import System

# Samples of the trace: its error is small beside the quadratic term, which is exact.
_SAMPLES = 8
# Products per step of learning: solutions start from those of the step before.
_PRODUCTS = 3
# Steps between two preconditioners: hyperparameters move by a few per cent in one.
_REFRESH = 8
_RATE = 0.1


class _State(NamedTuple):
    """Logarithms of kernel and noise, Adam's moments, and the solutions to start from.

    ``anchor`` are the logarithms at which the preconditioner in use was made: a resumed run makes the same one.
    """

    logs: Any
    anchor: Any
    adam: Any
    solution: Array


def learn_block(
    basis: RandomFourierBasis,
    noise_variance: float,
    rows: Rows,
    standardizer: Standardizer,
    *,
    steps: int,
    seed: int,
    dtype: str,
    noise_floor: float,
    rank: int | None = None,
    max_seconds: float | None = None,
    checkpoint: Phase | None = None,
    verbose: bool = False,
) -> tuple[Kernel, float, LoopResult]:
    """Climb the evidence of all rows by Adam with pathwise slopes.

    The slope is ``1/2 alpha^T dA alpha - 1/2 mean_s u_s^T dA u_s`` (see `evidence_slope`; Lin et al. 2024): alpha
    and the ``u_s`` are those of the posterior's mean and samples under the hyperparameters of the moment. The random
    draws stay the same from step to step, so that every solution starts close to its end. The average of the last
    third of the steps is returned, which takes the noise of the slopes out.

    Parameters
    ----------
    basis, noise_variance
        Where learning starts, standardised units.
    rows, standardizer
        Training data.
    steps : int
        Steps of Adam, each about six passes over the data and all basis functions.
    noise_floor : float
        Least noise variance.

    Returns
    -------
    kernel : Kernel
    noise_variance : float
    loop : LoopResult
    """
    params = (basis.kernel, Gaussian(noise_variance))
    lower, upper = bounds_of(params, noise_floor)
    low, high = jax.tree.map(np.log, lower), jax.tree.map(np.log, upper)
    adam = optax.adam(optax.cosine_decay_schedule(_RATE, steps, alpha=0.1), b1=0.8)
    logs = jax.tree.map(lambda leaf: jnp.log(jnp.asarray(leaf, dtype)), params)
    kept: dict[str, Preconditioner] = {}
    columns = 1 + _SAMPLES
    space = choose_space(rows, standardizer, basis.num_basis, columns, dtype, rank)
    observed = space[1]

    def build(logs: Any, precondition: Preconditioner | None) -> System:
        kernel, likelihood = jax.tree.map(jnp.exp, logs)
        system, _ = build_system(
            basis.with_kernel(kernel), float(likelihood.noise_variance), rows, standardizer,
            num_samples=_SAMPLES, seed=seed, dtype=dtype, precondition=precondition, space=space,
        )  # fmt: skip
        return system

    def system_at(state: _State) -> System:
        if "now" not in kept:
            kept["now"] = build(state.anchor, None).precondition
        return build(state.logs, kept["now"])

    def step_chunk(state: _State, first: int, count: int) -> tuple[_State, dict[str, float]]:
        for number in range(first, first + count):
            if number % _REFRESH == 0:
                state = state._replace(anchor=state.logs)
                kept.clear()
            system = system_at(state)
            warm = begin(system, state.solution)
            for _ in range(_PRODUCTS):
                warm = advance(system, warm)
            by_kernel, by_noise = system.slopes(warm.solution)
            kernel, likelihood = jax.tree.map(jnp.exp, state.logs)
            # d/d log h = h d/dh; Adam goes downhill
            slopes = (by_kernel, Gaussian(jnp.asarray(by_noise, dtype)))
            down = jax.tree.map(lambda h, g: -h * g / rows.n, (kernel, likelihood), slopes)
            updates, moments = adam.update(down, state.adam)
            logs = jax.tree.map(
                lambda a, b, lo, hi: jnp.clip(a + b, jnp.asarray(lo, dtype), jnp.asarray(hi, dtype)),
                state.logs, updates, low, high,
            )  # fmt: skip
            state = _State(logs, state.anchor, moments, warm.solution)
        residuals = np.asarray(system.errors(warm))
        size = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(down)))
        return state, {
            "residual": float(residuals[0]),
            "slope": float(size),
            "noise_variance": float(jnp.exp(state.logs[1].noise_variance)),
            **_named(state.logs[0]),
        }

    unknowns = basis.num_basis if observed is None else len(observed.y)
    start = _State(logs, logs, adam.init(logs), jnp.zeros((columns, unknowns), dtype))
    state, loop = run_chunks(
        step_chunk,
        start,
        max_iter=steps + 1,
        chunk=1,
        max_seconds=max_seconds,
        checkpoint=checkpoint,
        # The file stays for a run killed later in the same fit, which then need not learn again.
        should_stop=lambda _, history: (
            Stop(f"{steps} steps") if history.steps[-1] >= steps else None
        ),
        label="hyperparameters",
        verbose=verbose,
    )
    kernel, likelihood = _late_average(state.logs, loop)
    return kernel, float(likelihood.noise_variance), loop


def _named(kernel: Kernel) -> dict[str, float]:
    """Return every log hyperparameter of a kernel by a name of its own, for the history."""
    named = {}
    for number, leaf in enumerate(jax.tree.leaves(kernel)):
        for place, value in enumerate(np.ravel(np.asarray(leaf))):
            named[f"log_hyperparameter_{number}_{place}"] = float(value)
    return named


def _late_average(logs: Any, loop: LoopResult) -> Any:
    """Return the geometric mean of the hyperparameters over the last third of the steps."""
    count = max(1, len(loop.history) // 3)
    kernel, _ = logs
    leaves, tree = jax.tree.flatten(kernel)
    averaged = []
    for number, leaf in enumerate(leaves):
        flat = [
            np.mean(loop.history[f"log_hyperparameter_{number}_{place}"][-count:])
            for place in range(leaf.size)
        ]
        averaged.append(np.exp(np.asarray(flat)).reshape(leaf.shape))
    noise = np.exp(np.mean(np.log(loop.history["noise_variance"][-count:])))
    return jax.tree.unflatten(tree, averaged), Gaussian(noise)
