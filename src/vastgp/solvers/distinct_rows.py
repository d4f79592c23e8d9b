"""What solvers see of rows: repeated ones merged into one with a count, or each with noise of its own."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from vastgp.data import observations
from vastgp.data.padding import pad_rows


@runtime_checkable
class ObservedRows(Protocol):
    """What the block solver sees of the rows: ``y_i = f(x_i)`` with noise variance ``sigma^2 / weights_i``."""

    @property
    def X(self) -> Any:
        """Inputs, shape (N, d)."""

    @property
    def y(self) -> Any:
        """Targets, shape (N,)."""

    @property
    def weights(self) -> Any:
        """Weights, shape (N,)."""

    @property
    def num_rows(self) -> int:
        """Number of observations behind them."""

    @property
    def noise_shares(self) -> Any:
        """``weights_i d(v_i) / d(sigma^2)`` of the rows' noise variances ``v_i``, shape (N,); None: all are one."""

    def noise_slope(self, noise_variance: float) -> float:
        """Return the slope by the noise variance of what these rows leave out of the log evidence."""


class DistinctRows(NamedTuple):
    """Distinct inputs, the mean target of each, how many rows it stands for, and what the means leave.

    ``c`` observations of one function value with noise ``sigma^2`` say what their mean says with noise
    ``sigma^2 / c``: with both sides times ``sqrt(c)``, a row of features ``sqrt(c) phi`` and target
    ``sqrt(c) mean(y)`` with noise ``sigma^2`` again. The log density of the rows is that of the merged ones
    plus a term of the noise alone, whose slope is `noise_slope`.

    Attributes
    ----------
    X : ndarray of shape (N, d)
        In the order of first appearance.
    y : ndarray of shape (N,)
    counts : ndarray of shape (N,)
        Zero for filling.
    scatter : float
        Sum of squares of all targets around the mean of their group.
    """

    X: Float[np.ndarray, "N d"]
    y: Float[np.ndarray, " N"]
    counts: Int[np.ndarray, " N"]
    scatter: float

    @property
    def weights(self) -> Int[np.ndarray, " N"]:
        """The counts: a mean of ``c`` targets is ``c`` times as certain as one."""
        return self.counts

    @property
    def num_rows(self) -> int:
        """Number of rows before merging."""
        return int(self.counts.sum())

    @property
    def noise_shares(self) -> None:
        """None: what is known of the noise is the counts."""
        return None

    def at(self, noise_variance: float) -> DistinctRows:
        """Return the rows: their weights do not depend on the noise."""
        del noise_variance
        return self

    def left_out(self, noise_variance: float) -> float:
        """Return what the merged rows leave out of the log evidence of their scaled means.

        A rotation of a group's ``c`` targets has ``sqrt(c) mean(y)`` as its first coordinate; the other ``c - 1`` have
        the density ``N(0, sigma^2)``.
        """
        spare = self.num_rows - int(np.count_nonzero(self.counts))
        scatter = self.scatter / noise_variance
        return -0.5 * (spare * math.log(2.0 * math.pi * noise_variance) + scatter)

    def noise_slope(self, noise_variance: float) -> float:
        """Return the slope by the noise variance of what the merged rows leave out of the log evidence.

        The targets of a group minus their mean have the density ``N(0, sigma^2)`` in ``c - 1`` directions:
        ``-(n - N) / 2 log sigma^2 - scatter / (2 sigma^2)``.
        """
        spare = self.num_rows - int(np.count_nonzero(self.counts))
        return 0.5 * (self.scatter / noise_variance - spare) / noise_variance

    def padded(self) -> DistinctRows:
        """Return the rows with others of count zero, up to a number that compiled code is shared for."""
        X = pad_rows(self.X)
        extra = len(X) - len(self.y)
        return self._replace(
            X=X, y=np.pad(self.y, (0, extra)), counts=np.pad(self.counts, (0, extra))
        )


class WeightedRows(NamedTuple):
    """Rows with noise of their own at one noise variance: `ObservedRows` with ``weights_i = sigma^2 / v_i``.

    Attributes
    ----------
    X, y, weights, noise_shares
        See `ObservedRows`; weights are zero for filling.
    num_rows : int
    """

    X: Float[np.ndarray, "N d"]
    y: Float[np.ndarray, " N"]
    weights: Float[np.ndarray, " N"]
    noise_shares: Float[np.ndarray, " N"]
    num_rows: int

    def left_out(self, noise_variance: float) -> float:
        """Return what the log density of the rows has beside that of rows times the roots of their weights."""
        del noise_variance
        return 0.5 * float(np.sum(np.log(self.weights[: self.num_rows])))

    def noise_slope(self, noise_variance: float) -> float:
        """Return 0: `noise_shares` says all."""
        del noise_variance
        return 0.0


class OwnNoiseRows(NamedTuple):
    """Rows with noise of their own, whose weights depend on the noise variance.

    Attributes
    ----------
    X : ndarray of shape (N, d)
    y : ndarray of shape (N,)
        Targets.
    inverse_weights, errors : ndarray of shape (N,), float64
        ``1 / w_i`` and ``e_i^2`` of ``v_i = sigma^2 / w_i + e_i^2``.
    num_rows : int
        Rows; those after them are filling.
    """

    X: Float[np.ndarray, "N d"]
    y: Float[np.ndarray, " N"]
    inverse_weights: Float[np.ndarray, " N"]
    errors: Float[np.ndarray, " N"]
    num_rows: int

    def at(self, noise_variance: float) -> WeightedRows:
        """Return the rows as they are at a noise variance."""
        weights = noise_variance / (noise_variance * self.inverse_weights + self.errors)
        weights[self.num_rows :] = 0.0
        return WeightedRows(self.X, self.y, weights, weights * self.inverse_weights, self.num_rows)

    def padded(self) -> OwnNoiseRows:
        """Return the rows with filling up to a number that compiled code is shared for."""
        X = pad_rows(self.X)
        extra = (0, len(X) - len(self.y))
        inverse = np.pad(self.inverse_weights, extra, constant_values=1.0)
        return self._replace(
            X=X, y=np.pad(self.y, extra), inverse_weights=inverse, errors=np.pad(self.errors, extra)
        )


# What solvers keep of the rows while hyperparameters change.
KnownRows = DistinctRows | OwnNoiseRows


def known_rows(X: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n *k"]) -> KnownRows:
    """Return standardised rows with noise of their own where they have some, and others with repeated ones merged."""
    if not observations.has_own_noise(y):
        return merge_repeated(X, y)
    inverse, errors = y[:, 1:].T.astype(np.float64)
    return OwnNoiseRows(X, np.ascontiguousarray(y[:, 0]), inverse, errors, len(y))


def merge_repeated(X: Float[np.ndarray, "n d"], y: Float[np.ndarray, " n"]) -> DistinctRows:
    """Merge rows whose inputs are equal in every bit (but for the sign of zero)."""
    inputs = np.ascontiguousarray(X + 0.0)  # -0.0 becomes 0.0
    as_bytes = inputs.view(np.dtype((np.void, inputs.dtype.itemsize * inputs.shape[1]))).ravel()
    _, first, group = np.unique(as_bytes, return_index=True, return_inverse=True)
    if len(first) == len(y):
        return DistinctRows(X, y, np.ones(len(y), dtype=np.int64), 0.0)
    order = np.argsort(first)  # of groups, by first appearance
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    group = place[group.ravel()]
    counts = np.bincount(group)
    wide = y.astype(np.float64)
    means = np.bincount(group, weights=wide) / counts
    scatter = float(np.sum((wide - means[group]) ** 2))
    return DistinctRows(inputs[first[order]], means.astype(y.dtype), counts, scatter)
