"""How the bound of independent discrete weights is maximised: by sweeps, then by Newton's method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from vastgp.fitting.clock import now
from vastgp.fitting.history import History
from vastgp.fitting.lbfgs import LbfgsResult
from vastgp.fitting.loop import LoopResult, Stop
from vastgp.fitting.run import Run
from vastgp.methods.direct.elbo import (
    value_and_slope,
)
from vastgp.methods.direct.model import (
    LEAST_LOGIT,
    DiscreteLogits,
    DiscreteModel,
)
from vastgp.methods.direct.newton import (
    alternates,
    coordinate_sweep,
    logits_of,
    newton_step,
    offer_spacings,
    tilted_from,
)
from vastgp.methods.direct.start import NormalWeights, start_logits

# Sweeps of each start before the better one is chosen, and at most of that one: Newton's method moves all weights
# together and ends what single ones begin.
_SWEEP_CHUNK, _MOST_SWEEPS = 5, 40
_CONVERGED = "converged: a step of Newton's method would gain less than tol"
# Single spacings are offered where a step gains less than so many nats a row, also where ``tol`` is less: a smaller one
# then goes on from where a larger one ended, and does not lead to another maximum.
_OFFERED_AT = 1e-5
# What alternating steps of weights and spacings leave to gain, relative to what the last pair gained.
_SLOWLY = 10.0
# Of these steps at one bound of another likelihood, which is to be renewed.
_MOST_STEPS = 10


@dataclass(frozen=True)
class DiscreteFit:
    """Where the maximisation ended.

    Attributes
    ----------
    logits : DiscreteLogits
    objective : float
        The bound, in nats.
    num_iter : int
    reason : str
    converged : bool
    history : History
    """

    logits: DiscreteLogits
    objective: float
    num_iter: int
    reason: str
    converged: bool = False
    history: History = field(default_factory=History)

    @classmethod
    def of_loop(
        cls, logits: DiscreteLogits, loop: LoopResult, bound: Callable[[], Any] | None = None
    ) -> DiscreteFit:
        """Return where steps ended; ``bound`` computes it where there was no time for one."""
        if bound is not None and not len(loop.history):
            loop.history.append(1, 0.0, {"objective": float(bound())})
        return cls(
            logits, loop.history.last("objective"), max(loop.num_iter, 1), loop.reason,
            loop.converged, loop.history,
        )  # fmt: skip

    @classmethod
    def of_lbfgs(cls, found: LbfgsResult, logits: DiscreteLogits) -> DiscreteFit:
        """Return where L-BFGS ended, with the logits among its parameters."""
        return cls(
            jax.device_put(logits), found.value, max(found.num_iter, 1), found.message,
            found.converged, found.history,
        )  # fmt: skip


# ---------------------------------------------------------------- coordinate sweeps


def sweep_to_rest(
    logits: DiscreteLogits,
    model: DiscreteModel,
    tol: float,
    deadline: float | None = None,
    most: int = _MOST_SWEEPS,
) -> tuple[DiscreteLogits, float, int]:
    """Repeat sweeps until a chunk of them gains less than ``tol`` nats; return logits, bound and sweeps."""
    bound = float(value_and_slope(logits, model)[0])
    done = 0
    while done < most and not (deadline is not None and now() > deadline):
        for _ in range(_SWEEP_CHUNK):
            logits = coordinate_sweep(logits, model)
        done += _SWEEP_CHUNK
        before, bound = bound, float(value_and_slope(logits, model)[0])
        if bound - before < tol:
            break
    return logits, bound, done


# ---------------------------------------------------------------- mean-field


def start_mean_field(
    model: DiscreteModel,
    *,
    normal: NormalWeights | None,
    learn_spacing: bool = False,
    tol: float,
    deadline: float | None = None,
) -> tuple[DiscreteLogits, float, int]:
    """Return logits to start from, the bound there, and the sweeps that were done.

    Without ``normal`` it is the prior, the start of the thesis; where the data determine the weights far more finely
    than their values are apart, that leads to local maxima of few weights that are not zero. Otherwise it is the better
    one of `start_logits`, after coordinate sweeps.
    """
    size, num_values = model.values.shape
    spacing = np.zeros(size) if learn_spacing else None
    prior = np.broadcast_to(np.asarray(model.prior.log_mass)[0], (size, num_values))
    # zero mass is minus infinity, which has no slope
    flat = DiscreteLogits(
        np.maximum(prior, LEAST_LOGIT)[None], np.zeros(1), model.log_noise_prior, spacing
    )  # fmt: skip
    if normal is None:
        return flat, float(value_and_slope(flat, model)[0]), 0
    best, best_bound, sweeps = flat, -np.inf, 0
    for weights in start_logits(normal, np.asarray(model.values)):
        logits = flat._replace(
            weights=np.maximum(weights, LEAST_LOGIT)[None],
            noise=-np.abs(np.log(np.asarray(model.noise) / normal.noise_variance)),
        )
        logits, bound, done = sweep_to_rest(logits, model, tol, deadline, _SWEEP_CHUNK)
        sweeps += done
        if bound > best_bound:
            best, best_bound = logits, bound
    best, best_bound, done = sweep_to_rest(best, model, tol, deadline)
    return best, best_bound, sweeps + done


def fit_mean_field(
    model: DiscreteModel,
    logits: DiscreteLogits,
    run: Run,
    name: str,
    *,
    rows: float,
    max_iter: int,
    tol: float,
    share: float = 1.0,
) -> DiscreteFit:
    """Maximise Theorem 7.1 by Newton's method, until a step would gain less than ``tol`` nats per row.

    Spacings are learned from where the weights end without; then each is offered others, as long as that gains.
    """
    least, learns_spacings = tol * rows, logits.spacing is not None

    def step(state: Any, number: int, count: int) -> tuple[Any, dict[str, Any]]:
        point, follows = state
        for _ in range(count):
            taken = newton_step(point, model, bool(follows))
            gain = float(taken.gain)
            if point.spacing is None or gain >= max(least, _OFFERED_AT * rows):
                left = float(taken.expected)
            else:
                # from where the bound is not concave no step of all leads up: the weights alone, then single spacings
                alone = newton_step(taken.point, model, False)
                taken = offer_spacings(alone.point, model)
                more = float(alone.gain) + float(taken.gain)
                gain, left = gain + more, float(alone.expected) + _SLOWLY * more
                # spacings follow after the first offers, which are made where the weights rest
                left, follows = (left if follows else max(left, least)), np.ones(())
            point, bound = taken.point, float(taken.bound)
        return (point, follows), {"objective": bound, "left": left, "gain": gain}

    start = tilted_from(logits, model), np.zeros(())
    (point, _), loop = run.steps(
        name, step, start, max_iter=max_iter, chunk=1, share=share,
        should_stop=lambda _, history: _rests(history, model, learns_spacings, least),
    )  # fmt: skip
    logits = logits_of(point, model)
    return DiscreteFit.of_loop(logits, loop, lambda: value_and_slope(logits, model)[0])


def _rests(
    history: History, model: DiscreteModel, learns_spacings: bool, least: float
) -> Stop | None:
    gains, left = history.values["gain"], history.values["left"]
    # a round of offers may find nothing, and the next one 0.05 nats
    most = max(left[-2:] if learns_spacings else left[-1:])
    most = max(most, left_by_gains(gains) if alternates(model) else gains[-1])
    return Stop(_CONVERGED, True) if most < least else None


def left_by_gains(gains: Sequence[float]) -> float:
    """Return what more steps would gain and the last one has, where each gains a share of what the one before did."""
    if len(gains) < 3:  # the first one may be from nothing
        return np.inf
    share = gains[-1] / max(gains[-2], np.finfo(float).tiny)
    return max(gains[-1], 0.0) / (1.0 - share) if share < 1.0 else np.inf


def at_rest(
    logits: DiscreteLogits, model: DiscreteModel, least: float
) -> tuple[DiscreteLogits, float]:
    """Return logits from where a step of Newton's method would gain less than some nats, and the bound there."""
    point = tilted_from(logits, model)
    for _ in range(_MOST_STEPS):
        taken = newton_step(point, model, False)
        point = taken.point
        if float(taken.expected) < least:
            break
    return logits_of(point, model), float(taken.bound)


def softmax(logits: Any) -> np.ndarray:
    """Return probabilities that sum to one to the last digits, over the last axis."""
    values = np.asarray(logits, np.float64)
    exponent = np.exp(values - values.max(axis=-1, keepdims=True))
    return exponent / exponent.sum(axis=-1, keepdims=True)
