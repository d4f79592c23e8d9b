"""Trees grown for training rows, each row's prediction by trees that have not seen it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from threadpoolctl import threadpool_limits

from vastgp.auto.trees.ensemble import Trees
from vastgp.auto.trees.nodes import trees_of
from vastgp.data import repeated
from vastgp.data.minibatch import fixed_indices
from vastgp.data.repetitions import rows_of_groups
from vastgp.linalg.log_sums import log_sum

FOLDS = 5
# Of five tables (classes-4k, mixed-3k, friedman-5k, rough-50k, wine) 200 trees of 15 leaves had the least loss on
# three, and were 2 % behind 100 of 31 leaves on the others; the leaves of 16 fit one number of 16 bits.
_GROWTH: dict[str, Any] = {
    "max_leaf_nodes": 15,
    "early_stopping": False,
    "categorical_features": None,
}
# Trees and their learning rate, of one column and of each of several; then more of them where the last ones before have
# taken so much of the loss off, relative to what is left. Held-out losses of one stage and of both: 18,000 rows of
# protein (two classes) 0.379 and 0.339, squares 0.413 and 0.351 (40,000), kin40k 0.298 and 0.161 (30,000), pol 0.0164
# and 0.0141; of friedman-5k and wine the same. A third stage took 0 to 7 % off for as long as both.
_ONE, _SEVERAL = ((200, 0.1), (200, 0.2)), ((100, 0.2), (200, 0.2))
_LAST, _WORTH_MORE = 50, 0.02
# Seconds of a tree in all five folds: for each column to predict, and each number of its inputs (two cores, 200 trees:
# ten columns, 4800 rows of 8 inputs 8.5 s and 9.1 by these, five of 18,000 7.4 and 8.8, one of 180,000 of 11 inputs
# 16). Those of a second stage take one and a half times as long, as all are followed again.
_SECONDS_OF_TREE, _SECONDS_OF_NUMBER, _OF_SECOND_STAGE = 3e-3, 4e-8, 1.5
# Of what a tree says of a row.
_SECONDS_OF_TELLING = 5e-8
# With too little time for all rows a random part is used, of at least so many (two classes of protein, held-out losses
# of 2000, 4000, 8000, 18,000 rows: 0.48, 0.42, 0.39, 0.38).
FEWEST_ROWS = 2000
# Numbers in the inputs of one fold's trees, times columns to predict: five folds take about four seconds.
_MOST_NUMBERS = 2_000_000
# The use of the seed for the rows that trees are grown on, where there are more.
_SOME = 210


@dataclass(frozen=True)
class Grown:
    """Trees for new rows, and what trees say of the training rows.

    Attributes
    ----------
    trees : Trees
        The mean of those of all folds, for rows that none has seen.
    of_training : ndarray of shape (n, c)
        For each training row by the trees of the folds that did not have it. ``c`` is 1 for a target of numbers, on its
        scale, and for two classes (the log-odds of the second), otherwise the number of classes (log-odds each).
    seconds : float
        That they took.
    """

    trees: Trees
    of_training: np.ndarray
    seconds: float = 0.0


def columns_of(classes: int) -> int:
    """Return how many columns trees predict: one of a target of numbers and of two classes, else one for each class."""
    return classes if classes > 2 else 1


def probabilities_of(said: np.ndarray) -> np.ndarray:
    """Return the probabilities of classes, (n, C), that trees say: logits of the second of two, or of each class."""
    if said.shape[1] > 1:
        return np.asarray(softmax(said, axis=1))
    second = expit(said[:, 0])
    return np.stack([1.0 - second, second], axis=1)


def squared_error(proba: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean squared error of probabilities, (n, C), over rows (Brier 1950).

    They need not sum to one over several classes, as `vastgp.metrics.brier_score` asks for.
    """
    return float(np.mean(np.sum((proba - np.eye(proba.shape[1])[labels]) ** 2, axis=1)))


def seconds_to_grow(n: int, d: int, columns: int) -> float:
    """Return about how long it takes to grow a first stage of trees for so many rows, inputs and columns."""
    numbers = d * min(n, most_rows(d, columns))
    return _first_trees(columns) * (_SECONDS_OF_TREE + _SECONDS_OF_NUMBER * numbers)


def seconds_to_tell(n: int, columns: int) -> float:
    """Return about how long it takes a first stage of all folds' trees to predict so many rows."""
    return _SECONDS_OF_TELLING * n * FOLDS * _first_trees(columns)


def most_rows(d: int, columns: int, seconds: float | None = None) -> int:
    """Return on how many rows trees are grown, at most: of less time fewer, down to those that tell something."""
    most = max(_MOST_NUMBERS // (d * columns), 2 * FOLDS)
    if seconds is None:
        return most
    of_numbers = max(seconds / _first_trees(columns) - _SECONDS_OF_TREE, 0.0)
    return min(most, max(int(of_numbers / (_SECONDS_OF_NUMBER * d)), FEWEST_ROWS))


def _first_trees(columns: int) -> int:
    """Return the trees of a first stage, of all columns."""
    return columns * _stages(columns)[0][0]


def _stages(columns: int) -> tuple[tuple[int, float], ...]:
    return _ONE if columns == 1 else _SEVERAL


def grow(
    X: np.ndarray,
    y: np.ndarray,
    *,
    weight: np.ndarray | None = None,
    classes: int = 0,
    seed: int,
    seconds: float | None = None,
) -> Grown:
    """Grow trees on five parts of the rows, each on four fifths.

    New rows get the mean of the five, so that training rows and new ones alike are told of by trees that have not seen
    them. Rows that repeat each other are in one part. The number of trees is that of the least loss over all rows,
    predicted in this way: one number, the same for all parts. Where the loss still falls at the last of them, as many
    again are grown, faster.

    One thread does it: with several, and other programs on the same cores, the threads of OpenMP wait for each other by
    spinning (five times 100 trees of 8000 rows: 1 s on idle cores, 38 s beside four other programs, 1 s by one thread).

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Finite numbers. Of many a random part is used, of all rows that repeat each other or of none.
    y : ndarray of shape (n,)
        Numbers, or classes from 0 on.
    weight : ndarray of shape (n,), optional
    classes : int, default 0
        Their number; 0 for a target of numbers.
    seed : int
    seconds : float, optional
        What they may take, by `seconds_to_grow` and not by the clock: the same rows give the same trees. Beyond it
        fewer rows are used, and no second stage is grown. None: no limit.

    Raises
    ------
    ValueError
        Where the rows of a class are so few, or all repeat each other, that the trees of some part have not seen it.
    """
    began = time.perf_counter()
    columns = columns_of(classes)
    groups = repeated(X)
    some = _some(len(X), groups, most_rows(X.shape[1], columns, seconds), seed)
    parts = list(_parts(y[some], None if groups is None else groups[some], classes, seed))
    folds = [(some[a], some[b]) for a, b in parts]
    fitted = [_unfitted(y[training], classes, seed) for training, _ in folds]
    first, second = _stages(columns)
    loss = _grown_on(fitted, X, y, weight, folds, first, classes)
    more = 1.0 + _OF_SECOND_STAGE * second[0] / first[0]
    in_time = seconds is None or more * seconds_to_grow(len(some), X.shape[1], columns) <= seconds
    if in_time and loss[-_LAST] - loss[-1] > _WORTH_MORE * loss[-1]:
        loss = _grown_on(fitted, X, y, weight, folds, second, classes)
    best = int(np.argmin(loss)) + 1
    each = [trees_of(model, best) for model in fitted]
    trees = Trees.mean_of(each)
    of_training = np.empty((len(X), columns))
    predicted = np.concatenate([some[out] for _, out in parts])
    left_out = np.setdiff1d(np.arange(len(X)), predicted, assume_unique=True)
    of_training[left_out] = trees.predict(X[left_out])
    for one, (_, out) in zip(each, parts, strict=True):
        of_training[some[out]] = one.predict(X[some[out]])
    return Grown(trees, of_training, time.perf_counter() - began)


def _some(n: int, groups: np.ndarray | None, most: int, seed: int) -> np.ndarray:
    """Return the rows that trees are grown on, ascending: all, or random ones, with all that repeat them."""
    if n <= most:
        return np.arange(n)
    groups = np.arange(n) if groups is None else groups
    count = int(groups.max()) + 1
    order = fixed_indices(seed, _SOME, count, count)
    return rows_of_groups(groups, order, most)


def _parts(
    y: np.ndarray, groups: np.ndarray | None, classes: int, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Give training rows and the others, five times; each row is among the others once, but for the one of its class.

    Rows of a class are dealt out to as many parts, so that of two or more some part of the others has one. What trees
    that have seen it say of a single row is as good as nothing: leaves have twenty.
    """
    from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold

    given = {"n_splits": FOLDS, "shuffle": True, "random_state": seed % 2**32}
    if groups is not None:
        return GroupKFold(**given).split(y, y, groups)
    if not classes:
        return KFold(**given).split(y)
    labels = y.astype(np.int64)
    counts = np.bincount(labels, minlength=classes)
    if np.max(counts) < FOLDS:
        raise ValueError(f"trees need {FOLDS} rows of some class")
    single = np.flatnonzero(counts[labels] == 1)
    dealt = np.flatnonzero(counts[labels] > 1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        parts = [*StratifiedKFold(**given).split(dealt, labels[dealt])]
    return iter([(np.concatenate([dealt[a], single]), dealt[b]) for a, b in parts])


def _unfitted(y: np.ndarray, classes: int, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    if classes and len(np.unique(y)) < classes:
        raise ValueError("a class is so rare that the trees of some part have not seen it")
    made = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    return made(**_GROWTH, max_iter=0, warm_start=True, random_state=seed % 2**32)


def _grown_on(
    fitted: Sequence[Any],
    X: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray | None,
    folds: Sequence[tuple[np.ndarray, np.ndarray]],
    stage: tuple[int, float],
    classes: int,
) -> np.ndarray:
    """Grow another stage of each fold's trees; return the loss of the others' rows after each tree, summed."""
    loss: Any = 0.0
    with threadpool_limits(1, user_api="openmp"):
        for model, (training, out) in zip(fitted, folds, strict=True):
            model.set_params(max_iter=model.max_iter + stage[0], learning_rate=stage[1])
            model.fit(
                X[training], y[training], sample_weight=None if weight is None else weight[training]
            )
            own = np.ones(len(out)) if weight is None else weight[out]
            targets = y[out].astype(np.int64 if classes else float)
            loss = loss + own @ _losses(model, X[out], targets, classes).T
    return loss


def _losses(model: Any, X: np.ndarray, y: np.ndarray, classes: int) -> np.ndarray:
    """Return the loss of each row after each tree, (trees, n): squared, or minus the log probability of its class."""
    if not classes:
        return np.stack([(raw - y) ** 2 for raw in model.staged_predict(X)])
    found = []
    for raw in model.staged_decision_function(X):
        if classes == 2:
            raw = np.column_stack([np.zeros(len(y)), raw.ravel()])
        found.append(log_sum(raw, axis=1) - raw[np.arange(len(y)), y])
    return np.stack(found)
