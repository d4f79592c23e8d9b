"""How mixtures of discrete weights are found: by Newton's method on a bound of the entropy, or by stochastic steps."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from vastgp.bases import seed_key
from vastgp.bases.draws import purpose_key
from vastgp.data.devices import dealt, devices_for
from vastgp.data.joint_programs import Own
from vastgp.data.minibatch import generator
from vastgp.fitting.early_stopping import no_progress
from vastgp.fitting.history import History
from vastgp.fitting.loop import Stop
from vastgp.fitting.minibatch_runner import MinibatchRunner, mean_and_error
from vastgp.fitting.run import Run
from vastgp.fitting.trust_region import FIRST_RADIUS, TrustStep, trust_step
from vastgp.methods.direct.elbo import (
    mixture_elbo_bound,
    sampled_value_and_slope,
)
from vastgp.methods.direct.model import (
    LEAST_LOGIT,
    DiscreteLogits,
    DiscreteModel,
)
from vastgp.methods.direct.training import DiscreteFit

# Components of a mixture start this far apart, in logits.
_PERTURBATION = 0.5
# So many steps gain this part of tol when it ends: there are places where they gain little for a while.
_LITTLE_GAINS, _OF_TOL = 10, 0.1
_GAINS_LITTLE = "converged: ten steps of Newton's method gained less than a tenth of tol"
# Steps of the stochastic objective: Adam with a rate that falls to zero, records of so many steps.
_RATE, _RECORD, _PATIENCE = 0.05, 25, 20
_MOMENTS = optax.scale_by_adam()
_SPREAD = 21  # purpose of random numbers, see vastgp.data.minibatch


def spread_out(logits: DiscreteLogits, components: int, seed: int) -> DiscreteLogits:
    """Return a mixture whose components are random perturbations of one, the first as it is."""
    shape = (components, *logits.weights.shape[1:])
    moved = _PERTURBATION * generator(seed, 0, _SPREAD).standard_normal(shape)
    moved[0] = 0.0
    return logits._replace(
        weights=jnp.maximum(logits.weights + jnp.asarray(moved), LEAST_LOGIT),
        mixture=jnp.zeros(components),
    )


@jax.jit
def _bound_step(point: Any, radius: Any, model: DiscreteModel) -> tuple[Any, TrustStep]:
    flat, rebuild = ravel_pytree(point)

    def bound(at: Any) -> Float[Array, ""]:
        logits, center = rebuild(at)
        return mixture_elbo_bound(logits, center, model, logarithmic=True)

    taken = trust_step(bound, flat, radius)
    return rebuild(taken.point), taken


def fit_mixture_bound(
    model: DiscreteModel,
    logits: DiscreteLogits,
    center: Float[Array, "b k"],
    run: Run,
    name: str,
    *,
    rows: float,
    max_iter: int,
    tol: float,
) -> DiscreteFit:
    """Maximise the bound of Theorem 7.3 over the logits and the expansion point together.

    Parts that begin to come apart gain next to nothing for hundreds of iterations of L-BFGS. Newton's method within a
    region of trust took a third of the time and ended 0.002 to 0.008 nats a row higher (50 and 200 rows).
    """

    def step(state: Any, number: int, count: int) -> tuple[Any, dict[str, Any]]:
        for _ in range(count):
            point, taken = _bound_step(*state, model)
            state = point, taken.radius
        gain, left = float(taken.gain), float(taken.expected)
        return state, {"objective": float(taken.value), "gain": gain, "left": left}

    start = (logits, center), jnp.asarray(FIRST_RADIUS, float)
    ((logits, _), _), loop = run.steps(
        name, step, start, max_iter=max_iter, chunk=1,
        should_stop=lambda _, history: _gains_little(history, _OF_TOL * tol * rows),
    )  # fmt: skip
    return DiscreteFit.of_loop(
        logits, loop, lambda: mixture_elbo_bound(logits, center, model, logarithmic=True)
    )


def _gains_little(history: History, least: float) -> Stop | None:
    gains, left = history.values["gain"][-_LITTLE_GAINS:], history.last("left")
    # a step that was not taken gains nothing and may have been expected to gain much
    if len(gains) == _LITTLE_GAINS and sum(gains) < least and left < least:
        return Stop(_GAINS_LITTLE, True)
    return None


class _Ascent(NamedTuple):
    """What the steps of `fit_mixture_sampled` have in common."""

    model: DiscreteModel
    key: Any
    rows: float
    max_steps: float


class _AscentPlan(NamedTuple):
    """What they are compiled for: draws of each component, and devices that each have a part of the weights."""

    draws: int
    devices: int


def fit_mixture_sampled(
    model: DiscreteModel,
    logits: DiscreteLogits,
    run: Run,
    name: str,
    *,
    draws: int,
    max_steps: int,
    rows: float,
    tol: float,
) -> DiscreteFit:
    """Maximise the mixture's bound by stochastic gradients that are exact but for the entropy's (7.27)."""
    components, size, num_values = logits.weights.shape
    work = components * size * (size + draws * num_values)
    plan = _AscentPlan(draws, devices_for(work, size))
    if plan.devices > 1:
        model = _by_weights(model)
    constants = _Ascent(model, purpose_key(seed_key(run.seed), name), rows, max_steps)
    with MinibatchRunner(
        _mixture_step, plan, constants, chunk=_RECORD, devices=plan.devices,
        summarise=lambda state, records, done: mean_and_error(records),
    ) as runner:  # fmt: skip
        (logits, _), loop = run.steps(
            name,
            runner,
            (logits, _MOMENTS.init(logits)),
            max_iter=max_steps,
            chunk=_RECORD,
            should_stop=no_progress(
                "objective", patience=_PATIENCE, min_change=tol * rows, larger_is_better=True
            ),
        )
    return DiscreteFit.of_loop(logits, loop)


def _by_weights(model: DiscreteModel) -> Any:
    """Return a model of which each device has what belongs to its part of the weights."""
    likelihood = model.likelihood
    dealt_out = (Own(part) for part in (likelihood.target, likelihood.gram, model.values))
    return eqx.tree_at(
        lambda m: (m.likelihood.target, m.likelihood.gram, m.values), model, [*dealt_out]
    )


def _mixture_step(
    plan: _AscentPlan, constants: _Ascent, state: Any, batch: None, number: Array
) -> tuple[Any, Array]:
    """Take a step of Adam, whose rate falls to zero by a cosine."""

    def by_weights(logits: DiscreteLogits) -> DiscreteLogits:
        return logits._replace(weights=dealt(logits.weights, plan.devices, axis=1))

    point, moments = state
    point = by_weights(point)
    key = jax.random.fold_in(constants.key, number)
    (_, value), slope = sampled_value_and_slope(point, constants.model, key, plan.draws)
    descent = jax.tree.map(lambda g: -g / constants.rows, by_weights(slope))
    update, moments = _MOMENTS.update(descent, moments)
    rate = 0.5 * _RATE * (1.0 + jnp.cos(jnp.pi * number / constants.max_steps))
    return (jax.tree.map(lambda p, u: p - rate * u, point, update), moments), value
