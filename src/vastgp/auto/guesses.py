"""What a column of text may be instead: numbers, dates or times, with a few words among them that are none.

A table that people keep has "unknown" or "n.d." among its numbers, and a 31st of February among its dates. One such
value would make a name of every other, so that those that cannot be read are gaps, if they are few. Whether 3/4/2024 is
in March or in April the other rows say: one of them has a day beyond the 12th, or all are the first of a month.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vastgp.auto.dates import DateFacts
from vastgp.auto.numeric import NumberFacts
from vastgp.auto.values import Values, parse_levels
from vastgp.auto.written import (
    COMMA_NUMBERS,
    DAY_FIRST,
    MONTH_FIRST,
    form_with_unit,
    kind_of,
    missing_of,
    parser_of,
    zone_written,
)

# More than this share of the rows, or of numbers more different words than this, say something of their own; of fewer
# rows than this nothing is certain.
_SHARE, _MOST_WORDS, _LEAST_ROWS = 0.05, 3, 20
_EXAMPLES = 3
# Texts in which a unit is looked for.
_FOR_UNIT = 100


@dataclass(frozen=True)
class Unread:
    """Values that could not be read, and are gaps.

    Attributes
    ----------
    rows : int
        How many rows have one.
    examples : tuple of str
        Some of them.
    """

    rows: int = 0
    examples: tuple[str, ...] = ()

    def words(self) -> str:
        """Return a part of a sentence for people; nothing where all was read."""
        if not self.rows:
            return ""
        shown = ", ".join(map(repr, self.examples))
        values = "values such as" if self.rows > 1 else "value,"
        could = (
            "could not be read and are gaps" if self.rows > 1 else "could not be read and is a gap"
        )
        return f"; {self.rows:,} {values} {shown} {could}"


class Guess:
    """One thing that all of the text may be, but for a few words.

    Parameters
    ----------
    form : str
        How it is written, see `vastgp.auto.written`.
    most_words : int, optional
        So many different words at most are none of it.
    """

    def __init__(self, form: str, most_words: int | None = None) -> None:
        self.facts = DateFacts(form) if kind_of(form) == "dates" else NumberFacts(form)
        self._most_words = most_words
        self._words: set[str] = set()
        self.unread = Unread()

    @property
    def form(self) -> str:
        """How the text is written."""
        return self.facts.form

    def update(self, first: int, values: Values, codes: np.ndarray, levels: Sequence[str]) -> bool:
        """Take in a block; return whether the guess may still hold."""
        # a block may have more of them than the whole
        most = _MOST_WORDS + int(2 * _SHARE * len(levels))
        found, unread = parse_levels(levels, self.form, most)
        if len(unread) > most:
            return False
        if unread:
            self._words.update(levels[place] for place in unread)
            if self._most_words is not None and len(self._words) > self._most_words:
                return False
            rows = self.unread.rows + int(np.isin(codes, unread).sum())
            self.unread = Unread(rows, tuple(sorted(self._words)[:_EXAMPLES]))
            self._words = set(sorted(self._words)[: max(_EXAMPLES, self._most_words or 0) + 1])
        of_rows = np.append(found, missing_of(self.form))[codes]
        if isinstance(self.facts, DateFacts):
            self.facts.update_zone(map(zone_written, map(str.strip, levels)))
            self.facts.update_dates(first, of_rows)
        else:
            self.facts.update_numbers(first, of_rows, values)
        return True

    def holds(self, present: int) -> bool:
        """Return whether the text is this, but for so few words that they are no reason to doubt it."""
        return present >= _LEAST_ROWS and self.unread.rows <= _SHARE * present


class GuessOfUnit(Guess):
    """Numbers that all have the same unit, which the first texts tell."""

    def update(self, first: int, values: Values, codes: np.ndarray, levels: Sequence[str]) -> bool:
        """Take in a block; return whether the guess may still hold."""
        if not self.facts.present:
            kind, texts = kind_of(self.form), levels[:_FOR_UNIT]
            found = Counter(form_with_unit(text.strip(), kind) or kind for text in texts)
            found.pop(kind, None)
            if found:
                self.facts.form = found.most_common(1)[0][0]
        return super().update(first, values, codes, levels)


def new_guesses() -> list[Guess]:
    """Return what a column of text may be, with nothing read yet."""
    return [
        Guess("numbers", _MOST_WORDS),
        Guess(COMMA_NUMBERS, _MOST_WORDS),
        Guess("dates"),
        Guess(DAY_FIRST),
        Guess(MONTH_FIRST),
        Guess("times"),
        Guess("durations"),
        GuessOfUnit("numbers", _MOST_WORDS),
        GuessOfUnit(COMMA_NUMBERS, _MOST_WORDS),
    ]


def chosen(guesses: Sequence[Guess], present: int, *, many: bool) -> Guess | None:
    """Return what the text is; None where it is none of the guesses, or dates that can be read in two ways.

    Parameters
    ----------
    guesses
        Those that may still hold.
    present : int
        Number of rows that are not missing.
    many : bool
        Whether a few words that cannot be read do not count.
    """
    found = [guess for guess in guesses if guess.facts.present and not guess.unread.rows]
    if not found and many:
        found = [guess for guess in guesses if guess.facts.present and guess.holds(present)]
    if not found:
        return None
    if not in_two_ways(found):
        return min(found, key=lambda guess: guess.unread.rows)
    # every month has a first, and few tables the same twelve days of each January
    firsts = [
        guess for guess in found if isinstance(guess.facts, DateFacts) and guess.facts.only_firsts()
    ]
    return firsts[0] if len(firsts) == 1 else None


def in_two_ways(guesses: Sequence[Guess]) -> bool:
    """Return whether the text is dates of which either the day or the month comes first."""
    local = [guess for guess in guesses if guess.form in (DAY_FIRST, MONTH_FIRST)]
    return len(local) > 1 and local[0].unread.rows == local[1].unread.rows


def with_gaps(values: Values, form: str) -> Values:
    """Return a block in which text that cannot be read as a form is missing."""
    if values.form != "text" or parser_of(form) is None:
        return values
    _, unread = parse_levels(values.levels, form)
    codes = np.where(np.isin(values.data, unread), -1, values.data)
    return dataclasses.replace(values, data=codes)
