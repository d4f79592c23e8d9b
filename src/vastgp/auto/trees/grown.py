"""Trees grown for training rows, each row's prediction by trees that have not seen it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
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
    "max_iter": 200,
    "learning_rate": 0.1,
    "max_leaf_nodes": 15,
    "early_stopping": False,
    "categorical_features": None,
}
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


def grow(
    X: np.ndarray, y: np.ndarray, *, weight: np.ndarray | None = None, classes: int = 0, seed: int
) -> Grown:
    """Grow trees on five parts of the rows, each on four fifths.

    New rows get the mean of the five, so that training rows and new ones alike are told of by trees that have not seen
    them. Rows that repeat each other are in one part. The number of trees is that of the least loss over all rows,
    predicted in this way: one number, the same for all parts.

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

    Raises
    ------
    ValueError
        Where the rows of a class are so few, or all repeat each other, that the trees of some part have not seen it.
    """
    began = time.perf_counter()
    columns = classes if classes > 2 else 1
    groups = repeated(X)
    some = _some(len(X), groups, max(_MOST_NUMBERS // (X.shape[1] * columns), 2 * FOLDS), seed)
    parts = list(_parts(y[some], None if groups is None else groups[some], classes, seed))
    loss, fitted = 0.0, []
    with threadpool_limits(1, user_api="openmp"):
        for training, out in ((some[a], some[b]) for a, b in parts):
            model = _fitted(X[training], y[training], weight, training, classes, seed)
            fitted.append(model)
            own = np.ones(len(out)) if weight is None else weight[out]
            loss = (
                loss
                + own
                @ _losses(model, X[out], y[out].astype(np.int64 if classes else float), classes).T
            )
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


def _fitted(
    X: np.ndarray, y: np.ndarray, weight: Any, rows: np.ndarray, classes: int, seed: int
) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    if classes and len(np.unique(y)) < classes:
        raise ValueError("a class is so rare that the trees of some part have not seen it")
    made = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    model = made(**_GROWTH, random_state=seed % 2**32)
    return model.fit(X, y, sample_weight=None if weight is None else weight[rows])


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
