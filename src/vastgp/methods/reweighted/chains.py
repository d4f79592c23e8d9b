"""Markov chains over hyperparameters: MALA and NUTS, several chains, warm-up adaptation.

The scale of every coordinate is adapted here, from all chains together. A step (`chain_steps`) is a function of the
state and of its number, so that a fit that was killed goes on to the same draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from vastgp._precision import precision
from vastgp.bases.draws import index_keys
from vastgp.data import processes
from vastgp.fitting.loop import OUT_OF_TIME, LoopResult, ShouldStop, Stop
from vastgp.fitting.run import Run
from vastgp.methods.reweighted.chain_steps import (
    CHUNK,
    adapted,
    begin,
    on_all_chains,
    some_steps,
    step_size_adaptation,
    transition,
)
from vastgp.methods.reweighted.diagnosis import Chains, diagnose, import_blackjax
from vastgp.methods.reweighted.evidence import EvidenceData
from vastgp.methods.reweighted.options import MarkovChains
from vastgp.methods.reweighted.weight_priors import WeightPrior

# Floating-point operations of one call: about a second. A call of more steps is not noticed when time is up.
_MOST_WORK = 5e9
# Gradients of a step, for that estimate: trajectories of NUTS have from 1 to 2^7 of them.
_GRADIENTS = {"nuts": 16, "mala": 1}
# Shares of the warm-up: step size alone, windows of doubling length that end with another scale, step size alone.
_FIRST, _LAST = 0.1, 0.1
# A window's variances are drawn towards those before by so many draws' worth; 5 or a hundredth of those before make no
# difference beyond the noise of effective sample sizes.
_SHRINKAGE = 20.0
_STEPS, _STARTS = 1, 2  # purposes of random numbers


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


class Window(NamedTuple):
    """Draws of a part of the warm-up: how many of each chain, their means, and squared deviations from these."""

    count: Any
    mean: Float[np.ndarray, "c D"]
    squares: Float[np.ndarray, "c D"]

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> Window:
        """Return the window that nothing was seen in."""
        return cls(np.float64(0.0), np.zeros(shape), np.zeros(shape))

    def plus(self, theta: Float[np.ndarray, "c s D"]) -> Window:
        """Return the window with further draws (Chan, Golub and LeVeque 1983)."""
        count, mean = theta.shape[1], theta.mean(axis=1)
        total, shift = self.count + count, mean - self.mean
        squares = np.sum((theta - mean[:, None]) ** 2, axis=1)
        return Window(
            total,
            self.mean + shift * (count / total),
            self.squares + squares + shift**2 * (self.count * count / total),
        )

    def scale(self, before: Float[np.ndarray, " D"]) -> Float[np.ndarray, " D"]:
        """Return standard deviations, around each chain's own mean: chains that have not met would blow them up."""
        seen = self.count * len(self.mean)
        pulled = (np.sum(self.squares, axis=0) + _SHRINKAGE * before**2) / (seen + _SHRINKAGE)
        return np.sqrt(np.maximum(pulled, 1e-20))


class ChainState(NamedTuple):
    """What decides the next step of all chains, which are the first axis.

    Attributes
    ----------
    theta : Array of shape (c, D)
    adaptation : pytree of arrays of shape (c,)
        Of the step sizes, by dual averaging.
    step_size : Array of shape (c,)
        What the warm-up ended with.
    scale : ndarray of shape (D,)
        MALA moves in coordinates divided by it, NUTS has it as its mass matrix.
    window : Window
    latent : tuple of arrays
        Latent values and their sums, where there are some.
    """

    theta: Float[Array, "c D"]
    adaptation: Any
    step_size: Float[Array, " c"]
    scale: Float[np.ndarray, " D"]
    window: Window
    latent: tuple = ()


class Draws(NamedTuple):
    """Draws of all chains: (c, draws, ...); those that are not made yet are zero."""

    theta: np.ndarray
    log_density: np.ndarray
    acceptance: np.ndarray
    diverging: np.ndarray
    coordinates: np.ndarray | None = None


class ChainSteps:
    """Steps of all chains.

    The warm-up follows Stan's windows: steps that adapt the step size (dual averaging), windows of doubling length
    after each of which the scale of every coordinate is the standard deviation that all chains saw in it, and again
    steps that adapt the step size.

    Parameters
    ----------
    target : HyperPosterior
    plan : MarkovChains
    seed : int
    """

    def __init__(self, target: HyperPosterior, plan: MarkovChains, seed: int) -> None:
        import_blackjax()
        self.target, self.plan = jax.device_put(jax.tree.map(np.asarray, target)), plan
        self.windows = windows_of(plan.num_warmup)
        of_steps = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), _STEPS)
        self.keys = index_keys(of_steps, np.arange(plan.num_chains))
        work = _GRADIENTS[plan.name] * plan.num_chains * target.prior.work(target.data)
        self.chunk = int(np.clip(_MOST_WORK / work, 1, CHUNK))

    def start(self, theta: np.ndarray, scale: np.ndarray) -> ChainState:
        """Return the state of chains at some hyperparameters, with a first guess of their standard deviations."""
        first = 0.5 * len(scale) ** (-1 / 3 if self.plan.name == "mala" else -1 / 4)
        sizes = jax.device_put(np.full(len(theta), first))
        return ChainState(
            jax.device_put(theta), _adaptation_from(self.plan.name, sizes), sizes,
            np.asarray(scale, np.float64), Window.empty(theta.shape),
        )  # fmt: skip

    def no_draws(self, state: ChainState) -> Draws:
        """Return room for the draws."""
        shape = len(state.theta), self.plan.num_steps // self.plan.thin
        return Draws(
            np.zeros((*shape, state.theta.shape[1])), np.zeros(shape), np.zeros(shape), np.zeros(shape, bool)
        )  # fmt: skip

    # ------------------------------------------------------------ steps

    def warm_up(
        self, state: ChainState, first: int, count: int
    ) -> tuple[ChainState, Mapping[str, float]]:
        """Do steps of the warm-up."""
        stop = first + count
        seen: list[Draws] = []
        while first < stop:
            ends = [end for window in self.windows for end in window if first < end < stop]
            here = min([stop, *ends])
            state, made = self._advance(state, first, here - first, adapt=True)
            if any(begin <= first < end for begin, end in self.windows):
                state = state._replace(window=state.window.plus(made.theta))
            if any(here == end for _, end in self.windows):
                state = self._rescaled(state)
            first = here
            seen.append(made)
        return state, _means(seen)

    def draw(
        self, state: tuple[ChainState, Draws], first: int, count: int
    ) -> tuple[tuple[ChainState, Draws], Mapping[str, float]]:
        """Do steps after the warm-up, and keep those whose number is a multiple of ``thin``."""
        chains, draws = state
        thin = self.plan.thin
        chains, made = self._advance(chains, self.plan.num_warmup + first, count, adapt=False)
        keep = (first + 1 + np.arange(count)) % thin == 0
        begin = (first + thin) // thin - 1
        for room, array in zip(draws, made, strict=True):
            if room is not None and array is not None:
                # in place: the same steps always write the same numbers
                room[:, begin : begin + int(np.sum(keep))] = array[:, keep]
        return (chains, draws), _means([made])

    def settled(self, state: ChainState) -> ChainState:
        """Return the state with the averaged step sizes, where there is an average."""
        if int(np.max(state.adaptation.step)) == 1:
            return state
        return state._replace(step_size=_average_size(self.plan.name, state.adaptation))

    def _rescaled(self, state: ChainState) -> ChainState:
        """Return the state with the standard deviations of the window as the scale."""
        state = self.settled(state)
        return state._replace(
            scale=state.window.scale(state.scale),
            adaptation=_adaptation_from(self.plan.name, state.step_size),
            window=Window.empty(state.theta.shape),
        )

    def _advance(
        self, state: ChainState, first: int, count: int, *, adapt: bool
    ) -> tuple[ChainState, Draws]:
        """Do at most `CHUNK` steps of all chains."""
        numbers = np.asarray(first), np.asarray(count)
        shared = self.target, self.plan.name, np.asarray(adapt), state.scale, numbers
        own = self.keys, state.theta, state.adaptation, state.step_size
        theta, adaptation, *found = on_all_chains(
            _advance_chain, shared, own, one_by_one=self.target.prior.factorises
        )
        made = Draws(*(np.asarray(array)[:, :count] for array in found))
        return state._replace(theta=theta, adaptation=adaptation), made


def windows_of(num_warmup: int) -> list[tuple[int, int]]:
    """Return where the windows of a warm-up begin and end, in steps."""
    chunks = num_warmup // CHUNK
    place, length = max(1, round(_FIRST * chunks)), 1
    stop = chunks - max(1, round(_LAST * chunks))
    found = []
    while place + length <= stop:
        # the last window takes what a next one of double length would not fit into
        if place + 3 * length > stop:
            length = stop - place
        found.append((CHUNK * place, CHUNK * (place + length)))
        place += length
        length *= 2
    return found


def starts_around(
    centre: np.ndarray, scale: np.ndarray, num_chains: int, seed: int
) -> Float[np.ndarray, "c D"]:
    """Return where chains begin: normal around a point."""
    generator = np.random.default_rng([seed, _STARTS])
    return centre + scale * generator.normal(size=(num_chains, len(centre)))


def run_chains(steps: ChainSteps, starts: np.ndarray, scale: np.ndarray, run: Run) -> Chains:
    """Run the warm-up and the steps of chains from given starts.

    Parameters
    ----------
    steps : ChainSteps
    starts : ndarray of shape (chains, D)
    scale : ndarray of shape (D,)
        First guess of the standard deviations.
    run : Run
        The warm-up gets at most half of what is left; at least one draw is made.
    """
    plan = steps.plan
    with precision("float64"):
        state, warm = run.steps(
            "warm-up", steps.warm_up, steps.start(starts, scale), max_iter=plan.num_warmup,
            chunk=steps.chunk, should_stop=_all_done(plan.num_warmup), share=0.5,
        )  # fmt: skip
        state = steps.settled(state)
        (state, draws), drawn = run.steps(
            "chains", steps.draw, (state, steps.no_draws(state)), max_iter=plan.num_steps,
            chunk=steps.chunk, should_stop=_all_done(plan.num_steps),
        )  # fmt: skip
        done = drawn.num_iter
        while done < min(plan.thin, plan.num_steps):
            count = min(steps.chunk, plan.thin - done)
            (state, draws), _ = steps.draw((state, draws), done, count)
            done += count
    return _collected(steps, state, draws, done, (warm, drawn))


def _collected(
    steps: ChainSteps, state: ChainState, draws: Draws, done: int, loops: tuple[LoopResult, ...]
) -> Chains:
    kept = np.s_[:, : done // steps.plan.thin]
    warm, drawn = loops
    whole = warm.num_iter >= steps.plan.num_warmup and drawn.num_iter >= steps.plan.num_steps
    reason = "all steps were done" if whole else OUT_OF_TIME
    draws = processes.of_first(draws)
    theta, coordinates = draws.theta[kept], draws.coordinates
    r_hat, ess = diagnose(theta)
    return Chains(
        theta, draws.log_density[kept], draws.acceptance[kept], draws.diverging[kept],
        None if coordinates is None else coordinates[kept], r_hat, ess, np.asarray(state.step_size),
        done, reason, drawn.history,
    )  # fmt: skip


def _all_done(steps: int) -> ShouldStop:
    """Return the rule by which a phase is over, and not cut short, when its steps are done."""
    return lambda _, history: Stop("all steps were done") if history.steps[-1] >= steps else None


def _means(seen: list[Draws]) -> dict[str, float]:
    names = {"objective": "log_density", "acceptance": "acceptance"}
    return {
        name: float(np.mean(np.concatenate([getattr(made, field) for made in seen], axis=1)))
        for name, field in names.items()
    }


@partial(jax.jit, static_argnums=0)
def _adaptation_from(name: str, sizes: Float[Array, " c"]) -> Any:
    """Return the state of the adaptation of each chain's step size, which it begins with."""
    init, _, _ = step_size_adaptation(name)
    return _strong(jax.vmap(init)(sizes))


@partial(jax.jit, static_argnums=0)
def _average_size(name: str, adaptation: Any) -> Float[Array, " c"]:
    _, _, final = step_size_adaptation(name)
    return _strong(jax.vmap(final)(adaptation))


def _strong(tree: Any) -> Any:
    """Return arrays whose type is no longer weak: with another weakness the whole transition is compiled anew."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), tree)


# ---------------------------------------------------------------- one chain, compiled


def _advance_chain(
    target: HyperPosterior,
    sampler: str,
    adapt: Bool[Array, ""],
    scale: Float[Array, " D"],
    numbers: tuple[Array, Array],
    own: tuple,
) -> tuple:
    """Do steps of one chain, in coordinates divided by the scale."""
    key, theta, steps, step_size = own

    def log_density(z: Array) -> Array:
        return target(z * scale)

    def step(carry: tuple, key: Array, i: Array) -> tuple[tuple, tuple]:
        del i
        state, steps = carry
        size, after = adapted(sampler, adapt, steps, step_size)
        state, acceptance, diverging = transition(sampler, log_density, key, state, size)
        seen = state.position * scale, state.logdensity, acceptance, diverging
        return (state, after(steps, acceptance)), seen

    state = begin(sampler, log_density, theta / scale)
    (state, steps), found = some_steps(step, (state, steps), key, numbers)
    return state.position * scale, steps, *found
