"""How well stated intervals held on held-out rows: overall, by stated deviation and by each input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vastgp.data.missing import missing_in

LEVELS = (0.5, 0.8, 0.9, 0.95)
GROUP_LEVEL = (
    0.9  # in groups: with fifty rows five are outside, where 95 % would leave two or three to count
)
_GROUPS = 10
_FEWEST = 20  # rows of a group, from which on a normal distribution stands for the binomial one
_LIMIT = 3.0  # standard errors
_BINS = 20


@dataclass(frozen=True)
class Coverage:
    """Coverage of central intervals among some rows.

    Attributes
    ----------
    group : str
        Which rows, in words; empty for all.
    rows : int
    level : float
        Nominal coverage.
    coverage : float
        Fraction of the rows inside.
    error : float
        Standard error of the coverage if the level is right: ``sqrt(level (1 - level) / rows)``.
    """

    group: str
    rows: int
    level: float
    coverage: float
    error: float

    @property
    def differs(self) -> bool:
        """Whether the coverage is more than three standard errors from its level, of at least 20 rows."""
        return self.rows >= _FEWEST and abs(self.coverage - self.level) > _LIMIT * self.error


@dataclass(frozen=True)
class CalibrationRecord:
    """Coverage on held-out rows. Plain values, made by `calibration_record`.

    Attributes
    ----------
    rows : int
    overall : tuple of Coverage
        Of the 50, 80, 90 and 95 % intervals.
    by_std : tuple of Coverage
        Of the 90 % intervals in tenths of the rows by stated deviation.
    by_input : dict of str to tuple of Coverage
        In tenths of the rows by each input, or by its levels.
    pit_counts : tuple of int
        Rows in each of 20 bins of the PIT values.
    flags : tuple of str
        Coverages more than three standard errors from nominal, in words, the largest difference first.
    checked : int
        Coverages that were looked at; of right ones about one in 370 is flagged by chance.
    """

    rows: int
    overall: tuple[Coverage, ...]
    by_std: tuple[Coverage, ...]
    by_input: dict[str, tuple[Coverage, ...]]
    pit_counts: tuple[int, ...]
    flags: tuple[str, ...]
    checked: int

    def to_dict(self) -> dict[str, Any]:
        """Return lists, dicts, numbers and strings, for JSON."""
        plain = asdict(self)
        for name in ("overall", "by_std", "pit_counts", "flags"):
            plain[name] = list(plain[name])
        plain["by_input"] = {name: list(groups) for name, groups in plain["by_input"].items()}
        return plain

    @classmethod
    def from_dict(cls, plain: Any) -> CalibrationRecord:
        """Return the record that `to_dict` described."""

        def groups(found: Any) -> tuple[Coverage, ...]:
            return tuple(Coverage(**one) for one in found)

        return cls(
            rows=plain["rows"],
            overall=groups(plain["overall"]),
            by_std=groups(plain["by_std"]),
            by_input={name: groups(found) for name, found in plain["by_input"].items()},
            pit_counts=tuple(plain["pit_counts"]),
            flags=tuple(plain["flags"]),
            checked=plain["checked"],
        )


def calibration_record(
    y: Any, mean: Any, std: Any, u: Any, X: Any = None, names: Any = None
) -> CalibrationRecord:
    """Return how often stated intervals held the targets of held-out rows.

    Parameters
    ----------
    y, mean, std : array-like of shape (n,)
        Targets, predicted means and deviations.
    u : array-like of shape (n,)
        PIT values of the distributions that are judged: the calibrated ones, of discrete targets the randomised ones.
    X : array-like of shape (n, d), optional
        Inputs as a person knows them: numbers or labels, with None and NaN as missing.
    names : sequence of str, optional
        Of the inputs; "input 1" and so on without.

    Returns
    -------
    CalibrationRecord
    """
    y, mean, std, u = (np.asarray(part, dtype=np.float64) for part in (y, mean, std, u))
    for name, part in (("mean", mean), ("std", std), ("u", u)):
        if part.shape != y.shape:
            raise ValueError(
                f"{name}: expected one value a row as y, shape {y.shape}, got {part.shape}"
            )
    if not len(u):
        raise ValueError("y: expected at least one held-out row")
    overall = tuple(_coverage(u, level, "") for level in LEVELS)
    by_std = tuple(
        _coverage(u[rows], GROUP_LEVEL, f"the stated deviation is {words}")
        for words, rows in _groups(std)
    )
    by_input: dict[str, tuple[Coverage, ...]] = {}
    columns = [] if X is None else _columns(X)
    named = [f"input {j + 1}" for j in range(len(columns))] if names is None else list(names)
    for name, column in zip(named, columns, strict=True):
        by_input[str(name)] = tuple(
            _coverage(u[rows], GROUP_LEVEL, f"{name} is {words}") for words, rows in _groups(column)
        )
    found = [*overall, *by_std, *(one for groups in by_input.values() for one in groups)]
    counts = np.histogram(u, bins=_BINS, range=(0.0, 1.0))[0]
    return CalibrationRecord(
        rows=len(u),
        overall=overall,
        by_std=by_std,
        by_input=by_input,
        pit_counts=tuple(int(count) for count in counts),
        flags=_flags(found),
        checked=len(found),
    )


def _coverage(u: np.ndarray, level: float, group: str) -> Coverage:
    # the central interval of a level holds y exactly when |2 u - 1| is at most the level
    inside = float(np.mean(np.abs(2.0 * u - 1.0) <= level))
    error = float(np.sqrt(level * (1.0 - level) / len(u)))
    return Coverage(group, len(u), level, inside, error)


def _flags(found: list[Coverage]) -> tuple[str, ...]:
    far = [one for one in found if one.differs]
    far.sort(key=lambda one: -abs(one.coverage - one.level) / one.error)
    return tuple(_in_words(one) for one in far)


def _in_words(one: Coverage) -> str:
    where = (
        f" of the {one.rows:,} rows where {one.group}" if one.group else f" of {one.rows:,} rows"
    )
    wrong = "too narrow" if one.coverage < one.level else "too wide"
    return (
        f"{100.0 * one.level:.0f} % intervals hold {100.0 * one.coverage:.1f} %{where} "
        f"(by chance {100.0 * one.level:.0f} ± {100.0 * one.error:.1f} %): {wrong}"
    )


def _columns(X: Any) -> list[np.ndarray]:
    table = np.asarray(X)
    if table.ndim != 2:
        raise ValueError(f"X: expected rows x inputs, got shape {table.shape}")
    return [_numbers_or_labels(table[:, j]) for j in range(table.shape[1])]


def _numbers_or_labels(column: np.ndarray) -> np.ndarray:
    try:
        return column.astype(np.float64)
    except (TypeError, ValueError):
        return column.astype(object)


def _groups(column: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the levels of a column with few, or tenths of its rows, each in words and as row numbers."""
    if column.dtype == object:
        missing = missing_in(column)
        values = np.array([str(value) for value in column])
    else:
        missing, values = ~np.isfinite(column), column
    known = np.flatnonzero(~missing)
    levels, number, rows = np.unique(values[known], return_inverse=True, return_counts=True)
    if len(levels) <= _GROUPS or column.dtype == object:
        often = np.argsort(-rows, kind="stable")[:_GROUPS]
        for k in np.sort(often):
            word = levels[k] if column.dtype == object else f"{levels[k]:.4g}"
            yield str(word), known[number == k]
        rest = ~np.isin(number, often)
        if rest.any():
            yield "another level", known[rest]
    else:
        edges = np.unique(np.quantile(values[known], np.linspace(0.0, 1.0, _GROUPS + 1)))
        # equal values stay together: each group is closed above
        place = np.clip(np.searchsorted(edges, values[known], side="left") - 1, 0, len(edges) - 2)
        for k in np.unique(place):
            here = known[place == k]
            yield f"{values[here].min():.4g} to {values[here].max():.4g}", here
    if missing.any():
        yield "missing", np.flatnonzero(missing)
