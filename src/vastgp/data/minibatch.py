"""Random minibatches by step number: no permutation is stored, and a resumed run draws the same rows."""

from __future__ import annotations

import numpy as np

from vastgp.data.rows import Rows
from vastgp.data.scaling import Standardizer

# Philox takes a key of 128 bits and counts blocks with 256. Seed and step are the key; the last word of the counter
# says what the numbers are for, so that two uses of one seed share no numbers.
_MINIBATCH = 1
_HELD_OUT = 2
_FIXED = 3
_WORD = (1 << 64) - 1


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


def standardised_rows(
    rows: Rows, standardizer: Standardizer, indices: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return standardised inputs and targets of some rows, in the order of their numbers."""
    X, y = rows.take(np.sort(indices))
    assert y is not None
    return standardizer.transform_X(X), standardizer.transform_y(y)
