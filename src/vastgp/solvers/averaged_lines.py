"""Linear functions of few rows, averaged over the variances of weights and noise that the rows leave open."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from vastgp.data import observations
from vastgp.fitting.hyperparameter_prior import NOISE

# Prior of the logarithm of what all slopes explain together, in squared deviations of the target: mean and deviation.
_EXPLAINED = (0.0, 1.5)
# Noise variances, and deviations of that logarithm, that are looked through.
_NOISES, _DEVIATIONS = (1e-6, 10.0), 4.0
# Points along each logarithm: first over all of it, then over where the density is more than this below its largest.
_COARSE, _FINE, _NOTHING = 30, 24, 14.0


class AveragedLines(NamedTuple):
    """Moments of the weights, means of both variances, and the log evidence of linear functions.

    Attributes
    ----------
    weights : ndarray of shape (p,)
    covariance : ndarray of shape (p, p)
    variance, noise_variance : float
    log_evidence : float
        ``log p(y)``, with a density of both variances that integrates to one.
    """

    weights: np.ndarray
    covariance: np.ndarray
    variance: float
    noise_variance: float
    log_evidence: float


class _Along(NamedTuple):
    """What the likelihood is at a noise variance: ``Phi^T V^-1 Phi = E diag(lambda) E^T``, ``c = E^T Phi^T V^-1 y``."""

    vectors: np.ndarray
    eigenvalues: np.ndarray
    projected: np.ndarray
    square: float
    log_noise: float


def average_lines(features: np.ndarray, y: np.ndarray) -> AveragedLines:
    """Average the posterior of ``w ~ N(0, s I)`` over ``s`` and the noise variance, both lognormal.

    ``log p(y | s, V) = -1/2 (n log 2 pi + log|V| + sum log(1 + s lambda) + y^T V^-1 y - sum c^2 s / (1 + s lambda))``
    and ``w | y, s, V ~ N(E c t, E diag(t) E^T)``, ``t = s / (1 + s lambda)``. By the laws of total expectation and
    variance the moments of every linear function are those of the average, and so are those of an observation with the
    mean noise variance. At the one largest value a few rows that a line passes through would have no noise at all.

    Parameters
    ----------
    features : ndarray of shape (n, p)
        ``Phi``, with a column of ones.
    y : ndarray of shape (n,), or (n, 3) with noise of the rows' own
    """
    slopes = max(features.shape[1] - 1, 1)
    centre, deviation = _EXPLAINED[0] - np.log(slopes), _EXPLAINED[1]
    along = _decomposed(features, y)
    box = [
        (centre - _DEVIATIONS * deviation, centre + _DEVIATIONS * deviation),
        (float(np.log(_NOISES[0])), float(np.log(_NOISES[1]))),
    ]
    for count in (_COARSE, _COARSE, _FINE):
        axes = [np.linspace(*each, count) for each in box]
        at = [along(float(noise)) for noise in np.exp(axes[1])]
        density = np.stack([_log_evidence(np.exp(axes[0]), each, len(y)) for each in at], axis=1)
        density += _log_normal(axes[0], centre, deviation)[:, None] + _log_normal(axes[1], *NOISE)
        seen = density > np.max(density) - _NOTHING
        box = [_around(axis, np.any(seen, axis=1 - i)) for i, axis in enumerate(axes)]
    largest = float(np.max(density))
    share = np.exp(density - largest)
    total = float(np.sum(share))
    share /= total
    size = features.shape[1]
    weights, square = np.zeros(size), np.zeros((size, size))
    for here, each in zip(share.T, at, strict=True):
        s = np.exp(axes[0])[:, None]
        spread = s / (1.0 + s * each.eigenvalues)
        means = (spread * each.projected) @ each.vectors.T
        weights += here @ means
        square += (each.vectors * (here @ spread)) @ each.vectors.T + (
            means * here[:, None]
        ).T @ means
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    return AveragedLines(
        weights,
        square - np.outer(weights, weights),
        float(np.sum(share, axis=1) @ np.exp(axes[0])),
        float(np.sum(share, axis=0) @ np.exp(axes[1])),
        largest + float(np.log(total * cell)),
    )


def _decomposed(features: np.ndarray, y: np.ndarray) -> Callable[[float], _Along]:
    """Return what gives the likelihood by noise variance; beside noise of the rows' own each is decomposed for."""
    targets = observations.targets(y)

    def decompose(noise_variance: float) -> _Along:
        each = observations.noise_variances(y, noise_variance) * np.ones(len(y))
        scaled = features / each[:, None]
        eigenvalues, vectors = np.linalg.eigh(features.T @ scaled)
        return _Along(
            vectors, np.maximum(eigenvalues, 0.0), vectors.T @ (scaled.T @ targets),
            float(targets @ (targets / each)), float(np.sum(np.log(each))),
        )  # fmt: skip

    if observations.has_own_noise(y):
        return decompose
    one = decompose(1.0)
    return lambda noise: _Along(
        one.vectors, one.eigenvalues / noise, one.projected / noise, one.square / noise,
        len(y) * float(np.log(noise)),
    )  # fmt: skip


def _log_evidence(s: np.ndarray, along: _Along, num_rows: int) -> np.ndarray:
    b = 1.0 + s[:, None] * along.eigenvalues
    explained = np.sum(along.projected**2 * s[:, None] / b, axis=1)
    log_det = along.log_noise + np.sum(np.log(b), axis=1) + num_rows * np.log(2.0 * np.pi)
    return -0.5 * (log_det + along.square - explained)


def _log_normal(log: np.ndarray, mean: float, deviation: float) -> np.ndarray:
    return -0.5 * ((log - mean) / deviation) ** 2 - np.log(deviation * np.sqrt(2.0 * np.pi))


def _around(axis: np.ndarray, seen: np.ndarray) -> tuple[float, float]:
    """Return the range of an axis where there is something, and a point more on either side."""
    there = np.flatnonzero(seen)
    return float(axis[max(there[0] - 1, 0)]), float(axis[min(there[-1] + 1, len(axis) - 1)])
