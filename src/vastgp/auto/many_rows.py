"""Tables of more rows than the budget or the memory is for: rows at random stand for all.

A front door holds its encoded table, and what models make of it, in memory, and finding out what columns are and
encoding them takes time in proportion to the rows. Where that is more than there is, the rows beyond gain nothing: of 5
million rows of text, dates and numbers, encoded in most of 60 seconds and 7.7 GB, came a worse model (RMSE 0.352
deviations, after 72 s) than of the 150,000 to 330,000 that there is time for (0.294, `benchmarks/large_table.py`).
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from vastgp._memory import available_bytes
from vastgp.auto.inputs import Inputs
from vastgp.data.minibatch import fixed_indices

# Tables of up to so many rows are taken whole: they are read and encoded within a second or two.
_TAKEN_WHOLE = 50_000
# Rows by which it is measured what encoding takes: what these take longer than those, which load modules once.
_TRIAL, _FIRST = 20_000, 2000
# A race encodes its rows twice, and as much time again goes into looking for repeated rows and for gaps; of the budget
# all of that may have a sixth.
_TIMES_ENCODED, _SHARE = 3.5, 0.17
# For each second of the budget: rows that are read to choose from, and numbers of the encoded table.
_MOST_A_SECOND, _NUMBERS_A_SECOND = 40_000, 250_000
# For each second of the budget: rows of a table in which it is asked whether numbers name things. Of 32,735 flights and
# three classes a fit of 2 s took 4.6 s with it, 1.8 without.
_NAMED_A_SECOND = 5000
# Copies of the encoded table that exist at once (of all rows, of a fold, of rows that are compared, of a model's own),
# the share of the free memory that they may have, and that of the columns as they are read.
_COPIES, _SHARE_OF_MEMORY, _SHARE_OF_COLUMNS = 4, 0.5, 0.1
# Rows of each class that are taken, where there are as many.
_OF_A_CLASS = 20
# Uses of the seed: for the rows that are taken, for those of a rare class, and for where encoding is measured.
_TAKEN, _RARE, _MEASURED = 250, 251, 252


def affordable(
    inputs: Inputs, classes: np.ndarray | None, seconds: float | None, seed: int
) -> Inputs:
    """Return the inputs of as many rows as the budget and the memory are for; of all where they are for all.

    Parameters
    ----------
    inputs : Inputs
        Opened, with nothing encoded.
    classes : ndarray of shape (n,), optional
        Of the rows: some of each are taken.
    seconds : float or None
        Of the whole fit; None: as long as it takes.
    seed : int

    Notes
    -----
    The rows are a uniform sample, but for rare classes, in the order of the table. What encoding one takes, in seconds
    and in bytes, is measured on some of them.
    """
    n = len(inputs.present)
    if n <= _TAKEN_WHOLE:
        return inputs
    free = available_bytes() or np.inf
    most = _SHARE_OF_COLUMNS * free / (8 * max(inputs.num_columns, 1))
    if seconds is not None:
        most = min(most, _MOST_A_SECOND * seconds)
    inputs, classes = _at_most(most, inputs, classes, seed)
    each = _cost_of_a_row(inputs, seed)
    if each is None:
        return inputs
    most = _SHARE_OF_MEMORY * free / (_COPIES * 8 * each[1])
    if seconds is not None:
        in_time = min(_SHARE / (_TIMES_ENCODED * each[0]), _NUMBERS_A_SECOND / each[1])
        most = min(most, in_time * seconds)
    return _at_most(most, inputs, classes, seed)[0]


def asking_in_time(inputs: Inputs, seconds: float | None) -> Inputs:
    """Return the inputs, not asking whether numbers name things where there is little time for so many rows."""
    asks = seconds is None or len(inputs.present) <= _NAMED_A_SECOND * seconds
    return replace(inputs, asks_names=asks)


def _at_most(
    most: float, inputs: Inputs, classes: np.ndarray | None, seed: int
) -> tuple[Inputs, np.ndarray | None]:
    """Return the inputs of so many rows chosen at random, and their classes; no fewer than are taken anyway."""
    n = len(inputs.present)
    count = max(int(min(most, n)), _TAKEN_WHOLE)
    if count >= n:
        return inputs, classes
    chosen = np.zeros(n, dtype=bool)
    chosen[fixed_indices(seed, _TAKEN, n, count)] = True
    if classes is not None:
        for one in np.unique(classes):
            others = np.flatnonzero((classes == one) & ~chosen)
            few = _OF_A_CLASS - int(np.sum(chosen[classes == one]))
            if few > 0:
                chosen[others[fixed_indices(seed, _RARE, len(others), few)]] = True
    places = np.flatnonzero(chosen)
    return inputs.of_some(places), None if classes is None else classes[places]


def _cost_of_a_row(inputs: Inputs, seed: int) -> tuple[float, int] | None:
    """Return the seconds that encoding a row takes, and its numbers; None where some rows alone cannot be encoded."""
    # one after another, as all are in the end: rows picked out of many blocks take longer; near the beginning, up to
    # which a file is read
    places = min(len(inputs.present), 10 * _TRIAL) - _TRIAL
    first = int(fixed_indices(seed, _MEASURED, places, 1)[0])
    took = []
    try:
        for rows in (_FIRST, _FIRST, _TRIAL):
            began = time.perf_counter()
            matrix = inputs.encoded_alone(np.arange(first, first + rows))
            took.append(time.perf_counter() - began)
    except ValueError:
        return None  # of all rows it says why
    more = max(took[2] - took[1], 0.1 * took[2])
    return more / (_TRIAL - _FIRST), max(matrix.shape[1], 1)
