"""The weights of a Gaussian process on a grid with gaps, and the mean that they give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from vastgp._precision import precision
from vastgp._programs import program
from vastgp.kernels import GridKernel, from_spec, to_spec
from vastgp.kernels.matrices import grid_cross_factors, grid_factors
from vastgp.linalg.kronecker import (
    KroneckerEigen,
    kron_eigen,
    kron_product,
    kron_rows,
    outer_product,
)
from vastgp.methods.grid.known_errors import KnownErrors
from vastgp.methods.grid.selected_spectrum import spectrum_of
from vastgp.methods.grid.solver import GridSolver, GridSystem

# Right-hand sides of one solve, and numbers in them together.
_BATCH, _BATCH_ENTRIES = 32, 1 << 25
# Numbers in a tile of points times eigenvectors or points times grid.
_TILE_ENTRIES = 1 << 23


@dataclass
class GridWeights:
    """What is solved for, and the mean of ``f ~ GP(0, kernel)`` given noisy values at the observed points of a grid.

    All in standardised values; coordinates are numbers in their own units.

    Attributes
    ----------
    kernel : GridKernel
    noise_variance : float
        What all points have in common, known errors apart.
    axes : tuple of ndarray of shape (m_l, d_l)
        Points of every group of the grid.
    filled : ndarray of shape (M,)
        ``(K + s I) alpha`` with the least noise variance ``s``: the values, filled in where they are missing. What is
        kept and stored, as eigenvectors are no two machines' the same (`coefficients`).
    solver : GridSolver
        How systems are solved; it knows which points were observed.
    seed : int
        Of random solves behind variances.
    """

    kernel: GridKernel
    noise_variance: float
    axes: tuple[np.ndarray, ...]
    filled: np.ndarray
    solver: GridSolver
    seed: int = 0
    _eigen: KroneckerEigen | None = field(default=None, repr=False)
    _system: GridSystem | None = field(default=None, repr=False)
    _coefficients: np.ndarray | None = field(default=None, repr=False)

    # ------------------------------------------------------------ mean

    def mean(self, points: Sequence[np.ndarray], scattered: bool = False) -> np.ndarray:
        """Return the mean: ``G^T alpha`` with ``G`` a Kronecker product (thesis, section 3.4).

        Parameters
        ----------
        points : sequence of ndarray of shape (q_l, d_l)
            Axes of a grid, whose points come flat; or the inputs of every group at each of some scattered points.
        scattered : bool, default False
        """
        with precision(self.dtype):
            weights = self.coefficients[None]
            tiles = self._tiles(points, scattered)
            return np.concatenate([self.shift(tile, weights, scattered)[0] for tile in tiles])

    def shift(
        self, points: Sequence[np.ndarray], vectors: np.ndarray, scattered: bool = False
    ) -> np.ndarray:
        """Return ``G^T Q v`` for every row ``v``."""
        return self.product(self.cross_eigen(points), vectors, scattered)

    def product(
        self, factors: Sequence[np.ndarray], vectors: np.ndarray, scattered: bool = False
    ) -> np.ndarray:
        """Return the Kronecker product of matrices (of one row of each for every point) times every row."""
        matrices = self.on_device(tuple(factors))
        if not scattered:
            found = _kronecker_product(matrices, self.on_device(vectors))
            return np.asarray(found, dtype=np.float64)
        each = [_kron_rows(matrices, self.on_device(vector)) for vector in vectors]
        return np.stack([np.asarray(row, dtype=np.float64) for row in each])

    def on_device(self, arrays: Any) -> Any:
        """Return arrays in the precision of vectors, masks as they are."""
        return jax.device_put(
            jax.tree.map(lambda a: a if a.dtype == bool else np.asarray(a, self.dtype), arrays)
        )

    @property
    def weights(self) -> np.ndarray:
        """Return ``alpha``, zero in the gaps."""
        with precision(self.dtype):
            weights = self.eigen_cast().rotate_back(self.on_device(self.coefficients[None]))
            return np.where(self.solver.observed, np.asarray(weights[0]), 0.0)

    # ------------------------------------------------------------ files

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the posterior as JSON-able data and arrays."""
        spec, arrays = to_spec(self.kernel)
        solver = self.solver
        state = {
            "kernel": spec,
            "noise_variance": self.noise_variance,
            "seed": self.seed,
            "groups": len(self.axes),
            "solver": {
                name: getattr(solver, name)
                for name in ("solver", "dtype", "tol", "max_products", "rank", "penalty")
            },
        }
        axes = {f"axis.{i}": axis for i, axis in enumerate(self.axes)}
        packed = np.packbits(solver.observed)
        arrays |= axes | {"filled": self.filled, "observed": packed}
        if solver.known.least:
            state["least_error"] = solver.known.least
        if solver.known.excess is not None:
            arrays["excess"] = solver.known.excess
        return state, arrays

    @classmethod
    def from_state(cls, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
        """Return the posterior that `to_state` wrote."""
        # files of earlier versions have coefficients of eigenvectors, and hold where these are found the same again
        filled = arrays["filled" if "filled" in arrays else "coefficients"]
        kernel = from_spec(state["kernel"], arrays)
        assert isinstance(kernel, GridKernel)
        observed = np.unpackbits(arrays["observed"], count=filled.size).astype(bool)
        known = KnownErrors(state.get("least_error", 0.0), arrays.get("excess"))
        found = cls(
            kernel,
            state["noise_variance"],
            tuple(arrays[f"axis.{i}"] for i in range(state["groups"])),
            filled,
            GridSolver(observed, **state["solver"], known=known),
            state["seed"],
        )
        if "filled" not in arrays:
            found.filled = found._filled_by(arrays["coefficients"])
        return found

    # ------------------------------------------------------------ pieces

    @property
    def dtype(self) -> str:
        """Precision of vectors."""
        return self.solver.dtype

    def eigen(self) -> KroneckerEigen:
        """Return the eigendecomposition of the grid's kernel matrix, float64, made once."""
        if self._eigen is None:
            with precision("float64"):
                factors = [np.asarray(factor) for factor in grid_factors(self.kernel, self.axes)]
            self._eigen = kron_eigen(factors, float(self.kernel.variance))
        return self._eigen

    @property
    def coefficients(self) -> np.ndarray:
        """``Q^T alpha``, by the eigenvectors that this object has.

        The signs of eigenvectors, and any turn of those with one eigenvalue (all but a few around a circle are pairs),
        are what rounding makes of them, and so are other ones on another machine.
        """
        if self._coefficients is None:
            with precision(self.dtype):
                parts = self.on_device((self.filled[None], np.float64(self.least_noise)))
                self._coefficients = np.asarray(_solved_coefficients(self.eigen_cast(), *parts))[0]
        return self._coefficients

    def _filled_by(self, coefficients: np.ndarray) -> np.ndarray:
        """Return ``(K + s I) alpha`` from ``Q^T alpha``."""
        with precision(self.dtype):
            shifted = (spectrum_of(self.eigen()) + self.least_noise) * coefficients
            return np.asarray(self.eigen_cast().rotate_back(self.on_device(shifted[None]))[0])

    @property
    def least_noise(self) -> float:
        """Noise variance of the points whose errors are least."""
        return self.noise_variance + self.solver.known.least

    def eigen_cast(self) -> KroneckerEigen:
        """Return it in the precision of vectors."""
        return self.eigen().astype(self.dtype)

    def solved(self, targets: Array) -> Array:
        """Return ``Q^T alpha`` for other targets, zero in the gaps."""
        if self._system is None:
            self._system = self.solver.at(self.eigen(), self.noise_variance)
        return self._system.coefficients(targets, self._system.solve(targets))

    def cross(self, points: Sequence[np.ndarray]) -> tuple[Array, ...]:
        """Return the covariances between points and the grid, factor by factor, the variance in the first."""
        return self.on_device(tuple(self._cross(points)))

    def cross_eigen(self, points: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return ``G_l^T Q_l``: covariances between points and the grid's eigenvectors, float64."""
        return [
            G @ np.asarray(Q)
            for G, Q in zip(self._cross(points), self.eigen().vectors, strict=True)
        ]

    def _cross(self, points: Sequence[np.ndarray]) -> list[np.ndarray]:
        with precision("float64"):
            first, *rest = grid_cross_factors(self.kernel, tuple(points), self.axes)
        return [np.asarray(first) * float(self.kernel.variance), *map(np.asarray, rest)]

    def prior(self, points: Sequence[np.ndarray], scattered: bool = False) -> np.ndarray:
        """Return the prior variance at every point."""
        with precision("float64"):
            first, *rest = (np.asarray(d) for d in _diagonals(self.kernel, tuple(points)))
        each = [float(self.kernel.variance) * first, *rest]
        return reduce(np.multiply, each) if scattered else np.array(outer_product(each))

    def _tiles(self, points: Sequence[np.ndarray], scattered: bool) -> Iterator[list[np.ndarray]]:
        """Yield parts of scattered points; a grid as a whole."""
        # the first product leaves points times everything but the first group
        size = max(1, _TILE_ENTRIES // max(self.filled.size // len(self.axes[0]), 1))
        stop = len(points[0]) if scattered else 1
        for start in range(0, stop, size):
            yield [row[start : start + size] for row in points] if scattered else list(points)

    def _batch_size(self) -> int:
        return max(1, min(_BATCH, _BATCH_ENTRIES // self.filled.size))


@program
def _solved_coefficients(eigen: KroneckerEigen, vectors: Array, shift: Array) -> Array:
    return eigen.solved_coefficients(vectors, shift)


@program
def _diagonals(kernel: GridKernel, axes: Any) -> tuple[Array, ...]:
    return kernel.factor_diagonals(axes)


@program
def _kronecker_product(factors: tuple[Array, ...], vectors: Array) -> Array:
    return kron_product(factors, vectors)


@program
def _kron_rows(rows: tuple[Array, ...], vector: Array) -> Array:
    return kron_rows(rows, vector)
