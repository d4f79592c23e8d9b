"""Which rows of a table are held out, and which a model is fitted to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vastgp.data import Rows, observations
from vastgp.data.minibatch import fixed_indices

# Up to so many rows each is predicted once, by models of the others; beyond, a part is kept out.
_FEW_ROWS, _FOLDS = 500, 5
_SHARE_OUT, _LEAST_OUT, _MOST_OUT = 0.2, 100, 2000
# With less time, in which one model runs, half as many at most: to predict 2000 from 512 rows each takes 4.5 s.
_SECONDS_FOR_MOST, _MOST_IN_A_HURRY = 28.0, 1000
# Several folds cost several fits: so much time do they take of as many rows, and less of fewer. Of 90 rows one part was
# 30 rows, and what they said of deviations narrowed intervals of new ones to hold 47 %.
_SECONDS_FOR_FOLDS = 20.0
# The use of the seed for the part of the rows that a candidate is given, see `fixed_indices`.
_PART = 200


@dataclass(frozen=True)
class Fold:
    """Rows that a candidate is fitted to, and rows that it is judged by."""

    training: np.ndarray
    held_out: np.ndarray


def folds_of(
    n: int, seed: int, seconds: float | None, groups: np.ndarray | None = None
) -> list[Fold]:
    """Return what is held out of n rows: each row once where they are few and there is time, or a random part.

    Parameters
    ----------
    n, seed : int
    seconds : float or None
        Of the budget.
    groups : ndarray of int, shape (n,), optional
        Rows of one group are held out together: a model that has seen a row would be praised for its repetition.
    """
    labels = np.arange(n) if groups is None else groups
    count = int(labels.max()) + 1
    order = np.random.default_rng([seed, 1]).permutation(count)
    sizes = np.cumsum(np.bincount(labels, minlength=count)[order])
    if n <= _FEW_ROWS and (seconds is None or seconds >= _SECONDS_FOR_FOLDS * n / _FEW_ROWS):
        parts = np.minimum((sizes - 1) * _FOLDS // n, _FOLDS - 1)
    else:
        out = size_out(n, seconds)
        # those that fit, or the first where that alone is more
        parts = np.where(sizes <= max(out, sizes[0]), 0, -1)
    part = np.empty(count, dtype=np.int64)
    part[order] = parts
    of_row = part[labels]
    return [
        Fold(np.flatnonzero(of_row != k), np.flatnonzero(of_row == k))
        for k in range(int(parts.max()) + 1)
        if np.any(of_row == k) and np.any(of_row != k)
    ]


def size_out(n: int, seconds: float | None) -> int:
    """Return how many of n rows are kept out where they are one part, of a budget of so many seconds."""
    hurried = seconds is not None and seconds < _SECONDS_FOR_MOST
    most = _MOST_IN_A_HURRY if hurried else _MOST_OUT
    return int(np.clip(round(_SHARE_OUT * n), min(_LEAST_OUT, n // 3), most))


def with_every_class(folds: Sequence[Fold], labels: np.ndarray) -> list[Fold]:
    """Return folds whose training rows have every class: one that only held-out rows have is not held out.

    A model that was not shown a class gives it no probability, and a class of one or two rows says nothing of models.

    Parameters
    ----------
    folds : sequence of Fold
    labels : ndarray of int, shape (n,)
        Number of each row's class.
    """
    return _moved(folds, lambda fold: ~np.isin(labels[fold.held_out], labels[fold.training]))


def with_every_gap(folds: Sequence[Fold], missing: np.ndarray) -> list[Fold]:
    """Return folds whose training rows have a gap in every column that has some: what only others lack stays in.

    A model that was shown no gap of a column takes it for its median, as sure as of any other row, and one that has
    found an exact law of complete rows (NLPD of each -9) would lose by thousands of nats for the one row with a gap,
    which it knows of when it is fitted to all.

    Parameters
    ----------
    folds : sequence of Fold
    missing : ndarray of bool, shape (n, k)
        Of each row and column whether the value is missing.
    """

    def unknown(fold: Fold) -> np.ndarray:
        never = ~np.any(missing[fold.training], axis=0)
        return np.any(missing[fold.held_out][:, never], axis=1)

    return _moved(folds, unknown)


def _moved(folds: Sequence[Fold], wanted: Callable[[Fold], np.ndarray]) -> list[Fold]:
    """Return folds with the held-out rows that are wanted in training; none that holds out no others."""
    found = []
    for fold in folds:
        into = wanted(fold)
        training = np.sort(np.concatenate([fold.training, fold.held_out[into]]))
        if not into.all():
            found.append(Fold(training, fold.held_out[~into]))
    return found


def some_rows(rows: Rows, most: int | None, seed: int, classes: bool = False) -> Rows:
    """Return random rows, in their order, where there are more than ``most``; of ``classes`` some of each."""
    if most is None or rows.n <= most:
        return rows
    chosen = fixed_indices(seed, _PART, rows.n, most)
    if classes:
        labels = observations.targets(rows.y)
        present, first = np.unique(labels, return_index=True)
        missing = first[~np.isin(present, labels[chosen])]
        # the first of a class keeps its place, others make room
        spare = np.setdiff1d(np.arange(most), np.unique(labels[chosen], return_index=True)[1])
        taken = min(len(missing), len(spare))
        chosen[spare[:taken]] = missing[:taken]
    chosen = np.sort(chosen)
    return Rows(rows.X[chosen], rows.y[chosen], checked=True)
