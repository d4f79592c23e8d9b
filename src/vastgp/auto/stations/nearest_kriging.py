"""Regression kriging from the nearest readings: the trend is least squares of readings that are whitened one by one.

Readings stand in a random order, and each depends on the H nearest of those before it (Vecchia 1988). With the weights
``a_i = (K_i + N_i)^-1 k_i`` of these and the variance ``v_i = k(x_i, x_i) - k_i^T a_i + N_ii`` that they leave,

    y_i - c - h_i^T b - a_i^T (y_i' - c - H_i' b)  ~  N(0, v_i),        independent of each other,

where ``y_i'`` and ``H_i'`` are values and covariates of the nearest. So ``A^-1 = L^T L`` with one row of ``L`` a
reading, and with values ``e = L (y - c)`` and covariates ``G = L H`` generalised least squares are plain ones,

    V = (G^T G)^-1,    b = V G^T e.

At a new place, given its nearest readings ``n``, and with ``r = h* - H_n^T a``, what they do not say of its covariates,

    mean = c + a^T (y_n - c) + r^T b,    var = k(x*, x*) - k*^T a + r^T V r.

With H = n - 1 this is `vastgp.auto.stations.kriging` of the exact process. Kernel and noise are learned of readings
without a first trend, and not by turns with this one: p coefficients of m readings leave the noise variance off by some
``p / m`` of itself, a thousandth, and other kernels hardly change what least squares say.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from vastgp.auto.stations.kriging import Kriging, inverse_information, scaled_covariates
from vastgp.data.minibatch import fixed_indices
from vastgp.data.neighbours import nearest_predecessors
from vastgp.kernels.metric import metric_lengthscales
from vastgp.solvers.neighbour_posterior import NeighbourPosterior

# Nearest predecessors of a reading, for the trend: with more of them a slope of 20,000 stations is as sure to 1 %.
_NEAR = 32
# Readings that the trend is learned by whatever the time: those that say how long others take, and so many more.
_FIRST, _LEAST = 4096, 16_384
# Of the time that is left, what the trend may take.
_SHARE = 0.8
# The use of the seed for the order, see `fixed_indices`.
_ORDER = 242


@dataclass(frozen=True)
class NearestKriging(Kriging):
    """A process and a trend, given readings, of which those nearest to a place count there.

    ``smoothers`` are none: what the model says of covariates comes with what it says of values.

    Attributes
    ----------
    scaled : ndarray of shape (n, p)
        Covariates at the readings, scaled.
    trend_readings : int
        How many the trend was learned by.
    """

    scaled: np.ndarray
    trend_readings: int

    def moments(
        self, X: np.ndarray, H: np.ndarray, with_std: bool = True
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return mean and variance of the function at places, see `Kriging.moments`."""
        if not self.scaled.shape[1]:
            return super().moments(X, H, with_std)
        scaling = self.model.standardizer_
        # function 0 has the values, the others the covariates: their variance is one and the same
        means, variances = self._jointly.mean_and_latent_variance(scaling.transform_X(X))
        left = (H - self.shift) / self.scale - means[1:].T
        mean = scaling.inverse_mean(means[0]) + left @ self.coefficients
        variance = scaling.inverse_std(np.sqrt(variances[0])) ** 2
        return mean, variance + np.einsum("ij,jk,ik->i", left, self.covariance, left)

    @cached_property
    def _jointly(self) -> NeighbourPosterior:
        return _with_covariates(self.model.posterior_, self.scaled)


def nearest_kriging(
    model: Any,
    H: np.ndarray,
    names: Sequence[str],
    seed: int,
    *,
    most: int | None = None,
    deadline: float | None = None,
) -> NearestKriging:
    """Learn the trend of readings that a model is given.

    Parameters
    ----------
    model : SWSGPRegressor
        Fitted by ``solver="nearest"`` to all readings, at the hyperparameters that were learned.
    H : ndarray of shape (n, p)
        Covariates.
    names : sequence of str
        Theirs.
    seed : int
        Of the order.
    most : int, optional
        Readings that the trend is learned by. None: all, or as many as there is time for.
    deadline : float, optional
        Time of ``time.perf_counter`` that the trend should be learned at.
    """
    if not H.shape[1]:
        empty = np.zeros(0)
        return NearestKriging(model, (), empty, empty, empty, np.zeros((0, 0)), H, 0)
    scaled, shift, scale = scaled_covariates(H, names)
    order = fixed_indices(seed, _ORDER, len(H), most or len(H))
    posterior = _with_covariates(model.posterior_, scaled)
    if deadline is not None:
        order = order[: _affordable(posterior, order, deadline)]
    e, *columns = whitened(posterior, order)
    G = np.stack(columns, axis=1)
    covariance = inverse_information(G.T @ G, names)
    unit = float(model.standardizer_.y_scale)
    coefficients = unit * covariance @ (G.T @ e)
    return NearestKriging(
        model, (), shift, scale, coefficients, unit**2 * covariance, scaled, len(order)
    )


def whitened(posterior: NeighbourPosterior, order: np.ndarray, near: int = _NEAR) -> np.ndarray:
    """Return targets of some rows, less what their nearest predecessors say of them, over the deviation that is left.

    Parameters
    ----------
    posterior : NeighbourPosterior
        From rows and their targets, several of each.
    order : ndarray of int, shape (m,)
        Numbers of the rows, each before those that may depend on it.
    near : int
        H.

    Returns
    -------
    ndarray of shape (C, m)
        In the order.
    """
    assert posterior.noise is not None
    X = posterior.Z[order]
    scales = metric_lengthscales(posterior.kernel, X.shape[1])
    found = nearest_predecessors(X, scales, min(near, max(len(X) - 1, 1)), posterior.search)
    given = np.where(found < 0, -1, order[found])
    local = _replaced(posterior, num_neighbors=given.shape[1])
    mean, variance = local.given_neighbours(X, given)
    return (posterior.mean_u[order].T - mean) / np.sqrt(variance + posterior.noise[order])


def _with_covariates(posterior: NeighbourPosterior, scaled: np.ndarray) -> NeighbourPosterior:
    """Return a posterior whose further functions have the covariates for targets: one search and one system for all."""
    targets = np.column_stack([posterior.mean_u, scaled])
    return _replaced(posterior, mean_u=targets, spread=np.zeros_like(targets))


def _replaced(posterior: NeighbourPosterior, **fields: Any) -> NeighbourPosterior:
    found = replace(posterior, **fields)
    if "index" in posterior.__dict__:  # of the same rows and lengthscales
        found.__dict__["index"] = posterior.__dict__["index"]
    return found


def _affordable(posterior: NeighbourPosterior, order: np.ndarray, deadline: float) -> int:
    """Return how many readings of an order can be whitened in time, as some of them take."""
    if len(order) <= _LEAST:
        return len(order)
    whitened(posterior, order[: _FIRST // 4])  # its program is compiled
    began = time.perf_counter()
    whitened(posterior, order[:_FIRST])
    pace = (time.perf_counter() - began) / _FIRST
    return int(np.clip(_SHARE * (deadline - time.perf_counter()) / pace, _LEAST, len(order)))
