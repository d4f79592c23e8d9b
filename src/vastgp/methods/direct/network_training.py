"""How the bound of a network is maximised: by L-BFGS and by single weights, from several hypotheses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from vastgp._precision import precision
from vastgp.data.processes import from_first
from vastgp.fitting.clock import now
from vastgp.fitting.evaluations import Evaluations
from vastgp.fitting.history import History
from vastgp.fitting.lbfgs import LbfgsResult, best_of, maximise_real, ravel
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.fitting.run import Run
from vastgp.fitting.sufficient_statistics import SufficientStatistics
from vastgp.methods.direct.model import (
    LEAST_LOGIT,
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
    single_offers,
)
from vastgp.methods.direct.network_start import descend

_NOISE_VALUES, _MOST_NOISE = 15, 2.0
# Starts are this wide around their hypothesis, in spacings of the values: a weight that is certain has no slope. The
# log probability of a noise variance falls so fast with the distance from the one that the hypothesis leaves.
_WIDTH, _NOISE_SLOPE = 0.7, 4.0
# Single weights that take a better distribution between two climbs by L-BFGS, at most, for each weight.
_OFFERS = 2
_OUT_OF_ITERATIONS = (
    "stopped after max_iter iterations, where single weights have better distributions"
)
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
    """Maximise the bound from one hypothesis after another; yield the best end so far, why it ended, if all did."""
    log_mass = np.broadcast_to(plan.prior.log_mass[0], plan.values.shape)

    def begin() -> list[np.ndarray]:
        left = run.seconds_left(_DESCENT)
        deadline = None if left is None else now() + left
        found = descend(
            plan.terms, sums, plan.values, log_mass, plan.noise_floor, run.seed, deadline
        )
        return [part[: plan.restarts] for part in found]

    codes, variances = run.once("hypotheses", begin)
    bound = _Bound(plan, sums)
    ends: list[LbfgsResult] = []
    for number, (hypothesis, variance) in enumerate(zip(codes, variances, strict=True)):
        start = _around(plan, log_mass, hypothesis, variance)
        ends.append(_to_rest(plan, bound, start, run.evaluations(f"start {number}")))
        best, last = best_of(ends), len(ends) == len(codes)
        yield best, best.message if last else OUT_OF_TIME, best.converged and last


def _to_rest(
    plan: NetworkPlan, bound: _Bound, start: DiscreteLogits, record: Evaluations
) -> LbfgsResult:
    """Climb by L-BFGS until no single weight has a better distribution either.

    Where a value has lost all its probability its logit has no slope, and twenty iterations gain little: of 100 rows
    0.14 nats were left in a single weight, and a hundred iterations later 0.03 in all had been gained.
    """
    point, climbs, gained = start, [], np.inf
    least, left = plan.tol * bound.rows, plan.max_iter
    while gained >= least and left > 0:
        with precision("float64"):
            found = maximise_real(
                bound.value_and_slope, point, max_iter=left, tol=plan.tol, scale=bound.rows, record=record
            )  # fmt: skip
        climbs.append(found)
        left -= max(found.num_iter, 1)
        if not found.converged:
            break
        point, gained = _take_offers(bound, found.params, least, record)
    ended = _in_a_row(climbs, record)
    if ended.converged and gained >= least:
        return replace(ended, converged=False, message=_OUT_OF_ITERATIONS)
    return ended


def _take_offers(
    bound: _Bound, point: DiscreteLogits, least: float, record: Evaluations
) -> tuple[DiscreteLogits, float]:
    """Let weights, and the noise, take what is best for each alone, the one that gains most first; return the gain."""
    gained = 0.0
    for _ in range(_OFFERS * len(point.weights[0])):
        flat, rebuild = ravel(point)
        most, offers = record(flat, partial(bound.best_offer, point))
        if most < least:
            break
        point, gained = rebuild(offers), gained + most
        if record.max_seconds is not None and record.seconds > record.max_seconds:
            break
    return point, gained


def _in_a_row(climbs: list[LbfgsResult], record: Evaluations) -> LbfgsResult:
    """Return several climbs, each from where the one before ended, as one."""
    history = History()
    for found in [climb for climb in climbs if climb.num_iter] or climbs[-1:]:
        for seconds, value in zip(found.history.seconds, found.history.objective, strict=True):
            history.append(len(history) + 1, seconds, {"objective": value})
    record.end(history)
    return replace(climbs[-1], num_iter=sum(found.num_iter for found in climbs), history=history)


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


class _Bound:
    """The bound of a network as a function of the logits."""

    def __init__(self, plan: NetworkPlan, sums: SufficientStatistics) -> None:
        size, terms, products = len(plan.values), plan.terms, plan.products
        empty = QuadraticLikelihood(0.0, 0.0, np.zeros(size), np.zeros((size, size)))
        with precision("float64"):
            model = discrete_model(empty, plan.values, plan.prior, plan.noise)
            statistics = jax.tree.map(
                jnp.asarray,
                network_statistics(
                    terms, products, sums.num_rows, sums.square, sums.target, sums.gram
                ),
            )
        tables = tuple(
            jnp.asarray(table)
            for table in (terms.factors, terms.powers, products.factors, products.powers)
        )
        self.rows = sums.num_rows
        self._given = model, statistics, tables, int(products.powers.max())

    def value_and_slope(self, point: DiscreteLogits) -> tuple[float, DiscreteLogits]:
        """Return the bound and its slope by the logits."""
        value, slope = network_value_and_slope(jax.tree.map(jnp.asarray, point), *self._given)
        return float(value), slope

    def best_offer(self, point: DiscreteLogits) -> tuple[float, np.ndarray]:
        """Return what the weight that gains most gains if it alone changes, and the logits then, as one vector."""
        with precision("float64"):
            offers, gains = jax.tree.map(
                np.asarray, single_offers(jax.tree.map(jnp.asarray, point), *self._given)
            )
        best = int(np.argmax(gains))
        if best == len(gains) - 1:
            taken = point._replace(noise=offers.noise)
        else:
            weights = np.array(point.weights)
            weights[0, best] = offers.weights[0, best]
            taken = point._replace(weights=weights)
        told = from_first(np.append(ravel(taken)[0], gains[best]))
        return float(told[-1]), told[:-1]
