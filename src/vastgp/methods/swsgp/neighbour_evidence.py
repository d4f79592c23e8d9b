"""How likely rows are, each given its nearest others, as a function of kernel and noise."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from vastgp._precision import precision
from vastgp.data import observations, processes
from vastgp.data.neighbours import smallest
from vastgp.data.ranked_neighbours import RankedIndex
from vastgp.kernels import Kernel
from vastgp.kernels.metric import metric_lengthscales
from vastgp.likelihoods import Gaussian, StudentT
from vastgp.linalg.alone import run_alone
from vastgp.linalg.cholesky import FactorizationError
from vastgp.linalg.leaves import from_vector
from vastgp.linalg.threads import blas_threads
from vastgp.solvers.neighbour_systems import solve_each
from vastgp.solvers.neighbourhoods import Neighbours, conditional_variance, local_systems

# Numbers of differences that are in memory at a time.
_TILE_ENTRIES = 2**22
# Rows whose systems are in the cache together: 2048 at once take 80 ms, in tiles of 256 22 ms (32 neighbours).
_TILE_ROWS = 256


def nearest_others(
    kernel: Kernel, X: np.ndarray, chosen: np.ndarray, count: int, search: str = "auto"
) -> np.ndarray:
    """Return the numbers of the rows nearest to some rows in the kernel's metric, without these themselves.

    Parameters
    ----------
    kernel : Kernel
    X : ndarray of shape (n, d)
    chosen : ndarray of int, shape (J,)
    count : int
        So many, or all others.
    search : {"auto", "exact", "approximate"}

    Returns
    -------
    ndarray of int32, shape (J, count)
        The nearest first.
    """
    wanted = min(count, len(X) - 1)
    index = RankedIndex(X, metric_lengthscales(kernel, X.shape[1]), search)
    found = index.query(X[chosen], wanted + 1)
    return found[others(found, chosen)].reshape(len(chosen), wanted)


def others(found: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return a mask of the nearest rows that leaves out one of each: the row itself.

    Parameters
    ----------
    found : ndarray of int, shape (J, count)
    chosen : ndarray of int, shape (J,)
    """
    own = found == chosen[:, None]
    # of rows that repeat each other it may not be among them: then the farthest goes
    own[~own.any(axis=1), -1] = True
    return ~own


def nearest_of(
    kernel: Kernel, X: np.ndarray, chosen: np.ndarray, near: np.ndarray, count: int
) -> np.ndarray:
    """Return those of the neighbours of some rows that are nearest in another kernel's metric, (J, count).

    Parameters
    ----------
    kernel : Kernel
    X, chosen
        As in `nearest_others`.
    near : ndarray of int, shape (J, pool)
        In which they are looked for.
    count : int
        So many, or all.
    """
    points = X / metric_lengthscales(kernel, X.shape[1])
    found = np.empty((len(chosen), min(count, near.shape[1])), near.dtype)
    tile = max(1, _TILE_ENTRIES // (near.shape[1] * X.shape[1]))
    for start in range(0, len(chosen), tile):
        here = slice(start, start + tile)
        distance = np.sum((points[near[here]] - points[chosen[here]][:, None]) ** 2, axis=2)
        places = smallest(distance, found.shape[1])
        found[here] = np.take_along_axis(near[here], places, axis=1)
    return found


class NeighbourEvidence:
    """``sum_i log p(y_i | targets of the rows nearest to i)`` of some rows i, in float64.

    Each term is a normal density with the moments of `vastgp.methods.swsgp.nearest`. With the neighbours among the rows
    before i, and over all rows, it would be Vecchia's approximation of the evidence.

    Parameters
    ----------
    X, y : ndarray
        All standardised rows.
    chosen : ndarray of int, shape (J,)
    near : ndarray of int, shape (J, h)
        Of each chosen row.
    jitter : float
        Relative to the prior variance.
    worth : float, optional
        Each row and its neighbours have a factor of all variances of their own, which is not known: as much is known of
        it as if so many observations had said that it is one. None: it is one. In the notation of
        `vastgp.methods.swsgp.local_scale` a term is then a Student density with ``worth + h`` degrees of freedom, whose
        square of width is ``(worth + y^T K^-1 y) / (worth + h)`` times the variance (Shah, Wilson and Ghahramani 2014).
    of_all : int, optional
        How many rows all processes have chosen together, of which these are a part, see `part_of_tiles`: the value is
        that of all. None: these are all.
    """

    def __init__(
        self,
        X: np.ndarray,
        y: np.ndarray,
        chosen: np.ndarray,
        near: np.ndarray,
        jitter: float,
        worth: float | None = None,
        of_all: int | None = None,
    ) -> None:
        targets = observations.targets(y)
        # noise variances are  inverse weight * noise variance + known variance
        known = observations.noise_variances(y, 0.0) + np.zeros(len(X))
        inverse = observations.noise_variances(y, 1.0) - known
        of_rows = [X, targets, inverse, known]
        self.num_rows, self.num_features = len(chosen) if of_all is None else of_all, X.shape[1]
        # rows that fill the last tile count nothing
        size = tile_size(self.num_rows)
        tiles = -(-len(chosen) // size)
        filled = np.minimum(np.arange(tiles * size), len(chosen) - 1).reshape(tiles, size)
        self._rows = [part[chosen[filled]] for part in of_rows]
        self._near = [part[near[filled]] for part in of_rows]
        self._counts = (np.arange(tiles * size) < len(chosen)).astype(float).reshape(tiles, size)
        self._jitter, self._worth, self._shared = jitter, worth, of_all is not None

    def objective(self, params: tuple[Kernel, Gaussian]) -> tuple[float, Any]:
        """Return the value and its derivatives by every hyperparameter and the noise variance."""
        kernel, likelihood = params
        with precision("float64"), blas_threads(self._near[0].shape[2]):
            given = kernel, jnp.asarray(float(likelihood.noise_variance))
            tiles = np.asarray(
                _values_and_slopes(
                    given, self._rows, self._near, self._counts, self._jitter, self._worth
                )
            )
        # one tile after the other, so that sums are those of one process
        tiles = tiles if not self._shared else of_tiles(tiles)
        total = np.add.accumulate(tiles)[-1]
        if not np.isfinite(total[0]):
            raise FactorizationError(
                "The covariance matrix of a row's neighbours could not be factorised. Raise the noise (noise_floor), "
                "or jitter."
            )
        return float(total[0]), from_vector(total[1:], like=given)


def tile_size(num_rows: int) -> int:
    """Return how many rows are in a tile."""
    return -(-num_rows // -(-num_rows // _TILE_ROWS))


def part_of_tiles(num_rows: int) -> np.ndarray:
    """Return the places of the rows that this process has: every so many tiles one."""
    places = np.arange(num_rows)
    return places[places // tile_size(num_rows) % processes.count() == processes.number()]


def of_tiles(own: np.ndarray) -> np.ndarray:
    """Return what all processes have for each tile, in the order of the tiles."""
    parts = processes.gathered(own)
    found = np.empty((sum(map(len, parts)), *own.shape[1:]))
    for number, part in enumerate(parts):
        found[number :: len(parts)] = part
    return found


@run_alone
@jax.jit
def _values_and_slopes(
    params: Any,
    rows: list[Float[Array, "tiles n ..."]],
    near: list[Float[Array, "tiles n h ..."]],
    counts: Float[Array, "tiles n"],
    jitter: Any,
    worth: Any,
) -> Float[Array, "tiles p"]:
    """Return the sum over each tile, and its derivatives by every hyperparameter, one after the other."""

    def of_tile(_: None, tile: Any) -> tuple[None, Array]:
        value, slope = jax.value_and_grad(_tile_value)(params, *tile, jitter, worth)
        return None, jnp.append(value, ravel_pytree(slope)[0])

    return jax.lax.scan(of_tile, None, (rows, near, counts))[1]


def _tile_value(
    params: Any,
    rows: list[Float[Array, "n ..."]],
    near: list[Float[Array, "n h ..."]],
    counts: Float[Array, " n"],
    jitter: Any,
    worth: Any,
) -> Array:
    kernel, noise = params
    (X, y, inverse, known), (Z, targets, inverse_near, known_near) = rows, near
    blank = jnp.zeros((*Z.shape[:2], 1), Z.dtype)
    present = jnp.ones(Z.shape[:2], bool)
    added = jitter + (noise * inverse_near + known_near) / kernel.total_variance()
    K, k = local_systems(kernel, X, Neighbours(Z, present, blank, blank, None), added)
    if worth is None:
        a = solve_each(K, k)
    else:
        a, by_targets = jnp.moveaxis(solve_each(K, jnp.stack([k, targets], axis=2)), 2, 0)
    variance = conditional_variance(kernel, X, k, a) + noise * inverse + known
    off = y - jnp.sum(a * targets, axis=1)
    if worth is None:
        return -0.5 * jnp.sum(counts * (jnp.log(2.0 * jnp.pi * variance) + off**2 / variance))
    # log t(off) with nu = worth + h and the square of width  (worth + y^T K^-1 y) / nu  times the variance
    nu = worth + targets.shape[1]
    square = variance * (worth + jnp.sum(targets * by_targets, axis=1)) / nu
    return jnp.sum(counts * StudentT(jnp.sqrt(square), nu).log_prob(off, 0.0))
