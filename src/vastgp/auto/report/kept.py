"""What a fit keeps for its report: held-out rows as they were in the table, and which inputs mattered to the race."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vastgp.auto.encoder import TableEncoder
from vastgp.auto.inputs import Inputs, names_of_inputs, part_of
from vastgp.auto.report.explain import permutation_importance
from vastgp.auto.source import Source
from vastgp.auto.stacking import parts_of
from vastgp.auto.values import Values
from vastgp.data.minibatch import fixed_indices

# Columns of a wide table that are kept as they were: a row of the report shows twelve.
_MOST_COLUMNS = 50
# Encoded rows for effects and importance.
_MOST_ENCODED = 300
# The use of the seed for them, see `fixed_indices`.
_ENCODED = 220
# Importance is left out of a fit with less time than this, and given no more than a part of the time otherwise.
_LEAST_SECONDS, _SHARE, _MOST_SECONDS = 1.0, 0.15, 10.0
# Where that is too short for 300 rows it is of every third of them.
_THIRD = 3
_REPEATS, _SHUFFLES = 5, 200
# A log density below this is as bad as any: one impossible row must not be the whole mean.
_WORST = -1e3

NO_TIME = "no time was left to find out which inputs matter: give the fit more (max_seconds)"
NO_ROWS = "too few rows to hold some out and judge by them"


@dataclass(frozen=True)
class Kept:
    """Plain values that are saved with a model.

    Attributes
    ----------
    columns : dict of str to Values
        Inputs of the held-out rows as they were in the table, in the order of ``held_out_``.
    encoded : ndarray of shape (k, d)
        Some rows as the last encoder makes them, for effects.
    importance : tuple of (str, float, float)
        Input, loss of held-out log density in nats a row when it is shuffled, its standard error; the largest first.
    without : str
        Why there is no importance; empty where there is.
    rows, rows_used : int
        With a target, and those of them that the last fit was given.
    spent : tuple of (str, float)
        Seconds by phase of the last fit; none where the race's own model is the answer.
    """

    columns: dict[str, Values] = field(default_factory=dict)
    encoded: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    importance: tuple[tuple[str, float, float], ...] = ()
    without: str = NO_ROWS
    rows: int = 0
    rows_used: int = 0
    spent: tuple[tuple[str, float], ...] = ()

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return plain data, and arrays of numbers, from which `from_state` makes the same object."""
        arrays, columns = {"encoded": self.encoded}, []
        for number, (name, values) in enumerate(self.columns.items()):
            dates = values.form == "dates"
            arrays[f"column/{number}"] = values.data.view(np.int64) if dates else values.data
            columns.append(
                {
                    "name": name,
                    "form": values.form,
                    "levels": list(values.levels),
                    "order": None if values.order is None else list(values.order),
                    "declared": values.declared,
                    "zone": values.zone,
                }
            )
        plain = {
            "columns": columns,
            "importance": [list(one) for one in self.importance],
            "without": self.without,
            "rows": self.rows,
            "rows_used": self.rows_used,
            "spent": [list(one) for one in self.spent],
        }
        return plain, arrays

    @classmethod
    def from_state(cls, plain: Any, arrays: Mapping[str, np.ndarray]) -> Kept:
        """Return what `to_state` described; nothing for a file without it."""
        if plain is None:
            return cls()
        columns = {}
        for number, column in enumerate(plain["columns"]):
            data, order = arrays[f"column/{number}"], column["order"]
            columns[column["name"]] = Values(
                column["form"],
                data.view("datetime64[us]") if column["form"] == "dates" else data,
                column["levels"],
                None if order is None else tuple(order),
                column["declared"],
                column["zone"],
            )
        return cls(
            columns,
            arrays["encoded"],
            tuple((name, loss, error) for name, loss, error in plain["importance"]),
            plain["without"],
            plain["rows"],
            plain["rows_used"],
            tuple((name, spent) for name, spent in plain["spent"]),
        )


def spent_by(model: Any) -> tuple[tuple[str, float], ...]:
    """Return seconds by phase of an estimator's fit, which its own file does not hold."""
    phases: dict[str, float] = {}
    for part, _ in parts_of(model):
        for name, seconds in part.history_.spent.items():
            phases[name] = phases.get(name, 0.0) + float(seconds)
    rest = float(model.fit_seconds_) - sum(phases.values())
    return tuple(
        (name, spent) for name, spent in [*phases.items(), ("the rest", rest)] if spent > 0.01
    )


# ---------------------------------------------------------------- rows as they were


def held_out_columns(inputs: Inputs, order: np.ndarray) -> dict[str, Values]:
    """Return the inputs of held-out rows as they were; none before a fold has been encoded.

    Parameters
    ----------
    inputs : Inputs
    order : ndarray of int
        Places of the rows among those that have a target, in the order that is wanted.
    """
    if not len(order) or not inputs.folds or inputs.raw is None:
        return {}
    encoder = inputs.encoder_of_fold(0)
    if isinstance(encoder, TableEncoder):
        wanted = [column.name for column in encoder.columns_ if column.kept]
    else:
        wanted = [name for name in inputs.raw.names if name != inputs.target]
    return values_of(inputs.raw, inputs.present[order], wanted)


def values_of(source: Source, rows: np.ndarray, names: Sequence[str]) -> dict[str, Values]:
    """Return columns of some rows as they are, in the order of these; of a wide table the first fifty columns.

    Parameters
    ----------
    source : Source
    rows : ndarray of int
        Their numbers, in any order.
    names : sequence of str
    """
    names = [name for name in names if name not in source.refused][:_MOST_COLUMNS]
    if not names or not len(rows):
        return {}
    order = np.argsort(rows, kind="stable")
    parts: list[list[Values]] = [[] for _ in names]
    for _, block in part_of(source, np.asarray(rows)[order]).blocks(names):
        for part, values in zip(parts, block, strict=True):
            part.append(values)
    back = np.argsort(order)
    joined = {name: _joined(part) for name, part in zip(names, parts, strict=True)}
    return {
        name: dataclasses.replace(values, data=values.data[back])
        for name, values in joined.items()
        if values is not None
    }


def _joined(parts: Sequence[Values]) -> Values | None:
    """Return the blocks of a column as one, without levels that do not occur; None where their forms differ."""
    first = parts[0]
    if any(part.form != first.form for part in parts):
        return None
    if first.form != "text":
        return Values(first.form, np.concatenate([part.data for part in parts]), zone=first.zone)
    place: dict[str, int] = {}
    codes = []
    for part in parts:
        found = np.full(len(part.levels) + 1, -1, dtype=np.int64)  # the last one is that of -1
        for code in np.unique(part.data[part.data >= 0]).tolist():
            found[code] = place.setdefault(part.levels[code], len(place))
        codes.append(found[part.data])
    return Values("text", np.concatenate(codes), list(place), first.order, first.declared)


def some_encoded(X: np.ndarray, seed: int) -> np.ndarray:
    """Return at most 300 random rows, in their order."""
    return X[_some(len(X), seed)]


def _some(n: int, seed: int) -> np.ndarray:
    return np.sort(fixed_indices(seed, _ENCODED, n, _MOST_ENCODED))


# ---------------------------------------------------------------- which inputs matter


def groups_of(encoder: Any, d: int) -> dict[str, list[int]]:
    """Return the encoded columns of each input: a table's column is one, however many it becomes."""
    if isinstance(encoder, TableEncoder):
        return {column.name: list(column.outputs) for column in encoder.columns_ if column.kept}
    groups: dict[str, list[int]] = {}
    for j, name in enumerate(names_of_inputs(encoder, d)):
        groups[name if name not in groups else f"{name} ({j})"] = [j]
    return groups


def importance_of_race(
    judge: Callable[[np.ndarray, np.ndarray], Any],
    inputs: Inputs,
    deadline: float | None,
    seed: int,
) -> tuple[tuple[tuple[str, float, float], ...], str]:
    """Return which inputs mattered to a model on rows that it has not seen, and why that is not known.

    Parameters
    ----------
    judge : callable
        ``judge(X, y).log_density`` are those of encoded rows and their targets, by the race's model of the last fold.
    inputs : Inputs
    deadline : float, optional

    seed : int
    """
    began = time.perf_counter()
    left = np.inf if deadline is None else deadline - began
    if left < _LEAST_SECONDS:
        return (), NO_TIME
    last = inputs.folds - 1
    rows, encoder = inputs.held_out_rows(last), inputs.encoder_of_fold(last)
    here = _some(rows.n, seed)
    X, y = np.asarray(rows.X)[here], np.asarray(rows.y)[here]
    groups = groups_of(encoder, X.shape[1])
    repeats = _repeats(len(groups))
    if deadline is not None:
        judge(X, y)  # compiles what there is to compile
        warm = time.perf_counter()
        judge(X, y)
        one = (time.perf_counter() - warm) * max(len(groups), 1)
        seconds = min(max(_SHARE * left, 0.5), _MOST_SECONDS) - (warm - began)
        if seconds < one and len(X) == _MOST_ENCODED:
            X, y, one = X[::_THIRD], y[::_THIRD], one / _THIRD
        repeats = min(repeats, int(seconds / max(one, 1e-9)))
    if repeats < 1:
        return (), NO_TIME
    return tuple(permutation_importance(_bounded(judge), X, y, groups, seed, repeats)), ""


def importance_of_rows(
    judge: Callable[[np.ndarray, np.ndarray], Any],
    encoder: Any,
    X: np.ndarray,
    y: np.ndarray,
    seed: int,
) -> list[tuple[str, float, float]]:
    """Return which inputs matter to a model on given rows, of which at most 300 are looked at."""
    here = _some(len(X), seed)
    groups = groups_of(encoder, X.shape[1])
    return permutation_importance(
        _bounded(judge), X[here], y[here], groups, seed, _repeats(len(groups))
    )


def _repeats(groups: int) -> int:
    return int(np.clip(_SHUFFLES // max(groups, 1), 1, _REPEATS))


def _bounded(judge: Callable[[np.ndarray, np.ndarray], Any]) -> Callable[..., np.ndarray]:
    def found(X: np.ndarray, y: np.ndarray) -> np.ndarray:
        density = judge(X, y).log_density
        return np.maximum(np.nan_to_num(density, nan=_WORST, neginf=_WORST), _WORST)

    return found
