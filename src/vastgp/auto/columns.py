"""What each column of a table is, and what is done with it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vastgp.auto.categories import CategoryEncoding, CodeEncoding, TextFacts
from vastgp.auto.dates import DateEncoding, DateFacts, TimeEncoding
from vastgp.auto.guesses import Unread, with_gaps
from vastgp.auto.named_numbers import NamedNumberEncoding, with_names
from vastgp.auto.numeric import NumberEncoding, NumberFacts
from vastgp.auto.space import PlaceEncoding, PlaceFacts, Places
from vastgp.auto.values import Values
from vastgp.auto.written import read_form

Encoding = (
    NumberEncoding
    | NamedNumberEncoding
    | DateEncoding
    | TimeEncoding
    | CategoryEncoding
    | CodeEncoding
    | PlaceEncoding
)
Facts = NumberFacts | DateFacts | TextFacts | PlaceFacts

_ENCODINGS: dict[str, Any] = {
    made.__name__: made
    for made in (
        NumberEncoding,
        NamedNumberEncoding,
        DateEncoding,
        TimeEncoding,
        CategoryEncoding,
        CodeEncoding,
        PlaceEncoding,
    )
}
# The name of a column that numbers the rows, or the things in them.
_IDENTIFIER = re.compile(
    r"\s*|unnamed(: ?\d+)?|index|idx|row|row ?(number|no|nr|id)|rownum|(.*[ ._-])?(id|uuid|guid)",
    re.IGNORECASE,
)
_CAMEL_ID = re.compile(r".*[a-z](Id|ID)")
# Of fewer texts, all distinct may be chance.
_FEW_ROWS = 10
# Text with more distinct values than this share of the rows tells rows apart and nothing else; with up to the second
# unless rows of one value have targets that are alike, see `vastgp.auto.reading.with_target_means`.
_MOST_DISTINCT, _MOST_OF_PAIRS = 0.5, 0.75
_NOUN = {"numbers": "number", "booleans": "boolean", "durations": "duration"}


@dataclass(frozen=True)
class Column:
    """One column of the table and what is done with it.

    Attributes
    ----------
    name : str
        Its name.
    kind : str
        What it is: number, boolean, duration, date, time of day, place, category, ordered category, codes (a
        category of many levels), text, or empty.
    missing : int
        How many training rows had nothing there.
    outputs : tuple of int
        Numbers of its columns in the encoded matrix; none where it is left out.
    encoding : object, optional
        How it is encoded; None where it is left out.
    reason : str
        Why it is left out, or why it will be unless the target says otherwise.
    unread : Unread
        Values that could not be read as what the others are: they are gaps.
    lenient : bool
        Whether what cannot be read in new rows is a gap as well, rather than refused.
    """

    name: str
    kind: str
    missing: int
    outputs: tuple[int, ...]
    encoding: Encoding | None = field(repr=False)
    reason: str = ""
    unread: Unread = field(default_factory=Unread)
    lenient: bool = False

    @property
    def kept(self) -> bool:
        """Whether it is an input."""
        return self.encoding is not None

    def without_doubt(self, tells: bool) -> Column:
        """Return it as an input for sure, or left out, and numbers on one scale, where there was a doubt."""
        if isinstance(self.encoding, NumberEncoding):
            return dataclasses.replace(self, encoding=self.encoding.decided(tells))
        if not (self.kept and self.reason):
            return self
        if tells:
            return dataclasses.replace(self, reason="")
        return dataclasses.replace(self, kind="text", encoding=None)

    def named(self, names: bool) -> Column:
        """Return it with the names of things that its numbers are, or without them, where there was a doubt."""
        if not isinstance(self.encoding, NamedNumberEncoding):
            return self
        return dataclasses.replace(self, encoding=self.encoding.decided(names))

    @property
    def done(self) -> str:
        """What is done with it, in words."""
        if self.encoding is None:
            return f"left out: {self.reason}"
        return self.encoding.words() + self.unread.words()

    def encode(self, values: Values) -> tuple[np.ndarray, int]:
        """Return the output columns of a block, and the number of gaps that training had none of."""
        assert self.encoding is not None
        form = str(getattr(self.encoding, "form", ""))
        return self.encoding.encode(with_gaps(values, form) if self.lenient else values)

    @property
    def facts(self) -> dict[str, Any]:
        """What the training rows said: levels, range, number of missing values."""
        found = {} if self.encoding is None else self.encoding.facts()
        return {"missing": self.missing, **found}

    def to_state(self) -> dict[str, Any]:
        """Return plain data that `from_state` makes the record of."""
        state = dataclasses.asdict(dataclasses.replace(self, encoding=None))
        state["outputs"] = list(self.outputs)
        if self.encoding is not None:
            state["encoding"] = _state_of(self.encoding)
        return state

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Column:
        """Return the record of such data."""
        fields = dict(state)
        if fields["encoding"] is not None:
            fields["encoding"] = _made_of(fields["encoding"])
        if "unread" in fields:
            unread = fields["unread"]
            fields["unread"] = Unread(unread["rows"], tuple(unread["examples"]))
        return cls(**{k: _tupled(v) for k, v in fields.items()})


def _state_of(value: Any) -> Any:
    """Return an encoding as plain data, with those that it is made of."""
    if not dataclasses.is_dataclass(value):
        return list(value) if isinstance(value, tuple) else value
    fields = {one.name: _state_of(getattr(value, one.name)) for one in dataclasses.fields(value)}
    return {"class": type(value).__name__, **fields}


def _made_of(value: Any) -> Any:
    """Return the encoding of such data."""
    if not (isinstance(value, Mapping) and "class" in value):
        return _tupled(value)
    stored = {name: _made_of(part) for name, part in value.items() if name != "class"}
    return _ENCODINGS[value["class"]](**stored)


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# ---------------------------------------------------------------- what a column is


def new_facts(values: Values, order: tuple[str, ...] | None) -> Facts:
    """Return empty facts for a column that begins with these values.

    Parameters
    ----------
    values
        Its first block.
    order
        Its levels in order, where the caller says so.
    """
    order = values.order if order is None else order
    if isinstance(values, Places):
        return PlaceFacts(values.space)
    if order:
        return NumberFacts("text", order)
    if values.form == "text":
        return TextFacts(values.declared)
    if values.form == "dates":
        return DateFacts()
    return NumberFacts("numbers" if values.form == "nothing" else values.form)


def settle(
    name: str, found: Facts, *, max_levels: int, squash: bool, like: Column | None = None
) -> Column:
    """Return what is done with a column whose rows have all been read; its outputs are not numbered yet.

    Parameters
    ----------
    name : str
    found : Facts
    max_levels, squash
        As of the encoder.
    like : Column, optional
        What is done with it where there are more rows: it stays an input, or none, and a category or codes. A share of
        the rows has fewer that repeat each other.
    """
    if like is not None and not like.kept:
        return dataclasses.replace(like, missing=found.missing)
    facts, unread = found.read_as(max_levels) if isinstance(found, TextFacts) else (found, Unread())
    identifier = like is None and isinstance(facts, NumberFacts) and _is_identifier(name, facts)
    if isinstance(facts, NumberFacts) and not identifier:
        facts = DateFacts.among(facts) or facts
    kind = _kind_of(facts)
    if not facts.present:
        return Column(name, "empty", facts.missing, (), None, "all values are missing")
    if isinstance(facts, TextFacts):
        return _settle_text(name, facts, max_levels, like)
    # the same everywhere, and nowhere missing
    if facts.constant and not facts.missing:
        return Column(name, kind, 0, (), None, "all values are the same")
    encoding: Encoding
    if isinstance(facts, (DateFacts, PlaceFacts)):
        encoding = facts.encoding()
    elif facts.form == "times":
        encoding = TimeEncoding(facts.missing > 0, facts.low, facts.high)
    elif identifier:
        reason = "whole numbers, all distinct, under a name that says they only number the rows"
        return Column(name, kind, facts.missing, (), None, reason)
    else:
        encoding = _of_numbers(facts, max_levels, squash, like)
    lenient = unread.rows > 0
    if (
        like is not None
    ):  # a gap is what others hold and these do not, such as one word among numbers
        lenient = lenient or like.lenient or like.kind != kind
    return Column(name, kind, facts.missing, (), encoding, unread=unread, lenient=lenient)


def _of_numbers(
    facts: NumberFacts, max_levels: int, squash: bool, like: Column | None
) -> NumberEncoding | NamedNumberEncoding:
    number, of_whole = facts.encoding(squash), None if like is None else like.encoding
    plain = of_whole.number if isinstance(of_whole, NamedNumberEncoding) else of_whole
    if isinstance(plain, NumberEncoding):
        number = number.decided(plain.magnitudes)
    return with_names(number, facts, max_levels, of_whole)


def _kind_of(facts: Facts) -> str:
    if isinstance(facts, DateFacts):
        return "date"
    if isinstance(facts, TextFacts):
        return "text"
    if isinstance(facts, PlaceFacts):
        return PlaceEncoding.kind
    if facts.order:
        return "ordered category"
    return _NOUN.get(read_form(facts.form), "time of day")


def _is_identifier(name: str, facts: NumberFacts) -> bool:
    named = _IDENTIFIER.fullmatch(name) or _CAMEL_ID.fullmatch(name)
    number = read_form(facts.form) == "numbers"
    return bool(named) and number and facts.whole and facts.all_distinct()


def _settle_text(name: str, facts: TextFacts, max_levels: int, like: Column | None) -> Column:
    distinct, levels, gap = facts.distinct, facts.levels, facts.missing > 0
    if distinct == 1 and not gap:
        return Column(name, "category", 0, (), None, "all values are the same")
    encoding: Encoding
    all_distinct = like is None and distinct == facts.present and facts.present >= _FEW_ROWS
    few = distinct <= max_levels and not all_distinct
    if like is not None and isinstance(like.encoding, CodeEncoding):
        few = False
    if levels is not None and few:
        encoding = CategoryEncoding(levels, gap, facts.numeric)
    elif like is not None or distinct <= _MOST_DISTINCT * facts.present:
        encoding = CodeEncoding(distinct, facts.numeric, levels or ())
    else:
        about = "about " if levels is None else ""
        advice = "If it holds dates or measurements, convert it"
        if facts.in_two_ways:
            advice = (
                "Of these dates either the day or the month may be first: write them as 2024-12-31"
            )
        reason = (
            f"text such as {facts.example()}, {about}{distinct} different ones in {facts.present} rows: it tells rows "
            f"apart and nothing else. {advice}"
        )
        if (
            levels is not None
            and distinct <= _MOST_OF_PAIRS * facts.present
            and not facts.in_two_ways
        ):
            in_doubt = CodeEncoding(distinct, facts.numeric, levels)
            return Column(name, in_doubt.kind, facts.missing, (), in_doubt, reason)
        return Column(name, "text", facts.missing, (), None, reason)
    return Column(name, encoding.kind, facts.missing, (), encoding)
