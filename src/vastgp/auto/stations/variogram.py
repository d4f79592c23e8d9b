"""The empirical variogram of readings beside the learned kernel's: for eyes that are used to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from vastgp._arguments import AtLeast, Positive
from vastgp._precision import precision
from vastgp.data.minibatch import fixed_indices

# Readings whose pairs are looked at, and the use of the seed for them, see `fixed_indices`.
_MOST_READINGS, _PAIRS_OF = 2000, 241
# Without a word, distances up to so many lengthscales, or half of the farthest.
_LENGTHSCALES = 4.0


@dataclass(frozen=True)
class Variogram:
    """Half the mean squared difference of two readings, by their distance, without trend.

    Attributes
    ----------
    distance : ndarray of shape (b,)
        Mean of each class, in km of the straight line (in units of a plane).
    semivariance : ndarray of shape (b,)
        In squared units of the target.
    pairs : ndarray of int, shape (b,)
    learned : ndarray of shape (b,)
        What kernel and noise say of the same pairs: with times, of the same differences in time.
    noise : float
        Semivariance at distance zero: the nugget.
    curve : tuple of ndarray
        Distances and what kernel and noise say there; empty with times.
    unit : str
    """

    distance: np.ndarray
    semivariance: np.ndarray
    pairs: np.ndarray
    learned: np.ndarray
    noise: float
    curve: tuple[np.ndarray, np.ndarray]
    unit: str


def variogram_of(model: Any, bins: Any, farthest: Any) -> Variogram:
    """Return the variogram of a fitted `StationGP`, see there.

    ``gamma(h) = 1/2 E (z_i - z_j)^2 = k(x, x) - k(x, x + h) + s^2`` of values without trend (Cressie 1993, eq. 2.4.2).
    """
    AtLeast(3)("bins", bins)
    Positive(none="a few lengthscales")("farthest", farthest)
    readings, X = model.readings_, model._encoded_readings()
    rows = np.sort(fixed_indices(0, _PAIRS_OF, len(X), _MOST_READINGS))
    X, kriging = X[rows], model.kriging_
    rest = readings.y[rows] - (readings.beside[rows] - kriging.shift) @ kriging.trend()[0]
    columns = list(next(one.outputs for one in model.encoding_ if one.kind == "place"))
    i, j = np.triu_indices(len(X), 1)
    distance = np.linalg.norm(X[i][:, columns] - X[j][:, columns], axis=1)
    if farthest is None:
        scales = model.process_._told_lengthscales()
        reach = np.inf if scales is None else _LENGTHSCALES * float(scales[columns[0]])
        farthest = min(reach, 0.5 * float(distance.max()))
    # classes are narrower near zero, where the curve bends
    edges = float(farthest) * np.linspace(0.0, 1.0, int(bins) + 1) ** 1.5
    of_pair = np.searchsorted(edges, distance, side="right") - 1
    near = of_pair < len(edges) - 1
    i, j, of_pair, distance = i[near], j[near], of_pair[near], distance[near]
    with precision("float64"):
        K = np.asarray(model.kernel_(jnp.asarray(X), jnp.asarray(X)))
        prior = np.diag(K)
    noise = np.full(len(X), kriging.noise_variance)
    if readings.noise is not None:
        noise = noise + readings.noise[rows] ** 2
    learned = 0.5 * (prior[i] + prior[j] + noise[i] + noise[j]) - K[i, j]
    count = np.bincount(of_pair, minlength=int(bins))
    there = count > 0

    def mean(values: np.ndarray) -> np.ndarray:
        return np.bincount(of_pair, values, int(bins))[there] / count[there]

    at: tuple[np.ndarray, np.ndarray] = (np.zeros(0), np.zeros(0))
    if readings.time is None:
        h = np.linspace(0.0, float(farthest), 200)
        places = np.zeros((200, X.shape[1]))
        places[:, columns[0]] = h
        with precision("float64"):
            k = np.asarray(model.kernel_(jnp.asarray(places[:1]), jnp.asarray(places)))[0]
        at = (h, k[0] - k + float(np.mean(noise)))
    return Variogram(
        mean(distance),
        mean(0.5 * (rest[i] - rest[j]) ** 2),
        count[there],
        mean(learned),
        float(np.mean(noise)),
        at,
        "km" if readings.space.sphere else "",
    )
