"""Small grids with gaps beside the dense matrices they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from vastgp._precision import precision
from vastgp.kernels import RBF, Coregionalisation, GridKernel, Matern32, Matern52, Periodic
from vastgp.methods.grid.solver import GridSolver

NOISE = 0.05


@dataclass
class Case:
    """A grid of at most 400 points: kernel, axes, and every point as a row of the kernel's inputs."""

    kernel: GridKernel
    axes: tuple[np.ndarray, ...]

    @cached_property
    def rows(self) -> np.ndarray:
        return rows_of(self.axes)

    @cached_property
    def _whole(self) -> np.ndarray:
        with precision("float64"):
            return np.asarray(_of_rows(self.kernel, jnp.asarray(self.rows)))

    @cached_property
    def _places(self) -> dict[bytes, int]:
        return {row.tobytes(): place for place, row in enumerate(self.rows)}

    def observed(self, gaps: float) -> np.ndarray:
        size = len(self.rows)
        return np.random.default_rng(1).permutation(size) >= gaps * size

    @property
    def values(self) -> np.ndarray:
        return np.random.default_rng(2).normal(size=len(self.rows))

    def covariance(self, X, Z) -> np.ndarray:
        """Return the kernel's matrix: of points of the grid out of one of all, as JAX compiles for each shape anew."""
        x, z = ([self._places.get(row.tobytes()) for row in np.asarray(part)] for part in (X, Z))
        if None not in x and None not in z:
            return self._whole[np.ix_(x, z)]
        with precision("float64"):
            both = _of_rows(self.kernel, jnp.asarray(np.concatenate([X, Z])))
        return np.asarray(both)[: len(X), len(X) :]

    def dense(self, observed):
        """The matrix of the observed points, its solution for their values, and both their log evidence and GCV."""
        X, y = self.rows[observed], self.values[observed]
        A = self.covariance(X, X) + NOISE * np.eye(len(X))
        alpha, n = np.linalg.solve(A, y), len(X)
        evidence = -0.5 * (y @ alpha + np.linalg.slogdet(A)[1] + n * np.log(2 * np.pi))
        gcv = -0.5 * n * np.log(n * (alpha @ alpha) / np.trace(np.linalg.inv(A)) ** 2)
        return A, alpha, evidence, gcv

    def solver(self, observed, kind="fill-gaps", **options) -> GridSolver:
        """One that iterates (rank 0), as systems this small would be factorised otherwise."""
        return GridSolver(
            observed, kind, **({"tol": 1e-12, "max_products": 5000, "rank": 0} | options)
        )


@jax.jit
def _of_rows(kernel: GridKernel, X):
    return kernel(X, X)


def rows_of(axes) -> np.ndarray:
    """All points of a grid, the last axis running fastest."""
    rows = axes[0]
    for axis in axes[1:]:
        rows = np.concatenate([rows.repeat(len(axis), 0), np.tile(axis, (len(rows), 1))], axis=1)
    return rows


def _axis(size: int, seed: int) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).uniform(0.0, 4.0, size=(size, 1)), axis=0)


CASES = {
    "one dimension": Case(GridKernel((Matern52(0.7),), (("t",),), 1.3), (_axis(40, 0),)),
    "two dimensions": Case(
        GridKernel((RBF(0.8), Matern32(1.5)), (("t",), ("x",)), 2.0), (_axis(12, 1), _axis(9, 2))
    ),
    "a group and outputs": Case(
        GridKernel(
            (
                RBF(1.0) + Periodic(2.0, 0.8, 0.5),
                Matern52([1.0, 2.0]),
                Coregionalisation(matrix=[[1.0, 0.5, -0.2], [0.5, 2.0, 0.1], [-0.2, 0.1, 1.0]]),
            ),
            (("t",), ("lat", "lon"), ("output",)),
            1.7,
        ),
        (
            _axis(7, 3),
            np.random.default_rng(4).uniform(0.0, 3.0, size=(8, 2)),
            np.arange(3.0)[:, None],
        ),
    ),
    "four dimensions": Case(
        GridKernel(
            (RBF(1.0), Matern32(2.0), Matern52(1.0), RBF(3.0)), tuple((c,) for c in "abcd"), 0.8
        ),
        (_axis(5, 5), _axis(4, 6), _axis(3, 7), _axis(5, 8)),
    ),
}
GAPS = (0.0, 0.3, 0.9)
