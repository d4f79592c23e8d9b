"""Hyperparameters drawn around those of highest evidence: what predictions are averaged over.

With the log evidence ``L`` of the logarithms ``u`` of hyperparameters, where learning ended at ``v``, what is averaged
over has the density ``exp(L(u) - |u - v|^2 / (2 t^2))``. The normal prior of deviation ``t`` says that a logarithm is
known to within a factor of some fifty, where the data say nothing of it: a direction without curvature ends at it.
Beyond the bounds of learning a hyperparameter is at its bound.

Laplace's approximation of it is ``N(v, R R^T)``, ``R R^T = (I / t^2 - L'')^-1``, with ``L''`` by differences of slopes.
That is a good unit of length and a bad answer: on series like that of CO2, with nine to eleven directions, its draws
lay 3 to 46 nats lower than it says on average, as what short-range parts may be depends on the others, and weights of
importance sampling left 1 to 22 of 64 of them. So a Markov chain draws ``z`` of ``u = v + R z``, by Hamilton's
equations and Metropolis' rule (Neal 2011), begun at ``v``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from vastgp.fitting.evaluations import Evaluations
from vastgp.fitting.history import History
from vastgp.fitting.lbfgs import ravel
from vastgp.linalg.cholesky import FactorizationError

# Deviation of the prior of a logarithm.
PRIOR_DEVIATION = 2.0
# Step of differences of slopes.
_STEP = 0.1
# Directions along which no slope has more than this share of the largest leave the kernel as it is: amplitudes of
# factors of a product, of which one number is all that can be told.
_NO_SLOPE = 1e-6
# A trajectory of a quarter of a turn makes a normal's next draw independent of the last. Most leapfrog steps of one.
_TURN, _MOST_STEPS = 0.5 * math.pi, 8
# The first step size, the share of proposals to accept, and draws by which the step size is found and v left.
_FIRST_SIZE, _ACCEPT, _WARM_UP = 0.4, 0.8, 12
# Fewer draws than this, where time ran out, are no average.
_FEWEST = 8


class DrawnParams(NamedTuple):
    """Hyperparameters to average over.

    Attributes
    ----------
    params : list
        Pytrees like those that were learned, each another.
    weights : ndarray of shape (K,)
        Shares of the draws; they sum to one.
    complete : bool
        Whether as many were drawn as was asked for.
    """

    params: list[Any]
    weights: np.ndarray
    complete: bool


class _Density:
    """The log density of logarithms and its slope, each evaluation recorded."""

    def __init__(
        self,
        value_and_gradient: Callable[[Any], tuple[float, Any]],
        learned: Any,
        lower: Any,
        upper: Any,
        record: Evaluations,
    ) -> None:
        flat, self._rebuild = ravel(learned)
        self.last = np.log(flat)
        self._bounds = [np.log(ravel(bound)[0]) for bound in (lower, upper)]
        self._evidence, self._record = value_and_gradient, record

    def params_at(self, u: np.ndarray) -> Any:
        return self._rebuild(np.exp(np.clip(u, *self._bounds)))

    def evidence(self, u: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the log evidence and its slope: no slope beyond a bound."""
        return self._record(u, lambda: self._compute(u))

    def __call__(self, u: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = self.evidence(u)
        away = (u - self.last) / PRIOR_DEVIATION
        return value - 0.5 * float(away @ away), slope - away / PRIOR_DEVIATION

    def _compute(self, u: np.ndarray) -> tuple[float, np.ndarray]:
        params = self.params_at(u)
        try:
            value, slope = self._evidence(params)
        except FactorizationError:
            return -math.inf, np.zeros_like(u)
        least, most = self._bounds
        inside = (u >= least) & (u <= most)
        return float(value), np.where(inside, ravel(slope)[0] * ravel(params)[0], 0.0)

    @property
    def late(self) -> bool:
        limit = self._record.max_seconds
        return limit is not None and self._record.seconds > limit


def draw_around(
    value_and_gradient: Callable[[Any], tuple[float, Any]],
    learned: Any,
    *,
    lower: Any,
    upper: Any,
    num_draws: int,
    seed: int,
    record: Evaluations,
) -> DrawnParams | None:
    """Return hyperparameters to average over in the place of those that were learned; None when time ran out.

    Two evaluations for each hyperparameter, and two to eight for each draw and the twelve before them.

    Parameters
    ----------
    value_and_gradient : callable
        ``value_and_gradient(params) -> (float, pytree)``: a log evidence, and its derivatives by the positive numbers.
    learned, lower, upper : pytree of positive numbers
        Where learning ended, and its bounds.
    num_draws : int
    seed : int
    record : Evaluations
        Of the phase of a fit, `Run.evaluations`.
    """
    density = _Density(value_and_gradient, learned, lower, upper, record)
    last, history = density.last, History()
    slopes = [density.evidence(last)[1]]
    with record.progress() as shown:
        for step in _STEP * np.eye(len(last)):
            slopes += [density.evidence(last + step)[1], density.evidence(last - step)[1]]
            if density.late:
                return None
        root = laplace_root(np.stack(slopes))
        chain = _Chain(density, root, np.random.default_rng(seed))
        visited = []
        for number in range(-_WARM_UP, num_draws):
            value = chain.move(adapt=number < 0)
            history.append(number + _WARM_UP + 1, record.seconds, {"objective": value})
            shown.update(history.steps[-1] / (num_draws + _WARM_UP), f"objective {value:.6g}")
            if number >= 0:
                visited.append(chain.u)
            if density.late:
                break
    record.end(history)
    if len(visited) < min(_FEWEST, num_draws):
        return None
    points, counts = np.unique(np.stack(visited), axis=0, return_counts=True)
    weights = counts / len(visited)
    return DrawnParams([density.params_at(u) for u in points], weights, len(visited) == num_draws)


class _Chain:
    """A Markov chain of the density, where it is in ``u``, and the size of its leapfrog steps in ``z``."""

    def __init__(self, density: _Density, root: np.ndarray, draws: np.random.Generator) -> None:
        self.density, self.root, self.draws = density, root, draws
        self.u, self.log_size, self._moves = density.last, math.log(_FIRST_SIZE), 0
        self._value, self._slope = density(self.u)

    def move(self, adapt: bool) -> float:
        """Propose the end of a trajectory, accept it or stay; return the log density where the chain is then."""
        size = math.exp(self.log_size) * self.draws.uniform(0.8, 1.2)  # no period fits all
        steps = min(max(round(_TURN / size), 1), _MOST_STEPS)
        p = self.draws.standard_normal((self.root.shape[1],))
        before = self._value - 0.5 * float(p @ p)
        u, value, slope = self.u, self._value, self._slope
        for _ in range(steps):
            p = p + 0.5 * size * (self.root.T @ slope)
            u = u + size * (self.root @ p)
            value, slope = self.density(u)
            if not math.isfinite(value):
                break
            p = p + 0.5 * size * (self.root.T @ slope)
        gain = value - 0.5 * float(p @ p) - before
        likely = math.exp(min(gain, 0.0)) if math.isfinite(gain) else 0.0
        if self.draws.uniform() < likely:
            self.u, self._value, self._slope = u, value, slope
        if adapt:
            self._moves += 1
            self.log_size += (likely - _ACCEPT) / math.sqrt(self._moves)
            self.log_size = min(self.log_size, math.log(_TURN / 2.0))
        return self._value


def laplace_root(slopes: np.ndarray) -> np.ndarray:
    """Return ``R`` of shape (d, k), for the k directions that change anything.

    Parameters
    ----------
    slopes : ndarray of shape (1 + 2 d, d)
        Of the log evidence, at the centre, and a step up and down each logarithm in turn.
    """
    curvature = 0.5 * (slopes[1::2] - slopes[2::2]) / _STEP
    _, sizes, rows = np.linalg.svd(slopes)
    moving = rows[: int(np.count_nonzero(sizes > _NO_SLOPE * sizes[0]))].T
    inner = -0.5 * moving.T @ (curvature + curvature.T) @ moving
    eigenvalues, vectors = np.linalg.eigh(inner)
    return moving @ (vectors / np.sqrt(np.maximum(eigenvalues, 0.0) + PRIOR_DEVIATION**-2))
