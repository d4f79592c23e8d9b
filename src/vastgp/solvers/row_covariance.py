"""The covariance matrix of all observations by tiles that are never kept, and solutions refined with it.

A factor in float32, or with jitter, is that of a matrix nearby. Conjugate gradients on the matrix itself, in float64,
with the factor as the preconditioner, are iterative refinement that converges whenever the factor is any good.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import eigvalsh_tridiagonal

from vastgp._precision import precision
from vastgp.data import observations
from vastgp.data.padding import repeat_last
from vastgp.fitting.clock import now
from vastgp.kernels import Kernel
from vastgp.kernels.covariance_tiles import CovarianceTiles, InputTiles
from vastgp.kernels.matrices import kernel_matrix, prior_variances
from vastgp.kernels.products import kernel_product
from vastgp.linalg.cholesky import Cholesky
from vastgp.linalg.panels import GrowingFactor
from vastgp.solvers.cg import cg_start, cg_step, lanczos_matrix

# Rows of a tile of the matrix: 8 MB beside a panel, and one compiled program for any number of rows.
_TILE_ROWS = 1024
# A factor that leaves a residual after so many steps is of another matrix.
MOST_STEPS = 100


@dataclass(frozen=True)
class RowCovariance:
    """``A = K(X, X) + diag(noise)``, in float64.

    Attributes
    ----------
    kernel : Kernel
    X : ndarray of shape (n, d)
    noise : ndarray of shape (n,)
        Noise variances of the rows.
    """

    kernel: Kernel
    X: Float[np.ndarray, "n d"]
    noise: Float[np.ndarray, " n"]

    @classmethod
    def observed(cls, kernel: Kernel, noise_variance: float, X: Any, y: Any) -> RowCovariance:
        """Return that of targets, which may have noise of their own (`vastgp.data.observations`)."""
        noise = np.asarray(observations.noise_variances(y, float(noise_variance)), np.float64)
        return cls(kernel, X, np.broadcast_to(noise, (len(X),)))

    @property
    def diagonal(self) -> np.ndarray:
        """``A_ii``."""
        return prior_variances(self.kernel, self.X) + self.noise

    def leading(self, rows: int) -> RowCovariance:
        """Return the matrix of the first rows alone."""
        return RowCovariance(self.kernel, self.X[:rows], self.noise[:rows])

    def write(self, columns: slice, out: np.ndarray) -> None:
        """Fill ``out`` with columns of the matrix down to their diagonal block, rounded to its precision.

        Entries are made in float64: rounded once they are off by half a unit to either side, and the errors of so many
        independent numbers hardly add up.
        """
        tile = max(min(_TILE_ROWS, len(self.X)), out.shape[1])
        with precision("float64"):
            right = repeat_last(self.X[columns], tile)
            for start in range(0, len(out), tile):
                left = repeat_last(self.X[start : min(start + tile, len(out))], tile)
                block = np.asarray(kernel_matrix(self.kernel, left, right))
                here = out[start : start + tile]
                here[...] = block[: len(here), : out.shape[1]]
        corner = out[columns]
        np.fill_diagonal(corner, self.leading(columns.stop).diagonal[columns])

    def tiles(self, rows: int) -> CovarianceTiles:
        """Return the tiles of the matrix, of so many rows, on an accelerator."""
        return CovarianceTiles(self.kernel, InputTiles(self.X, rows), self.noise)

    def product(self, V: Any) -> Float[Array, "C n"]:
        """Return ``A v`` of each row of ``V``, shape (C, n), in float64."""
        with precision("float64"):
            V = jnp.asarray(V)
            return kernel_product(self.kernel, self.X, V) + jnp.asarray(self.noise) * V


class Refined(NamedTuple):
    """Solutions ``x`` of ``A x = b``.

    Attributes
    ----------
    solution, residual : ndarray of shape (C, n)
    value : ndarray of shape (C,)
        ``x^T (b + r)``, which is ``b^T A^-1 b - r^T A^-1 r``.
    left : ndarray of shape (C,)
        About what is missing: ``r^T P^-1 r / l`` with the factor's matrix ``P``, which bounds it where ``l`` is the
        least eigenvalue of ``P^-1 A``; it is the least of Lanczos' matrices so far.
    lengths, ratios : ndarray of shape (steps, C)
        Of conjugate gradients, see `lanczos_matrix`.
    solved : ndarray of bool, shape (C,)
        Whether what is left is no more than was asked for.
    late : bool
        Whether the clock ended it before that.
    """

    solution: np.ndarray
    residual: np.ndarray
    value: np.ndarray
    left: np.ndarray
    lengths: np.ndarray
    ratios: np.ndarray
    solved: np.ndarray
    late: bool = False

    @property
    def reached(self) -> bool:
        """Whether all are solved."""
        return bool(np.all(self.solved))

    def of(self, columns: slice) -> Refined:
        """Return some of the solutions, with the steps that these took."""
        lengths = self.lengths[:, columns]
        # a column that is solved takes no more steps
        steps = int(np.max(np.flatnonzero(np.any(lengths > 0.0, axis=1)), initial=-1)) + 1
        return Refined(
            self.solution[columns], self.residual[columns], self.value[columns], self.left[columns],
            lengths[:steps], self.ratios[:steps, columns], self.solved[columns], self.late,
        )  # fmt: skip

    @property
    def steps(self) -> int:
        """Steps done."""
        return len(self.lengths)


def refine(
    matrix: RowCovariance,
    factor: Cholesky | GrowingFactor,
    right: Float[np.ndarray, "C n"],
    most_left: Callable[[np.ndarray], Any],
    most: int = MOST_STEPS,
    has_time: Callable[[float], bool] = lambda _: True,
) -> Refined:
    """Solve ``A x = b`` for rows of right-hand sides by conjugate gradients, a factor nearby as the preconditioner.

    Parameters
    ----------
    matrix : RowCovariance
    factor : Cholesky, PanelCholesky or DeviceCholesky
        Of about that matrix.
    right : ndarray of shape (C, n)
    most_left : callable
        Gives the largest `Refined.left` of each column, given ``b^T A^-1 b`` as it is known so far.
    most : int
        Most steps.
    has_time : callable, optional
        Told what the last step took in seconds, says whether there is time for another.
    """

    given: Any = factor

    def precondition(V: Array) -> Array:
        if given.on_device:
            return given.solve(V.T).T.astype(np.float64)
        return jax.device_put(given.solve(np.asarray(V).T).T.astype(np.float64))

    lengths: list[np.ndarray] = []
    ratios: list[np.ndarray] = []
    least, late, took = 1.0, False, 0.0
    with precision("float64"):
        b = jax.device_put(np.ascontiguousarray(right, np.float64))
        state = cg_start(jnp.zeros_like(b), b, precondition)
        while True:
            value = np.asarray(jnp.sum(state.solution * (b + state.residual), axis=1))
            left = np.asarray(state.energy) / least
            unsolved = ~(left <= most_left(value))  # NaN is unsolved
            if not np.any(unsolved) or len(lengths) == most or not np.all(np.isfinite(left)):
                break
            # one is what the factor alone says
            if late := bool(lengths) and not has_time(took):
                break
            began = now()
            product = matrix.product(state.direction)
            state, length, ratio = cg_step(state, product, precondition, jnp.asarray(unsolved))
            lengths.append(np.asarray(length))
            ratios.append(np.asarray(ratio))
            took = now() - began
            least = min(least, _least_eigenvalue(np.stack(lengths), np.stack(ratios), unsolved))
        solution, residual = np.asarray(state.solution), np.asarray(state.residual)
    shape = len(lengths), len(right)
    made = np.reshape(lengths, shape), np.reshape(ratios, shape)
    return Refined(solution, residual, value, left, *made, ~unsolved, late)


def _least_eigenvalue(lengths: np.ndarray, ratios: np.ndarray, columns: np.ndarray) -> float:
    """Return the least eigenvalue of Lanczos' matrices of some columns; those of the preconditioned matrix are less."""
    found = 1.0
    for column in np.flatnonzero(columns & (lengths[0] > 0)):
        diagonal, beside = lanczos_matrix(lengths[:, column], ratios[:, column])
        values = eigvalsh_tridiagonal(diagonal, beside, select="i", select_range=(0, 0))
        found = min(found, float(values[0]))
    return max(found, float(np.finfo(np.float64).eps))
