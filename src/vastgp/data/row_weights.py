"""The way in of weights of labelled rows."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from vastgp.data.observations import has_own_noise, inverse_weights, targets
from vastgp.data.own_noise import OwnNoise
from vastgp.data.rows import Rows


class RowWeights(NamedTuple):
    """The argument ``sample_weight`` of a fit of classes, as it was given, used in the way of `OwnNoise`."""

    sample_weight: Any

    @property
    def _as_noise(self) -> OwnNoise:
        return OwnNoise(None, self.sample_weight)

    def read_columns(self, X: Any) -> tuple[Any, RowWeights]:
        """Return the inputs without the column that is named here, and this column read."""
        X, read = self._as_noise.read_columns(X)
        return X, RowWeights(read.sample_weight)

    def counting(self, there: np.ndarray) -> np.ndarray:
        """Return which rows have a weight above zero, (n,), of those that have a target, a mask."""
        return self._as_noise.counting(there)

    def of_targets(self, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the labels of some rows, a mask, with the logarithms of their weights beside them: (m, 2)."""
        return with_log_weights(self._as_noise.of_targets(y, rows))

    def attach(self, rows: Rows) -> Rows:
        """Return rows whose labels have weights; the rows themselves where all are alike.

        Rows of weight zero are left out; the weights of the others are divided by their mean.
        """
        found = self._as_noise.attach(rows)
        return dataclasses.replace(found, y=with_log_weights(found.y))


def with_log_weights(y: Any, labels: Any = None) -> Any:
    """Return targets that may have weights in the way of noise, ``1 / w``, as labels with ``log w`` beside them."""
    if not has_own_noise(y):
        return y if labels is None else labels
    return np.column_stack([targets(y) if labels is None else labels, -np.log(inverse_weights(y))])
