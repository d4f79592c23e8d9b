"""Markov chains over hyperparameters: MALA and NUTS, several chains, warm-up adaptation, diagnostics.

Transitions and step-size adaptation are blackjax's; it is imported where it is used, as it is an optional
dependency. The scale of every coordinate is adapted here, from all chains together.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from vastgp.fitting.history import History
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.methods.reweighted.chain_diagnosis import Chains, diagnose, import_blackjax
from vastgp.methods.reweighted.evidence import EvidenceData
from vastgp.methods.reweighted.weight_priors import (
    OrthogonalPrior,
    ScalePrior,
    SpectralPrior,
    WeightPrior,
)

SAMPLERS = ("nuts", "mala")
# Acceptance at which each is most efficient (Roberts and Rosenthal 1998; Hoffman and Gelman 2014).
_TARGET_ACCEPTANCE = {"mala": 0.574, "nuts": 0.8}
# Steps of one compiled call; time budgets are checked between calls.
CHUNK = 25
# Shares of the warm-up: step size alone, windows of doubling length that end with another scale, step size alone.
_FIRST, _LAST = 0.1, 0.1
# A window's variances are drawn towards the scale before by so many draws' worth.
_SHRINKAGE = 20.0
# Steps of a NUTS trajectory: at most 2^7 = 128 gradients.
_MOST_DOUBLINGS = 7


class HyperPosterior(eqx.Module):
    """Log density of the hyperparameters given the data, up to a constant.

    Attributes
    ----------
    prior : WeightPrior
    data : EvidenceData
    """

    prior: WeightPrior
    data: EvidenceData

    def __call__(self, theta: Float[Array, " D"]) -> Float[Array, ""]:
        value = self.prior.log_evidence(self.data, theta) + self.prior.log_hyper_prior(theta)
        return jnp.where(jnp.isnan(value), -jnp.inf, value)

    @property
    def factorises(self) -> bool:
        """Whether an evaluation factorises a matrix; such chains run one by one and not as one batch."""
        return not isinstance(self.prior, (OrthogonalPrior, ScalePrior, SpectralPrior))


@dataclass(frozen=True)
class ChainPlan:
    """How chains are run.

    Attributes
    ----------
    sampler : {"nuts", "mala"}
    num_chains : int
    num_warmup, num_steps : int
        Steps of every chain: of the warm-up, which are thrown away, and after it; multiples of `CHUNK`.
    thin : int
        Every so many steps is kept as a draw.
    """

    sampler: str
    num_chains: int
    num_warmup: int
    num_steps: int
    thin: int


def run_chains(
    target: HyperPosterior,
    starts: np.ndarray,
    scale: np.ndarray,
    plan: ChainPlan,
    *,
    seed: int,
    max_seconds: float | None = None,
    on_chunk: Callable[[float], None] | None = None,
) -> Chains:
    """Run chains from given starts.

    The warm-up follows Stan's windows: steps that adapt the step size (dual averaging), windows of doubling length
    after each of which the scale of every coordinate is the standard deviation that all chains saw in it, and again
    steps that adapt the step size. MALA moves in coordinates divided by that scale, NUTS has it as its mass matrix.

    Parameters
    ----------
    target : HyperPosterior
    starts : ndarray of shape (chains, D)
    scale : ndarray of shape (D,)
        First guess of the standard deviations.
    plan : ChainPlan
    seed : int
    max_seconds : float, optional
        Budget. The warm-up gets at most half of it; at least one chunk of draws is made.
    on_chunk : callable, optional
        Called with the share of the work that is done.
    """
    return run_steps(Runner(target, starts, scale, plan, seed), max_seconds, on_chunk)


def run_steps(
    runner: Runner, max_seconds: float | None, on_chunk: Callable[[float], None] | None
) -> Chains:
    """Do the warm-up and the steps of some chains; see `run_chains`."""
    plan = runner.plan
    began = time.perf_counter()
    chunks = [plan.num_warmup // CHUNK, plan.num_steps // CHUNK]
    history, kept = History(), []

    def late(share: float) -> bool:
        return max_seconds is not None and time.perf_counter() - began > share * max_seconds

    def record() -> None:
        done = (len(history) + 1) * CHUNK
        seconds = time.perf_counter() - began
        values = {
            "objective": runner.mean_log_density,
            "acceptance": runner.mean_acceptance,
        }
        history.append(done, seconds, values)
        if on_chunk is not None:
            on_chunk(done / (CHUNK * sum(chunks)))

    reason = "all steps were done"
    for ends_window in _schedule(chunks[0]):
        if late(0.5):
            reason = OUT_OF_TIME
            break
        runner.advance(adapt=True)
        record()
        if ends_window:
            runner.rescale()
    runner.settle()
    for number in range(chunks[1]):
        if number and late(1.0):
            reason = OUT_OF_TIME
            break
        kept.append(runner.advance(adapt=False))
        record()
    return _collect(kept, runner, reason, history)


def _schedule(num_chunks: int) -> list[bool]:
    """Return, for each chunk of the warm-up, whether a window ends with it."""
    first, last = max(1, round(_FIRST * num_chunks)), max(1, round(_LAST * num_chunks))
    ends = [False] * num_chunks
    place, length = first, 1
    stop = num_chunks - last
    while place + length <= stop:
        # the last window takes what a next one of double length would not fit into
        if place + 3 * length > stop:
            length = stop - place
        place += length
        ends[place - 1] = True
        length *= 2
    return ends


@dataclass(frozen=True)
class _Chunk:
    theta: np.ndarray
    log_density: np.ndarray
    acceptance: np.ndarray
    diverging: np.ndarray
    coordinates: np.ndarray | None = None


class Runner:
    """Chains between two compiled calls: positions, step sizes and the scale; see `run_chains` for the arguments."""

    def __init__(
        self,
        target: HyperPosterior,
        starts: np.ndarray,
        scale: np.ndarray,
        plan: ChainPlan,
        seed: int,
    ) -> None:
        import_blackjax()
        self.target = jax.tree.map(jnp.asarray, target)
        self.plan, self.scale = plan, np.asarray(scale, np.float64)
        self.theta = jnp.asarray(starts)
        init, _, self._final = _step_size_adaptation(plan.sampler)
        first = 0.5 * len(scale) ** (-1 / 3 if plan.sampler == "mala" else -1 / 4)
        self.steps = _strong(jax.vmap(init)(jnp.full(len(starts), first)))
        self.step_size = _strong(jnp.full(len(starts), first))
        self.key = jax.random.key(seed, impl="threefry2x32")
        self.done = self.kept_steps = 0
        self._adapted = False
        self._window: list[np.ndarray] = []

    def chunk(self, keys: Array, scale: Array, adapt: Array) -> tuple:
        """Do `CHUNK` steps of all chains: positions, step-size states, and the fields of a `_Chunk`."""
        shared = self.target, self.plan.sampler, adapt, scale
        own = keys, self.theta, self.steps, self.step_size
        return on_all_chains(_advance_chain, shared, own, one_by_one=self.target.factorises)

    def advance(self, *, adapt: bool) -> _Chunk:
        keys = jax.random.split(jax.random.fold_in(self.key, self.done), len(self.theta))
        found: list[Any]
        self.theta, self.steps, *found = self.chunk(
            keys, jnp.asarray(self.scale), jnp.asarray(adapt)
        )
        self.done += 1
        arrays = [np.asarray(array) for array in found]
        self.mean_log_density, self.mean_acceptance = map(float, map(np.mean, arrays[1:3]))
        if adapt:
            self._adapted = True
            self._window.append(arrays[0])
            return _Chunk(*arrays)
        # of these steps, those whose number is a multiple of `thin`
        first, self.kept_steps = self.kept_steps, self.kept_steps + CHUNK
        keep = (first + 1 + np.arange(CHUNK)) % self.plan.thin == 0
        return _Chunk(*(array[:, keep] for array in arrays))

    def rescale(self) -> None:
        """Take the standard deviations of the window as the scale."""
        seen = np.concatenate(self._window, axis=1)
        self._window = []
        # around each chain's own mean: chains that have not met yet would blow it up
        deviations = (seen - seen.mean(axis=1, keepdims=True)).reshape(-1, seen.shape[-1])
        count = len(deviations)
        variance = np.mean(deviations**2, axis=0)
        pulled = (count * variance + _SHRINKAGE * self.scale**2 * 1e-2) / (count + _SHRINKAGE)
        self.scale = np.sqrt(np.maximum(pulled, 1e-20))
        init, _, final = _step_size_adaptation(self.plan.sampler)
        self.settle()
        self.steps = _strong(jax.vmap(lambda state: init(final(state)))(self.steps))
        self._adapted = False

    def last(self) -> tuple[np.ndarray, ...]:
        """Return the state of every chain as one draw."""
        count = len(self.theta)
        value = np.full(count, self.mean_log_density)
        return (
            np.asarray(self.theta),
            value,
            np.full(count, self.mean_acceptance),
            np.zeros(count, bool),
        )

    def settle(self) -> None:
        """Keep the averaged step sizes from here on, where there is an average."""
        if self._adapted:
            self.step_size = _strong(jax.vmap(self._final)(self.steps))


def _strong(tree: Any) -> Any:
    """Return arrays whose type is no longer weak: with another weakness the whole transition is compiled anew."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), tree)


def _step_size_adaptation(sampler: str) -> tuple[Any, Any, Any]:
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    return dual_averaging_adaptation(_TARGET_ACCEPTANCE[sampler])


def transition(
    sampler: str, log_density: Callable[[Array], Array], key: Array, state: Any, size: Array
) -> tuple[Any, Array, Array]:
    """Do one step: the state after it, how likely it was to be accepted, and whether its trajectory diverged."""
    kernel = getattr(import_blackjax(), sampler).build_kernel()
    if sampler == "nuts":
        mass = jnp.ones_like(state.position)
        state, info = kernel(key, state, log_density, size, mass, _MOST_DOUBLINGS)
        diverging = info.is_divergent
    else:
        state, info = kernel(key, state, log_density, size)
        diverging = jnp.zeros((), bool)
    acceptance = jnp.where(jnp.isfinite(info.acceptance_rate), info.acceptance_rate, 0.0)
    return state, acceptance, diverging


def begin(sampler: str, log_density: Callable[[Array], Array], position: Array) -> Any:
    """Return a sampler's state at a position."""
    return getattr(import_blackjax(), sampler).init(position, log_density)


def adapted(
    sampler: str, adapt: Bool[Array, ""], steps: Any, step_size: Array
) -> tuple[Array, Callable[[Any, Array], Any]]:
    """Return the size of the next step, and what updates the states of the adaptation after it."""
    _, update, _ = _step_size_adaptation(sampler)

    def after(steps: Any, acceptance: Array) -> Any:
        return jax.tree.map(partial(jnp.where, adapt), update(steps, acceptance), steps)

    return jnp.where(adapt, jnp.exp(steps.log_step_size), step_size), after


def _advance_chain(
    target: HyperPosterior, sampler: str, adapt: Bool[Array, ""], scale: Float[Array, " D"], own: tuple
) -> tuple:  # fmt: skip
    """Do `CHUNK` steps of one chain, in coordinates divided by the scale."""
    key, theta, steps, step_size = own

    def log_density(z: Array) -> Array:
        return target(z * scale)

    def step(carry: tuple, key: Array) -> tuple:
        state, steps = carry
        size, after = adapted(sampler, adapt, steps, step_size)
        state, acceptance, diverging = transition(sampler, log_density, key, state, size)
        seen = state.position * scale, state.logdensity, acceptance, diverging
        return (state, after(steps, acceptance)), seen

    state = begin(sampler, log_density, theta / scale)
    found: tuple
    (state, steps), found = jax.lax.scan(step, (state, steps), jax.random.split(key, CHUNK))
    return state.position * scale, steps, *found


def on_all_chains(
    chain: Callable[..., tuple], shared: tuple, own: tuple, *, one_by_one: bool
) -> tuple:
    """Return ``chain(*shared, own)`` of all chains, as one batch or one by one; leaves of ``own`` have chains first."""
    if not one_by_one:
        return _as_batch(chain, shared, own)
    count = len(jax.tree.leaves(own)[0])
    each = [_one(chain, shared, jax.tree.map(lambda leaf, i=i: leaf[i], own)) for i in range(count)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)


@eqx.filter_jit
def _one(chain: Callable[..., tuple], shared: tuple, own: tuple) -> tuple:
    return chain(*shared, own)


@eqx.filter_jit
def _as_batch(chain: Callable[..., tuple], shared: tuple, own: tuple) -> tuple:
    return jax.vmap(lambda own: chain(*shared, own))(own)


def _collect(kept: list[_Chunk], runner: Runner, reason: str, history: History) -> Chains:
    names = [field.name for field in fields(_Chunk) if getattr(kept[0], field.name) is not None]
    joined = [np.concatenate([getattr(chunk, name) for chunk in kept], axis=1) for name in names]
    if joined[0].shape[1] == 0:  # time was up before the first draw that was to be kept
        joined = [np.asarray(array)[:, None] for array in runner.last()]
    r_hat, ess = diagnose(joined[0])
    step_size = np.asarray(runner.step_size)
    theta, log_density, acceptance, diverging, *rest = joined
    return Chains(
        theta, log_density, acceptance, diverging, r_hat, ess, step_size, runner.kept_steps, reason, history,
        *rest,
    )  # fmt: skip
