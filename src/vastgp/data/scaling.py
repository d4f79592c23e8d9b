"""Standardisation with training statistics, gathered in one pass over the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vastgp.data import observations, processes
from vastgp.data.rows import Rows
from vastgp.data.validate import check_num_features, check_same_length, warn_constant_target

# Values that spread over less than this share of their size are one value and its rounding errors.
_SAME = 8 * np.finfo(np.float64).eps


@dataclass
class _Moments:
    """Count, mean, sum of squared deviations and extremes of columns, over the rows seen so far."""

    count: int
    mean: np.ndarray
    rest: np.ndarray  # what rounding took from the mean: the two together carry twice the digits
    squares: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, block: np.ndarray) -> _Moments:
        """Moments of one block, shape (rows, columns), with the mean taken out before anything is squared."""
        columns = np.ascontiguousarray(block.T)  # each in one piece: sums are fast, and pairwise
        with np.errstate(over="ignore", invalid="ignore"):  # reported by _scale, with the column
            mean = columns.mean(axis=1)
            deviations = columns - mean[:, None]
            # The mean is rounded; what is left of it in the deviations corrects both moments (the corrected two-pass
            # algorithm: Chan, Golub, LeVeque, "Algorithms for computing the sample variance", 1983, eq. 1.7).
            rest = deviations.mean(axis=1)
            squares = np.einsum("ij,ij->i", deviations, deviations) - block.shape[0] * rest**2
        low, high = columns.min(axis=1), columns.max(axis=1)
        return cls(block.shape[0], mean, rest, np.maximum(squares, 0.0), low, high)

    def merge(self, other: _Moments) -> _Moments:
        """Moments of both sets of rows together (Chan, Golub, LeVeque 1983, eq. 2.1)."""
        count = self.count + other.count
        with np.errstate(over="ignore", invalid="ignore"):
            delta = (other.mean - self.mean) + (other.rest - self.rest)
            mean, rest = _two_sum(self.mean, self.rest + delta * (other.count / count))
            squares = self.squares + other.squares + delta**2 * (self.count * (other.count / count))
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return _Moments(count, mean, rest, squares, low, high)

    def packed(self) -> np.ndarray:
        """All of it as one array, shape (1 + parts, columns), for another process."""
        counts = np.full(len(self.mean), float(self.count))
        return np.stack([counts, *(getattr(self, name) for name in _PARTS)])

    @classmethod
    def unpacked(cls, packed: np.ndarray) -> _Moments:
        """What `packed` made."""
        return cls(int(packed[0, 0]), *packed[1:])

    def replaced(self, mean: float, variance: float) -> _Moments:
        """The same count and extremes, with another mean and variance."""
        of_one = np.ones(1)
        return _Moments(
            self.count,
            mean * of_one,
            0.0 * of_one,
            self.count * variance * of_one,
            self.low,
            self.high,
        )


_PARTS = ("mean", "rest", "squares", "low", "high")


def _two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rounded sum and, exactly, what rounding took from it (Knuth, TAOCP 2, 4.2.2, theorem B)."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


class Standardizer:
    """Shifts and scales inputs and targets to mean 0 and standard deviation 1 over the training rows.

    The statistics are population ones (divided by n), gathered in float64 by merging blocks, so they agree with those
    of the whole array to rounding even for columns far from zero. A column that has one value everywhere (up to
    rounding) gets scale 1 and is listed in ``constant_features_``; a constant target gets scale 1 too.

    Parameters
    ----------
    common : bool, default False
        Whether all inputs have one scale, the root of their mean variance, for inputs of one kind and unit.
    inputs : sequence of int, optional
        For every column the number of the input that it belongs to: columns of one number have one scale, the root of
        the sum of their variances.

    Attributes
    ----------
    n_rows : int
        Rows seen.
    x_mean, x_scale : ndarray of float64, shape (d,)
        Mean and standard deviation of the inputs, in their units.
    y_mean, y_scale : float
        The same of the target; 0 and 1 when there was none.
    constant_features_ : ndarray of int64
        Columns of the inputs that do not vary.
    log_exposure : float
        Logarithm of the exposure that those of counts are told in; 0, as for what has none, until it is set.
    """

    def __init__(self, common: bool = False, inputs: Sequence[int] | None = None) -> None:
        self.common = common
        self.inputs = tuple(inputs) if inputs else None
        self._x: _Moments | None = None
        self._y: _Moments | None = None
        self.feature_names: list[str] | None = None
        self.log_exposure = 0.0

    # ------------------------------------------------------------ fitting

    def fit(self, rows: Rows, batch_rows: int | None = None) -> Standardizer:
        """Gather the statistics of all rows, in one pass. Earlier ones are forgotten.

        Parameters
        ----------
        rows
            Training rows.
        batch_rows
            Rows in memory at a time; by default about 256 kB of them, which stay in the processor's cache.

        Warns
        -----
        UserWarning
            When the target is constant.
        """
        self._x = self._y = None
        self.feature_names = rows.feature_names
        if batch_rows is None:
            # a power of two, so that shares of several processes (see `part_of`) are whole batches
            batch_rows = 1 << int(np.clip(15 - (rows.d - 1).bit_length(), 8, 14))
        if rows.local is rows:
            for X, y in rows.batches(batch_rows):
                self.partial_fit(X, None if y is None else observations.targets(y))
        else:
            self._fit_shared(rows, batch_rows)
        if self._y is not None and observations.has_own_noise(rows.y):
            mean, variance = observations.mean_and_variance(np.asarray(rows.y[:]))
            self._y = self._y.replaced(mean, variance)
        if self._x is None:
            raise ValueError("rows is empty: statistics need at least one row.")
        self.x_scale, self.y_scale  # noqa: B018  (a spread that cannot be represented is an error of the data, now)
        if self._y is not None and self._y.count > 1 and _is_constant(self._y).all():
            warn_constant_target(self.y_mean)
        return self

    def _fit_shared(self, rows: Rows, batch_rows: int) -> None:
        """Gather the statistics of rows that several processes share: the same as one does of the same batches.

        What is merged is told batch by batch, so that merging has one order however many processes there are.
        """
        own = np.zeros((0, 1 + len(_PARTS), rows.d + (rows.y is not None)))
        found = []
        for X, y in rows.local.batches(batch_rows):
            blocks = [X] if y is None else [X, observations.targets(y)[:, None]]
            found.append(np.hstack([_Moments.of(block).packed() for block in blocks]))
        own = np.stack(found) if found else own
        for packed in np.concatenate(processes.gathered(own)):
            self._x = _merged(self._x, _Moments.unpacked(packed[:, : rows.d]))
            if rows.y is not None:
                self._y = _merged(self._y, _Moments.unpacked(packed[:, rows.d :]))

    def partial_fit(self, X: np.ndarray, y: np.ndarray | None = None) -> Standardizer:
        """Add a block of rows to the statistics."""
        X = np.asarray(X, dtype=np.float64)
        if y is not None:
            y = np.asarray(y, dtype=np.float64)
            check_same_length(X.shape[0], y.shape[0])
        if X.shape[0]:
            self._x = _merged(self._x, _Moments.of(X))
            self._y = self._y if y is None else _merged(self._y, _Moments.of(y[:, None]))
        return self

    def merge(self, other: Standardizer) -> Standardizer:
        """Add the statistics of another part of the rows, gathered elsewhere. The other one is left as it is."""
        self._x = _merged(self._x, other._x)
        self._y = _merged(self._y, other._y)
        return self

    # ------------------------------------------------------------ statistics

    @property
    def n_rows(self) -> int:
        """Number of rows seen."""
        return 0 if self._x is None else self._x.count

    @property
    def d(self) -> int:
        """Number of features."""
        return self._inputs.mean.shape[0]

    @property
    def x_mean(self) -> np.ndarray:
        """Means of the inputs."""
        return self._inputs.mean + self._inputs.rest

    @property
    def x_scale(self) -> np.ndarray:
        """Standard deviations of the inputs, 1 where an input is constant; or the one that all have in common."""
        names = self.feature_names
        each = _scale(
            self._inputs,
            lambda j: f"X column {names[j]!r}" if names is not None else f"X column {j}",
        )
        varying = ~_is_constant(self._inputs)
        if self.inputs is not None:
            of_inputs = np.sqrt(np.bincount(self.inputs, np.where(varying, each, 0.0) ** 2))
            return np.where(of_inputs > 0.0, of_inputs, 1.0)[np.asarray(self.inputs)]
        if not self.common:
            return each
        together = np.sqrt(np.sum(each[varying] ** 2) / self.d) if varying.any() else 1.0
        return np.full(self.d, together)

    @property
    def y_mean(self) -> float:
        """Mean of the target."""
        return 0.0 if self._y is None else float(self._y.mean[0] + self._y.rest[0])

    @property
    def y_scale(self) -> float:
        """Standard deviation of the target, 1 if it is constant."""
        return 1.0 if self._y is None else float(_scale(self._y, lambda _: "y")[0])

    @property
    def x_range(self) -> tuple[np.ndarray, np.ndarray]:
        """Least and largest values of the inputs."""
        return self._inputs.low, self._inputs.high

    @property
    def constant_features_(self) -> np.ndarray:
        """Columns of the inputs that do not vary."""
        return np.flatnonzero(_is_constant(self._inputs))

    @property
    def _inputs(self) -> _Moments:
        if self._x is None:
            raise ValueError("This Standardizer has seen no rows. Call fit or partial_fit first.")
        return self._x

    # ------------------------------------------------------------ use

    def transform_X(self, X: np.ndarray, dtype: Any = np.float64) -> np.ndarray:
        """Inputs in standardised units, computed in float64 and rounded to ``dtype`` at the end.

        Nothing is farther from the mean than the fourth root of the largest number of ``dtype`` (4e9 deviations in
        float32, 1e77 in float64), so that squares of scaled distances stay finite: an infinity less another is no
        number.
        """
        farthest = float(np.finfo(dtype).max) ** 0.25
        with np.errstate(over="ignore"):
            scaled = (np.asarray(X, dtype=np.float64) - self.x_mean) / self.x_scale
        return np.clip(scaled, -farthest, farthest, out=scaled).astype(dtype, copy=False)

    def transform_y(self, y: np.ndarray, dtype: Any = np.float64) -> np.ndarray:
        """Targets in standardised units, computed in float64 and rounded to ``dtype`` at the end.

        Noise that rows have of their own is in the same units, see `vastgp.data.observations`.
        """
        y = np.asarray(y, dtype=np.float64)
        found = observations.scaled(y, self.y_mean, self.y_scale, self.log_exposure)
        return found.astype(dtype, copy=False)

    def inverse_mean(self, mean: np.ndarray) -> np.ndarray:
        """A mean (or a sample) of the standardised target in the target's own units, float64."""
        return np.asarray(mean, dtype=np.float64) * self.y_scale + self.y_mean

    def inverse_std(self, std: np.ndarray) -> np.ndarray:
        """A standard deviation of the standardised target in the target's own units, float64."""
        return np.asarray(std, dtype=np.float64) * self.y_scale

    # ------------------------------------------------------------ storage

    def to_dict(self) -> dict[str, Any]:
        """Everything, in types that JSON has. Floats survive it exactly."""
        result: dict[str, Any] = {
            "feature_names": self.feature_names, "common": self.common, "inputs": self.inputs,
            "log_exposure": self.log_exposure,
        }  # fmt: skip
        for key, moments in (("x", self._x), ("y", self._y)):
            result[key] = None
            if moments is not None:
                arrays = {part: getattr(moments, part).tolist() for part in _PARTS}
                result[key] = {"count": moments.count, **arrays}
        return result

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Standardizer:
        """What `to_dict` described, down to the last bit; more rows can be added to it."""
        result = cls(values["common"], values.get("inputs"))
        result.feature_names = values["feature_names"]
        result.log_exposure = float(values.get("log_exposure", 0.0))
        for name, key in (("_x", "x"), ("_y", "y")):
            stored = values[key]
            if stored is not None:
                arrays = {part: np.asarray(stored[part], dtype=np.float64) for part in _PARTS}
                setattr(result, name, _Moments(int(stored["count"]), **arrays))
        return result

    def __repr__(self) -> str:
        if self._x is None:
            return "Standardizer()"
        return f"Standardizer(n_rows={self.n_rows}, d={self.d}, y_mean={self.y_mean:.6g}, y_scale={self.y_scale:.6g})"


def _merged(first: _Moments | None, second: _Moments | None) -> _Moments | None:
    if first is None or second is None:
        return second if first is None else first
    if first.mean.shape != second.mean.shape:
        check_num_features(second.mean.shape[0], first.mean.shape[0], "Standardizer")
    return first.merge(second)


def check_spread(values: np.ndarray, called: str) -> None:
    """Raise ValueError where the mean or the deviation of some numbers cannot be represented, as a scaling does."""
    _scale(_Moments.of(np.asarray(values, dtype=np.float64)[:, None]), lambda _: called)


def _is_constant(moments: _Moments) -> np.ndarray:
    spread = moments.high - moments.low
    return spread <= _SAME * np.maximum(np.abs(moments.low), np.abs(moments.high))


def _scale(moments: _Moments, column: Any) -> np.ndarray:
    constant = _is_constant(moments)
    with np.errstate(invalid="ignore", over="ignore"):
        # rounding of one value of 1e159 is 1e143: in units of one, sums of its squares would overflow
        unit = np.maximum(1.0, moments.high - moments.low)
        scale = np.where(constant, unit, np.sqrt(moments.squares / moments.count))
    # Squares below 1e-308 (which lose digits, and whose inverses overflow) or above 1e308 do not exist in float64.
    exists = np.isfinite(scale) & (scale >= np.finfo(np.float64).tiny ** 0.5)
    bad = np.flatnonzero(~(np.isfinite(moments.mean) & exists))
    if bad.size:
        j = int(bad[0])
        raise ValueError(
            f"{column(j)} runs from {moments.low[j]:.3g} to {moments.high[j]:.3g}, a range whose sum or square "
            "cannot be represented in float64. Express it in another unit."
        )
    return scale
