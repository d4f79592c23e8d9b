"""Which inputs matter, how each acts, and which held-out rows surprise: from a model's predictions alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri

_REPEATS = 5
_GRID = 25
_MOST_ROWS = 200
_LEVELS = 10


def permutation_importance(
    log_density: Callable[..., Any],
    X: Any,
    y: Any,
    groups: Mapping[str, Sequence[int]],
    seed: Any = 0,
    repeats: Any = _REPEATS,
) -> list[tuple[str, float, float]]:
    """Return how much held-out log density is lost when an input is shuffled (Breiman 2001; Fisher et al. 2019).

    Parameters
    ----------
    log_density : callable
        Of rows (n, d) and targets (n,), (n,) in nats.
    X : ndarray of shape (n, d)
        Encoded rows that the model was not fitted to.
    y : ndarray of shape (n,)
    groups : dict of str to sequence of int
        Columns of each input, which are shuffled together.
    seed : int, default 0
    repeats : int, default 5
        Permutations of each input, to average over.

    Returns
    -------
    list of (str, float, float)
        Input, mean loss in nats a row, and its standard error over rows; the largest first. The loss is that of this
        model: of two inputs that tell the same, each can be done without.
    """
    X, y = np.asarray(X), np.asarray(y)
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(len(X)) for _ in range(int(repeats))]
    whole = np.asarray(log_density(X, y), dtype=np.float64)
    found = []
    for name, columns in groups.items():
        loss = np.zeros(len(X))
        for order in orders:
            shuffled = X.copy()
            shuffled[:, list(columns)] = X[order][:, list(columns)]
            loss += (whole - np.asarray(log_density(shuffled, y))) / len(orders)
        error = np.std(loss, ddof=1) / np.sqrt(len(loss)) if len(loss) > 1 else np.inf
        found.append((str(name), float(np.mean(loss)), float(error)))
    return sorted(found, key=lambda one: -one[1])


def effects(
    predict: Callable[..., Any],
    X: Any,
    groups: Mapping[str, Sequence[int]],
    labels: Mapping[str, Callable[..., Any]] | None = None,
    seed: Any = 0,
    level: Any = 0.95,
    places: Mapping[str, tuple[Sequence[Any], Any]] | None = None,
) -> list[tuple[str, list[Any], np.ndarray, np.ndarray, np.ndarray]]:
    """Return the prediction over each input, averaged over rows (partial dependence, Friedman 2001).

    Parameters
    ----------
    predict : callable
        Of rows (n, d), their means and deviations, (n,) each. Those of the function rather than of new observations
        show what is known of the effect.
    X : ndarray of shape (n, d)
        Encoded rows; at most 200 random ones are averaged over.
    groups : dict of str to sequence of int
        Columns of each input that is wanted: give the strongest.
    labels : dict of str to callable, optional
        For an input, what turns its encoded values (k, columns) into k values for people; the first column without.
    seed : int, default 0
    level : float, default 0.95
        Of the intervals, whose ends are averages too.
    places : dict of str to (sequence, array-like of shape (k, columns)), optional
        For an input, the values at which it is looked at: for people, and encoded.

    Returns
    -------
    list of (str, list, ndarray, ndarray, ndarray)
        Input, values, mean, low and high at each. Values are all that occur of at most ten, the ten most frequent
        combinations of several columns, or else 25 quantiles from 2 % to 98 %.
    """
    X, rng = np.asarray(X, dtype=np.float64), np.random.default_rng(seed)
    rows = X[np.sort(rng.choice(len(X), size=min(len(X), _MOST_ROWS), replace=False))]
    half = float(ndtri(0.5 * (1.0 + level)))
    found = []
    for name, columns in groups.items():
        columns = list(columns)
        given = None if places is None else places.get(name)
        values = _places(X[:, columns]) if given is None else np.asarray(given[1], np.float64)
        asked = np.repeat(rows[None], len(values), axis=0)
        asked[:, :, columns] = values[:, None, :]
        mean, std = (
            np.asarray(part, dtype=np.float64).reshape(len(values), len(rows))
            for part in predict(asked.reshape(-1, X.shape[1]))
        )
        shown = values[:, 0] if given is None else given[0]
        if given is None and labels and name in labels:
            shown = labels[name](values)
        centre, reach = mean.mean(axis=1), half * std.mean(axis=1)
        found.append(
            (str(name), np.asarray(shown).tolist(), centre, centre - reach, centre + reach)
        )
    return found


def _places(values: np.ndarray) -> np.ndarray:
    """Values of an input at which its effect is shown, (k, columns): each occurs among the rows."""
    distinct, count = np.unique(values, axis=0, return_counts=True)
    if len(distinct) <= _LEVELS:
        return distinct
    if values.shape[1] > 1 and len(np.unique(values[:, 0])) <= _LEVELS:
        return distinct[np.sort(np.argsort(-count, kind="stable")[:_LEVELS])]
    # whole rows at quantiles of the first column: what belongs together stays together
    order = np.argsort(values[:, 0], kind="stable")
    at = np.rint(np.linspace(0.02, 0.98, _GRID) * (len(order) - 1)).astype(int)
    first = np.unique(values[order[at], 0], return_index=True)[1]
    return values[order[at[first]]]


def surprises(
    y: Any, mean: Any, std: Any, u: Any, values: Any, rows: Any = None, count: Any = 10
) -> list[tuple[int, Any, float, float, dict[str, Any]]]:
    """Return the held-out rows that the model held least probable.

    Parameters
    ----------
    y, mean, std, u : array-like of shape (n,)
        Targets, predicted means and deviations, PIT values.
    values : callable
        Of a position among these rows, a dict of its inputs as a person knows them.
    rows : array-like of int, shape (n,), optional
        Row numbers in the table; the positions without.
    count : int, default 10

    Returns
    -------
    list of (int, y, float, float, dict)
        Row number, target, mean, deviation and inputs; the farthest in the tails first.
    """
    y, mean, std, u = (np.asarray(part, dtype=np.float64) for part in (y, mean, std, u))
    numbers = np.arange(len(y)) if rows is None else np.asarray(rows)
    # PIT values end at 0 and 1: distances in deviations order what lies beyond
    order = np.lexsort([-np.abs(y - mean) / std, np.minimum(u, 1.0 - u)])[: int(count)]
    return [
        (int(numbers[k]), float(y[k]), float(mean[k]), float(std[k]), dict(values(int(k))))
        for k in order
    ]
