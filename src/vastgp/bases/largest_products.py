"""Which products of eigenfunctions of one input have the largest eigenvalues, and how many a grid has."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def largest_products(logs: Sequence[np.ndarray], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest entries of a Kronecker product of positive vectors, found factor by factor.

    Whatever is not among the ``count`` largest products of the first factors cannot be part of one of the largest of
    all: keeping as many after every factor is enough (Algorithm 4.1). Time ``O(d m count)``.

    Parameters
    ----------
    logs : sequence of ndarray of shape (m_l,)
        Logarithms of the factors.
    count : int
        How many; all, where there are fewer.

    Returns
    -------
    indices : ndarray of int, shape (p, d)
    values : ndarray of shape (p,)
        Logarithms, in descending order. Of equal ones those come first that did so among the factors before the last.
    """
    values, steps = np.zeros(1), []
    for factor in logs:
        sums = (values[:, None] + np.asarray(factor)[None, :]).ravel()
        keep = _largest(sums, count)
        values = sums[keep]
        steps.append(np.divmod(keep, len(factor)))
    # which product of the factors before each is of, followed from the last factor back: O(d p), where lists of
    # indices that grow by a column a factor took O(d^2 p)
    indices = np.empty((len(values), len(steps)), dtype=np.int64)
    product = np.arange(len(values))
    for number in reversed(range(len(steps))):
        which, own = steps[number]
        indices[:, number] = own[product]
        product = which[product]
    return indices, values


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """Return places of the largest values in descending order, of equal ones the first."""
    if len(values) <= count:
        return np.argsort(-values, kind="stable")
    places = np.flatnonzero(values >= np.partition(values, -count)[-count])
    return places[np.argsort(-values[places], kind="stable")][:count]


def most_functions(axes: Sequence[np.ndarray], most: int) -> int:
    """Return ``most``, or the number of the grid's points where that is less."""
    return int(min(most, math.prod(float(len(axis)) for axis in axes)))


def check_num_basis(num_basis: int, sizes: Sequence[int], name: str = "num_basis") -> None:
    """Raise ``ValueError`` for more eigenfunctions than the grid has points.

    Parameters
    ----------
    num_basis : int
    sizes : sequence of int
        Points of every axis.
    name : str
        Of the argument.
    """
    points = np.prod([float(size) for size in sizes])
    if num_basis > points:
        raise ValueError(
            f"{name}={num_basis} is more than the {int(points)} points of the grid ({' x '.join(map(str, sizes))}): "
            f"there are only so many eigenfunctions. Lower {name}, or raise grid_size."
        )
