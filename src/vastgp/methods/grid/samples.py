"""Joint samples of a Gaussian process on a grid with gaps, by Matheron's rule."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from vastgp._precision import precision
from vastgp.kernels import GridKernel
from vastgp.kernels.matrices import grid_cross_factors, grid_factors
from vastgp.linalg.kronecker import KroneckerEigen, kron_eigen
from vastgp.methods.grid.posterior import GridPosterior

_MOST_SAMPLED_POINTS = 5000
# A joint sample needs the grid of the fit and the new points together: this many times its size is refused.
_MOST_TIMES = 64


def grid_samples(
    posterior: GridPosterior, new_axes: Sequence[np.ndarray], num_samples: int, seed: int
) -> np.ndarray:
    """Return joint samples of the function on a grid, shape (num_samples, points), by Matheron's rule.

    ``f_* + k_*X (K_XX + noise I)^-1 (y - f_X - e)`` with a prior draw ``f`` on the training grid and the new points
    together (Wilson et al. 2020, equation 12). Along every group the new points join those of the training grid, so
    that the draw is one Kronecker product.
    """
    joined = [_join(old, new) for old, new in zip(posterior.axes, new_axes, strict=True)]
    union = [points for points, _ in joined]
    size = int(np.prod([len(points) for points in union]))
    if size > max(_MOST_TIMES * posterior.solver.observed.size, 1 << 26):
        raise ValueError(
            f"coords joined with the grid of the fit make {size:,} points, too many for a joint sample. Ask for "
            "fewer new coordinates at a time, or for scattered points."
        )
    with precision("float64"):
        factors = [np.asarray(factor) for factor in grid_factors(posterior.kernel, tuple(union))]
    root = kron_eigen(factors, float(posterior.kernel.variance))
    train = np.ix_(*[np.arange(len(axis)) for axis in posterior.axes])
    new = np.ix_(*[index for _, index in joined])
    shape = [len(points) for points in union]
    result = []
    with precision(posterior.dtype):
        cast = root.astype(posterior.dtype)
        for i in range(num_samples):
            draws = np.random.default_rng([seed, i])
            normals = posterior.on_device(draws.standard_normal((1, size)))
            prior = np.asarray(_prior_draw(cast, normals)).reshape(shape)
            noise = posterior.noise_variance**0.5 * draws.standard_normal(
                posterior.coefficients.shape
            )
            weights = _update(posterior, prior[train].ravel() + noise)
            result.append(prior[new].ravel() + posterior.shift(new_axes, weights[None])[0])
    return np.stack(result)


def point_samples(
    posterior: GridPosterior, rows: Sequence[np.ndarray], num_samples: int, seed: int
) -> np.ndarray:
    """Return joint samples at scattered points, shape (num_samples, points).

    The prior draw there is made given the one on the grid; what the grid leaves open between scattered points is
    ``k - prod_l g_l^T K_l^-1 g_l``, entry by entry.
    """
    count = len(rows[0])
    if count > _MOST_SAMPLED_POINTS:
        raise ValueError(
            f"coords has {count} scattered points; joint samples are made for at most {_MOST_SAMPLED_POINTS}. Ask "
            "for fewer at a time, or for a grid."
        )
    eigen = posterior.eigen()
    with precision("float64"):
        cross = [
            np.asarray(G) for G in grid_cross_factors(posterior.kernel, tuple(rows), posterior.axes)
        ]
        covariance = np.asarray(_rows_covariance(posterior.kernel, tuple(rows)))
    halves = []
    for G, Q, t in zip(cross, eigen.vectors, eigen.values, strict=True):
        inverse_root = np.where(t > 1e-12 * t.max(), t, np.inf) ** -0.5
        halves.append((G @ Q) * inverse_root)
    known = float(posterior.kernel.variance) * reduce(
        lambda a, b: a * b, [half @ half.T for half in halves]
    )
    left = covariance - known
    values, vectors = np.linalg.eigh(0.5 * (left + left.T))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    result = []
    scale = float(posterior.kernel.variance) ** 0.5
    with precision(posterior.dtype):
        rows_cross, eigen_cast = posterior.cross_eigen(rows), posterior.eigen_cast()
        for i in range(num_samples):
            draws = np.random.default_rng([seed, i])
            normals = draws.standard_normal((1, posterior.coefficients.size))
            on_grid = np.asarray(_prior_draw(eigen_cast, posterior.on_device(normals)))[0]
            prior = scale * posterior.row_products(halves, normals[0])
            prior += root @ draws.standard_normal(count)
            noise = posterior.noise_variance**0.5 * draws.standard_normal(
                posterior.coefficients.shape
            )
            weights = _update(posterior, on_grid + noise)
            result.append(prior + posterior.row_products(rows_cross, weights))
    return np.stack(result)


def _update(posterior: GridPosterior, draw: np.ndarray) -> np.ndarray:
    """Return ``Q^T (alpha - (K_XX + noise I)^-1 (f_X + e))`` for a prior draw with noise."""
    targets = np.where(posterior.solver.observed, draw, 0.0)[None]
    solution = posterior.solved(posterior.on_device(targets))
    return posterior.coefficients - np.asarray(solution)[0]


def _join(old: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return old points followed by those new ones that are none of them, and where each new point is."""
    seen = {tuple(point): position for position, point in enumerate(old.tolist())}
    index: list[int] = []
    added: list[list[float]] = []
    for point in new.tolist():
        key = tuple(point)
        if key not in seen:
            seen[key] = len(old) + len(added)
            added.append(point)
        index.append(seen[key])
    return (np.concatenate([old, np.array(added)]) if added else old), np.array(index)


@jax.jit
def _rows_covariance(kernel: GridKernel, rows: Any) -> Array:
    return kernel.variance * reduce(lambda a, b: a * b, kernel.factors(rows))


@jax.jit
def _prior_draw(eigen: KroneckerEigen, normals: Array) -> Array:
    return eigen.rotate_back(jnp.sqrt(eigen.spectrum()) * normals)
