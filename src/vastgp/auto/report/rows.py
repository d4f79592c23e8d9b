"""The rows that a report is about: those that the fit held out, or others with their targets."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from vastgp.auto.distribution import FARTHEST
from vastgp.auto.encoder import TableEncoder
from vastgp.auto.reading import names_in
from vastgp.auto.report.kept import NO_ROWS, importance_of_rows, some_encoded, values_of
from vastgp.auto.source import open_source
from vastgp.auto.values import Values
from vastgp.data import observations
from vastgp.data.minibatch import fixed_indices
from vastgp.data.tables import Table, open_frame
from vastgp.estimators.arguments import seed_from

# A page about more rows would take minutes, and say the same.
_MOST_GIVEN = 20_000
# The use of the seed for them, see `fixed_indices`.
_GIVEN = 221
# Of fewer rows nothing is said that needs many.
LEAST_ROWS = 20


@dataclass(frozen=True)
class About:
    """What a report is about.

    Attributes
    ----------
    called : str
        What to call the rows.
    columns : dict of str to Values
        Their inputs as they are.
    encoded : ndarray of shape (k, d)
        Some of them encoded.
    row : ndarray of int
        Their numbers in the table.
    y, mean, std, scores, log_density : ndarray
        As the race judges them, see `vastgp.auto.track.Judged`: before calibration.
    low, high : ndarray, optional
        Ends of their intervals of 95 %, calibrated; None of classes, and of files that do not hold them.
    importance : sequence of (str, float, float)
    notes : tuple of str
    span : ndarray of int, optional
        Of the last rows in time that the fit held out: which were forecast together.
    """

    called: str
    columns: dict[str, Values]
    encoded: np.ndarray
    row: np.ndarray
    y: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    scores: np.ndarray
    log_density: np.ndarray
    importance: Any
    notes: tuple[str, ...]
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    span: np.ndarray | None = None

    @property
    def enough(self) -> bool:
        """Whether there are rows to judge by."""
        return len(self.y) >= LEAST_ROWS


def held_out_rows(model: Any) -> About:
    """Return the rows that the fit held out, none of a small table."""
    kept, held = model.kept_, model.held_out_
    notes: tuple[str, ...] = ()
    if not held:
        notes = (f"Nothing is said of calibration, inputs and surprises: {NO_ROWS}.",)
        none = np.zeros(0)
        held = dict.fromkeys(("y", "mean", "std", "scores", "log_density"), none)
        held["row"] = np.zeros(0, np.int64)
    elif kept.without:
        notes = (f"Which inputs matter is not said: {kept.without}.",)
    return About(
        "held-out", kept.columns, kept.encoded, importance=kept.importance, notes=notes, **held
    )


def given_rows(model: Any, X: Any, y: Any, exposure: Any = None) -> About:
    """Return rows that were given with their targets, a random part of very many.

    Parameters
    ----------
    model : GPRegressor or GPClassifier
    X : table, path or array-like
    y : array-like or str, or None
    exposure : array-like, float or str, optional
    """
    X = os.fspath(X) if isinstance(X, os.PathLike) else X
    _check_targets(model, X, y)
    X, targets = model._observations(X, y, exposure)
    targets = np.asarray(targets, np.float64)
    encoded = model._encoded(X).X
    chosen = np.flatnonzero(np.isfinite(observations.targets(targets)))
    if not len(chosen):
        raise ValueError(
            "y holds no target: all its values are missing. Give rows whose targets are known, or none at all for a "
            "page about the rows that the fit held out."
        )
    notes = []
    if len(chosen) < len(targets):
        notes.append(f"{len(targets) - len(chosen):,} rows without a target were left out.")
    seed = seed_from(model.random_state)
    if len(chosen) > _MOST_GIVEN:
        notes.append(f"The page is about {_MOST_GIVEN:,} random ones of {len(chosen):,} rows.")
        chosen = chosen[np.sort(fixed_indices(seed, _GIVEN, len(chosen), _MOST_GIVEN))]
    encoded, targets = encoded[chosen], targets[chosen]
    judged = model._judge_of(model.model_, model.warp_, encoded, targets)
    ends = model._intervals_of(judged) if judged.found else (None, None)
    importance: Any = ()
    if len(chosen) >= LEAST_ROWS:
        importance = importance_of_rows(
            partial(model._judge_of, model.model_, model.warp_),
            model.encoder_, encoded, targets, seed,
        )  # fmt: skip
    else:
        notes.append(
            f"Nothing is said of calibration and inputs: {len(chosen)} rows are too few to judge by."
        )
    return About(
        "given", _columns_of(model, X, chosen), some_encoded(encoded, seed), importance=importance,
        notes=tuple(notes), low=ends[0], high=ends[1],
        **judged.to_arrays(observations.targets(targets), chosen, len(chosen)),
    )  # fmt: skip


def _check_targets(model: Any, X: Any, y: Any) -> None:
    if X is None:
        raise ValueError(
            "X is missing, the rows that y belongs to: give both, or neither for a page about the rows that the fit "
            "held out."
        )
    if y is None and (model.target_name_ is None or not isinstance(open_frame(X), Table | str)):
        raise ValueError(
            "y is missing, the targets of the rows in X: a report compares predictions with them. Give y as an array "
            "or as the name of a column of X, or leave out X too for a page about the rows that the fit held out."
        )


def _columns_of(model: Any, X: Any, rows: np.ndarray) -> dict[str, Values]:
    """Return the inputs of rows as they are, by the names of the fit."""
    source, encoder = open_source(X), model.encoder_
    if not isinstance(encoder, TableEncoder):
        names = [name for name in source.names if name != model.target_name_]
        return values_of(source, rows, names)
    source = encoder.opened(source)
    theirs = names_in(source, encoder.columns_, hasattr(encoder, "feature_names_in_"))
    ours = [column.name for column in encoder.columns_ if column.kept]
    found = values_of(source, rows, theirs)
    return {name: found[other] for name, other in zip(ours, theirs, strict=True) if other in found}


def bounded(scores: np.ndarray) -> np.ndarray:
    """Return normal scores without infinities; what lies beyond the end of the target's scale is below all."""
    return np.clip(np.nan_to_num(scores, nan=-FARTHEST), -FARTHEST, FARTHEST)
