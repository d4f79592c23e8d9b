"""Whether numbers are the names of things as well: a process with and without them says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import norm, rankdata

from vastgp.auto.each_other import given_each_other
from vastgp.auto.encoding import (
    encode,
    kept,
    outputs_of_means,
    outputs_of_names,
    tied_outputs,
)
from vastgp.auto.parts import part_of
from vastgp.auto.reading import Told, numbered
from vastgp.auto.source import Source
from vastgp.linalg.cholesky import FactorizationError

# Rows that tell, and at most so many of one thing where there are enough things.
_ROWS, _OF_ONE = 300, 5
# Steps of each learning, fewer where each takes more operations: it is the same on a slow machine.
_STEPS, _FEWEST_STEPS, _OPERATIONS = 40, 10, 1.5e8
# Columns of the matrix beyond, or that differ by less than the inverse, are left out: their squares do not exist.
_EXTREME = 1e100
# With names a row is likelier, or less likely by no more than this in the mean, in nats.
_NATS = 0.005
# So many columns are looked at, those that say most.
_MOST = 3


def with_sure_names(source: Source, told: Told) -> Told:
    """Return what the target says of columns, without a doubt whether their numbers name things.

    Some rows are each given by all others, by a process with the names of the columns in doubt among its inputs and by
    one without them; both have these numbers. Targets are normal scores, so that no row counts for all others.

    Parameters
    ----------
    source
        The rows.
    told
        With columns in doubt, or none.

    Notes
    -----
    Of 85 tables from packages of R in which numbers seemed to name things, 5 s each, names changed the NLPD of new rows
    by -1.2 (sales of cigarettes by the number of the state), -0.25, -0.14 (wages by the number of the man), -0.46, and
    by +0.37 and +0.62 where the numbers are counts or months, which this finds likelier without. That rows need not be
    likelier with names is because a few of them find room along the number that all have not.
    """
    if not told.doubted:
        return told
    doubted = sorted(told.doubted, key=lambda place: -told.doubted[place].share)[:_MOST]
    columns = numbered(told.columns)
    inputs = kept(columns)
    numbers, target, _ = told.doubted[doubted[0]]
    rows = _rows_by_things(numbers, np.isfinite(target))
    X = encode(part_of(source, rows), columns, True, [column.name for column in inputs])
    for place, means in told.means.items():
        X[:, outputs_of_means(inputs[place])] = means[rows]
    scores = norm.ppf((rankdata(target[rows]) - 0.5) / len(rows))
    tied = tied_outputs(columns)
    of_names = {place: outputs_of_names(inputs[place]) for place in told.doubted}

    def densities(places: Sequence[int]) -> np.ndarray:
        without = [j for place in told.doubted if place not in places for j in of_names[place]]
        return _densities(X, scores, tied, without)

    sure: Sequence[int] = ()
    try:
        plain = densities(())
        for places in (doubted, doubted[:1]):
            if np.mean(densities(places) - plain) > -_NATS:
                sure = places
                break
            if len(doubted) == 1:
                break
    except FactorizationError:  # nothing is known: they are numbers
        pass
    return _decided(told, sure)


def _decided(told: Told, sure: Sequence[int]) -> Told:
    """Return the columns with the names of those at some places among the ones that are kept, and of no others."""
    columns, place = [], 0
    for column in told.columns:
        columns.append(column.named(place in sure) if place in told.doubted else column)
        place += column.kept
    means = {
        place: rows
        for place, rows in told.means.items()
        if place not in told.doubted or place in sure
    }
    return Told(columns, means, {})


def _rows_by_things(data: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Return rows of things chosen at random, ascending: several of each, or names would say nothing of others."""
    generator = np.random.default_rng(0)
    places = np.flatnonzero(there)
    if len(places) <= _ROWS:
        return places
    things = np.unique(data[places], return_inverse=True)[1]
    order = generator.permutation(int(things.max()) + 1)[things]
    places, order = (
        part[np.lexsort((generator.random(len(order)), order))] for part in (places, order)
    )
    first = np.searchsorted(order, order)  # where the rows of its thing begin
    most = max(_OF_ONE, -(-_ROWS // (int(order[-1]) + 1)))
    some = places[np.arange(len(order)) - first < most]
    return np.sort(some[:_ROWS])


def _densities(
    X: np.ndarray, y: np.ndarray, tied: Sequence[Sequence[int]], without: Sequence[int]
) -> np.ndarray:
    """Return the log density of each row given all others, by a process without some columns of the matrix."""
    inputs = np.empty(X.shape[1], np.int64)
    for number, columns in enumerate(tied):
        inputs[list(columns)] = number
    low, high = X.min(axis=0), X.max(axis=0)
    with np.errstate(over="ignore"):
        used = (high - low > 1.0 / _EXTREME) & (np.maximum(-low, high) < _EXTREME)
    used[list(without)] = False
    if not used.any():
        return norm.logpdf(y, np.mean(y), np.std(y))
    of_used = np.unique(inputs[used], return_inverse=True)[1]
    each = len(y) ** 2 * (int(of_used.max()) + 1 + len(y) / 3.0)
    mean, std = given_each_other(
        X[:, used], y, kernel="matern32", inputs=of_used.tolist(), learned_on=_ROWS, seed=0,
        max_iter=int(np.clip(_OPERATIONS / each, _FEWEST_STEPS, _STEPS)),
    )  # fmt: skip
    return norm.logpdf(y, mean, std)
