"""What a column of text may be instead: numbers, dates or times, with a few words among them that are none.

A table that people keep has "unknown" or "n.d." among its numbers, and a 31st of February among its dates. One such
value would make a name of every other, so that those that cannot be read are gaps, if they are few.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vastgp.auto.dates import DateFacts
from vastgp.auto.numeric import NumberFacts
from vastgp.auto.values import (
    COMMA_NUMBERS,
    Values,
    parse_comma_number,
    parse_date,
    parse_duration,
    parse_levels,
    parse_number,
    parse_time,
)

# More than this share of the rows, or of numbers more different words than this, say something of their own; of fewer
# rows than this nothing is certain.
_SHARE, _MOST_WORDS, _LEAST_ROWS = 0.05, 3, 20
_EXAMPLES = 3


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
    parse : callable
        Of a text; None where it is none.
    facts : NumberFacts or DateFacts
        Empty.
    most_words : int, optional
        So many different words at most are none of it.
    """

    def __init__(
        self,
        parse: Callable[[str], Any],
        facts: NumberFacts | DateFacts,
        most_words: int | None = None,
    ) -> None:
        self.parse, self.facts = parse, facts
        self._most_words = most_words
        self._words: set[str] = set()
        self.unread = Unread()

    def update(self, first: int, values: Values, codes: np.ndarray, levels: Sequence[str]) -> bool:
        """Take in a block; return whether the guess may still hold."""
        dates = isinstance(self.facts, DateFacts)
        missing: Any = np.datetime64("NaT", "us") if dates else np.nan
        # a block may have more of them than the whole
        most = _MOST_WORDS + int(2 * _SHARE * len(levels))
        read = parse_levels(levels, self.parse, missing, most)
        if read is None:
            return False
        found, unread = read
        if unread:
            self._words.update(levels[place] for place in unread)
            if self._most_words is not None and len(self._words) > self._most_words:
                return False
            rows = self.unread.rows + int(np.isin(codes, unread).sum())
            self.unread = Unread(rows, tuple(sorted(self._words)[:_EXAMPLES]))
            self._words = set(sorted(self._words)[: max(_EXAMPLES, self._most_words or 0) + 1])
        of_rows = np.append(found, missing)[codes]
        if isinstance(self.facts, DateFacts):
            self.facts.update_dates(first, of_rows)
        else:
            self.facts.update_numbers(first, of_rows, values)
        return True

    def holds(self, present: int) -> bool:
        """Return whether the text is this, but for so few words that they are no reason to doubt it."""
        return present >= _LEAST_ROWS and self.unread.rows <= _SHARE * present


def new_guesses() -> list[Guess]:
    """Return what a column of text may be, with nothing read yet."""
    return [
        Guess(parse_number, NumberFacts("numbers"), _MOST_WORDS),
        Guess(parse_comma_number, NumberFacts(COMMA_NUMBERS), _MOST_WORDS),
        Guess(parse_date, DateFacts()),
        Guess(parse_time, NumberFacts("times")),
        Guess(parse_duration, NumberFacts("durations")),
    ]


_PARSERS: dict[str, Callable[[str], Any]] = {
    "numbers": parse_number,
    COMMA_NUMBERS: parse_comma_number,
    "dates": parse_date,
    "times": parse_time,
    "durations": parse_duration,
}


def with_gaps(values: Values, form: str) -> Values:
    """Return a block in which text that cannot be read as a form is missing."""
    if values.form != "text" or form not in _PARSERS:
        return values
    missing: Any = np.datetime64("NaT", "us") if form == "dates" else np.nan
    read = parse_levels(values.levels, _PARSERS[form], missing, len(values.levels))
    assert read is not None
    codes = np.where(np.isin(values.data, read[1]), -1, values.data)
    return dataclasses.replace(values, data=codes)
