"""Hyperparameters around those of highest evidence, with weights: what predictions are averaged over.

With the log evidence ``L`` of the logarithms ``u`` of hyperparameters, where learning ended at ``v``, what is averaged
over has the density ``exp(L(u) - |u - v|^2 / (2 t^2))``. The normal prior of deviation ``t`` says that a logarithm is
known to within a factor of some fifty, where the data say nothing of it: a direction without curvature ends at it.
Beyond the bounds of learning a hyperparameter is at its bound.

Laplace's approximation of it is ``N(c, R R^T)``, ``R R^T = (I / t^2 - L'')^-1``, with ``L''`` by differences of slopes
and ``c`` one step of Newton from ``v``. Draws ``u_k = c + R z_k`` have the weights of importance sampling,
``log w_k = L(u_k) - |u_k - v|^2 / (2 t^2) + |z_k|^2 / 2``, and a mean of predictions is ``sum_k w_k p_k / sum_k w_k``
(Rue, Martino and Chopin 2009 do so by points on axes). The draws come in pairs ``z, -z`` of
second moments one, so that what depends on ``u`` linearly has its variance exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from vastgp.fitting.history import History
from vastgp.fitting.lbfgs import ravel
from vastgp.fitting.run import Evaluations
from vastgp.linalg.cholesky import FactorizationError

# Deviation of the prior of a logarithm.
PRIOR_DEVIATION = 2.0
# Step of differences of slopes.
_STEP = 0.1
# Directions along which no slope has more than this share of the largest leave the kernel as it is: amplitudes of
# factors of a product, of which one number is all that can be told.
_NO_SLOPE = 1e-6
# Draws of less weight than this, relative to equal ones, are left out: each costs a posterior.
_LEAST_SHARE = 0.05


class WeightedParams(NamedTuple):
    """Hyperparameters to average over.

    Attributes
    ----------
    params : list
        Pytrees like those that were learned.
    weights : ndarray of shape (K,)
        They sum to one.
    """

    params: list[Any]
    weights: np.ndarray


def draw_around(
    value_and_gradient: Callable[[Any], tuple[float, Any]],
    learned: Any,
    *,
    lower: Any,
    upper: Any,
    num_draws: int,
    seed: int,
    record: Evaluations,
) -> WeightedParams | None:
    """Return hyperparameters to average over in the place of those that were learned; None when time ran out.

    Two evaluations for each hyperparameter, and one for each draw.

    Parameters
    ----------
    value_and_gradient : callable
        ``value_and_gradient(params) -> (float, pytree)``: a log evidence, and its derivatives by the positive numbers.
    learned, lower, upper : pytree of positive numbers
        Where learning ended, and its bounds.
    num_draws : int
        At least; twice as many as there are directions to move in, if those are more.
    seed : int
    record : Evaluations
        Of the phase of a fit, `Run.evaluations`.
    """
    flat, rebuild = ravel(learned)
    least, most = (np.log(ravel(bound)[0]) for bound in (lower, upper))
    last = np.log(flat)

    def params_at(u: np.ndarray) -> Any:
        return rebuild(np.exp(np.clip(u, least, most)))

    def evaluate(u: np.ndarray) -> tuple[float, np.ndarray]:
        def compute() -> tuple[float, np.ndarray]:
            params = params_at(u)
            try:
                value, slope = value_and_gradient(params)
            except FactorizationError:
                return -math.inf, np.zeros_like(u)
            inside = (u >= least) & (u <= most)
            return float(value), np.where(inside, ravel(slope)[0] * ravel(params)[0], 0.0)

        return record(u, compute)

    def late() -> bool:
        return record.max_seconds is not None and record.seconds > record.max_seconds

    def density(u: np.ndarray) -> float:
        return evaluate(u)[0] - 0.5 * float(np.sum((u - last) ** 2)) / PRIOR_DEVIATION**2

    with record.progress() as shown:
        slopes = [evaluate(last)[1]]
        for number, step in enumerate(_STEP * np.eye(len(last))):
            slopes += [evaluate(last + step)[1], evaluate(last - step)[1]]
            shown.update(0.5 * number / len(last), "second derivatives")
            if late():
                return None
        root = _laplace_root(np.stack(slopes))
        newton = root @ (root.T @ slopes[0])
        newton *= min(1.0, PRIOR_DEVIATION / max(float(np.linalg.norm(newton)), 1e-12))
        centre = last + newton if density(last + newton) > density(last) else last
        z = paired_normals(num_draws, root.shape[1], seed)
        draws, logs, history = centre + z @ root.T, np.empty(len(z)), History()
        for i, u in enumerate(draws):
            logs[i] = density(u) + 0.5 * float(z[i] @ z[i])
            history.append(i + 1, record.seconds, {"objective": float(logs[i])})
            shown.update(0.5 + 0.5 * (i + 1) / len(z), f"{i + 1} of {len(z)} draws")
            if late():
                return None
    record.end(history)
    weights = truncated_weights(logs)
    kept = np.flatnonzero(weights >= _LEAST_SHARE / len(weights))
    return WeightedParams(
        [params_at(draws[i]) for i in kept], weights[kept] / np.sum(weights[kept])
    )


def _laplace_root(slopes: np.ndarray) -> np.ndarray:
    """Return ``R`` of shape (d, k), for the k directions that change anything.

    Parameters
    ----------
    slopes : ndarray of shape (1 + 2 d, d)
        At the centre, and a step up and down each logarithm in turn.
    """
    curvature = 0.5 * (slopes[1::2] - slopes[2::2]) / _STEP
    _, sizes, rows = np.linalg.svd(slopes)
    moving = rows[: int(np.count_nonzero(sizes > _NO_SLOPE * sizes[0]))].T
    inner = -0.5 * moving.T @ (curvature + curvature.T) @ moving
    eigenvalues, vectors = np.linalg.eigh(inner)
    return moving @ (vectors / np.sqrt(np.maximum(eigenvalues, 0.0) + PRIOR_DEVIATION**-2))


def paired_normals(least: int, size: int, seed: int) -> np.ndarray:
    """Return points of shape (K, size), as many above as below zero, with ``sum_k z_k z_k^T / K = I``.

    Normal draws ``Z``, moved to the nearest points of these moments: with ``Z = U D V^T`` to ``K^1/2 U V^T``.
    """
    pairs = max((least + 1) // 2, size)
    normals = np.random.default_rng(seed).standard_normal((pairs, size))
    left, _, right = np.linalg.svd(normals, full_matrices=False)
    half = math.sqrt(pairs) * left @ right
    return np.concatenate([half, -half])


def truncated_weights(logs: np.ndarray) -> np.ndarray:
    """Return weights that sum to one, none above ``1 / sqrt(K)`` times the sum before (Ionides 2008).

    What few draws say of far tails is noise, and one of them would be all that is averaged over.
    """
    weights = np.exp(logs - np.max(logs))
    weights = np.minimum(weights, np.mean(weights) * math.sqrt(len(weights)))
    return weights / np.sum(weights)
