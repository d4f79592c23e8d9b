"""Steps of a sparse-within-sparse Gaussian process: those rows of the state that a minibatch touches, and no others."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vastgp.data.joint_programs import added_within
from vastgp.methods.swsgp.bound import (
    Inducing,
    expected_log_likelihoods,
    moments_and_divergences,
    moments_and_ordered_divergences,
)
from vastgp.methods.swsgp.state import SwsgpState, Variables, factor_rows
from vastgp.solvers.neighbourhoods import Neighbours

_B1, _B2, _EPS = 0.9, 0.999, 1e-8


class StepPlan(NamedTuple):
    """What a step is compiled for."""

    full: bool
    ordered: bool
    taper: bool
    learn: bool
    move: bool
    processes: int = 1
    devices: int = 1


class Constants(NamedTuple):
    """Numbers that stay the same during a fit; ``lower`` and ``upper`` are bounds of the logarithms of `SwsgpState`."""

    num_rows: Any
    num_inducing: Any
    learning_rate: Any
    half_life: Any
    jitter: Any
    lower: Any = None
    upper: Any = None


class Batch(NamedTuple):
    """Minibatches, one for each step (first axis), with what they touch.

    Attributes
    ----------
    X : Array of shape (T, n, d)
    y : Array of shape (T, n), or (T, n, 3) with noise of the rows' own
    rows : Array of shape (T, R)
        Numbers of the inducing inputs touched, each once; M where there are fewer.
    near : Array of shape (T, n, H)
        Where in ``rows`` the neighbours of a row are.
    border : Array of shape (T, n)
        And the nearest input that it does not see.
    own : Array of shape (T, J)
        Inducing inputs whose divergence counts (ordered prior).
    before : Array of shape (T, J, H)
        Their nearest predecessors.
    present : Array of shape (T, J, H)
        Which of these there are.
    counts, own_counts : Array of shape (T, n) and (T, J), optional
        What each row and each of ``own`` counts where several processes have a part of them each, with filling. None:
        what all count alike.
    """

    X: Any
    y: Any
    rows: Any
    near: Any
    border: Any
    own: Any
    before: Any
    present: Any
    counts: Any = None
    own_counts: Any = None


def bound(
    plan: StepPlan, constants: Constants, local: Variables, hyper: Any, batch: Batch
) -> Float[Array, ""]:
    """Return an unbiased estimate of the bound from one minibatch, eq. (11) with the weights of Algorithm 1.

    Of a part of one it is what the part adds to that.

    Parameters
    ----------
    plan : StepPlan
    constants : Constants
    local : Variables
        Rows of the inducing inputs that the minibatch touches, in the order of ``batch.rows``.
    hyper : tuple of (Kernel, Likelihood)
        Logarithms.
    batch : Batch
        Of one step.
    """
    kernel, likelihood = jax.tree.map(jnp.exp, hyper)
    spread = factor_rows(local.spread, batch.rows) if plan.full else jnp.exp(local.spread)
    size = len(batch.y)

    def neighbours(where: Array, present: Array, border: Array | None = None) -> Neighbours:
        edge = None if border is None else local.Z[border]
        return Neighbours(local.Z[where], present, local.mean[where], spread[where], edge)

    near = neighbours(
        batch.near, jnp.ones(batch.near.shape, bool), batch.border if plan.taper else None
    )
    if plan.ordered:
        innovation = local.spread[batch.own]
        if plan.full:
            numbers = batch.rows[batch.own]
            innovation = (
                2.0 * jnp.take_along_axis(innovation, numbers[:, None, None], axis=2)[..., 0]
            )
        own = Inducing(local.Z[batch.own], local.mean[batch.own], spread[batch.own], innovation)
        before = neighbours(batch.before, batch.present)
        moments, each = moments_and_ordered_divergences(
            kernel, batch.X, near, own, before, constants.jitter, plan.devices
        )
        # a sum over inducing inputs
        if batch.own_counts is None:
            divergence = constants.num_inducing / len(batch.own) * jnp.sum(each)
        else:
            divergence = jnp.sum(batch.own_counts * each)
    else:
        moments, each = moments_and_divergences(
            kernel, batch.X, near, constants.jitter, plan.devices
        )
        # a mean over rows
        if batch.counts is None:
            divergence = jnp.mean(each)
        else:
            divergence = jnp.sum(batch.counts * each) / constants.num_rows
    fit = expected_log_likelihoods(likelihood, batch.y, moments)
    if batch.counts is not None:
        return jnp.sum(batch.counts * fit) - divergence
    return constants.num_rows / size * jnp.sum(fit) - divergence


def one_step(
    plan: StepPlan, constants: Constants, state: SwsgpState, batch: Batch, number: Any
) -> tuple[SwsgpState, dict[str, Array]]:
    """Do one step of Adam on what a minibatch touches: a `Step` of `vastgp.fitting.minibatch_runner`."""
    rows = batch.rows
    # numbers beyond the last are padding: read as anything, written nowhere
    local = jax.tree.map(lambda all_rows: all_rows.at[rows].get(mode="clip"), state.variables)

    def loss(local: Variables, hyper: Any) -> Any:
        if not plan.move:
            local = local._replace(Z=jax.lax.stop_gradient(local.Z))
        if not plan.learn:
            hyper = jax.lax.stop_gradient(hyper)
        return -bound(plan, constants, local, hyper, batch) / constants.num_rows

    value, (by_local, by_hyper) = jax.value_and_grad(loss, argnums=(0, 1))(local, state.hyper)
    names = Variables._fields if plan.move else ("mean", "spread")
    slopes = {name: getattr(by_local, name) for name in names}
    told = value, slopes, by_hyper if plan.learn else ()
    value, slopes, by_hyper = added_within(told, plan.processes)
    rate = constants.learning_rate / jnp.sqrt(
        1.0 + state.steps.astype(value.dtype) / constants.half_life
    )
    touched = state.touched.at[rows].get(mode="clip") + 1

    def put(all_rows: Array, new: Array) -> Array:
        return all_rows.at[rows].set(new, mode="drop", unique_indices=False)

    moved: dict[str, Array] = {}
    firsts: dict[str, Array] = {}
    seconds: dict[str, Array] = {}
    for name in names:
        whole, first, second = (
            getattr(tree, name) for tree in (state.variables, state.first, state.second)
        )
        new, one, two = _adam(
            getattr(local, name),
            slopes[name],
            first.at[rows].get(mode="clip"),
            second.at[rows].get(mode="clip"),
            touched,
            rate,
        )
        moved[name], firsts[name], seconds[name] = (
            put(whole, new),
            put(first, one),
            put(second, two),
        )
    hyper, hyper_first, hyper_second = state.hyper, state.hyper_first, state.hyper_second
    if plan.learn:
        leaves, tree = jax.tree.flatten(hyper)
        others = map(jax.tree.leaves, (by_hyper, hyper_first, hyper_second))
        updates = [
            _adam(value, gradient, first, second, state.steps + 1, rate)
            for value, gradient, first, second in zip(leaves, *others, strict=True)
        ]
        hyper, hyper_first, hyper_second = (
            jax.tree.unflatten(tree, [update[i] for update in updates]) for i in range(3)
        )
        hyper = jax.tree.map(jnp.clip, hyper, constants.lower, constants.upper)
    new_state = state._replace(
        variables=state.variables._replace(**moved),
        first=state.first._replace(**firsts),
        second=state.second._replace(**seconds),
        touched=put(state.touched, touched),
        hyper=hyper,
        hyper_first=hyper_first,
        hyper_second=hyper_second,
        steps=state.steps + 1,
    )
    # the estimate of the bound before the step
    return new_state, {"objective": -value * constants.num_rows}


def _adam(
    value: Array, gradient: Array, first: Array, second: Array, count: Array, rate: Array
) -> tuple[Array, Array, Array]:
    """Return value and averages after a step of Adam (Kingma and Ba 2015); ``count`` is each row's own."""
    first = _B1 * first + (1.0 - _B1) * gradient
    second = _B2 * second + (1.0 - _B2) * gradient**2
    steps = count.astype(value.dtype).reshape(count.shape + (1,) * (value.ndim - count.ndim))
    unbiased = first / (1.0 - _B1**steps)
    size = jnp.sqrt(second / (1.0 - _B2**steps))
    return value - rate * unbiased / (size + _EPS), first, second
