"""Weights of a stack that differ by row: a model that knows little about a row has less say there.

Weights that are the same everywhere give a model that knows nothing of some rows as much of their predictions as it has
elsewhere: their means are then drawn to its prior, and their deviations are its own. Yao, Pirs, Vehtari and Gelman
(2022, "Bayesian hierarchical stacking", Bayesian Analysis 17) let weights vary with the inputs; here they vary with one
number that sums up what these say, the deviation that each model itself states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, ndtr, softmax

from vastgp.auto.stacking.weights import stacking_weights
from vastgp.linalg.log_sums import log_sum

# Powers of the deviation. By 2 weights are as those of a product of normal densities.
_LARGEST_POWER = 4.0
# Least weight that a search begins with: none would stay none.
_LEAST = 1e-3


def finite_spread(std: np.ndarray, quantiles: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return deviations, (n,); where tails are so heavy that there is none, half the distance between two quantiles.

    They are those between which a normal distribution has one deviation to either side of its mean.

    Parameters
    ----------
    std : ndarray of shape (n,)
        Some of them infinite.
    quantiles : callable
        Gives those of all rows, (2, n), at two probabilities.
    """
    if np.all(np.isfinite(std)):
        return std
    low, high = quantiles(ndtr([-1.0, 1.0]))
    return np.where(np.isfinite(std), std, 0.5 * (high - low))


@dataclass(frozen=True)
class BySpread:
    """Weights ``w_k(x)`` in proportion to ``exp(a_k) s_k(x)^-p``, where part k states the deviation ``s_k(x)``.

    Attributes
    ----------
    base : ndarray of shape (K,)
        a_k.
    power : float
        p; zero is a stack whose weights are the same everywhere.
    widest : ndarray of shape (K,)
        Largest logarithm of a deviation by which weights were found. A larger one counts as it: far from all rows,
        where no row has said which model is right, none gains any more by being the narrower one.
    """

    base: np.ndarray
    power: float
    widest: np.ndarray

    @classmethod
    def fit(
        cls, log_density: np.ndarray, spread: np.ndarray, share: np.ndarray | None = None
    ) -> BySpread:
        """Return the weights of largest mean log density.

        Parameters
        ----------
        log_density : ndarray of shape (n, K)
            Of each row by each part. Rows that all parts find impossible say nothing.
        spread : ndarray of shape (n, K)
            Deviations that the parts state of the rows, on the scale of the models.
        share : ndarray of shape (n,), optional
            What each row counts; None: all alike.
        """
        known = np.max(log_density, axis=1, initial=-np.inf) > -np.inf
        density, logs = log_density[known], np.log(spread[known])
        start = np.log(np.maximum(stacking_weights(log_density, share), _LEAST))
        mean = np.ones(len(known))[known] if share is None else share[known]
        mean = mean / np.sum(mean)

        # f(a, p) = 1/n sum_i log sum_k w_ik d_ik,   log w_ik = a_k - p log s_ik - log sum_j exp(a_j - p log s_ij)
        # with r_ik = w_ik d_ik / sum_j w_ij d_ij:
        # df/da_k = 1/n sum_i (r_ik - w_ik),   df/dp = -1/n sum_ik (r_ik - w_ik) log s_ik
        def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
            logits = values[:-1] - values[-1] * logs
            joint = log_softmax(logits, axis=1) + density
            change = softmax(joint, axis=1) - softmax(logits, axis=1)
            slope = np.append(mean @ change, -(mean @ np.sum(change * logs, axis=1)))
            return -float(mean @ log_sum(joint, axis=1)), -slope

        bounds = [*[(-50.0, 50.0)] * len(start), (0.0, _LARGEST_POWER)]
        found = minimize(loss, np.append(start, 1.0), jac=True, bounds=bounds, method="L-BFGS-B").x
        return cls(found[:-1], float(found[-1]), np.max(logs, axis=0))

    def at(self, spread: np.ndarray) -> np.ndarray:
        """Return the weights of rows, (n, K), with a sum of one, of the deviations that the parts state of them."""
        logs = np.minimum(np.log(spread), self.widest)
        return np.asarray(softmax(self.base - self.power * logs, axis=1))

    def of_parts(self, numbers: Sequence[int] | np.ndarray) -> BySpread:
        """Return the weights of some of the parts, in that order."""
        numbers = np.asarray(numbers)
        return replace(self, base=self.base[numbers], widest=self.widest[numbers])

    def to_state(self) -> dict[str, Any]:
        """Return plain data, from which `from_state` makes an equal object."""
        return {"base": self.base.tolist(), "power": self.power, "widest": self.widest.tolist()}

    @classmethod
    def from_state(cls, state: Any) -> BySpread:
        """Return the weights that `to_state` described."""
        parts = {name: np.asarray(state[name], np.float64) for name in ("base", "widest")}
        return cls(parts["base"], float(state["power"]), parts["widest"])
