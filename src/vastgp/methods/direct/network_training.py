"""How the bound of a network is maximised: by L-BFGS from several hypotheses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vastgp._precision import precision
from vastgp.fitting.clock import now
from vastgp.fitting.lbfgs import LbfgsResult, best_of, maximise_real
from vastgp.fitting.loop import OUT_OF_TIME
from vastgp.fitting.run import Run
from vastgp.fitting.sufficient_statistics import SufficientStatistics
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
# Values that are all but impossible keep this log probability beside the likeliest.
_LEAST_LOGIT = -40.0
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
    with precision("float64"):
        objective = _objective(plan, sums)
    ends: list[LbfgsResult] = []
    for number, (hypothesis, variance) in enumerate(zip(codes, variances, strict=True)):
        with precision("float64"):
            ends.append(
                maximise_real(
                    objective, _around(plan, log_mass, hypothesis, variance), max_iter=plan.max_iter,
                    tol=plan.tol, scale=sums.num_rows, record=run.evaluations(f"start {number}"),
                )
            )  # fmt: skip
        best, last = best_of(ends), len(ends) == len(codes)
        yield best, best.message if last else OUT_OF_TIME, best.converged and last


def _around(
    plan: NetworkPlan, log_mass: np.ndarray, hypothesis: np.ndarray, variance: float
) -> DiscreteLogits:
    """Return the start around a hypothesis that leaves some noise variance."""
    values = plan.values
    spacing = np.ptp(values, axis=1, keepdims=True) / (values.shape[1] - 1)
    away = (values - values[np.arange(len(values)), hypothesis][:, None]) / spacing
    near = np.maximum(log_mass - 0.5 * (away / _WIDTH) ** 2, _LEAST_LOGIT)
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
