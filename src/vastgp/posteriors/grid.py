"""The posterior of a Gaussian process on a grid with gaps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from vastgp._precision import precision
from vastgp.kernels import GridKernel, from_spec, to_spec
from vastgp.kernels.matrices import grid_cross_factors, grid_factors
from vastgp.linalg.gaps import GapSystem
from vastgp.linalg.kronecker import (
    KroneckerEigen,
    kron_eigen,
    kron_product,
    kron_rows,
    outer_product,
)
from vastgp.linalg.selected_spectrum import select_eigenvectors
from vastgp.objectives.grid_solver import GridSolver

VARIANCES = ("auto", "exact", "samples", "low-rank")
# Up to this many points "auto" makes a solve for each.
MOST_SOLVED = 256
# Right-hand sides of one solve, and numbers in them together.
_BATCH, _BATCH_ENTRIES = 32, 1 << 25
# Numbers in a tile of points times eigenvectors or points times grid.
_TILE_ENTRIES = 1 << 23
_LOW_RANK = 1000
# Draws behind variances are kept for the next prediction when they are no more numbers than this.
_MOST_KEPT = 1 << 28


@dataclass
class GridPosterior:
    """Posterior of ``f ~ GP(0, kernel)`` given noisy values at the observed points of a grid.

    All in standardised values; coordinates are numbers in their own units.

    Attributes
    ----------
    kernel : GridKernel
    noise_variance : float
    axes : tuple of ndarray of shape (m_l, d_l)
        Points of every group of the grid.
    weights : ndarray of shape (M,)
        ``alpha``, zero in the gaps.
    solver : GridSolver
        How systems are solved; it knows which points were observed.
    num_samples : int
        Random solves behind a variance by ``"samples"``.
    seed : int
        Of these.
    """

    kernel: GridKernel
    noise_variance: float
    axes: tuple[np.ndarray, ...]
    weights: np.ndarray
    solver: GridSolver
    num_samples: int = 64
    seed: int = 0
    _eigen: KroneckerEigen | None = field(default=None, repr=False)
    _system: GapSystem | None = field(default=None, repr=False)
    _differences: list[np.ndarray] | None = field(default=None, repr=False)

    # ------------------------------------------------------------ mean

    def mean(self, new_axes: Sequence[np.ndarray]) -> np.ndarray:
        """Return the mean on a grid, flat: ``G^T alpha`` with ``G`` a Kronecker product (thesis, section 3.4)."""
        with precision(self.dtype):
            cross = self.cross(new_axes)
            return np.asarray(_product(cross, self._vector(self.weights))[0])

    def point_mean(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """Return the mean at scattered points; ``rows`` has the inputs of every group at each point."""
        with precision(self.dtype):
            weights = jnp.asarray(self.weights, self.dtype)
            return np.concatenate(
                [np.asarray(kron_rows(cross, weights)) for cross, _ in self._row_tiles(rows)]
            )

    # ------------------------------------------------------------ variance

    def variance(self, new_axes: Sequence[np.ndarray], method: str = "auto") -> np.ndarray:
        """Return the variance of the function on a grid, flat.

        Parameters
        ----------
        new_axes : sequence of ndarray of shape (q_l, d_l)
        method : {"auto", "exact", "samples", "low-rank"}
            ``"exact"`` makes a solve for every point, ``"samples"`` a given number for all together: exact but for the
            share of the variance that is due to the gaps, which is unbiased with a relative standard error of
            ``sqrt(2 / num_samples)``. ``"low-rank"`` makes none. Without gaps all are exact and none solves.
        """
        count = int(np.prod([len(axis) for axis in new_axes]))
        method = self._method(method, count)
        with precision(self.dtype):
            if method == "exact":
                rows = _all_rows(new_axes)
                return self._by_solves(rows)
            if method == "low-rank":
                return self._by_low_rank(_all_rows(new_axes))
            variance = self._without_gaps(new_axes)
            for part in self._gap_differences():
                variance += np.mean(np.square(self.shift(new_axes, part)), axis=0) * (
                    len(part) / self.num_samples
                )
        return np.maximum(variance, 0.0)

    def point_variance(self, rows: Sequence[np.ndarray], method: str = "auto") -> np.ndarray:
        """Return the variance of the function at scattered points; see `variance`."""
        method = self._method(method, len(rows[0]))
        with precision(self.dtype):
            if method == "exact":
                return self._by_solves(rows)
            if method == "low-rank":
                return self._by_low_rank(rows)
            return self._point_by_samples(rows)

    def _method(self, method: str, count: int) -> str:
        if self.solver.observed.all():
            return "samples"  # there is no gap to sample: the closed form
        if method == "auto":
            return "exact" if count <= MOST_SOLVED else "samples"
        return method

    def _without_gaps(self, new_axes: Sequence[np.ndarray]) -> np.ndarray:
        """Return ``k - g^T (K + noise I)^-1 g`` as if all points of the grid were observed.

        ``g^T Q (T + noise)^-1 Q^T g`` for all points at once is a Kronecker product with the squared entries of
        ``G_l^T Q_l``.
        """
        prior, cross = self._prior(new_axes), self.cross(new_axes)
        eigen = self.eigen_cast()
        squared = [
            jnp.matmul(G, Q, precision="highest") ** 2
            for G, Q in zip(cross, eigen.vectors, strict=True)
        ]
        inverse = 1.0 / (eigen.spectrum() + jnp.asarray(self.noise_variance, self.dtype))
        return prior - np.asarray(_product(tuple(squared), inverse[None])[0], dtype=np.float64)

    def _gap_differences(self) -> Iterator[np.ndarray]:
        """Yield batches of draws of ``c ~ N(0, (K + noise I)^-1 - W^T (K_XX + noise I)^-1 W)``.

        ``k^T c`` is what the gaps add to the error at a point. With ``w ~ N(0, K + noise I)`` on the whole grid,
        ``c = (K + noise I)^-1 w - W^T (K_XX + noise I)^-1 w_X`` has that covariance.
        """
        if self.solver.observed.all():
            return
        if self._differences is not None:
            yield from self._differences
            return
        keep = self.num_samples * self.weights.size <= _MOST_KEPT
        drawn = []
        for seeds in self._seeds():
            batch = self._draw_differences(seeds)
            if keep:
                drawn.append(batch)
            yield batch
        if keep:
            self._differences = drawn

    def _draw_differences(self, seeds: list[int]) -> np.ndarray:
        eigen = self.eigen_cast()
        normals = np.stack(
            [
                np.random.default_rng([self.seed, seed]).standard_normal(self.solver.observed.size)
                for seed in seeds
            ]
        )
        observed = jnp.asarray(self.solver.observed)
        noise = jnp.asarray(self.noise_variance, self.dtype)
        targets, whole = _whole_grid(eigen, noise, observed, jnp.asarray(normals, self.dtype))
        return np.asarray(whole - self.solver.solve(self.system(), targets).weights)

    def _seeds(self) -> list[list[int]]:
        size = self._batch_size()
        every = list(range(self.num_samples))
        return [every[start : start + size] for start in range(0, len(every), size)]

    def shift(self, new_axes: Sequence[np.ndarray], vectors: np.ndarray) -> np.ndarray:
        """Return ``G^T v`` on a grid for every row ``v``."""
        cross = self.cross(new_axes)
        return np.asarray(_product(cross, jnp.asarray(vectors, self.dtype)), dtype=np.float64)

    def _by_solves(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """Return ``k - g_X^T (K_XX + noise I)^-1 g_X`` (equation (3.2)), by a solve for every point."""
        observed = jnp.asarray(self.solver.observed)
        system, size = self.system(), self._batch_size()
        result = self._point_prior(rows)
        for start in range(0, len(rows[0]), size):
            part = [row[start : start + size] for row in rows]
            missing = size - len(part[0])
            if missing and start:  # one shape: one compilation
                part = [np.concatenate([row, row[:1].repeat(missing, axis=0)]) for row in part]
            targets = _row_products(self.cross(part))
            targets = jnp.where(observed, targets, 0.0)
            explained = jnp.sum(targets * self.solver.solve(system, targets).weights, axis=1)
            here = slice(start, start + size)
            result[here] -= np.asarray(explained, dtype=np.float64)[: len(result[here])]
        return np.maximum(result, 0.0)

    def _point_by_samples(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        eigen = self.eigen_cast()
        inverse = 1.0 / (eigen.spectrum() + jnp.asarray(self.noise_variance, self.dtype))
        parts = []
        differences = list(self._gap_differences())
        for cross, part in self._row_tiles(rows):
            squared = [
                jnp.matmul(G, Q, precision="highest") ** 2
                for G, Q in zip(cross, eigen.vectors, strict=True)
            ]
            variance = self._point_prior(part) - np.asarray(kron_rows(squared, inverse), float)
            for batch in differences:
                for vector in batch:
                    shift = kron_rows(cross, jnp.asarray(vector, self.dtype))
                    variance += np.asarray(shift, float) ** 2 / self.num_samples
            parts.append(variance)
        return np.maximum(np.concatenate(parts), 0.0)

    def _by_low_rank(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """Return the variance with the data explained by the ``p`` largest eigenvalues alone, without a solve.

        ``f = phi^T w + rest`` with ``phi = (S_p T S_p^T)^(1/2)`` times the eigenvectors of the preconditioner (3.7),
        extended to other points by ``Q^T g / t``. The weights have posterior covariance
        ``noise (noise I + Phi^T Phi)^-1``, and the rest keeps its prior variance. Replacing ``K_XX`` in equation (3.2)
        alone, as the thesis has it, can make variances negative.
        """
        eigen = self.eigen_cast()
        observed = jnp.asarray(self.solver.observed)
        spectrum = np.asarray(eigen.spectrum(), dtype=np.float64)
        rank = max(min(_LOW_RANK, int(np.count_nonzero(spectrum > 1e-3 * self.noise_variance))), 1)
        vectors, values = select_eigenvectors(eigen, rank, observed)
        roots = np.sqrt(values)
        inner = roots[:, None] * vectors.gram() * roots + self.noise_variance * np.eye(rank)
        lower = np.linalg.cholesky(inner)
        thin = np.unravel_index(
            np.asarray(vectors.where), tuple(f.shape[1] for f in vectors.factors)
        )
        result = []
        size = max(1, _TILE_ENTRIES // rank)
        for start in range(0, len(rows[0]), size):
            part = [row[start : start + size] for row in rows]
            # s prod_l g_l^T q_l / (s t): the scale belongs to one factor of the cross-covariance
            phi = reduce(
                lambda a, b: a * b,
                [
                    (np.asarray(G, float) @ np.asarray(Q, float))[:, index]
                    for G, Q, index in zip(self.cross(part), vectors.factors, thin, strict=True)
                ],
            )
            phi = phi / roots
            left = np.linalg.solve(lower, phi.T)
            rest = self._point_prior(part) - np.sum(phi**2, axis=1)
            result.append(np.maximum(rest, 0.0) + self.noise_variance * np.sum(left**2, axis=0))
        return np.concatenate(result)

    # ------------------------------------------------------------ files

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the posterior as JSON-able data and arrays."""
        spec, arrays = to_spec(self.kernel)
        solver = self.solver
        state = {
            "kernel": spec,
            "noise_variance": self.noise_variance,
            "num_samples": self.num_samples,
            "seed": self.seed,
            "groups": len(self.axes),
            "solver": {
                name: getattr(solver, name)
                for name in ("solver", "dtype", "tol", "max_iter", "rank", "penalty")
            },
        }
        axes = {f"axis.{i}": axis for i, axis in enumerate(self.axes)}
        packed = np.packbits(solver.observed)
        return state, arrays | axes | {"weights": self.weights, "observed": packed}

    @classmethod
    def from_state(cls, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> GridPosterior:
        """Return the posterior that `to_state` wrote."""
        weights = arrays["weights"]
        kernel = from_spec(state["kernel"], arrays)
        assert isinstance(kernel, GridKernel)
        observed = np.unpackbits(arrays["observed"], count=weights.size).astype(bool)
        return cls(
            kernel,
            state["noise_variance"],
            tuple(arrays[f"axis.{i}"] for i in range(state["groups"])),
            weights,
            GridSolver(observed, **state["solver"]),
            state["num_samples"],
            state["seed"],
        )

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

    def eigen_cast(self) -> KroneckerEigen:
        """Return it in the precision of vectors."""
        return self.eigen().astype(self.dtype)

    def system(self) -> GapSystem:
        """Return the system that is solved, made once."""
        if self._system is None:
            self._system = self.solver.system(self.eigen(), self.noise_variance)
        return self._system

    def cross(self, points: Sequence[np.ndarray]) -> tuple[Array, ...]:
        """Return the covariances between points and the grid, factor by factor, the variance in the first."""
        with precision("float64"):
            first, *rest = grid_cross_factors(self.kernel, tuple(points), self.axes)
            first = np.asarray(first) * float(self.kernel.variance)
        return tuple(jnp.asarray(np.asarray(G), self.dtype) for G in (first, *rest))

    def _prior(self, new_axes: Sequence[np.ndarray]) -> np.ndarray:
        with precision("float64"):
            first, *rest = (np.asarray(d) for d in _diagonals(self.kernel, tuple(new_axes)))
        return np.array(outer_product([float(self.kernel.variance) * first, *rest]))

    def _point_prior(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        with precision("float64"):
            diagonals = [np.asarray(d) for d in _diagonals(self.kernel, tuple(rows))]
        return float(self.kernel.variance) * reduce(lambda a, b: a * b, diagonals)

    def _row_tiles(
        self, rows: Sequence[np.ndarray]
    ) -> Iterator[tuple[tuple[Array, ...], list[np.ndarray]]]:
        # the first product leaves points times everything but the first group
        size = max(1, _TILE_ENTRIES // max(self.weights.size // len(self.axes[0]), 1))
        for start in range(0, len(rows[0]), size):
            part = [row[start : start + size] for row in rows]
            yield self.cross(part), part

    def _vector(self, vector: np.ndarray) -> Array:
        return jnp.asarray(vector[None], self.dtype)

    def _batch_size(self) -> int:
        return max(1, min(_BATCH, _BATCH_ENTRIES // self.weights.size))


def _all_rows(axes: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the inputs of every group at every point of a grid, in the order of its flat vectors."""
    index = np.meshgrid(*[np.arange(len(axis)) for axis in axes], indexing="ij")
    return [axis[i.ravel()] for axis, i in zip(axes, index, strict=True)]


@jax.jit
def _diagonals(kernel: GridKernel, axes: Any) -> tuple[Array, ...]:
    return kernel.factor_diagonals(axes)


@jax.jit
def _product(factors: tuple[Array, ...], vectors: Array) -> Array:
    return kron_product(factors, vectors)


@jax.jit
def _row_products(rows: tuple[Array, ...]) -> Array:
    """Return the rows of the Kronecker product, one for each point."""
    result = rows[0]
    for row in rows[1:]:
        result = (result[:, :, None] * row[:, None, :]).reshape(result.shape[0], -1)
    return result


@jax.jit
def _whole_grid(
    eigen: KroneckerEigen, noise: Array, observed: Array, normals: Array
) -> tuple[Array, Array]:
    """Return ``w_X`` and ``(K + noise I)^-1 w`` for ``w ~ N(0, K + noise I)``."""
    root = jnp.sqrt(eigen.spectrum() + noise)
    both = eigen.rotate_back(jnp.concatenate([root * normals, normals / root]))
    targets, whole = jnp.split(both, 2)
    return jnp.where(observed, targets, 0.0), whole
