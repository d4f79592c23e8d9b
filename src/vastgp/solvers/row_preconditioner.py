"""The preconditioner of a system of rows too many to factorise: landmarks, neighbours, and leading directions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import as_dtype, precision
from vastgp.kernels import GridKernel, Kernel
from vastgp.kernels.matrices import kernel_matrix
from vastgp.kernels.metric import metric_lengthscales
from vastgp.solvers.preconditioners import (
    Preconditioner,
    balanced_preconditioner,
    landmark_factor,
    leading_eigenvectors,
    low_rank_preconditioner,
    sketch_factor,
)
from vastgp.solvers.remainders import Neighbours, group_neighbours

# Directions whose image corrects a preconditioner made from the exact kernel: their pass costs that of five products.
# It is made where the two kernels differ by more than _MOST_MISMATCH noise variances (kin40k, at 7e4, gains nothing by
# it; kegg does not converge without: at 3e5 96 directions do, at 2e6 those are not enough, and 400 take 11 products),
# and suffices alone where what it leaves is below _MOST_BEYOND of them. As directions take memory too, there are no
# more than a third of the landmarks.
_DIRECTIONS, _MOST_MISMATCH, _MOST_BEYOND = 384, 1e5, 10.0
# Rows of a group of neighbours, and most bytes of the blocks of all groups.
_MOST_NEIGHBOURS, _BLOCK_BYTES = 256, 2**28


def low_rank_of_rows(
    kernel: Kernel,
    X: Float[Array, "n d"],
    scale: Float[np.ndarray, " n"],
    noise_variance: float,
    rank: int,
    generator: np.random.Generator,
    *,
    gram: Callable[[Array], Array],
    mismatch: float,
) -> Preconditioner:
    """Return a Nystrom preconditioner, of the matrix itself in its leading directions where that matters.

    Landmarks are drawn by the weights of the rows, and stand for the exact kernel. What they leave out is kept within
    groups of neighbours: rows that are nearly the same, above all those of large weight, otherwise have directions
    that the preconditioner takes for a thousand noise variances and that the system has at one (on rows with
    near-repeats and weights up to 300, 28 products become 6).

    ``Phi Phi^T`` differs from the exact kernel by about ``n variance / sqrt(P)`` in its leading directions. Where that
    is far above the noise, the image of those directions is computed and corrects the preconditioner; where what lies
    beyond them is below some noise variances, it takes the landmarks' place.

    Parameters
    ----------
    kernel, X
        Of the rows.
    scale : ndarray of shape (n,)
        Root of the rows' weights; zero for filling.
    noise_variance : float
    rank : int
        Number of landmarks.
    generator : Generator
    gram : callable
        ``S Phi Phi^T S v`` of each row.
    mismatch : float
        By how much the two kernels differ, in noise variances.
    """
    variance = float(kernel.total_variance())
    weights = scale.astype(np.float64) ** 2
    rank = min(rank, int(np.count_nonzero(weights)))
    even = None if np.all(weights == weights[0]) else weights / np.sum(weights)
    landmarks = generator.choice(len(X), rank, replace=False, p=even)

    def make(landmarks: np.ndarray) -> np.ndarray:
        factor = landmark_factor(
            partial(kernel_matrix, kernel), variance, X, np.asarray(X)[landmarks]
        )
        factor *= scale
        return factor

    neighbours = neighbours_of(kernel, X, scale)
    count = min(_DIRECTIONS, rank // 3)
    if mismatch <= _MOST_MISMATCH or count == 0:
        return low_rank_preconditioner(make(landmarks), neighbours, noise_variance)
    few = make(landmarks[: 8 * count])
    directions = leading_eigenvectors(few, count, int(generator.integers(2**31)))
    del few
    image = np.asarray(gram(jax.device_put(directions)))
    sketch = sketch_factor(directions, image)
    enough = float(np.sum(sketch[-1] ** 2)) <= _MOST_BEYOND * noise_variance
    # also balanced where the sketch is enough: by itself it cancels in float32
    inner = (
        low_rank_preconditioner(sketch, variance * scale**2, noise_variance)
        if enough
        else low_rank_preconditioner(make(landmarks), neighbours, noise_variance)
    )
    return balanced_preconditioner(inner, directions, image, noise_variance)


def neighbours_of(kernel: Kernel, X: Any, scale: Float[np.ndarray, " n"]) -> Neighbours:
    """Return groups of rows that are near each other by the kernel's own distance."""
    rows = np.asarray(X, np.float64)
    n, d = rows.shape
    fits = _BLOCK_BYTES // (scale.dtype.itemsize * n)
    size = min(1 << max(fits, 1).bit_length() - 1, _MOST_NEIGHBOURS)
    lengthscales = np.ones(d) if isinstance(kernel, GridKernel) else metric_lengthscales(kernel, d)
    with precision("float64"):
        wide = as_dtype(kernel, np.float64)
    root = scale.astype(np.float64)

    def covariance(group: np.ndarray) -> np.ndarray:
        inputs = rows[np.resize(group, size)]  # of one shape, for one program
        with precision("float64"):
            block = np.asarray(kernel_matrix(wide, inputs, inputs))[: len(group), : len(group)]
        return block * root[group] * root[group][:, None]

    return Neighbours(group_neighbours(rows / lengthscales, size), covariance)
