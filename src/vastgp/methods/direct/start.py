"""Where discrete weights start: the posterior of normal weights, brought to the values that exist."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize_scalar

from vastgp.fitting.clock import now
from vastgp.linalg.cholesky import FactorizationError
from vastgp.methods.direct.model import QuadraticLikelihood

_BLOCK = 64
# A weight's start has at least this much of the squared distance of its values: no value is impossible.
_LEAST_SPREAD = 0.25
# The noise is looked for within this distance of its start, in its logarithm, and below this variance.
_SEARCH, _MOST_NOISE = 7.0, 10.0


class NormalWeights(NamedTuple):
    """The posterior of normal weights at one noise variance, ``N(m, A^-1)``.

    Attributes
    ----------
    noise_variance : float
    log_evidence : float
    lower : ndarray of shape (b, b)
        Factor of ``A = G / v + I``.
    mean : ndarray of shape (b,)
    half : ndarray of shape (b,)
        ``L^T m``.
    residual : float
        ``|y - Phi m|^2`` per row.
    """

    noise_variance: float
    log_evidence: float
    lower: np.ndarray
    mean: np.ndarray
    half: np.ndarray
    residual: float


def normal_weights(likelihood: QuadraticLikelihood, noise_variance: float) -> NormalWeights:
    """Return the posterior and the evidence of whitened normal weights.

    -1/2 ( (y^T y - c^T A^-1 c / v) / v + log |A| + n log(2 pi v) ),  A = G / v + I,  c = Phi^T y.
    """
    gram, target = np.asarray(likelihood.gram), np.asarray(likelihood.target)
    precision = gram / noise_variance
    precision.flat[:: len(gram) + 1] += 1.0
    try:
        lower = cholesky(precision, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError as error:
        raise FactorizationError(
            f"the precision of {len(gram)} weights could not be factorised at the noise variance {noise_variance:.3g}. "
            "Raise noise_floor, or give fewer basis functions."
        ) from error
    half = solve_triangular(lower, target / noise_variance, lower=True, check_finite=False)
    mean = solve_triangular(lower.T, half, lower=False, check_finite=False)
    n = max(float(likelihood.count), 1.0)
    misfit = float(likelihood.square) / noise_variance - half @ half
    log_evidence = -0.5 * (
        misfit + 2.0 * np.sum(np.log(np.diagonal(lower))) + n * np.log(2.0 * np.pi * noise_variance)
    )
    return NormalWeights(
        noise_variance, float(log_evidence), lower, mean, half, residual_of(likelihood, mean)
    )


def residual_of(likelihood: QuadraticLikelihood, mean: Float[np.ndarray, " b"]) -> float:
    """Return ``|y - Phi w|^2`` per row."""
    square = float(likelihood.square) - 2.0 * mean @ np.asarray(likelihood.target)
    square += mean @ (np.asarray(likelihood.gram) @ mean)
    return max(float(square), 0.0) / max(float(likelihood.count), 1.0)


def noise_of_highest_evidence(
    likelihood: QuadraticLikelihood,
    noise_variance: float,
    noise_floor: float,
    deadline: float | None = None,
) -> float:
    """Return the noise variance of highest evidence of the model with normal weights, on all rows.

    The first one comes from few rows and the exact kernel. Few basis functions explain all rows less well, and what
    they miss is noise to them. At ``deadline``, a time of `vastgp.fitting.clock.now`, the best one so far is it.
    """
    best, highest = noise_variance, -np.inf
    low = np.log(noise_floor)
    high = max(np.log(_MOST_NOISE), low + 1.0)

    def negated(log_noise: float) -> float:
        nonlocal best, highest
        noise = float(np.exp(log_noise))
        value = normal_weights(likelihood, noise).log_evidence
        if value > highest:
            best, highest = noise, value
        if deadline is not None and now() > deadline:
            raise StopIteration
        return -value

    centre = float(np.clip(np.log(noise_variance), low, high))
    around = (max(low, centre - _SEARCH), min(high, centre + _SEARCH))
    with contextlib.suppress(StopIteration):
        minimize_scalar(negated, bounds=around, method="bounded", options={"xatol": 0.03})
    return best


def start_logits(
    normal: NormalWeights, values: Float[np.ndarray, "b k"]
) -> list[Float[np.ndarray, "b k"]]:
    """Return starts of the weights' logits from the posterior of normal weights.

    Two of them; which has the higher bound depends on how far the data determine single weights:

    - the normal density of each weight, at its values (``m_j`` and ``1 / A_jj``, at least about a quarter of a step);
    - the values that lie nearest to ``m`` in the metric ``A``, found one weight after the other. Each is rounded to
      its nearest value and what that misses is handed on to those that are still free (the nearest plane of Babai,
      1986): rounded on their own, many thousands of small errors would add up.
    """
    step = np.mean(np.diff(values, axis=1), axis=1)
    clipped = np.clip(normal.mean, values[:, 0], values[:, -1])
    # A_jj = sum_l L_jl^2
    spread = np.maximum(1.0 / np.sum(np.tril(normal.lower) ** 2, axis=1), _LEAST_SPREAD * step**2)
    density = -0.5 * (values - clipped[:, None]) ** 2 / spread[:, None]
    nearest = nearest_values(normal.lower, normal.half, values)
    narrow = (_LEAST_SPREAD * step**2)[:, None]
    return [density, -0.5 * (values - nearest[:, None]) ** 2 / narrow]


def nearest_values(
    lower: Float[np.ndarray, "b b"], half: Float[np.ndarray, " b"], values: Float[np.ndarray, "b k"]
) -> Float[np.ndarray, " b"]:
    """Return values ``w`` near the minimum of ``|L^T w - half|^2``, by rounding from the last weight to the first."""
    upper = lower.T
    left = half.copy()
    found = np.empty(len(values))
    for stop in range(len(values), 0, -_BLOCK):
        start = max(stop - _BLOCK, 0)
        for j in range(stop - 1, start - 1, -1):
            wanted = left[j] / upper[j, j]
            found[j] = values[j, np.argmin(np.abs(values[j] - wanted))]
            left[start:j] -= upper[start:j, j] * found[j]
        left[:start] -= upper[:start, start:stop] @ found[start:stop]
    return found
