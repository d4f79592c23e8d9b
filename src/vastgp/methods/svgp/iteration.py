"""An iteration of the fit at inducing points as one compiled program: E-steps, then M-steps, or one step of Adam.

A step that leaves no posterior is taken again, half as long, until it does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from vastgp.data.joint_programs import all_find
from vastgp.fitting.averages import average_weight, moved
from vastgp.methods.svgp.bound import Coordinates, Rows, SiteSums
from vastgp.methods.svgp.steps import (
    Params,
    Setting,
    adam_step,
    e_step,
    m_step,
    mended,
    untied_e_step,
    untied_m_step,
)

# A step that ends in no posterior is tried again this often, half as long each time.
_MOST_HALVINGS = 6
# Parameters on minibatches are averaged with weights that grow as the cube of the step, so that the last quarter of
# the steps has two thirds of them (Shamir and Zhang 2013).
_LATE = 3.0
# What failed, by its number in the record of an iteration.
FAILED = (None, "an E-step", "an M-step", "a step of Adam")
_E, _M, _ADAM = 1, 2, 3


class Plan(NamedTuple):
    """What an iteration is compiled for; see `vastgp.methods.svgp.passes.SVGPOptions`.

    Attributes
    ----------
    full : bool
        Whether every step takes all rows.
    processes : int
        How many of them have a part each of the rows of a step.
    """

    optimizer: str
    hold: str
    untied: bool
    full: bool
    num_e_steps: int
    num_m_steps: int
    learn: bool
    move: bool
    processes: int = 1

    @property
    def shares(self) -> bool:
        """Whether the first M-step takes the rows of the last E-step, and what was computed from them.

        On minibatches, where an E-step is short. Steps of length one on all rows go one after the other.
        """
        return self.optimizer == "natural" and not self.full

    @property
    def batches(self) -> int:
        """Minibatches of an iteration."""
        natural = self.num_e_steps + self.num_m_steps - self.shares
        return natural if self.optimizer == "natural" else 1


class Constants(NamedTuple):
    """Numbers that stay the same during a fit.

    Attributes
    ----------
    setting : Setting
    step_rate : float
        Length of an E-step at least.
    learning_rate : float
    weight : float
        What a row of a minibatch counts.
    whole : Rows or None
        All rows, or those that the process has, where every step takes them.
    """

    setting: Setting
    step_rate: Any
    learning_rate: Any
    weight: Any
    whole: Rows | None


class State(NamedTuple):
    """All that decides the next step.

    Attributes
    ----------
    params : Params
    here : Coordinates
        Of the parameters.
    q : SiteSums, Moments, or a pair of arrays with a site a row
    optimizer : pytree
        Of Adam.
    average : Params
        Weighted average of the parameters so far.
    e_steps, damped : int
        E-steps done, and halvings of steps.
    """

    params: Params
    here: Coordinates
    q: Any
    optimizer: Any
    average: Params
    e_steps: Any
    damped: Any


class Record(NamedTuple):
    """The bound before the last step of an iteration, and the number in `FAILED` of what left no posterior."""

    objective: Array
    failed: Array


Attempt = Callable[[State, Any], tuple[State, Any, Any]]


def iteration(
    plan: Plan, constants: Constants, state: State, batch: Any, number: Any
) -> tuple[State, Record]:
    """Do one iteration: a `Step` of `vastgp.fitting.minibatch_runner`."""

    def rows(k: Any) -> Rows:
        if constants.whole is not None:
            return constants.whole
        X, y, *weights = (part[k] for part in batch)
        # parts of several processes have filling
        return Rows(X, y, *(weights or [jnp.full(y.shape[:1], constants.weight)]))

    record = Record(jnp.full((), jnp.nan, constants.weight.dtype), jnp.zeros((), jnp.int32))
    if plan.optimizer == "adam":
        state, record = _tried(
            _adam(plan, constants, rows(0)), state, record, _ADAM, plan.processes
        )
    else:
        alone = plan.num_e_steps - plan.shares

        def e(k: Any, carry: tuple[State, Record]) -> tuple[State, Record]:
            return _tried(_e(plan, constants, rows(k)), *carry, _E, plan.processes)

        def m(k: Any, carry: tuple[State, Record]) -> tuple[State, Record]:
            return _tried(_m(plan, constants, rows(alone + k), k), *carry, _M, plan.processes)

        if alone:
            state, record = jax.lax.fori_loop(0, alone, e, (state, record))
        state, record = jax.lax.fori_loop(0, plan.num_m_steps, m, (state, record))
    if plan.full:
        return state._replace(average=state.params), record
    weight = average_weight(number + 1, _LATE).astype(constants.weight.dtype)
    return state._replace(average=moved(state.average, state.params, weight)), record


def _length(plan: Plan, constants: Constants, state: State) -> Any:
    if plan.full:
        return constants.step_rate
    # the first steps average what has been seen: 1, 1/2, 1/3, ...
    seen = state.e_steps.astype(constants.step_rate.dtype)
    return jnp.maximum(constants.step_rate, 1.0 / (1.0 + seen))


def _e(plan: Plan, constants: Constants, rows: Rows) -> Attempt:
    def attempt(state: State, share: Any) -> tuple[State, Any, Any]:
        given = state.params, state.here, state.q, rows, share * _length(plan, constants, state)
        if plan.untied:
            q, value, good = untied_e_step(*given)
        else:
            q, value, good = e_step(*given, processes=plan.processes)
        return state._replace(q=q, e_steps=state.e_steps + 1), value, good

    return attempt


def _m(plan: Plan, constants: Constants, rows: Rows, number: Any) -> Attempt:
    def attempt(state: State, share: Any) -> tuple[State, Any, Any]:
        rate, setting = share * constants.learning_rate, constants.setting
        if plan.untied:
            params, here, optimizer, value, good = untied_m_step(
                state.params, state.q, state.optimizer, rows, rate, setting, move=plan.move
            )
            return state._replace(params=params, here=here, optimizer=optimizer), value, good
        e_steps, step_rate, before = state.e_steps, None, state.optimizer
        if plan.shares:
            # what the prior asks of the hyperparameters says little, and Adam would remember it: the first step of all
            # is an E-step
            first = e_steps == 0
            rate = jnp.where(first, 0.0, rate)
            step_rate = jnp.where(number == 0, share * _length(plan, constants, state), 0.0)
            e_steps = e_steps + (number == 0)
        params, here, q, optimizer, value, good = m_step(
            state.params, state.here, state.q, before, rows, step_rate, rate, setting,
            hold=plan.hold, move=plan.move, processes=plan.processes,
        )  # fmt: skip
        if plan.shares:
            optimizer = jax.tree.map(lambda old, new: jnp.where(first, old, new), before, optimizer)
        found = state._replace(params=params, here=here, q=q, optimizer=optimizer, e_steps=e_steps)
        return found, value, good

    return attempt


def _adam(plan: Plan, constants: Constants, rows: Rows) -> Attempt:
    def attempt(state: State, share: Any) -> tuple[State, Any, Any]:
        params, q, optimizer, value, good = adam_step(
            state.params, state.q, state.optimizer, rows, share * constants.learning_rate,
            constants.setting, whiten=plan.hold == "whitened", learn=plan.learn, move=plan.move,
            processes=plan.processes,
        )  # fmt: skip
        return state._replace(params=params, q=q, optimizer=optimizer), value, good

    return attempt


def _tried(
    attempt: Attempt, state: State, record: Record, code: int, processes: int = 1
) -> tuple[State, Record]:
    """Take a step, or as much of it as leaves a posterior."""
    dtype = record.objective.dtype

    def again(carry: Any) -> Any:
        *_, good, halvings = carry
        return ~good & (halvings <= _MOST_HALVINGS)

    def once(carry: Any) -> Any:
        start, _, _, _, halvings = carry
        if isinstance(start.q, SiteSums):
            q = jax.lax.cond(halvings == 1, mended, lambda sums: sums, start.q)
            start = start._replace(q=q)
        share = jnp.asarray(0.5, dtype) ** halvings
        found, value, good = attempt(start, share)
        return start, found, value.astype(dtype), all_find(good, processes), halvings + 1

    nothing = (state, state, record.objective, jnp.array(False), jnp.zeros((), jnp.int32))
    _, found, value, good, tries = jax.lax.while_loop(again, once, nothing)
    failed = jnp.where(good | (record.failed > 0), record.failed, code).astype(jnp.int32)
    return found._replace(damped=found.damped + tries - 1), Record(value, failed)
