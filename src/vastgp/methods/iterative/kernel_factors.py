"""Low-rank factors of a kernel matrix for preconditioners: from pivots among the rows, or from a grid's eigenfunctions.

Pivots follow the rows wherever they lie. Eigenfunctions on a grid (section 4.3.3 of the thesis) know the kernel and the
box that the rows fill, and are the better ones where they do fill it: on kin40k half the iterations at the same rank.
"""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
import numpy as np

from vastgp._precision import precision
from vastgp.bases import GridEigenfunctionBasis, grid_axes
from vastgp.bases.grid_eigenfunctions import axis_kernels
from vastgp.data.tiles import over_tiles
from vastgp.fitting.sufficient_statistics import feature_matrix
from vastgp.kernels import Kernel
from vastgp.kernels.matrices import entries, kernel_matrix, prior_variances
from vastgp.methods.iterative.pivots import pivot_rows
from vastgp.solvers.preconditioners import landmark_factor

FACTORS = ("auto", "pivots", "grid")
# Rows among which pivots are looked for; on which factors are compared; whose features are made at a time.
_CANDIDATES, _JUDGES, _TILE = 8192, 1024, 2048
_GRID_SIZE = 10
_PIVOTS, _ROWS = 13, 14


def low_rank_factor(
    kernel: Kernel, X: np.ndarray, rank: int, seed: int, kind: str = "auto"
) -> np.ndarray:
    """Return ``U`` of shape (k, n), ``k <= rank``, with ``U^T U`` near ``K(X, X)``.

    Parameters
    ----------
    kernel : Kernel
    X : ndarray of shape (n, d)
    rank : int
    seed : int
        Of the pivots and of the rows that judge.
    kind : {"auto", "pivots", "grid"}, default "auto"
        ``"auto"`` takes the one that leaves less of the prior variance at some rows: what both leave is what
        iterations have to find.

    Raises
    ------
    ValueError
        With ``"grid"`` for a kernel that is no product over the inputs.
    """
    generator = np.random.default_rng([seed, _ROWS])
    judges = X[np.sort(generator.choice(len(X), min(len(X), _JUDGES), replace=False))]
    basis = None if kind == "pivots" else _grid_basis(kernel, X, rank, must=kind == "grid")
    if basis is not None and kind == "grid":
        return _grid_factor(basis, X)
    pivots = _pivots(kernel, X, rank, seed)
    if basis is not None and _explained(_grid_factor(basis, judges)) > _explained(
        _pivot_factor(kernel, judges, pivots)
    ):
        return _grid_factor(basis, X)
    return _pivot_factor(kernel, X, pivots)


def _explained(factor: np.ndarray) -> float:
    return float(np.mean(np.sum(factor.astype(np.float64) ** 2, axis=0)))


def _pivots(kernel: Kernel, X: np.ndarray, rank: int, seed: int) -> np.ndarray:
    """Return the rows that randomly pivoted Cholesky picks."""
    generator = np.random.default_rng([seed, _PIVOTS])
    count = min(len(X), max(_CANDIDATES, 2 * rank))
    candidates = np.sort(generator.choice(len(X), count, replace=False))

    variances = prior_variances(kernel, X[candidates])
    return X[
        candidates[pivot_rows(partial(entries, kernel), X[candidates], variances, rank, generator)]
    ]


def _pivot_factor(kernel: Kernel, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    covariance = partial(kernel_matrix, kernel)
    return landmark_factor(
        covariance, float(kernel.total_variance()), jnp.asarray(X), jnp.asarray(Z)
    )


def _grid_basis(
    kernel: Kernel, X: np.ndarray, rank: int, *, must: bool
) -> GridEigenfunctionBasis | None:
    """Return the eigenfunctions, None where there are none and none is asked for."""
    try:
        axis_kernels(kernel, X.shape[1])
    except ValueError:
        if must:
            raise
        return None
    wide = X.astype(np.float64)
    axes = grid_axes(wide, _GRID_SIZE)
    with precision("float64"):
        return GridEigenfunctionBasis.build_most(kernel, axes, rank)


def _grid_factor(basis: GridEigenfunctionBasis, X: np.ndarray) -> np.ndarray:
    factor = np.empty((basis.num_basis, len(X)), dtype=X.dtype, order="F")
    with precision("float64"):
        done = 0
        for phi in over_tiles(partial(feature_matrix, basis), X.astype(np.float64), most=_TILE):
            factor[:, done : done + len(phi)] = phi.T
            done += len(phi)
    return factor
