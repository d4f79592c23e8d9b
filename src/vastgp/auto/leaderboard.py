"""What a race saw: every model that ran, and how well it predicted rows that it had not been given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

# The note of a candidate that did not run.
NO_TIME_LEFT = "no time was left"
# Columns that entries without a score have as well.
_BEFORE_SCORES = 5


@dataclass(frozen=True)
class Entry:
    """One model in a race. Scores are means over held-out rows, NaN where it has none.

    Attributes
    ----------
    method : str
        Name of the candidate.
    target : str
        Scale that the target was modelled on.
    rows : int
        Training rows that it was given.
    seconds : float
        Of its fit, and of what it said of the held-out rows.
    nlpd : float
        Negative log predictive density in units of the target, in nats: lower is better. Of classes the log loss.
    nlpd_error : float
        Its standard error.
    nlpd_standardised : float
        The same of the target in deviations of the training rows.
    error : float
        Root mean squared error in units of the target; of classes the share of wrong ones.
    coverage : float
        Share of rows within their 95 % intervals; NaN of classes.
    note : str
        Why it ended, or failed.
    kept : bool
        Whether it won.
    """

    method: str
    target: str
    rows: int
    seconds: float
    nlpd: float = np.nan
    nlpd_error: float = np.nan
    nlpd_standardised: float = np.nan
    error: float = np.nan
    coverage: float = np.nan
    note: str = ""
    kept: bool = False


@dataclass(frozen=True)
class Leaderboard(Sequence[Entry]):
    """Entries, the best first; printed as a table, and a data frame by ``pandas.DataFrame(board.to_dicts())``.

    Attributes
    ----------
    entries : tuple of Entry
    classes : bool
        Whether the target is a class.
    note : str
        What the scores are of, where that is not plain.
    """

    entries: tuple[Entry, ...] = field(default_factory=tuple)
    classes: bool = False
    note: str = ""

    def sorted_with(self, winner: int | None) -> Leaderboard:
        """Return the entries by their score, the winner marked and first."""

        def place(pair: tuple[int, Entry]) -> tuple[bool, float]:
            number, entry = pair
            return number != winner, entry.nlpd if np.isfinite(entry.nlpd) else np.inf

        ordered = sorted(enumerate(self.entries), key=place)
        marked = (replace(entry, kept=number == winner) for number, entry in ordered)
        return replace(self, entries=tuple(marked))

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, number: Any) -> Any:
        return self.entries[number]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one dictionary for each entry."""
        return [asdict(entry) for entry in self.entries]

    @classmethod
    def from_dicts(
        cls, plain: Sequence[dict[str, Any]], classes: bool, note: str = ""
    ) -> Leaderboard:
        """Return what `to_dicts` described."""
        return cls(tuple(Entry(**entry) for entry in plain), classes, note)

    def __str__(self) -> str:
        heads = [
            "",
            "method",
            "target",
            "rows",
            "seconds",
            "NLPD",
            "+-",
            "wrong" if self.classes else "RMSE",
        ]
        heads += [] if self.classes else ["in 95 %"]
        lines = [heads]
        waiting = [entry.method for entry in self.entries if entry.note == NO_TIME_LEFT]
        for entry in self.entries:
            if entry.note == NO_TIME_LEFT:
                continue
            line = [
                "*" if entry.kept else "",
                entry.method,
                entry.target,
                f"{entry.rows:,}",
                f"{entry.seconds:.1f}",
            ]
            if np.isfinite(entry.nlpd):
                line += [f"{entry.nlpd + 0.0:.4g}", f"{entry.nlpd_error:.2g}", f"{entry.error:.4g}"]
                line += [] if self.classes else [f"{entry.coverage:.1%}"]
            else:
                line += [entry.note.splitlines()[0][:80] if entry.note else "not scored"]
            lines.append(line)
        widths = [
            # what stands for the scores of those that have none is as long as it is
            max(len(line[j]) for line in lines if len(line) == len(heads) or j < _BEFORE_SCORES)
            for j in range(len(heads))
        ]
        rest = [f"{NO_TIME_LEFT} for: {'; '.join(waiting)}"] if waiting else []
        rest += [self.note] if self.note else []
        shown = [
            "  ".join(
                text.rjust(width)
                if 3 <= j < _BEFORE_SCORES or (j >= 3 and len(line) == len(heads))
                else text.ljust(width)
                for j, (text, width) in enumerate(zip(line, widths, strict=False))
            ).rstrip()
            for line in lines
        ]
        return "\n".join(shown + rest)

    __repr__ = __str__
