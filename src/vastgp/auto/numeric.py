"""Numbers: what a column of them holds, and how it becomes inputs.

A number stays as it is. Two things are done to it where the rows ask for it: a gap is filled with the median, and a
column beside it says that it was one; and tails so long that one row would set the scale of all others are drawn in
by asinh, which is linear near the median and logarithmic far from it. Positive numbers with such tails that lie evenly
over orders of magnitude, as weights of mammals do, are on the scale of their logarithm where the target says so: asinh
makes one place of all small ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.stats import rankdata, skew

from vastgp.auto import gaps
from vastgp.auto.values import UnfitError, Values, levels_of, numbers_of
from vastgp.auto.written import unit_of

# Quantiles are those of all rows up to so many, beyond of so many rows chosen at random.
_SAMPLED_ROWS = 100_000
# A column is squashed when a value is farther from the median than so many interquartile ranges.
_LONG_TAIL = 10.0
# Where half of the values lie within a millionth of the distance that two in a hundred others have, they differ by
# rounding, and tell no scale: of 48 rows at two places, three quarters of them at one of these to seven digits, all
# other places were drawn in to be one (NLPD of new rows 7.4, intervals held 21 %; as they are 3.4).
_SAME, _ELSEWHERE = 1e-6, 0.98
# Of those that differ by more than rounding at least this share is nearer than so much of that distance where values
# lie at all distances.
_BETWEEN, _NEARER = 0.2, 0.01
# Share of a target's variance that a line on logarithms says more of than one on the scale of asinh, or over how many
# rows that is, as chance has so much; and the fewest rows.
_TOLD, _TOLD_OF_FEW, _FEWEST = 0.02, 3.0, 20
# Of a share of a variance that all of it is but for rounding.
_ALL = 1.0 - 1e-12
# Levels of an order in words.
_SHOWN = 6


class Sample:
    """Some values of a column, the same ones however its rows come in blocks.

    Every row has a random number that follows from its place alone; rows with the smallest ones are kept.
    """

    def __init__(self, size: int = _SAMPLED_ROWS) -> None:
        self._size = size
        self._threshold = 2**64 - 1
        self._keys = [np.zeros(0, np.uint64)]
        self._values = [np.zeros(0)]
        self._held = 0

    def add(self, values: np.ndarray, rows: np.ndarray) -> None:
        """Take in values with their row numbers."""
        keys = _mixed(rows)
        near = keys <= np.uint64(self._threshold)
        self._keys.append(keys[near])
        self._values.append(np.asarray(values, dtype=np.float64)[near])
        self._held += int(near.sum())
        if self._held > 2 * self._size:
            self._cut()

    def values(self) -> np.ndarray:
        """Return the values that were kept, sorted."""
        self._cut()
        return np.sort(self._values[0])

    def _cut(self) -> None:
        keys, values = np.concatenate(self._keys), np.concatenate(self._values)
        if len(keys) > self._size:
            kept = np.argpartition(keys, self._size - 1)[: self._size]
            keys, values = keys[kept], values[kept]
            self._threshold = int(keys.max())
        self._keys, self._values, self._held = [keys], [values], len(keys)


def _mixed(rows: np.ndarray) -> np.ndarray:
    """SplitMix64 of row numbers: a bijection of 64 bits whose values look independent."""
    z = rows.astype(np.uint64) + np.uint64(1)
    z *= np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class NumberFacts:
    """What the rows so far say of a column of numbers."""

    def __init__(self, form: str, order: tuple[str, ...] = ()) -> None:
        self.form, self.order = form, order
        self.present = self.missing = 0
        self.low, self.high = np.inf, -np.inf
        self.whole = True
        self.sample = Sample()

    def update(self, first: int, values: Values) -> None:
        """Take in a block."""
        self.update_numbers(first, self.read(values), values)

    def read(self, values: Values) -> np.ndarray:
        """Return the numbers of a block."""
        if not self.order:
            return numbers_of(values, self.form)
        ranks = ranks_of(values, self.order)
        if (ranks < 0).any():
            listed = ", ".join(map(repr, self.order))
            raise UnfitError(values, int(np.argmax(ranks < 0)), f"one of {listed}")
        return ranks

    def update_numbers(self, first: int, data: np.ndarray, values: Values) -> None:
        """Take in numbers; an infinite one is refused."""
        _refuse_infinite(data, values)
        there = np.flatnonzero(~np.isnan(data))
        found = data[there]
        self.present += len(found)
        self.missing += len(data) - len(found)
        if len(found):
            self.low = min(self.low, float(found.min()))
            self.high = max(self.high, float(found.max()))
            self.whole = self.whole and bool(np.all(found == np.rint(found)))
            self.sample.add(found, first + there)

    @property
    def constant(self) -> bool:
        """Whether all values that are there are the same."""
        return self.low == self.high

    def all_distinct(self) -> bool:
        """Whether no value occurs twice, in the rows of the sample."""
        values = self.sample.values()
        return len(values) > 1 and bool(np.all(values[1:] > values[:-1]))

    def encoding(self, squash: bool) -> NumberEncoding:
        """Return how the column becomes inputs."""
        values = self.sample.values()
        lower, median, upper = (float(q) for q in np.quantile(values, [0.25, 0.5, 0.75]))
        spread = upper - lower
        farthest = max(self.high - median, median - self.low)
        long = squash and self.form != "booleans" and not self.order
        # of numbers near the largest that a float holds, the spread itself overflows
        long = long and 0 < spread < np.inf and farthest > _LONG_TAIL * spread
        long = long and not _is_rounding(spread, values, median)
        magnitudes = long and self.low > 0.0 and _of_magnitudes(values, median, spread)
        return NumberEncoding(
            self.form,
            median,
            scale=spread if long else None,
            magnitudes=magnitudes,
            gaps=self.missing > 0,
            value=not self.constant,
            low=self.low,
            high=self.high,
            order=self.order,
        )


def _of_magnitudes(values: np.ndarray, median: float, spread: float) -> bool:
    """Whether positive numbers with a long tail lie more evenly by their logarithms than by asinh, and without one."""
    logs = np.log(values)
    lower, upper = np.quantile(logs, [0.25, 0.75])
    middle = float(np.log(median))
    farthest = max(logs[-1] - middle, middle - logs[0])
    if farthest > _LONG_TAIL * (upper - lower):
        return False
    return bool(abs(skew(logs)) < abs(skew(np.arcsinh((values - median) / spread))))


def _is_rounding(spread: float, values: np.ndarray, median: float) -> bool:
    """Whether what half of the values differ by is as good as nothing beside how far others are.

    What all of these have is a number that stands for a gap, and tells no scale either. Nor is it rounding where values
    lie at all distances from one to the other, as constants of physics do.
    """
    with np.errstate(over="ignore"):
        away = np.abs(values - median)
    far = float(np.quantile(away, _ELSEWHERE, method="lower"))
    there = values[away > 0.5 * far]
    if spread > _SAME * far or not np.any(there != there[:1]):
        return False
    beyond = away > _LONG_TAIL * spread
    return bool(np.mean(away[beyond] < _NEARER * far) < _BETWEEN)


def _refuse_infinite(data: np.ndarray, values: Values) -> None:
    infinite = np.isinf(data)
    if infinite.any():
        raise UnfitError(values, int(np.argmax(infinite)), "finite numbers")


def ranks_of(values: Values, order: Sequence[str]) -> np.ndarray:
    """Return the place of each value in an order of levels, NaN for missing ones and -1 for what is not in it."""
    codes, levels = levels_of(values)
    place = {level: rank for rank, level in enumerate(order)}
    return np.array([place.get(level, -1) for level in levels] + [np.nan], np.float64)[codes]


@dataclass(frozen=True)
class NumberEncoding:
    """A number as one input, and whether it was missing as another.

    Attributes
    ----------
    form : str
        What the column is read as.
    fill : float
        Value of gaps: the median.
    scale : float, optional
        Interquartile range, where values are ``asinh((x - fill) / scale)``.
    gaps : bool
        Whether there is an indicator of gaps.
    value : bool
        Whether the number itself is an input; otherwise it was constant where it was there.
    low, high : float
        Range in training.
    order : tuple of str
        Of ordered categories the levels, whose ranks are the number.
    magnitudes : bool
        Whether values are ``log x``, and below the lowest of training as slow on the other side; with a scale, whether
        the target may say so.
    """

    kind: ClassVar[str] = "number"

    form: str
    fill: float
    scale: float | None
    gaps: bool
    value: bool
    low: float
    high: float
    order: tuple[str, ...] = ()
    magnitudes: bool = False

    @property
    def in_doubt(self) -> bool:
        """Whether the target says on which scale values are."""
        return self.magnitudes and self.scale is not None

    def decided(self, magnitudes: bool) -> NumberEncoding:
        """Return the encoding on one of the two scales, where that was in doubt."""
        if not self.in_doubt:
            return self
        scale = None if magnitudes else self.scale
        return dataclasses.replace(self, scale=scale, magnitudes=magnitudes)

    def is_told(self, data: np.ndarray, y: np.ndarray) -> bool:
        """Whether a line on the logarithms of values says more of a target, and of its ranks, than one on the others.

        Of weights of mammals and their speed; not of a line in what has such tails, which goes on beyond all rows as
        one on neither scale does, but less far from one by asinh. A target that such a line makes likelier by its
        logarithm, as the weight of their brains, is on that scale.
        """
        there = np.isfinite(data) & np.isfinite(y)
        x, target = data[there], y[there]
        if len(x) < _FEWEST or x.min() == x.max() or target.min() == target.max():
            return False
        sides = np.log(x), np.arcsinh((x - self.fill) / self.scale)
        target = _nearer_to_a_line(target, sides)
        told = np.array([_told_of(each, sides) for each in (target, rankdata(target))])
        gains = told[:, 0] - told[:, 1]
        return bool(min(gains) > 0.0 and max(gains) > max(_TOLD, _TOLD_OF_FEW / len(x)))

    def groups(self, name: str) -> list[list[str]]:
        """Return the names of the output columns, those of one input in one list."""
        gap = [[f"{name} is missing"], gaps.group(name)] if self.gaps else []
        return [[name]] * self.value + gap

    def encode(self, values: Values) -> tuple[np.ndarray, int]:
        """Return the output columns of a block, and the number of gaps that training had none of."""
        data = ranks_of(values, self.order) if self.order else numbers_of(values, self.form)
        if self.order:  # a level without a rank is a gap
            data = np.where(data < 0, np.nan, data)
        _refuse_infinite(data, values)
        missing = np.isnan(data)
        found = np.where(missing, self.fill, data)
        if self.scale is not None:
            found = np.arcsinh((found - self.fill) / self.scale)
        elif self.magnitudes:
            # where x is below the lowest,  log low - log(1 + (low - x) / low)
            below = np.log(self.low) - np.log(2.0 * self.low - np.minimum(found, self.low))
            found = np.log(np.maximum(found, self.low)) + below
        columns = [found] * self.value
        if self.gaps:
            columns += [missing.astype(np.float64), gaps.of_new_rows(missing)]
        return np.column_stack(columns), 0 if self.gaps else int(missing.sum())

    def words(self) -> str:
        """Return what is done, as a person reads it."""
        before, behind = ("", " s") if self.form == "durations" else unit_of(self.form)
        low, high = f"{before}{self.low:.6g}{behind}", f"{before}{self.high:.6g}{behind}"
        if not self.value:
            return f"always {low} where it is there; an input says where it is missing"
        if self.order:
            done = f"ranks 0 to {len(self.order) - 1} in the order {_shown(self.order)}"
        elif self.form == "booleans":
            done = "0 or 1"
        else:
            done = f"{low} to {high}, as it is"
        if self.scale is not None:
            done = f"{low} to {high}, long tails drawn in: asinh((x - {self.fill:.6g}) / {self.scale:.6g})"
        elif self.magnitudes:
            done = f"{low} to {high}, on the scale of its logarithm"
        filled = f"; gaps become the median {self.fill:.6g}, and an input says where they were"
        return done + filled * self.gaps

    def facts(self) -> dict[str, Any]:
        """Return what was found in training."""
        if self.order:
            return {"levels": self.order}
        return {"low": self.low, "high": self.high, "median": self.fill}


def _told_of(target: np.ndarray, sides: Sequence[np.ndarray]) -> list[float]:
    """Return which share of a target's variance lines in each of some inputs say."""
    with np.errstate(all="ignore"):
        return [float(np.corrcoef(side, target)[0, 1] ** 2) for side in sides]


def _nearer_to_a_line(target: np.ndarray, sides: Sequence[np.ndarray]) -> np.ndarray:
    """Return a target, or its logarithm where a line with normal noise makes it likelier so.

    With a share ``r^2`` of the variance said, ``-2 log p / n = log((1 - r^2) var t) - 2 mean log dt/dy``, and the slope
    of ``t = log y`` is ``1 / y``.
    """
    if target.min() <= 0.0:
        return target
    logs = np.log(target)

    def misfit(told: np.ndarray) -> float:
        return float(np.log(np.var(told)) + np.log1p(-min(max(_told_of(told, sides)), _ALL)))

    with np.errstate(over="ignore", divide="ignore"):
        of_logs = misfit(logs) + 2.0 * float(np.mean(logs))
        return logs if of_logs < misfit(target) else target


def _shown(levels: Sequence[str]) -> str:
    more = f", ... ({len(levels) - _SHOWN} more)" if len(levels) > _SHOWN else ""
    return " < ".join(levels[:_SHOWN]) + more
