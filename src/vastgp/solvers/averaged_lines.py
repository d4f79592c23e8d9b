"""Linear functions of few rows, averaged over the variances of weights and noise that the rows leave open.

What a line does not say of a row is partly of its inputs, and the same for all rows that repeat them, and partly the
row's own. Rows that repeat each other tell the latter, and by itself it would pass for how far a new row is from the
line (the lack of fit of Box and Draper 1987, section 3.9): the former has a variance of its own, which is averaged over
as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from vastgp.data import observations
from vastgp.fitting.hyperparameter_prior import (
    EXPLAINED,
    KNOWN,
    NOISE,
    Scale,
    log_density_of_scales,
)
from vastgp.linalg.row_space import row_space

# Noise variances, deviations of that logarithm, and at least how much of it, that are looked through.
_NOISES, _DEVIATIONS, _LEAST_RANGE = (1e-6, 10.0), 4.0, 1.0
# Points along each logarithm: first over all of it, then over where the density is more than this below its largest.
_COARSE, _FINE, _NOTHING = 30, 24, 14.0
# Log odds of what rows that repeat each other share: points, the largest that is looked at, that of the largest and the
# least noise, and below its largest by how much the density is next to nothing.
_SHARES, _MOST_ODDS, _NO_SHARE = 13, float(np.log(_NOISES[1] / _NOISES[0])), 7.0
# Probabilities between which variances count as one: more of them in the tails, as in those of Student's t. Up to how
# many weights, whose covariances take memory: those of more count as one altogether.
_BETWEEN, _MOST_WEIGHTS = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98, 0.998), 100


class LinePart(NamedTuple):
    """Moments of the weights and means of both variances, over a range of these."""

    weight: float
    weights: np.ndarray
    covariance: np.ndarray
    variance: float
    noise_variance: float


class AveragedLines(NamedTuple):
    """Moments of the weights, means of both variances, and the log evidence of linear functions.

    Attributes
    ----------
    weights : ndarray of shape (k,)
    covariance : ndarray of shape (k, k)
    variance, noise_variance : float
    log_evidence : float
        ``log p(y)``, with a density of both variances that integrates to one.
    parts : tuple of LinePart
        Of which these are the moments: what is said of a new row is a mixture of theirs, with heavier tails than a
        normal density.
    basis : ndarray of shape (p, k) or None
        Directions that the moments are of, those of all weights where it is None, see `row_space`. Other directions
        are independent of them, with the mean zero and ``variance``.
    """

    weights: np.ndarray
    covariance: np.ndarray
    variance: float
    noise_variance: float
    log_evidence: float
    parts: tuple[LinePart, ...]
    basis: np.ndarray | None


class _Along(NamedTuple):
    """What the likelihood is at a noise variance: ``Phi^T V^-1 Phi = E diag(lambda) E^T``, ``c = E^T Phi^T V^-1 y``."""

    vectors: np.ndarray
    eigenvalues: np.ndarray
    projected: np.ndarray
    square: float
    log_noise: float


class _Variances(NamedTuple):
    """A grid of both variances, ``share`` of the density at each pair; the likelihood by noise; log evidence.

    ``beyond`` is the number of weights that the rows do not see.
    """

    variances: np.ndarray
    noises: np.ndarray
    share: np.ndarray
    along: list[_Along]
    log_evidence: float
    beyond: int

    def of_new_rows(self) -> np.ndarray:
        """Return ``v + E[phi^T Cov(w) phi]`` at each pair, for rows with ``E[phi phi^T] = I``: ``v + sum t``."""
        s = self.variances[:, None]
        explained = [np.sum(s / (1.0 + s * each.eigenvalues), axis=1) for each in self.along]
        return np.stack(explained, axis=1) + self.beyond * s + self.noises


def average_lines(
    features: np.ndarray,
    y: np.ndarray,
    groups: np.ndarray | None = None,
    scale: Scale = KNOWN,
) -> AveragedLines:
    """Average the posterior of ``w ~ N(0, s I)`` over ``s`` and the noise variance ``v``, both lognormal.

    ``log p(y | s, V) = -1/2 (n log 2 pi + log|V| + sum log(1 + s lambda) + y^T V^-1 y - sum c^2 s / (1 + s lambda))``
    and ``w | y, s, V ~ N(E c t, E diag(t) E^T)``, ``t = s / (1 + s lambda)``. By the laws of total expectation and
    variance the moments of every linear function are those of the average, and so are those of an observation with the
    mean noise variance. At the one largest value a few rows that a line passes through would have no noise at all.

    Of rows that repeat each other ``V = a G + b I``, ``G_ij = 1`` within a group, with both ``a`` and ``b`` lognormal:
    how far rows of one place are from each other says nothing of how far places are from a line. Or ``a`` is zero,
    which is as likely before there are data. A new row repeats none and has the noise ``v = a + b``. With ``r = a / v``
    the determinant of ``log v, log r / (1 - r)`` by ``log a, log b`` is one.

    Parameters
    ----------
    features : ndarray of shape (n, p)
        ``Phi``, with a column of ones.
    y : ndarray of shape (n,), or (n, 3) with noise of the rows' own
    groups : ndarray of int, shape (n,), optional
        The group of each row. Not beside noise of the rows' own.
    scale : Scale
        What ``s`` and ``v`` have in common: how well the unit of the target is known.
    """
    num_weights = features.shape[1]
    features, basis = row_space(features)
    plain = _variances(features, y, num_weights, scale)
    if groups is None or np.max(groups) + 1 == len(groups):
        return _averaged([plain], np.ones(1), plain.log_evidence, basis)

    def at(odds: float) -> tuple[float, _Variances]:
        share = 1.0 / (1.0 + np.exp(-odds))
        whitened, log_det = _without_shared(np.column_stack([features, y]), groups, share)
        shares = share, 1.0 - share
        found = _variances(whitened[:, :-1], whitened[:, -1], num_weights, scale, shares)
        return found.log_evidence - 0.5 * log_det, found

    ends = (-_MOST_ODDS, _MOST_ODDS)
    for _ in range(2):
        axis = np.linspace(*ends, _SHARES)
        density, grids = zip(*[at(float(odds)) for odds in axis], strict=True)
        ends = _around(axis, np.array(density) > max(density) - _NO_SHARE)
    # each place stands for its cell; one half of the probability is without any lack of fit
    logs = np.array([plain.log_evidence, *(density + np.log(axis[1] - axis[0]))]) - np.log(2.0)
    log_evidence = float(logsumexp(logs))
    return _averaged([plain, *grids], np.exp(logs - log_evidence), log_evidence, basis)


def _without_shared(rows: np.ndarray, groups: np.ndarray, share: float) -> tuple[np.ndarray, float]:
    """Return ``R^-1/2 rows`` and ``log|R|``, ``R = (1 - r) I + r G``.

    In a group of ``m`` rows ``R`` has the eigenvalue ``1 - r + r m`` for their mean, and ``1 - r`` for all else.
    """
    counts = np.bincount(groups)
    of_mean = 1.0 - share + share * counts
    mean = np.zeros((len(counts), rows.shape[1]))
    np.add.at(mean, groups, rows)
    mean = (mean / counts[:, None])[groups]
    rest = (rows - mean) / (1.0 - share) ** 0.5
    log_det = np.sum(np.log(of_mean)) + (len(groups) - len(counts)) * np.log(1.0 - share)
    return rest + mean / of_mean[groups, None] ** 0.5, float(log_det)


def _averaged(
    grids: list[_Variances], weights: np.ndarray, log_evidence: float, basis: np.ndarray | None
) -> AveragedLines:
    """Return the average over grids, its parts the ranges of what their variances say of a new row."""
    shares = [w * each.share for w, each in zip(weights, grids, strict=True)]
    size = len(grids[0].along[0].eigenvalues)
    if size > _MOST_WEIGHTS:
        edges = np.empty(0)
    else:
        said = np.concatenate([each.of_new_rows().ravel() for each in grids])
        order = np.argsort(said)
        reached = np.cumsum(np.concatenate([each.ravel() for each in shares])[order])
        edges = said[order][np.minimum(np.searchsorted(reached, _BETWEEN), len(said) - 1)]
    total = [np.zeros(len(edges) + 1) for _ in range(3)]
    means, squares = np.zeros((len(edges) + 1, size)), np.zeros((len(edges) + 1, size, size))
    for share, grid in zip(shares, grids, strict=True):
        part = np.searchsorted(edges, grid.of_new_rows())
        for number in np.unique(part[share > 0.0]):
            here = np.where(part == number, share, 0.0)
            mean, square = _sums(grid, here)
            means[number] += mean
            squares[number] += square
            total[0][number] += np.sum(here)
            total[1][number] += np.sum(here, axis=1) @ grid.variances
            total[2][number] += np.sum(here, axis=0) @ grid.noises
    weight, variance, noise = total
    mean = np.sum(means, axis=0)
    # Cov[w] = E[w w^T] - E[w] E[w]^T, of each part and of all
    parts = tuple(
        LinePart(
            float(weight[k]), means[k] / weight[k],
            squares[k] / weight[k] - np.outer(means[k], means[k]) / weight[k] ** 2,
            float(variance[k] / weight[k]), float(noise[k] / weight[k]),
        )
        for k in np.flatnonzero(weight > 0.0)
    )  # fmt: skip
    return AveragedLines(
        mean, np.sum(squares, axis=0) - np.outer(mean, mean),
        float(np.sum(variance)), float(np.sum(noise)), log_evidence, parts, basis,
    )  # fmt: skip


def _sums(grid: _Variances, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what a share of the density adds to ``E[w]`` and ``E[w w^T]``."""
    size = len(grid.along[0].eigenvalues)
    weights, square = np.zeros(size), np.zeros((size, size))
    s = grid.variances[:, None]
    for here, each in zip(share.T, grid.along, strict=True):
        if not here.any():
            continue
        spread = s / (1.0 + s * each.eigenvalues)
        means = (spread * each.projected) @ each.vectors.T
        weights += here @ means
        square += (each.vectors * (here @ spread)) @ each.vectors.T + (
            means * here[:, None]
        ).T @ means
    return weights, square


def _variances(
    features: np.ndarray,
    y: np.ndarray,
    num_weights: int,
    scale: Scale,
    shares: tuple[float, ...] = (1.0,),
) -> _Variances:
    """Return the density of both variances, of rows that do not repeat each other; the noise has lognormal shares."""
    slopes = max(num_weights - 1, 1)
    explained = EXPLAINED[0] - float(np.log(slopes)), EXPLAINED[1]
    along = _decomposed(features, y)
    # the logarithms at both ends of where each is looked for
    open_by = _DEVIATIONS * scale.variance**0.5
    wide = _DEVIATIONS * explained[1]
    centre = explained[0] + scale.mean
    # what is a row's own is no less than the least noise
    least, most = float(np.log(_NOISES[0] / shares[-1])), float(np.log(_NOISES[1]))
    box = [
        (centre - wide - open_by, centre + wide + open_by),
        (least, max(most, least + _LEAST_RANGE) + scale.mean + open_by),
    ]
    priors = (explained, *[NOISE] * len(shares))
    # the density of all logarithms integrates to one
    volume = float(np.prod([(2.0 * np.pi) ** 0.5 * deviation for _, deviation in priors]))
    volume *= (1.0 + scale.variance * sum(deviation**-2.0 for _, deviation in priors)) ** 0.5
    for count in (_COARSE, _COARSE, _FINE):
        axes = [np.linspace(*each, count) for each in box]
        at = [along(float(noise)) for noise in np.exp(axes[1])]
        density = np.stack([_log_evidence(np.exp(axes[0]), each, len(y)) for each in at], axis=1)
        logs = axes[0][:, None], *[axes[1][None, :] + np.log(share) for share in shares]
        density += log_density_of_scales(logs, priors, scale)[0] - np.log(volume)
        seen = density > np.max(density) - _NOTHING
        box = [_around(axis, np.any(seen, axis=1 - i)) for i, axis in enumerate(axes)]
    largest = float(np.max(density))
    share = np.exp(density - largest)
    total = float(np.sum(share))
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    return _Variances(
        np.exp(axes[0]), np.exp(axes[1]), share / total, at,
        largest + float(np.log(total * cell)), num_weights - features.shape[1],
    )  # fmt: skip


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


def _around(axis: np.ndarray, seen: np.ndarray) -> tuple[float, float]:
    """Return the range of an axis where there is something, and a point more on either side."""
    there = np.flatnonzero(seen)
    return float(axis[max(there[0] - 1, 0)]), float(axis[min(there[-1] + 1, len(axis) - 1)])
