"""Joint samples of a Gaussian process on a grid with gaps, by Matheron's rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from vastgp._precision import precision
from vastgp._programs import program
from vastgp.kernels import GridKernel
from vastgp.kernels.matrices import grid_cross_factors, grid_factors
from vastgp.linalg.kronecker import KroneckerEigen, kron_eigen
from vastgp.methods.grid.averaged import AveragedGridPosterior
from vastgp.methods.grid.posterior import GridPosterior

_MOST_SAMPLED_POINTS = 5000
# A joint sample needs the grid of the fit and the new points together: this many times its size is refused.
_MOST_TIMES = 64


def joint_samples(
    posterior: GridPosterior | AveragedGridPosterior,
    points: Sequence[np.ndarray],
    num_samples: int,
    seed: int,
    scattered: bool,
) -> np.ndarray:
    """Return joint samples of the function, shape (num_samples, points), each of a part that is drawn by weight.

    Parameters
    ----------
    posterior : GridPosterior or AveragedGridPosterior
    points, scattered
        As of `GridPosterior.mean`.
    num_samples, seed : int
    """
    if isinstance(posterior, GridPosterior):
        return _samples_of(posterior, points, num_samples, seed, scattered)
    count = len(posterior.parts)
    of_part = np.random.default_rng(seed).choice(count, num_samples, p=posterior.mixture)
    seeds = np.random.SeedSequence(seed).generate_state(count)
    drawn: dict[int, np.ndarray] = {}
    for number in np.unique(of_part):
        here = np.flatnonzero(of_part == number)
        part, own = posterior.parts[number], int(seeds[number])
        drawn |= dict(zip(here, _samples_of(part, points, len(here), own, scattered), strict=True))
    return np.stack([drawn[i] for i in range(num_samples)])


def _samples_of(
    posterior: GridPosterior,
    points: Sequence[np.ndarray],
    num_samples: int,
    seed: int,
    scattered: bool,
) -> np.ndarray:
    """Return joint samples by Matheron's rule.

    ``f_* + k_*X (K_XX + noise I)^-1 (y - f_X - e)`` with a prior draw ``f`` on the training grid and the new points
    together (Wilson et al. 2020, equation 12). ``e`` has the known errors too.
    """
    draw_prior = (_prior_at_points if scattered else _prior_on_grids)(posterior, points)
    observed, shape = posterior.solver.observed, posterior.filled.shape
    excess = posterior.solver.known.excess
    noise_std = (posterior.least_noise + (0.0 if excess is None else excess)) ** 0.5
    result = []
    with precision(posterior.dtype):
        for i in range(num_samples):
            draws = np.random.default_rng([seed, i])
            on_grid, here = draw_prior(draws)
            noise = noise_std * draws.standard_normal(shape)
            targets = posterior.on_device(np.where(observed, on_grid + noise, 0.0)[None])
            # Q^T (alpha - (K_XX + noise I)^-1 (f_X + e))
            weights = posterior.coefficients - np.asarray(posterior.solved(targets))[0]
            result.append(here + posterior.shift(points, weights[None], scattered)[0])
    return np.stack(result)


# Draws of the prior on the grid of the fit and at the new points.
_Draw = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]


def _prior_on_grids(posterior: GridPosterior, new_axes: Sequence[np.ndarray]) -> _Draw:
    """Along every group the new points join those of the training grid: a draw is one Kronecker product."""
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
    with precision(posterior.dtype):
        cast = root.astype(posterior.dtype)

    def draw(draws: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        normals = posterior.on_device(draws.standard_normal((1, size)))
        prior = np.asarray(_prior_draw(cast, normals)[0]).reshape(shape)
        return prior[train].ravel(), prior[new].ravel()

    return draw


def _prior_at_points(posterior: GridPosterior, rows: Sequence[np.ndarray]) -> _Draw:
    """The draw at points is made given the one on the grid.

    What the grid leaves open between scattered points is ``k - prod_l g_l^T K_l^-1 g_l``, entry by entry.
    """
    count = len(rows[0])
    if count > _MOST_SAMPLED_POINTS:
        raise ValueError(
            f"coords has {count} scattered points; joint samples are made for at most {_MOST_SAMPLED_POINTS}. Ask "
            "for fewer at a time, or for a grid."
        )
    kernel, eigen = posterior.kernel, posterior.eigen()
    with precision("float64"):
        cross = [np.asarray(G) for G in grid_cross_factors(kernel, tuple(rows), posterior.axes)]
        covariance = np.asarray(_rows_covariance(kernel, tuple(rows)))
    halves = []
    for G, Q, t in zip(cross, eigen.vectors, eigen.values, strict=True):
        halves.append((G @ Q) * np.where(t > 1e-12 * t.max(), t, np.inf) ** -0.5)
    variance = float(kernel.variance)
    known = variance * reduce(np.multiply, [half @ half.T for half in halves])
    left = covariance - known
    values, vectors = np.linalg.eigh(0.5 * (left + left.T))
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    with precision(posterior.dtype):
        cast = posterior.eigen_cast()

    def draw(draws: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        normals = draws.standard_normal((1, posterior.filled.size))
        on_grid, turned = map(np.asarray, _prior_draw(cast, posterior.on_device(normals)))
        here = variance**0.5 * posterior.product(halves, turned, scattered=True)[0]
        return on_grid[0], here + root @ draws.standard_normal(count)

    return draw


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


@program
def _prior_draw(eigen: KroneckerEigen, normals: Array) -> tuple[Array, Array]:
    """Return ``K^(1/2) z``, which no choice of eigenvectors changes, and ``Q^T z``."""
    turned = eigen.rotate(normals)
    return eigen.rotate_back(jnp.sqrt(eigen.spectrum()) * turned), turned
