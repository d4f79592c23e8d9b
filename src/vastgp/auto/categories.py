"""Text and categories: what a column of them holds, and how its levels become inputs.

Few levels are one column each, and one more stands for all levels that training did not have: any two of these are at
the squared distance |e_i - e_j|^2 = 2, so a level never seen is exactly as far from each level as those are from each
other, and one lengthscale serves all. Of many levels each has a direction in 16 dimensions that follows from its name
alone, so that levels never seen have one too, and any two are at a squared distance of 2 on average (standard
deviation 1/2).
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import fdtrc
from scipy.stats import rankdata

from vastgp.auto import gaps
from vastgp.auto.dates import DateFacts
from vastgp.auto.guesses import Unread, chosen, in_two_ways, new_guesses
from vastgp.auto.numeric import NumberFacts
from vastgp.auto.values import (
    UnfitError,
    Values,
    first_present,
    levels_of,
)
from vastgp.auto.written import parse_number, parse_truth

CODE_SIZE = 16
# Beyond so many distinct texts their number is an estimate, and none of them is kept.
MOST_LEVELS = 100_000
_SKETCH = 16_384
# Rows of one level are alike in their targets where chance makes them so no oftener, and there are so many rows beyond
# the first of each level.
_CHANCE, _LEAST_PAIRS = 0.01, 5
# The name of a missing value among coded levels; text in a table has no null character before it.
_GAP = "\0missing"
# Programs read these words as nothing in a text file, or do not: a category of this name and a gap are one level.
_NOTHING = {"NA", "N/A", "n/a", "#N/A", "nan", "NaN", "null", "NULL", "<NA>"}


class TextFacts:
    """What the rows so far say of a column of text or categories."""

    def __init__(self, declared: bool) -> None:
        self.present = self.missing = 0
        self.numeric = False
        self._levels: set[str] = set()
        self._sketch: np.ndarray | None = None
        # what all of the text may be instead, but for a few words, until there are more of these
        self._guesses = [] if declared else new_guesses()

    def update(self, first: int, values: Values) -> None:
        """Take in a block."""
        codes, levels = categories_of(values)
        there = int((codes >= 0).sum())
        self.present += there
        self.missing += len(codes) - there
        self._count(levels)
        self.numeric = self.numeric or any(map(_is_numeric, levels))
        self._guesses = [
            guess for guess in self._guesses if guess.update(first, values, codes, levels)
        ]

    def read_as(self, max_levels: int) -> tuple[TextFacts | NumberFacts | DateFacts, Unread]:
        """Return the facts of numbers, dates or times where the text is that, otherwise these, and what is not read.

        Parameters
        ----------
        max_levels : int
            Of more levels a few words that are none of it do not count: they would be the only reason to take all the
            others for names.
        """
        guess = chosen(self._guesses, self.present, many=self.distinct > max_levels)
        if guess is not None:
            return guess.facts, guess.unread
        return self, Unread()

    @property
    def in_two_ways(self) -> bool:
        """Whether it is dates of which either the day or the month comes first."""
        return in_two_ways([guess for guess in self._guesses if guess.holds(self.present)])

    @property
    def distinct(self) -> int:
        """Number of levels, an estimate (about 1 %) beyond `MOST_LEVELS`."""
        if self._sketch is None:
            return len(self._levels)
        # the k-th smallest of n uniform numbers is near k / n
        estimate = round((_SKETCH - 1) / (float(self._sketch[-1]) / 2.0**64))
        return min(estimate, self.present)

    @property
    def levels(self) -> tuple[str, ...] | None:
        """The levels, sorted, unless there are too many to keep."""
        return None if self._sketch is not None else tuple(sorted(self._levels))

    def example(self) -> str:
        """Return one level as messages show it."""
        level = min(self._levels) if self._levels else ""
        return repr(level if len(level) <= 30 else level[:30] + "...")

    def _count(self, levels: Sequence[str]) -> None:
        if self._sketch is None:
            self._levels.update(level for level in levels if level not in _NOTHING)
            if len(self._levels) <= MOST_LEVELS:
                return
            levels = list(self._levels)
            self._levels = {min(self._levels)}  # an example for messages
            self._sketch = np.zeros(0, np.uint64)
        hashes = np.frombuffer(b"".join(_hash(level, 8) for level in levels), "<u8")
        self._sketch = np.unique(np.concatenate([self._sketch, hashes]))[:_SKETCH]


def _is_numeric(level: str) -> bool:
    return parse_number(level) is not None or parse_truth(level) is not None


def _hash(level: str, size: int) -> bytes:
    return hashlib.blake2b(level.encode("utf-8", "surrogatepass"), digest_size=size).digest()


def categories_of(values: Values) -> tuple[np.ndarray, Sequence[str]]:
    """Return the number of each row's level, -1 for gaps and for words that stand for them, and the levels."""
    codes, levels = levels_of(values)
    nothing = [number for number, level in enumerate(levels) if level in _NOTHING]
    if nothing:
        codes = np.where(np.isin(codes, nothing), -1, codes)
    return codes, levels


def _checked_levels(values: Values, numeric: bool) -> tuple[np.ndarray, Sequence[str]]:
    """Return codes and levels; numbers are refused where no level of training looks like one."""
    if values.form in ("numbers", "booleans") and not numeric:
        row = first_present(values)
        if values.data[row] == values.data[row]:
            raise UnfitError(values, row, "categories")
    return categories_of(values)


@dataclass(frozen=True)
class CategoryEncoding:
    """Few levels: one column each, and one for levels that training did not have.

    Attributes
    ----------
    levels : tuple of str
        Levels in training, sorted.
    gap : bool
        Whether a missing value is a level; otherwise it is one that training did not have.
    numeric : bool
        Whether some level is a number, so that numbers are taken for levels.
    """

    kind: ClassVar[str] = "category"

    levels: tuple[str, ...]
    gap: bool
    numeric: bool

    def groups(self, name: str) -> list[list[str]]:
        """Return the names of the output columns, those of one input in one list."""
        levels = [*self.levels, *["(missing)"] * self.gap, "(unseen)"]
        return [[f"{name}={level}" for level in levels]] + [gaps.group(name)] * self.gap

    def encode(self, values: Values) -> tuple[np.ndarray, int]:
        """Return the output columns of a block; nothing is unforeseen."""
        codes, levels = _checked_levels(values, self.numeric)
        size = len(self.levels) + self.gap + 1
        unseen = size - 1
        gap = len(self.levels) if self.gap else unseen
        places = np.array([self._place.get(level, unseen) for level in levels] + [gap])
        found = np.eye(size)[places[codes]]
        if self.gap:
            found = np.column_stack([found, gaps.of_new_rows(codes < 0)])
        return found, 0

    @functools.cached_property
    def _place(self) -> dict[str, int]:
        return {level: place for place, level in enumerate(self.levels)}

    def words(self) -> str:
        """Return what is done, as a person reads it."""
        shown = ", ".join(self.levels[:6]) + (", ..." if len(self.levels) > 6 else "")
        gap = ", and missing," if self.gap else ""
        return f"{len(self.levels)} levels ({shown}){gap} all as far from each other as from a level never seen"

    def facts(self) -> dict[str, Any]:
        """Return what was found in training."""
        return {"levels": self.levels}


@dataclass(frozen=True)
class CodeEncoding:
    """Many levels: a direction each, and the mean of the target where there was one.

    Attributes
    ----------
    count : int
        Number of levels in training.
    numeric : bool
        Whether some level is a number, so that numbers are taken for levels.
    levels : tuple of str
        The levels, sorted, where they are few enough to keep.
    means : tuple of float
        The target's mean by level, then of gaps and of levels that training did not have; empty without a target. Of
        several classes the shares of each, one class after the other.
    """

    kind: ClassVar[str] = "codes"

    count: int
    numeric: bool
    levels: tuple[str, ...] = ()
    means: tuple[float, ...] = ()

    def groups(self, name: str) -> list[list[str]]:
        """Return the names of the output columns, those of one input in one list."""
        codes = [f"{name} code {j + 1}" for j in range(CODE_SIZE)]
        return [codes, names_of_means(name, self.num_means)] if self.means else [codes]

    def encode(self, values: Values) -> tuple[np.ndarray, int]:
        """Return the output columns of a block; nothing is unforeseen."""
        codes, levels = _checked_levels(values, self.numeric)
        found = code_vectors([*levels, _GAP])[codes]
        if self.means:
            means = self._means[:, self.places(levels)[codes]]
            found = np.column_stack([found, *means])
        return found, 0

    def places(self, levels: Sequence[str]) -> np.ndarray:
        """Return the place of each level among the means, and after them that of a missing value."""
        gap = len(self.levels)
        return np.array([self._place.get(level, gap + 1) for level in levels] + [gap])

    @property
    def num_means(self) -> int:
        """How many means a level has: one of numbers and of two classes, or the share of each class."""
        return len(self.means) // (len(self.levels) + 2)

    @functools.cached_property
    def _means(self) -> np.ndarray:
        return np.array(self.means).reshape(self.num_means, -1)

    @functools.cached_property
    def _place(self) -> dict[str, int]:
        return {level: place for place, level in enumerate(self.levels)}

    def words(self) -> str:
        """Return what is done, as a person reads it."""
        done = f"{self.count} levels, each a direction of its own in {CODE_SIZE} dimensions that follows from its name"
        beside = "shares of the classes in" if self.num_means > 1 else "target's mean of"
        return done + f"; beside it the {beside} each level" * bool(self.means)

    def facts(self) -> dict[str, Any]:
        """Return what was found in training."""
        return {"levels": self.count}


def names_of_means(name: str, count: int) -> list[str]:
    """Return the names of the output columns that are the target's mean by level, or the shares of classes."""
    return [f"{name} mean target" + f" {k + 1}" * (count > 1) for k in range(count)]


def code_vectors(levels: Sequence[str]) -> np.ndarray:
    """Return a unit vector per level, which follows from its name alone.

    Normal numbers from the bits of a hash, scaled to length one, are uniform on the sphere: |u - v|^2 = 2 - 2 u.v,
    and u.v has mean 0 and variance 1 / 16.
    """
    from scipy.special import ndtri

    bits = b"".join(_hash(level, 4 * CODE_SIZE) for level in levels)
    uniform = (np.frombuffer(bits, "<u4").reshape(-1, CODE_SIZE) + 0.5) / 2.0**32
    normal = ndtri(uniform)
    return normal / np.linalg.norm(normal, axis=1, keepdims=True)


def with_means(
    encoding: CodeEncoding, codes: np.ndarray, y: np.ndarray
) -> tuple[CodeEncoding, np.ndarray]:
    """Return an encoding with the target's means, and those of the training rows, (n, C), each from the other rows.

    Parameters
    ----------
    encoding
        The encoding without them.
    codes
        Of each row the place of its level.
    y : ndarray of shape (n,) or (n, C)
        The target; rows without it count nowhere. Of classes which of them each row is, 0 or 1.

    Notes
    -----
    Each level's mean is shrunk towards that of all rows as scikit-learn's TargetEncoder does (empirical Bayes). A row's
    own target must not be in its input, so the mean of a training row is of the other four fifths of the rows.
    """
    parts = [_means_of(len(encoding.levels) + 2, codes, each) for each in np.atleast_2d(y.T)]
    means = np.concatenate([of_levels for of_levels, _ in parts])
    rows = np.column_stack([of_rows for _, of_rows in parts])
    return dataclasses.replace(encoding, means=tuple(means.tolist())), rows


def _means_of(count: int, codes: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of each of so many levels, and of each row that of its level by other rows."""
    from sklearn.model_selection import KFold

    there = np.flatnonzero(np.isfinite(y))
    fitted = _target_encoder(codes[there], y[there])
    means = np.full(count, fitted.target_mean_)
    means[fitted.categories_[0]] = fitted.encodings_[0]
    rows = means[codes]
    if len(there) >= 2:
        folds = KFold(min(5, len(there)), shuffle=True, random_state=0)
        for train, test in folds.split(there):
            part = _target_encoder(codes[there[train]], y[there[train]])
            rows[there[test]] = part.transform(codes[there[test], None])[:, 0]
    return means, rows


def targets_are_alike(codes: np.ndarray, y: np.ndarray) -> bool:
    """Return whether rows of one level have targets that are more alike than others, beyond doubt.

    By an analysis of variance of their ranks, of the levels that more than one row has; of classes by that of any.

    Parameters
    ----------
    codes
        Of each row the place of its level.
    y : ndarray of shape (n,) or (n, C)
        The target; rows without it count nowhere.
    """
    chances = [_chance_that_alike(codes, each) for each in np.atleast_2d(y.T)]
    return min(chances) * len(chances) < _CHANCE


def _chance_that_alike(codes: np.ndarray, y: np.ndarray) -> float:
    there = np.isfinite(y)
    _, level, rows = np.unique(codes[there], return_inverse=True, return_counts=True)
    several = rows[level] > 1
    level = np.unique(level[several], return_inverse=True)[1]
    ranks = rankdata(y[there][several])
    n, num_levels = len(ranks), int(level.max(initial=-1)) + 1
    if num_levels < 2 or n - num_levels < _LEAST_PAIRS:
        return 1.0
    means = np.bincount(level, ranks) / np.bincount(level)
    within = float(np.sum((ranks - means[level]) ** 2))
    between = float(np.sum((means[level] - ranks.mean()) ** 2))
    if not between:
        return 1.0
    ratio = np.inf if not within else between / (num_levels - 1) / (within / (n - num_levels))
    return float(fdtrc(num_levels - 1, n - num_levels, ratio))


def _target_encoder(codes: np.ndarray, y: np.ndarray) -> Any:
    from sklearn.preprocessing import TargetEncoder

    return TargetEncoder(target_type="continuous", smooth="auto").fit(codes[:, None], y)
