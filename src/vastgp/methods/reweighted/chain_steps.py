"""Steps of one Markov chain, and of several: what is compiled of chains over hyperparameters and over latent values.

Transitions and step-size adaptation are blackjax's; it is imported where it is used, as it is an optional dependency.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from vastgp.methods.reweighted.diagnosis import import_blackjax

# Steps of one compiled call at most.
CHUNK = 25
# Acceptance at which each is most efficient (Hoffman and Gelman 2014; Roberts and Rosenthal 1998).
_ACCEPTANCE = {"nuts": 0.8, "mala": 0.574}
_MOST_DOUBLINGS = 7


def step_size_adaptation(sampler: str) -> tuple[Any, Any, Any]:
    """Return the functions that begin, update and end the adaptation of a step size."""
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    return dual_averaging_adaptation(_ACCEPTANCE[sampler])


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
    _, update, _ = step_size_adaptation(sampler)

    def after(steps: Any, acceptance: Array) -> Any:
        return jax.tree.map(partial(jnp.where, adapt), update(steps, acceptance), steps)

    return jnp.where(adapt, jnp.exp(steps.log_step_size), step_size), after


def some_steps(
    step: Callable[[tuple, Array, Array], tuple[tuple, tuple]],
    carry: tuple,
    key: Array,
    numbers: tuple[Array, Array],
) -> tuple[tuple, tuple]:
    """Do ``step(carry, key, i)`` so many times, `CHUNK` at most: one program for all numbers of them.

    Parameters
    ----------
    step : callable
        Gives the carry after it, and what is seen of it; ``i`` counts from zero.
    carry : pytree
    key : Array
        Of the chain.
    numbers : (Array, Array)
        Number of the first step since the chain began, which its key comes from, and how many.
    """
    first, count = numbers
    like = jax.eval_shape(step, carry, key, first)[1]
    room = jax.tree.map(lambda leaf: jnp.zeros((CHUNK, *leaf.shape), leaf.dtype), like)

    def body(i: Array, both: tuple[tuple, tuple]) -> tuple[tuple, tuple]:
        carry, room = both
        carry, seen = step(carry, jax.random.fold_in(key, first + i), i)
        return carry, jax.tree.map(lambda all_, one: all_.at[i].set(one), room, seen)

    return jax.lax.fori_loop(0, count, body, (carry, room))


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
