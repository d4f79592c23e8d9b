"""The posterior of a Gaussian process on a grid with gaps: its mean, and variances by three ways."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from vastgp._precision import precision
from vastgp._programs import program
from vastgp.linalg.kronecker import KroneckerEigen
from vastgp.methods.grid.options import VARIANCES, VarianceSamples
from vastgp.methods.grid.selected_spectrum import select_eigenvectors, spectrum_of
from vastgp.methods.grid.weights import GridWeights

# Up to this many points "auto" makes a solve for each.
MOST_SOLVED = 256
# Numbers in a tile of points times eigenvectors, and in a batch of draws at points.
_TILE_ENTRIES, _BATCH_ENTRIES = 1 << 23, 1 << 24
_LOW_RANK = 1000
# Draws behind variances are kept for the next prediction when they are no more numbers than this.
_MOST_KEPT = 1 << 28


@dataclass
class GridPosterior(GridWeights):
    """Posterior of ``f ~ GP(0, kernel)`` given noisy values at the observed points of a grid.

    All in standardised values; see `GridWeights` for its attributes.
    """

    _differences: dict[int, list[np.ndarray]] = field(default_factory=dict, repr=False)

    @property
    def parts(self) -> tuple[GridPosterior, ...]:
        """Itself: what `AveragedGridPosterior` has several of."""
        return (self,)

    @property
    def mixture(self) -> np.ndarray:
        """Their weights."""
        return np.ones(1)

    def mean_and_variance(
        self, points: Sequence[np.ndarray], how: Any = "auto", scattered: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return both of the function."""
        mean = np.asarray(self.mean(points, scattered), np.float64)
        return mean, self.variance(points, how, scattered)

    def forget(self) -> None:
        """Let go of what is computed again when it is needed: eigenvectors, the system, draws."""
        self._eigen, self._system, self._coefficients, self._differences = None, None, None, {}

    def variance(
        self, points: Sequence[np.ndarray], how: Any = "auto", scattered: bool = False
    ) -> np.ndarray:
        """Return the variance of the function.

        Parameters
        ----------
        points, scattered
            As of `mean`.
        how : {"auto", "exact", "samples", "low-rank"} or VarianceSamples
            ``"exact"`` makes a solve for every point, ``"samples"`` a given number for all together: exact but for the
            share of the variance that is due to the gaps (and to known errors above the least), which is unbiased
            with a relative standard error of ``sqrt(2 / num_samples)``. ``"low-rank"`` makes none. Without gaps, and
            with one noise, all are exact and none solves.
        """
        count = len(points[0]) if scattered else math.prod(map(len, points))
        how = self._way(how, count)
        with precision(self.dtype):
            if how in ("exact", "low-rank"):
                rows = points if scattered else _all_rows(points)
                return self._by_solves(rows) if how == "exact" else self._by_low_rank(rows)
            differences: Iterable[np.ndarray] = self._gap_differences(how.num_samples)
            if scattered:  # for every tile again
                differences = list(differences)
            tiles = [
                self._by_samples(tile, scattered, differences, how.num_samples)
                for tile in self._tiles(points, scattered)
            ]
        return np.maximum(np.concatenate(tiles), 0.0)

    def _way(self, how: Any, count: int) -> Any:
        """Return ``"exact"``, ``"low-rank"`` or the object of samples."""
        how = VARIANCES.resolve("variance", how)
        if self.solver.uniform:
            return VarianceSamples()  # there is no gap to sample: the closed form
        if how == "auto":
            return "exact" if count <= MOST_SOLVED else VarianceSamples()
        return how

    def _by_samples(
        self,
        points: Sequence[np.ndarray],
        scattered: bool,
        differences: Iterable[np.ndarray],
        num_samples: int,
    ) -> np.ndarray:
        """Return ``k - g^T (K + noise I)^-1 g`` as if all points were observed, and what the gaps add to it.

        ``g^T Q (T + noise)^-1 Q^T g`` is a product with the squared entries of ``G_l^T Q_l``, for all points at once.
        """
        cross = self.cross_eigen(points)
        squared = [part**2 for part in cross]
        explained = self.product(squared, self._inverse()[None], scattered)[0]
        variance = self.prior(points, scattered) - explained
        # points may be many times those of the fit
        rows = max(1, _BATCH_ENTRIES // variance.size)
        for batch in differences:
            for start in range(0, len(batch), rows):
                shifts = self.product(cross, batch[start : start + rows], scattered)
                variance += np.sum(shifts**2, axis=0) / num_samples
        return variance

    def _inverse(self) -> np.ndarray:
        """Return the eigenvalues of ``(K + noise I)^-1``."""
        return 1.0 / (spectrum_of(self.eigen()) + self.least_noise)

    def _gap_differences(self, num_samples: int) -> Iterator[np.ndarray]:
        """Yield batches of ``Q^T c`` for draws of ``c ~ N(0, (K + noise I)^-1 - W^T (K_XX + noise I)^-1 W)``.

        ``k^T c`` is what the gaps add to the error at a point. With ``w ~ N(0, K + noise I)`` on the whole grid,
        ``c = (K + noise I)^-1 w - W^T (K_XX + noise I)^-1 w_X`` has that covariance. Where points have more noise than
        the least, ``R``, it is that of ``c = (K + noise I)^-1 w - W^T (K_XX + noise I + R)^-1 (w_X + N(0, R))``.
        """
        if self.solver.uniform:
            return
        if num_samples in self._differences:
            yield from self._differences[num_samples]
            return
        keep, size = num_samples * self.filled.size <= _MOST_KEPT, self._batch_size()
        drawn = []
        for start in range(0, num_samples, size):
            seeds = range(start, min(start + size, num_samples))
            batch = self._draw_differences(seeds)
            if keep:
                drawn.append(batch)
            yield batch
        if keep:
            self._differences = {num_samples: drawn}

    def _draw_differences(self, seeds: range) -> np.ndarray:
        size, roots = self.solver.observed.size, self._inverse() ** -0.5
        generators = [np.random.default_rng([self.seed, seed]) for seed in seeds]
        normals = np.stack([draws.standard_normal(size) for draws in generators])
        # of draws on the grid: what is found hangs on no choice of eigenvectors
        normals = np.asarray(_turned(self.eigen_cast(), self.on_device(normals)), np.float64)
        targets = _whole_grid(
            self.eigen_cast(), self.solver.observed, self.on_device(roots * normals)
        )
        excess = self.solver.known.excess
        if excess is not None:
            more = excess**0.5 * np.stack([draws.standard_normal(size) for draws in generators])
            targets = targets + self.on_device(more)
        return np.asarray(normals / roots, self.dtype) - np.asarray(self.solved(targets))

    def _by_solves(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """Return ``k - g_X^T (K_XX + noise I)^-1 g_X`` (equation (3.2)), by a solve for every point."""
        spectrum, size = 1.0 / self._inverse(), self._batch_size()
        excess = self.solver.known.excess
        result = self.prior(rows, True)
        for start in range(0, len(rows[0]), size):
            part = [row[start : start + size] for row in rows]
            missing = size - len(part[0])
            if missing and start:  # one shape: one compilation
                part = [np.concatenate([row, row[:1].repeat(missing, axis=0)]) for row in part]
            targets = _row_products(self.cross(part), self.solver.observed)
            # g_X^T alpha_X = alpha^T (K + noise I + R) alpha
            coefficients = self.solved(targets)
            explained = np.asarray(coefficients, np.float64) ** 2 @ spectrum
            if excess is not None:
                weights = np.asarray(_points(self.eigen_cast(), coefficients), np.float64)
                explained += weights**2 @ excess
            here = slice(start, start + size)
            result[here] -= explained[: len(result[here])]
        return np.maximum(result, 0.0)

    def _by_low_rank(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """Return the variance with the data explained by the ``p`` largest eigenvalues alone, without a solve.

        ``f = phi^T w + rest`` with ``phi = (S_p T S_p^T)^(1/2)`` times the eigenvectors of the preconditioner (3.7),
        extended to other points by ``Q^T g / t``. The weights have posterior covariance
        ``noise (noise I + Phi^T S Phi)^-1``, ``S`` the noise over that of each point (the identity without known
        errors), and the rest keeps its prior variance. Replacing ``K_XX`` in equation (3.2)
        alone, as the thesis has it, can make variances negative.
        """
        spectrum, noise = spectrum_of(self.eigen()), self.least_noise
        excess = self.solver.known.excess
        shares = None if excess is None else noise / (noise + excess)
        rank = max(min(_LOW_RANK, int(np.count_nonzero(spectrum > 1e-3 * noise))), 1)
        vectors, values = select_eigenvectors(self.eigen(), rank, self.solver.observed, self.dtype)
        roots = np.sqrt(values)
        inner = roots[:, None] * vectors.gram(shares) * roots + noise * np.eye(rank)
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
            rest = self.prior(part, True) - np.sum(phi**2, axis=1)
            result.append(np.maximum(rest, 0.0) + noise * np.sum(left**2, axis=0))
        return np.concatenate(result)


def _all_rows(axes: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the inputs of every group at every point of a grid, in the order of its flat vectors."""
    index = np.meshgrid(*[np.arange(len(axis)) for axis in axes], indexing="ij")
    return [axis[i.ravel()] for axis, i in zip(axes, index, strict=True)]


@program
def _row_products(rows: tuple[Array, ...], mask: Any) -> Array:
    """Return the rows of the Kronecker product on a mask, one for each point."""
    result = rows[0]
    for row in rows[1:]:
        result = (result[:, :, None] * row[:, None, :]).reshape(result.shape[0], -1)
    return jnp.where(mask, result, 0.0)


@program
def _turned(eigen: KroneckerEigen, vectors: Array) -> Array:
    """Return ``Q^T w``."""
    return eigen.rotate(vectors)


@program
def _points(eigen: KroneckerEigen, coefficients: Array) -> Array:
    """Return ``w`` from ``Q^T w``."""
    return eigen.rotate_back(coefficients)


@program
def _whole_grid(eigen: KroneckerEigen, observed: Any, coefficients: Array) -> Array:
    """Return ``w_X`` from ``Q^T w``."""
    return jnp.where(observed, eigen.rotate_back(coefficients), 0.0)
