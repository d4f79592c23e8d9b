"""Whole numbers that name things: a school, a shop, a patient, a month.

A function that is smooth in such a number knows nothing of a thing from those beside it, and one that is rough enough
to tell each of them apart learns nothing of what they have in common. So the number has its levels as a further input,
as text has, where the target says so: see `vastgp.auto.naming`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import fdtrc
from scipy.stats import rankdata

from vastgp.auto.categories import CategoryEncoding, CodeEncoding, categories_of
from vastgp.auto.numeric import NumberEncoding, NumberFacts
from vastgp.auto.values import Values, level_text, numbers_of
from vastgp.auto.written import read_form

# Fewer things than the first have no neighbours on both sides, and of more than the second share of the rows most have
# one row each.
_FEWEST, _MOST = 4, 0.75
_LEAST_PAIRS = 5
# Of more rows in all they are numbers: whether they are more takes these of all rows in memory.
_MOST_ROWS = 1_000_000
# What things differ by from their neighbours has so small a probability by chance, and is of the variance at least so
# much, and of what all things differ by at least the half: where it is less, what they have is smooth in the number.
_CHANCE, _SHARE, _ROUGH = 0.01, 0.03, 0.5


@dataclass(frozen=True)
class NamedNumberEncoding:
    """Whole numbers as one input, and what they name as another.

    Attributes
    ----------
    number : NumberEncoding
        How the number becomes inputs.
    names : CategoryEncoding or CodeEncoding
        How its levels do.
    in_doubt : bool
        Whether the target is still to say that it names things.
    """

    number: NumberEncoding
    names: CategoryEncoding | CodeEncoding
    in_doubt: bool = False

    @property
    def form(self) -> str:
        """What the column is read as."""
        return self.number.form

    @property
    def gaps(self) -> bool:
        """Whether there is an indicator of gaps."""
        return self.number.gaps

    def decided(self, names: bool) -> NamedNumberEncoding | NumberEncoding:
        """Return the encoding with names or without them, where that was in doubt."""
        if not self.in_doubt:
            return self
        return dataclasses.replace(self, in_doubt=False) if names else self.number

    def groups(self, name: str) -> list[list[str]]:
        """Return the names of the output columns, those of one input in one list; what is missing comes last."""
        value, *missing = self.number.groups(name)
        return [value, *self.names.groups(name), *missing]

    def encode(self, values: Values) -> tuple[np.ndarray, int]:
        """Return the output columns of a block, and the number of gaps that training had none of."""
        found, unforeseen = self.number.encode(values)
        names, _ = self.names.encode(Values("numbers", numbers_of(values, self.form)))
        return np.column_stack([found[:, :1], names, found[:, 1:]]), unforeseen

    def of_all(self, data: np.ndarray) -> NamedNumberEncoding:
        """Return it with the levels of all rows, where some have said what it is."""
        levels = _levels(data)
        if isinstance(self.names, CodeEncoding):
            names: CategoryEncoding | CodeEncoding
            names = dataclasses.replace(self.names, count=len(levels), levels=levels)
        else:
            names = dataclasses.replace(self.names, levels=levels)
        return dataclasses.replace(self, names=names)

    def places(self, data: np.ndarray) -> np.ndarray:
        """Return of each number the place of its level among those of training."""
        assert isinstance(self.names, CodeEncoding)
        codes, levels = categories_of(Values("numbers", data))
        return self.names.places(levels)[codes]

    def words(self) -> str:
        """Return what is done, as a person reads it."""
        return f"{self.number.words()}; also the names of things: {self.names.words()}"

    def facts(self) -> dict[str, Any]:
        """Return what was found in training."""
        return {**self.number.facts(), **self.names.facts()}


def _levels(data: np.ndarray) -> tuple[str, ...]:
    return tuple(sorted(map(level_text, np.unique(data[np.isfinite(data)]).tolist())))


def with_names(
    encoding: NumberEncoding, facts: NumberFacts, max_levels: int, like: object = None
) -> NumberEncoding | NamedNumberEncoding:
    """Return the encoding of numbers with their names, in doubt, where they are whole ones that repeat.

    Parameters
    ----------
    encoding, facts
        Of the numbers.
    max_levels
        As of the encoder.
    like : encoding, optional
        Of a table of which these are some rows: it decides, and whether names have codes.
    """
    if like is not None and not isinstance(like, NamedNumberEncoding):
        return encoding
    plain = read_form(facts.form) == "numbers" and not facts.order and encoding.value
    if not (plain and facts.whole and facts.present <= _MOST_ROWS):
        return encoding
    values = facts.sample.values()
    levels = _levels(values)
    if like is None and not _FEWEST <= len(levels) <= _MOST * len(values):
        return encoding
    few = len(levels) <= max_levels if like is None else isinstance(like.names, CategoryEncoding)
    names = (
        CategoryEncoding(levels, False, True) if few else CodeEncoding(len(levels), True, levels)
    )
    return NamedNumberEncoding(encoding, names, in_doubt=like is None)


def share_of_names(data: np.ndarray, y: np.ndarray) -> float:
    """Return which share of a target's variance is of things that numbers name, and of no function of these.

    Of each number but the first and the last the mean of ranks is compared with what lies on the line between its
    neighbours. With n_i rows of variance s^2 and effects of variance t^2, and weights 1 - w and w of the neighbours,

        E e_i^2 = t^2 (1 + (1 - w)^2 + w^2) + s^2 (1/n_i + (1 - w)^2/n_{i-1} + w^2/n_{i+1}).

    Parameters
    ----------
    data : ndarray of shape (n,)
        Numbers.
    y : ndarray of shape (n,)
        The target.

    Returns
    -------
    float
        t^2 of the variance of the ranks; 0 where it may be chance, or much less than what all numbers differ by.
    """
    there = np.isfinite(data) & np.isfinite(y)
    numbers, level, rows = np.unique(data[there], return_inverse=True, return_counts=True)
    ranks = rankdata(y[there])
    n, count = len(ranks), len(numbers)
    if count < _FEWEST or n - count < _LEAST_PAIRS or ranks[0] == ranks.mean() == ranks.max():
        return 0.0
    means = np.bincount(level, ranks) / rows
    within = float(np.sum((ranks - means[level]) ** 2)) / (n - count)
    half = 0.5 * numbers  # differences of the largest overflow
    w = (half[1:-1] - half[:-2]) / (half[2:] - half[:-2])
    e = means[1:-1] - (1.0 - w) * means[:-2] - w * means[2:]
    of_rows = np.sum(1.0 / rows[1:-1] + (1.0 - w) ** 2 / rows[:-2] + w**2 / rows[2:])
    of_things = np.sum(1.0 + (1.0 - w) ** 2 + w**2)
    rough = float(np.sum(e**2))
    beside = (rough - within * of_rows) / of_things
    between = float(np.var(means, ddof=1)) - within * float(np.mean(1.0 / rows))
    # neighbouring differences share means: they tell about half as much as so many that do not
    ratio = np.inf if not within else rough / of_rows / within
    by_chance = fdtrc(0.5 * (count - 2), n - count, ratio)
    share = float(beside) / float(np.var(ranks))
    tells = by_chance < _CHANCE and share > _SHARE and beside > _ROUGH * between
    return share if tells else 0.0
