"""Which rows lie outside what a model was trained on: by each input's range, and by distance in the kernel's metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vastgp.data.minibatch import fixed_indices

_MOST_ROWS = 2000  # kept: their nearest-neighbour distances have a 99th percentile to within 0.2 percentage points
_QUANTILE = 0.99
# Beyond the training values by more than this share of their range is outside. The largest of n training values is
# exceeded by a share of 1/(n + 1) of new ones, a little, and that for every input: it is nothing to report.
_MARGIN = 0.1
_DIFFERENCE = 0.1  # of two distribution functions, from which on it is worth a word, however many rows tell it
_CHANCE = 0.01  # that a file without drift is told of any, over all inputs together
_MOST_DRIFT_ROWS = 20_000
_FEW_ROWS = 100
# Uses of the seed, see `fixed_indices`.
_REFERENCE, _DRIFT = 230, 231
# Lengthscales: a kernel gives rows this close a correlation above 0.99, so nothing between them is a guess. Without
# it, rows that repeat each other (a few categories) would make a threshold of zero.
_NEAR = 0.1


@dataclass(frozen=True, eq=False)
class RangeCheck:
    """What the training rows cover; made by `RangeCheck.fit`.

    Attributes
    ----------
    names : tuple of str
        Of the d encoded inputs.
    low, high : ndarray of shape (d,)
        Range of each over all training rows.
    reference : ndarray of shape (r, d)
        Random training rows, at most 2000.
    lengthscales : ndarray of shape (d,)
        Of the kernel: distances are Euclidean ones of inputs over these; an infinite one leaves its input out.
    threshold : float
        The 99th percentile of the distances from each reference row to the nearest other one, and at least 0.1. A new
        row from where the training rows came from is farther with a probability of at most about 1 %.
    """

    names: tuple[str, ...]
    low: np.ndarray
    high: np.ndarray
    reference: np.ndarray
    lengthscales: np.ndarray
    threshold: float

    @classmethod
    def fit(cls, X: Any, lengthscales: Any = None, names: Any = None, seed: Any = 0) -> RangeCheck:
        """Learn from encoded training rows.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Finite numbers.
        lengthscales : array-like of shape (d,), optional
            Of the kernel in the units of `X`; the deviations of the inputs without.
        names : sequence of str, optional
            Of the inputs, for words; "input 1" and so on without.
        seed : int, default 0
            Of the choice of rows.
        """
        X = np.asarray(X, dtype=np.float64)
        n, d = X.shape
        reference = X[np.sort(fixed_indices(seed, _REFERENCE, n, _MOST_ROWS))]
        if lengthscales is None:
            spread = np.std(reference, axis=0)
            lengthscales = np.where(spread > 0.0, spread, 1.0)
        scales = np.broadcast_to(np.asarray(lengthscales, dtype=np.float64), (d,)).copy()
        named = (
            tuple(f"input {j + 1}" for j in range(d)) if names is None else tuple(map(str, names))
        )
        return cls(
            names=named,
            low=X.min(axis=0),
            high=X.max(axis=0),
            reference=reference,
            lengthscales=scales,
            threshold=_left_out_threshold(reference / scales),
        )

    def distances(self, X: Any) -> np.ndarray:
        """Return the distance of each row to the nearest training row, in lengthscales, (n,)."""
        with np.errstate(over="ignore"):
            scaled = np.asarray(X, dtype=np.float64) / self.lengthscales
        found = np.full(len(scaled), np.inf)
        # squares of what is this far overflow, and it is far
        near = np.all(np.abs(scaled) < 1e100, axis=1)
        if near.any():
            found[near] = _nearest(self.reference / self.lengthscales, scaled[near], 1)[:, 0]
        return found

    def outside(self, X: Any) -> np.ndarray:
        """Return which rows lie outside, (n,) of bool.

        Beyond the range of an input by more than a tenth of it, farther from the nearest training row than the
        threshold, or not finite.
        """
        X = np.asarray(X, dtype=np.float64)
        return np.any(self._beyond(X), axis=1) | (self.distances(X) > self.threshold)

    def reasons(self, row: Any) -> list[str]:
        """Return why one row, (d,), lies outside, in words; an empty list for one that does not."""
        row = np.asarray(row, dtype=np.float64).reshape(1, -1)
        found = []
        for j in np.flatnonzero(self._beyond(row)[0]):
            if not np.isfinite(row[0, j]):
                found.append(f"{self.names[j]} is not a finite number")
                continue
            side, end = (
                ("above", self.high[j]) if row[0, j] > self.high[j] else ("below", self.low[j])
            )
            found.append(
                f"{self.names[j]} is {row[0, j]:.4g}, {side} all training rows ({end:.4g})"
            )
        distance = float(self.distances(row)[0])
        if distance > self.threshold and not found:
            found.append(
                f"no training row has inputs like these together: the nearest is {distance:.3g} lengthscales away, "
                f"and 99 % of the training rows have one within {self.threshold:.3g}"
            )
        return found

    def drift(self, X: Any, seed: Any = 0) -> list[str]:
        """Return how the rows of a whole file differ from the training rows, in words; nothing where they do not.

        An input is named when its distribution function differs from that of the training rows by more than 0.1
        somewhere (Kolmogorov's distance: no number of rows makes less worth a word) and by more than chance: at the
        level of 1 % over all inputs together (Bonferroni).
        """
        X = np.asarray(X, dtype=np.float64)
        if not len(X):
            return []
        rows = fixed_indices(seed, _DRIFT, len(X), _MOST_DRIFT_ROWS)
        found = []
        for j, name in enumerate(self.names):
            message = _moved(name, self.reference[:, j], X[rows, j], _CHANCE / len(self.names))
            found += [message] if message else []
        found += self._many_outside(X[rows])
        return found

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return plain values for JSON, and arrays."""
        arrays = {
            part: getattr(self, part) for part in ("low", "high", "reference", "lengthscales")
        }
        return {"names": list(self.names), "threshold": self.threshold}, arrays

    @classmethod
    def from_state(cls, state: Any, arrays: Any) -> RangeCheck:
        """Return the check that `to_state` described."""
        return cls(names=tuple(state["names"]), threshold=float(state["threshold"]), **arrays)

    def _beyond(self, X: np.ndarray) -> np.ndarray:
        # a constant column has no range: any other value is beyond it, but for its rounding
        margin = _MARGIN * (self.high - self.low) + 1e-9 * np.maximum(
            np.abs(self.low), np.abs(self.high)
        )
        inside = (self.low - margin <= X) & (self.high + margin >= X)
        return ~inside

    def _many_outside(self, X: np.ndarray) -> list[str]:
        from scipy.stats import binom

        outside = int(np.sum(self.outside(X)))
        share, expected = outside / len(X), 2.0 * (1.0 - _QUANTILE)
        if share <= 5.0 * expected or binom.sf(outside - 1, len(X), expected) > _CHANCE:
            return []
        return [
            f"{100.0 * share:.0f} % of the rows lie outside the training rows (about 1 % are expected): "
            "the model guesses there, and its intervals are wide"
        ]


def _moved(name: str, before: np.ndarray, now: np.ndarray, chance: float) -> str:
    """What has become of one input, in words, or nothing."""
    from scipy.stats import ks_2samp

    finite = now[np.isfinite(now)]
    if not finite.size:
        return f"{name} holds no finite number"
    test = ks_2samp(before, finite, method="asymp")
    if test.statistic <= _DIFFERENCE or test.pvalue > chance:
        return ""
    return (
        f"{name} has drifted: its median is {np.median(finite):.4g}, and was {np.median(before):.4g} in the "
        f"training rows (distribution functions differ by {test.statistic:.2f})"
    )


def _left_out_threshold(reference: np.ndarray) -> float:
    if len(reference) < 2:
        return np.inf
    # the first neighbour of a row is itself, or one equal to it, at distance 0
    distance = np.sort(_nearest(reference, reference, 2)[:, 1])
    rank = int(np.ceil(_QUANTILE * (len(distance) + 1)))
    return max(float(distance[min(rank, len(distance)) - 1]), _NEAR)


def _nearest(reference: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    """Distances to the `count` nearest reference rows, (n, count)."""
    from sklearn.neighbors import NearestNeighbors

    # threads and trees cost up to a hundred milliseconds for one row of many inputs, and this a tenth of one
    if len(rows) <= _FEW_ROWS:
        squares = np.stack([np.sum((reference - row) ** 2, axis=1) for row in rows])
        return np.sqrt(np.partition(squares, count - 1, axis=1)[:, :count])
    # a tree in few dimensions, products of blocks in many: scikit-learn knows from where on
    return NearestNeighbors(n_neighbors=count).fit(reference).kneighbors(rows)[0]
