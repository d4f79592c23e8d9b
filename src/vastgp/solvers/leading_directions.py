"""The few directions of many inputs that a linear function needs, where the evidence says that it needs no others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vastgp.data import processes
from vastgp.data.minibatch import some_in_order
from vastgp.fitting.scaled_evidence import ScaledEvidence
from vastgp.linalg.row_space import row_space

# Numbers of directions that are compared with all of them, of tables with more inputs than the last. Pictures of digits
# (784 inputs, odd and even, 16,000 rows): 50, 100, 200, all: test NLPD 0.317, 0.290, 0.267, 0.270; 2.7 s to 21 s.
_DIRECTIONS = (50, 100, 200)
# Rows that say so: an eigendecomposition of their products takes a tenth of a second.
_ROWS = 2000
# What all directions have to gain for each row and function. Digits: 0.004 at most, and no better predictions; of
# independent inputs, five of 500 of which matter, 0.06.
_WORTH_ALL = 0.01
_NOISE_FLOOR, _FIRST_NOISE = 1e-4, 0.5


def leading_directions(X: np.ndarray, codes: np.ndarray) -> np.ndarray | None:
    """Return the directions of largest variance whose linear functions have the highest evidence; None: all of them.

    Functions ``[1, x^T V_k] w`` of the leading k eigenvectors of ``X^T X`` are compared by the evidence of a linear
    regression on codes of the targets, ``ScaledEvidence`` with the leading k eigenvalues, weights and noise at their
    best for each k. Inputs that go together, as those of pictures and spectra, leave few; where each says something of
    its own all stay. Several processes use as many.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Standardised inputs.
    codes : ndarray of shape (n, c)
        A column for each function.

    Returns
    -------
    ndarray of shape (1 + d, 1 + k) or None
        Orthonormal, the constant first.
    """
    d = X.shape[1]
    if d <= _DIRECTIONS[-1]:
        return None
    rows = some_in_order(len(X), _ROWS)
    some, targets = X[rows], codes[rows] - codes[rows].mean(axis=0)
    within, spanned = row_space(some)
    squares, vectors = np.linalg.eigh(within.T @ within)
    squares, vectors = np.maximum(squares[::-1], 0.0), vectors[:, ::-1]
    if spanned is not None:
        vectors = spanned @ vectors
    projected = vectors.T @ (some.T @ targets)

    def evidence(k: int) -> float:
        return sum(
            ScaledEvidence(squares[:k], of_one[:k], float(y @ y), len(y)).best(
                _FIRST_NOISE, _NOISE_FLOOR
            )[2]
            for of_one, y in zip(projected.T, targets.T, strict=True)
        )

    best = int(processes.of_first(np.int64(_number(evidence, len(squares), targets.size))))
    if not best:
        return None
    basis = np.zeros((1 + d, 1 + best))
    basis[0, 0], basis[1:, 1:] = 1.0, vectors[:, :best]
    return basis


def _number(evidence: Callable[[int], float], every: int, told: int) -> int:
    """Return how many directions are used, those of highest evidence; zero where all are, which gain enough."""
    compared = [k for k in _DIRECTIONS if k < every]
    if not compared:
        return 0
    best = max(compared, key=evidence)
    return 0 if evidence(every) > evidence(best) + _WORTH_ALL * told else best
