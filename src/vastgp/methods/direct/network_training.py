"""How the bound of a network is maximised: by L-BFGS from several hypotheses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from vastgp._precision import precision
from vastgp.fitting.clock import now
from vastgp.fitting.history import History
from vastgp.fitting.lbfgs import LbfgsResult, best_of, maximise_real
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.fitting.run import Run
from vastgp.fitting.sufficient_statistics import SufficientStatistics
from vastgp.methods.direct.elbo import LEAST_LOGIT
from vastgp.methods.direct.model import (
    DiscreteLogits,
    DiscretePrior,
    QuadraticLikelihood,
    discrete_model,
)
from vastgp.methods.direct.network_polynomial import (
    NetworkProducts,
    NetworkTerms,
    network_statistics,
    network_value_and_slope,
)
from vastgp.methods.direct.network_start import descend

_NOISE_VALUES, _MOST_NOISE = 15, 2.0
# Starts are this wide around their hypothesis, in spacings of the values: a weight that is certain has no slope. The
# log probability of a noise variance falls so fast with the distance from the one that the hypothesis leaves.
_WIDTH, _NOISE_SLOPE = 0.7, 4.0
# Climbs from where a single weight took its best distribution, at most.
_MOST_AGAIN = 5
# Of what is left of a budget: hypotheses, the rest being for the bound.
_DESCENT = 0.3


@dataclass(frozen=True)
class NetworkPlan:
    """A network, and how its weights are fitted.

    Attributes
    ----------
    terms : NetworkTerms
    products : NetworkProducts
    values : ndarray of shape (b, k)
        What each weight can be.
    prior : DiscretePrior
        Of one part.
    noise_floor : float
        Least noise variance, standardised.
    restarts, max_iter : int
    tol : float
    """

    terms: NetworkTerms
    products: NetworkProducts
    values: np.ndarray
    prior: DiscretePrior
    noise_floor: float
    restarts: int
    max_iter: int
    tol: float

    @property
    def noise(self) -> np.ndarray:
        """What the noise variance can be."""
        most = max(_MOST_NOISE, 2 * self.noise_floor)
        return np.geomspace(self.noise_floor, most, _NOISE_VALUES)


def climb(
    plan: NetworkPlan, sums: SufficientStatistics, run: Run
) -> Iterator[tuple[LbfgsResult, str, bool]]:
    """Maximise the bound from one hypothesis after another; yield the best end so far, why it ended, whether it has."""
    log_mass = np.broadcast_to(plan.prior.log_mass[0], plan.values.shape)

    def begin() -> list[np.ndarray]:
        left = run.seconds_left(_DESCENT)
        deadline = None if left is None else now() + left
        found = descend(
            plan.terms, sums, plan.values, log_mass, plan.noise_floor, run.seed, deadline
        )
        return [part[: plan.restarts] for part in found]

    codes, variances = run.once("hypotheses", begin)
    with precision("float64"):
        objective = _objective(plan, sums)
    ends: list[LbfgsResult] = []
    for number, (hypothesis, variance) in enumerate(zip(codes, variances, strict=True)):
        with precision("float64"):
            start = _around(plan, log_mass, hypothesis, variance)
            ends.append(_climb(plan, objective, start, run, f"start {number}", sums.num_rows))
        yield best_of(ends), OUT_OF_TIME, False
    with precision("float64"):
        best = _past_plateaus(plan, objective, best_of(ends), run, sums.num_rows)
    yield best, best.message, best.converged


def _past_plateaus(
    plan: NetworkPlan, objective: Any, found: LbfgsResult, run: Run, rows: int
) -> LbfgsResult:
    """Climb again from where a single weight took its best distribution, as long as that gains.

    The slope of a value that has become all but impossible vanishes, and L-BFGS rests beside better ones.
    """
    for number in range(_MOST_AGAIN):
        if not found.converged:
            return found
        gains, weights = best_alone(found.params.weights, objective(found.params)[1].weights)
        j = int(np.argmax(gains))
        if gains[j] < plan.tol * rows:
            return found
        changed = np.array(found.params.weights)
        changed[0, j] = weights[j]
        start = found.params._replace(weights=changed)
        found = _joined(found, _climb(plan, objective, start, run, f"again {number}", rows))
    return replace(found, converged=False, message="single weights would still take other values")


def _climb(
    plan: NetworkPlan, objective: Any, start: DiscreteLogits, run: Run, name: str, rows: int
) -> LbfgsResult:
    return maximise_real(
        objective,
        start,
        max_iter=plan.max_iter,
        tol=plan.tol,
        scale=rows,
        record=run.evaluations(name),
    )


def best_alone(
    logits: Float[Any, "1 b k"], slope: Float[Any, "1 b k"]
) -> tuple[Float[np.ndarray, " b"], Float[np.ndarray, "b k"]]:
    """Return what each weight's best distribution given all others would gain, and its logits.

    The bound is ``q_j^T (a_j - log q_j)`` and a constant, so that ``q_j* = softmax(a_j)`` gains ``KL(q_j || q_j*)``.
    Its slope by the logits, ``q_jk (a_jk - log q_jk - mean)``, tells ``a_j`` but for a constant.
    """
    log_q = np.asarray(jax.nn.log_softmax(logits))[0]
    tilt = np.asarray(slope)[0] / np.maximum(np.exp(log_q), np.finfo(float).tiny)
    log_best = np.asarray(jax.nn.log_softmax(log_q + tilt))
    gains = np.sum(np.exp(log_q) * (log_q - log_best), axis=1)
    highest = np.max(log_best, axis=1, keepdims=True)
    return gains, np.maximum(log_best - highest, LEAST_LOGIT)


def _joined(first: LbfgsResult, then: LbfgsResult) -> LbfgsResult:
    """Return a climb that went on from where another had ended."""
    history = History.from_dict(first.history.to_dict())
    steps, spent = history.steps[-1], history.seconds[-1]
    of_then = zip(then.history.steps, then.history.seconds, then.history.objective, strict=True)
    for step, seconds, value in of_then:
        history.append(steps + step, spent + seconds, {"objective": value})
    return replace(then, num_iter=first.num_iter + then.num_iter, history=history)


def _around(
    plan: NetworkPlan, log_mass: np.ndarray, hypothesis: np.ndarray, variance: float
) -> DiscreteLogits:
    """Return the start around a hypothesis that leaves some noise variance."""
    values = plan.values
    spacing = np.ptp(values, axis=1, keepdims=True) / (values.shape[1] - 1)
    away = (values - values[np.arange(len(values)), hypothesis][:, None]) / spacing
    near = np.maximum(log_mass - 0.5 * (away / _WIDTH) ** 2, LEAST_LOGIT)
    slope = -_NOISE_SLOPE * np.abs(np.log(plan.noise / variance))
    return DiscreteLogits(near[None], np.zeros(1), slope)


def _objective(plan: NetworkPlan, sums: SufficientStatistics) -> Any:
    """Return the bound and its slope as a function of the logits."""
    size, terms, products = len(plan.values), plan.terms, plan.products
    empty = QuadraticLikelihood(0.0, 0.0, np.zeros(size), np.zeros((size, size)))
    model = discrete_model(empty, plan.values, plan.prior, plan.noise)
    statistics = jax.tree.map(
        jnp.asarray,
        network_statistics(terms, products, sums.num_rows, sums.square, sums.target, sums.gram),
    )
    tables = tuple(
        jnp.asarray(table)
        for table in (terms.factors, terms.powers, products.factors, products.powers)
    )
    order = int(products.powers.max())

    def objective(point: DiscreteLogits) -> tuple[float, DiscreteLogits]:
        value, slope = network_value_and_slope(
            jax.tree.map(jnp.asarray, point), model, statistics, tables, order=order
        )
        return float(value), slope

    return objective
