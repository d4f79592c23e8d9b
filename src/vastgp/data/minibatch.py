"""Random minibatches by step number: no permutation is stored, and a resumed run draws the same rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from vastgp.data import processes
from vastgp.data.rows import Rows
from vastgp.data.scaling import Standardizer

# Philox takes a key of 128 bits and counts blocks with 256. Seed and step are the key; the last word of the counter
# says what the numbers are for, so that two uses of one seed share no numbers.
_MINIBATCH = 1
_HELD_OUT = 2
_FIXED = 3
# Rows spread over all have from here on a purpose for each use, and are drawn so many at once.
_SPREAD, _SPREAD_BLOCK = 1 << 32, 1 << 16
# Use of rows that stand for all of those in memory.
_IN_ORDER = 121
_WORD = (1 << 64) - 1
# Of parts of minibatches that processes have, how many are larger than the size that is planned for.
_TOO_LARGE = 1e-6


def generator(seed: int, step: int, purpose: int) -> np.random.Generator:
    """Random numbers that depend on (seed, step, purpose) alone, in O(1) time wherever the step is.

    Parameters
    ----------
    seed
        Any integer from 0; 64 bits of it count.
    step
        Number of the step, from 0.
    purpose
        What the numbers are for: 1 to 3 are minibatches, held-out and fixed rows, others are free.
    """
    if seed < 0 or step < 0:
        raise ValueError(f"seed={seed} and step={step}: expected integers from 0.")
    key = np.array([seed & _WORD, step & _WORD], dtype=np.uint64)
    counter = np.array([0, 0, 0, purpose], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def minibatch_indices(seed: int, step: int, n: int, batch: int) -> np.ndarray:
    """Row numbers of one minibatch: uniform, without replacement within the batch.

    Batches of different steps are independent of each other, which is what unbiased estimates of sums over rows ask
    for. Sampling without replacement within one keeps them unbiased and lowers their variance.

    Parameters
    ----------
    seed
        Any integer from 0.
    step
        Number of the step, from 0.
    n
        Number of rows to draw from. Time and memory do not depend on it.
    batch
        Rows in the batch. From ``n`` on it is all of them, in order.

    Returns
    -------
    ndarray of int64, shape (min(batch, n),)
        In no particular order.
    """
    if n < 1 or batch < 1:
        raise ValueError(f"n={n} and batch={batch}: expected at least 1 of each.")
    if batch >= n:
        return np.arange(n, dtype=np.int64)
    # Robert Floyd's algorithm, or the tail of a shuffle while n is below a fixed multiple of the batch: both O(batch).
    return generator(seed, step, _MINIBATCH).choice(n, size=batch, replace=False, shuffle=False)


def fixed_indices(seed: int, use: int, n: int, size: int) -> np.ndarray:
    """Row numbers that are drawn once for a fit, in random order: each ``use`` draws its own, and none is a minibatch.

    Parameters
    ----------
    seed, use
        Any integers from 0.
    n, size
        Rows to draw from, and how many; from ``n`` on it is all of them.
    """
    return generator(seed, use, _FIXED).choice(n, size=min(n, size), replace=False)


def spread_indices(
    seed: int, use: int, n: int, size: int, start: int = 0, stop: int | None = None
) -> np.ndarray:
    """Row numbers that are drawn once for a fit and spread over all rows, ascending: one of each ``n / size`` in order.

    Which these are does not depend on who asks for which of them, and nobody need know all.

    Parameters
    ----------
    seed, use, n, size
        As in `fixed_indices`.
    start, stop : int
        Row numbers between which they are asked for. ``stop=None``: up to the last.
    """
    stop = n if stop is None else stop
    if size >= n:
        return np.arange(start, stop, dtype=np.int64)
    found = []
    # the part that row r is in, and the block of parts that is drawn at once
    first, last = start * size // n, min(stop * size // n + 1, size)
    for block in range(first // _SPREAD_BLOCK, -(-last // _SPREAD_BLOCK)):
        edges = np.arange(block * _SPREAD_BLOCK, min((block + 1) * _SPREAD_BLOCK, size) + 1)
        edges = -(-edges * n // size)
        share = generator(seed, block, _SPREAD + use).random(len(edges) - 1)
        found.append(edges[:-1] + (share * np.diff(edges)).astype(np.int64))
    drawn = np.concatenate(found) if found else np.zeros(0, np.int64)
    return drawn[(drawn >= start) & (drawn < stop)]


def some_in_order(n: int, size: int) -> Any:
    """Return what takes so many of ``n`` rows, spread over all and in order; all of them where there are no more.

    They do not come at equal distances: of rows whose classes, or places, take turns every second one has one class.
    """
    return slice(None) if size >= n else spread_indices(0, _IN_ORDER, n, size)


def chunk_of_minibatches(
    rows: Rows,
    standardizer: Standardizer,
    seed: int,
    first_step: int,
    num_steps: int,
    batch: int,
    dtype: str | np.dtype | type = np.float32,
) -> tuple[np.ndarray, np.ndarray]:
    """Standardised minibatches of consecutive steps, ready for a compiled loop over them.

    Parameters
    ----------
    rows
        Where to draw from; they must have targets.
    standardizer
        Scaling of inputs and targets. It acts in float64, before rounding to ``dtype``.
    seed, first_step, num_steps, batch
        Steps ``first_step`` to ``first_step + num_steps - 1`` of `minibatch_indices`.
    dtype
        Type of the result.

    Returns
    -------
    X : ndarray, shape (num_steps, min(batch, n), d)
    y : ndarray, shape (num_steps, min(batch, n)), or with a last axis of three, see `vastgp.data.observations`
    """
    if rows.y is None:
        raise ValueError(
            "rows have no targets. Give y to as_rows: minibatches for training need it."
        )
    drawn = [minibatch_indices(seed, first_step + t, rows.n, batch) for t in range(num_steps)]
    # all at once, so that a disk reads forwards once
    X, y = rows.take(np.concatenate(drawn))
    assert y is not None
    shape = (num_steps, len(drawn[0]))
    return (
        standardizer.transform_X(X, np.dtype(dtype)).reshape(*shape, rows.d),
        standardizer.transform_y(y).astype(dtype).reshape(*shape, *y.shape[1:]),
    )


class Parts(NamedTuple):
    """Those rows of minibatches of consecutive steps (first axis) that one process has, and filling.

    Attributes
    ----------
    numbers : ndarray of int, shape (num_steps, size)
        Of the rows among those of the process, 0 for the filling.
    X : ndarray, shape (num_steps, size, d)
        Standardised.
    y : ndarray, shape (num_steps, size)
    counts : ndarray of bool, shape (num_steps, size)
        Whether it is a row: filling counts nothing.
    """

    numbers: np.ndarray
    X: np.ndarray
    y: np.ndarray
    counts: np.ndarray


class SharedMinibatches:
    """Minibatches of rows that several processes share: each reads and works on those rows of them that it has.

    Which rows a minibatch has does not depend on who has them: they are drawn by their numbers in the whole, as where
    one process has all (`minibatch_indices`), and none is told to another process. How many of them a process has
    scatters about its share. All parts of a step are filled up to one size, which all but one in a million keep within;
    a chunk of steps with a larger one has them as large as a minibatch. The filling is the first row of all.

    All processes make this at the same place of the program. What it draws it tells nobody, and a thread may ask for.

    Parameters
    ----------
    rows : Rows
        With targets.
    standardizer : Standardizer
    seed, batch : int
        As in `minibatch_indices`.
    dtype : {"float32", "float64"}, default "float64"

    Attributes
    ----------
    size : int
        Rows that a process works on in a step, filling included.
    """

    def __init__(
        self, rows: Rows, standardizer: Standardizer, seed: int, batch: int, dtype: str = "float64"
    ) -> None:
        self._n, self._batch, self._seed = rows.n, min(batch, rows.n), seed
        self._local, self._standardizer, self._dtype = rows.local, standardizer, dtype
        counts = np.array([int(n) for n in processes.gathered(np.int64(rows.local.n))])
        self._ends, self._number = np.cumsum(counts), processes.number()
        self._filling = self._scaled(*rows.take(np.zeros(1, np.int64)))
        self.size = _part_size(self._batch, counts)

    def draw(self, first: int, count: int) -> Parts:
        """Return this process's parts of the minibatches of ``count`` steps from ``first`` on."""
        steps = range(first, first + count)
        drawn = [minibatch_indices(self._seed, step, self._n, self._batch) for step in steps]
        owners = [np.searchsorted(self._ends, each, side="right") for each in drawn]
        fits = max(np.bincount(each).max() for each in owners) <= self.size
        shape = count, self.size if fits else self._batch
        numbers, counts = np.zeros(shape, np.int64), np.zeros(shape, bool)
        start = self._ends[self._number] - self._local.n
        for t, (each, owner) in enumerate(zip(drawn, owners, strict=True)):
            mine = each[owner == self._number] - start
            numbers[t, : len(mine)], counts[t, : len(mine)] = mine, True
        X, y = (np.broadcast_to(part, (*shape, *part.shape[1:])).copy() for part in self._filling)
        # all at once, so that a disk reads forwards once
        X[counts], y[counts] = self._scaled(*self._local.take(numbers[counts]))
        return Parts(numbers, X, y, counts)

    def _scaled(self, X: np.ndarray, y: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        assert y is not None
        return (
            self._standardizer.transform_X(X, np.dtype(self._dtype)),
            self._standardizer.transform_y(y).astype(self._dtype),
        )


def _part_size(batch: int, counts: np.ndarray) -> int:
    """Return how many rows of a minibatch a process has at most, but for some parts, see `_TOO_LARGE`."""
    from scipy.stats import binom

    n, most = int(counts.sum()), int(counts.max())
    if batch >= n:
        return most
    # Without replacement counts scatter less than the binomial's: Hoeffding (1963), theorem 4.
    return int(min(batch, most, binom.isf(_TOO_LARGE, batch, most / n)))


def standardised_rows(
    rows: Rows, standardizer: Standardizer, indices: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return standardised inputs and targets of some rows, in the order of their numbers."""
    X, y = rows.take(np.sort(indices))
    assert y is not None
    return standardizer.transform_X(X), standardizer.transform_y(y)


def fixed_rows(
    rows: Rows, standardizer: Standardizer, seed: int, use: int, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return standardised inputs and targets of the rows of `fixed_indices`, or of all where there are no more."""
    return standardised_rows(rows, standardizer, fixed_indices(seed, use, rows.n, size))
