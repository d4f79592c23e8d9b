"""Rows that are repeated, merged into one with a count: the same posterior and evidence for less."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

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
