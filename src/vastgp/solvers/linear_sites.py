"""Weights of linear functions under likelihoods that are not Gaussian: by sites of the rows, and their prior variance.

Variational inference, or Laplace's approximation where rows are many for each weight: what several functions average
over their posterior takes a hundred times as long as the value at its mean, and is next to it there.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from vastgp._precision import precision
from vastgp.data.minibatch import some_in_order
from vastgp.data.padding import padded_size, repeat_last
from vastgp.fitting.damped_updates import DampedUpdates, Found
from vastgp.fitting.dual_evidence import local_sites, most_rate
from vastgp.likelihoods import Likelihood

# Updates of a posterior, and those between two prior variances, of which so many are tried until the next is as near.
_MOST_UPDATES, _FEW_UPDATES, _ROUNDS, _NEAR = 20, 5, 5, 0.1
# Prior variance of a function to begin with, and the longest step of its logarithm, as many times as long as MacKay's
# at most. From weights of variance one 101 of each of ten digits were at 0.93 after 50 updates (test NLPD 0.71), from
# here at their optimum, 0.06, after 21 (0.56).
_FIRST_OF_FUNCTION, _LONGEST, _TIMES = 5.0, 2.3, 3.0
# Where inputs nearly go together, what parts classes may be a small difference of them, of weights that are unlikely
# under a small variance: of 80 rows of five inputs, labels a sum of the others, the variance went to zero from one
# (bound -52, test 0.69 nats), and from this to 2000 (-19, 0.02). Tried of so many products, some tenths of a second.
_STEEP, _QUICK = 10.0, 1e6
# Of the logarithm of the prior variance, above one.
_DEVIATION = 3.0
# Rows on which several functions are found first, at least, for each of them and for each weight; and updates on all of
# them that follow.
_FIRST_ROWS, _OF_FUNCTION, _OF_WEIGHT, _LAST_UPDATES = 1000, 20, 5, 2
# Rows for each weight from which on several functions are found by Laplace's approximation, where there are more than
# the first; of more functions they are where as many of few would take longer. 5000 rows of 26 classes: log loss 0.588
# in 0.6 s, by averages of a thousand rows 0.590 in 26 s of a core; of 300 inputs and five classes, 1500 rows: 1.297 and
# 1.262, 3000 rows: 1.140 and 1.131.
_PER_WEIGHT, _FEW_FUNCTIONS = 10, 10
# Rows times functions up to which the evidence at an approximation of Laplace's is asked for: some tenths of a second.
_EVIDENCE_ENTRIES = 50_000
# Updates end where less than this is left to gain for each row.
_SETTLED = 1e-6
_LEAST_VARIANCE, _MOST_VARIANCE = 1e-4, 1e4


class Weights:
    """The lower bound of the evidence of normal weights, as a function of their natural parameters.

    ``q(w_c) = N(S_c eta_c, S_c)``, ``S_c = (P_c + I / s)^-1``; ``eta_c`` and ``P_c`` are what sites of the rows add
    (t-SVGP, eqs. (12), (13), with weights in the place of inducing variables).
    """

    def __init__(
        self, likelihood: Likelihood, features: np.ndarray, y: np.ndarray, variance: float = 1.0
    ) -> None:
        self.likelihood, self.features, self.num_rows = likelihood, features, len(y)
        self.y = repeat_last(y, padded_size(len(y)))
        self.variance = variance

    @cached_property
    def padded(self) -> np.ndarray:
        """Features made up to a number of rows that compiled code is shared for."""
        return repeat_last(self.features, padded_size(self.num_rows))

    def moments(self, natural: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return means and covariances of the weights."""
        linear, added = natural
        covariance = np.linalg.inv(added + np.eye(added.shape[-1]) / self.variance)
        return np.einsum("cij,cj->ci", covariance, linear), covariance

    def evaluate(self, natural: tuple[np.ndarray, np.ndarray]) -> Found:
        """Return the bound at natural parameters, and those that its derivatives ask for."""
        try:
            weights, covariance = self.moments(natural)
        except np.linalg.LinAlgError:
            # of a step that is far too long: a bound of NaN makes it shorter
            return Found(natural, np.nan, natural)
        return self._found(*self._centred(weights, covariance, natural), covariance)

    def _found(
        self, weights: np.ndarray, natural: tuple[np.ndarray, np.ndarray], covariance: np.ndarray
    ) -> Found:
        mean = weights @ self.padded.T
        # as products of matrices: as sums over three letters they were half of the time of ten classes
        variance = np.sum((self.padded @ covariance) * self.padded, axis=-1)
        shape = mean.shape if len(mean) > 1 else mean.shape[1:]
        with precision("float64"):
            bound, sites = local_sites(
                self.likelihood, self.y, mean.reshape(shape), variance.reshape(shape)
            )
        n, features = self.num_rows, self.features
        linear, curvature = (np.asarray(part).reshape(mean.shape)[:, :n] for part in sites)
        better = (
            linear @ features,
            (features.T * curvature[:, None, :]) @ features,
        )
        total = float(np.sum(np.asarray(bound)[:n])) - self._divergence(weights, covariance)
        return Found(natural, total, better)

    def _centred(
        self, weights: np.ndarray, covariance: np.ndarray, natural: tuple[np.ndarray, np.ndarray]
    ) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """Return weights and natural parameters without a part that the likelihood does not see, as `Sites.centred`.

        The optimum has none.
        """
        if not self.likelihood.shift_invariant:
            return weights, natural
        weights = weights - weights.mean(axis=0)
        return weights, (np.linalg.solve(covariance, weights[..., None])[..., 0], natural[1])

    def _divergence(self, weights: np.ndarray, covariance: np.ndarray) -> float:
        """Return ``KL(q(w) || N(0, s I))``."""
        size = weights.size
        square = np.sum(weights**2) + np.trace(covariance, axis1=1, axis2=2).sum()
        logs = np.linalg.slogdet(covariance)[1].sum()
        return float(0.5 * (square / self.variance - size + size * np.log(self.variance) - logs))


class PlugInWeights(Weights):
    """Laplace's approximation: sites at the mean of the weights, and the posterior's density there for the bound.

    ``log p(y | W) + log p(W)`` has its maximum where the sites are those at the mean (Rasmussen & Williams 2006,
    section 3.5); each function has the curvature that the likelihood has along it alone.
    """

    def _found(
        self, weights: np.ndarray, natural: tuple[np.ndarray, np.ndarray], covariance: np.ndarray
    ) -> Found:
        """Return the logarithm of the density, and the natural parameters that its derivatives ask for."""
        del covariance
        mean, n = weights @ self.features.T, self.num_rows
        value, alpha, beta = self.likelihood.plug_in_sites(self.y[:n], mean)
        linear = (beta * mean + alpha) @ self.features
        # one after the other: together they take as much memory as there are functions, rows and inputs
        added = np.stack([(self.features.T * each) @ self.features for each in beta])
        density = float(np.sum(value)) - 0.5 * float(np.sum(weights**2)) / self.variance
        return Found(natural, density, (linear, added))


class FoundWeights(NamedTuple):
    """Means (C, p) and covariances (C, p, p) of the functions' weights, their prior variance, and the evidence."""

    weights: np.ndarray
    covariance: np.ndarray
    variance: float
    evidence: float | None


def by_plug_in(likelihood: Likelihood, num_rows: int, size: int) -> bool:
    """Whether so many weights of each function are found from so many rows by Laplace's approximation."""
    if likelihood.num_latent == 1 or likelihood.plug_in_sites is None:
        return False
    if num_rows > _FIRST_ROWS and num_rows >= _PER_WEIGHT * size:
        return True
    functions = likelihood.num_latent
    return functions > _FEW_FUNCTIONS and num_rows * functions > _FIRST_ROWS * _FEW_FUNCTIONS


def fit_sites(likelihood: Likelihood, features: np.ndarray, y: np.ndarray) -> FoundWeights:
    """Find the weights, and their prior variance by the bound: ``s = |w|^2 / gamma`` (MacKay 1992).

    ``gamma = C p - tr(S) / s`` is the number of weights that the rows have determined. Several functions of many rows
    are found on some of them first: natural parameters are sums over rows.
    """
    functions, size = likelihood.num_latent, features.shape[1]
    made = PlugInWeights if by_plug_in(likelihood, len(y), size) else Weights
    of_first = max(_FIRST_ROWS, _OF_FUNCTION * functions, _OF_WEIGHT * size)
    staged = functions > 1 and len(y) >= 2 * of_first
    some = some_in_order(len(y), of_first) if staged else slice(None)
    first = min(1.0, _FIRST_OF_FUNCTION / size)
    zeros = np.zeros((functions, size)), np.zeros((functions, size, size))
    model = made(likelihood, features[some], y[some], first)
    natural = _to_best_variance(model, zeros)
    # laws of counts overflow where weights are large
    bounded = np.isfinite(likelihood.most_curvature())
    if functions == 1 and bounded and len(y) * size**2 <= _QUICK and model.variance < _STEEP:
        steep = Weights(likelihood, features, y, _STEEP)
        of_steep = _to_best_variance(steep, zeros)
        if _evidence(steep, of_steep) > _evidence(model, natural):
            model, natural = steep, of_steep
    if staged:
        more = len(y) / model.num_rows
        natural = more * natural[0], more * natural[1]
        model = made(likelihood, features, y, model.variance)
        if made is Weights:
            natural = _climb(model, natural, _LAST_UPDATES)
        else:
            natural = _to_best_variance(model, natural)
    evidence = None
    if made is Weights or len(y) * functions <= _EVIDENCE_ENTRIES:
        # a lower bound at any normal law of the weights
        evidence = _evidence(Weights(likelihood, features, y, model.variance), natural)
    return FoundWeights(*model.moments(natural), model.variance, evidence)


def _to_best_variance(
    model: Weights, natural: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Move the prior variance of a model to where its bound is highest, and return the natural parameters there."""
    before = None
    for _ in range(_ROUNDS):
        natural = _climb(model, natural, _FEW_UPDATES)
        here = np.log(model.variance), _to_fixed_point(*model.moments(natural), model.variance)
        if abs(here[1]) < _NEAR:
            break
        log_variance = here[0] + np.clip(_secant(before, here), -_LONGEST, _LONGEST)
        model.variance = float(np.clip(np.exp(log_variance), _LEAST_VARIANCE, _MOST_VARIANCE))
        before = here
    return _climb(model, natural, _MOST_UPDATES)


def _evidence(model: Weights, natural: tuple[np.ndarray, np.ndarray]) -> float:
    """Return the bound with the logarithm of the prior of ``log s``, see `_to_fixed_point`."""
    above = max(np.log(model.variance), 0.0)
    return float(model.evaluate(natural).bound - 0.5 * (above / _DEVIATION) ** 2)


def _to_fixed_point(weights: np.ndarray, covariance: np.ndarray, variance: float) -> float:
    """Return how far the logarithm of the prior variance is from ``log |w|^2 / gamma``.

    Where a line parts the classes without an error the bound rises for ever. ``log s`` has a normal prior above zero,
    whose slope adds ``2 log s / _DEVIATION^2`` to gamma.
    """
    spread = float(np.trace(covariance, axis1=1, axis2=2).sum())
    determined = max(weights.size - spread / variance, np.finfo(float).eps * weights.size)
    determined += 2.0 * max(np.log(variance), 0.0) / _DEVIATION**2
    square = max(float(np.sum(weights**2)), np.finfo(float).tiny)
    return float(np.log(square / determined) - np.log(variance))


def _secant(before: tuple[float, float] | None, here: tuple[float, float]) -> float:
    """Return the step to where two distances from the fixed point point: steps there alone take ever so many."""
    distance = here[1]
    if before is None or not 0.0 < distance / before[1] < 1.0:
        return distance
    return distance * min((here[0] - before[0]) / (before[1] - distance), _TIMES)


def _climb(
    model: Weights, natural: tuple[np.ndarray, np.ndarray], most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return natural parameters after so many updates at most."""
    rate, least = most_rate(model.likelihood), _SETTLED * model.num_rows
    updates = DampedUpdates(model.evaluate, most=rate, least_gain=least)
    # rates of counts that a step is too long for are infinite, and that is no gain
    with np.errstate(over="ignore", invalid="ignore"):
        found: tuple[np.ndarray, np.ndarray] = updates.run(updates.start(natural), most).found.sites
    return found
