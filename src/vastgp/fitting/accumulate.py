"""Sums over rows of products of features and targets, tile by tile, to twice the digits of float64.

Products are made by BLAS on the host, which knows that they are symmetric: half the time of XLA's product on a CPU (of
4096 x 1000 features in float64 87 and 190 ms of one core, in float32 42 and 82). Features that lie on an accelerator
are multiplied and added up there, and their sum comes to the host when it is asked for. Of several devices of a process
each makes the features of its part of a tile's rows, and what these add to the product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from vastgp._precision import precision
from vastgp.data import observations, processes
from vastgp.data.devices import rows_over_devices
from vastgp.data.tiles import Tile
from vastgp.linalg.gram import gram

# Rows of the moments that are added at a time: what is read and written stays in cache.
_ADDED_ENTRIES = 1 << 15


class MomentBlocks:
    """Names for the blocks of ``[Phi y 1]^T [Phi y 1]``; arrays are views."""

    moments: np.ndarray

    @property
    def num_basis(self) -> int:
        """Number of features ``m``."""
        return len(self.moments) - 2

    @property
    def gram(self) -> np.ndarray:
        """``Phi^T Phi``, shape (m, m)."""
        return self.moments[:-2, :-2]

    @property
    def target(self) -> np.ndarray:
        """``Phi^T y``, shape (m,)."""
        return self.moments[:-2, -2]

    @property
    def feature_sum(self) -> np.ndarray:
        """``Phi^T 1``, shape (m,)."""
        return self.moments[:-2, -1]

    @property
    def square(self) -> float:
        """``y^T y``."""
        return float(self.moments[-2, -2])

    @property
    def target_sum(self) -> float:
        """``sum y``."""
        return float(self.moments[-2, -1])


class Moments(MomentBlocks):
    """Moments of rows that are added one tile after another.

    Parameters
    ----------
    num_basis : int
    dtype : {"float64", "float32"}, default "float64"
        Of the products of one tile: sums over tiles are in float64, to twice its digits, always. A float32 product
        has errors that grow with the rows of a tile and are to be compared with the noise variance.

    Attributes
    ----------
    log_weights : float
        Sum of the logarithms of what rows with noise of their own count, see `accumulate`.
    """

    def __init__(self, num_basis: int, dtype: Any = "float64") -> None:
        self._sums = (
            np.zeros((num_basis + 2, num_basis + 2)),
            np.zeros((num_basis + 2, num_basis + 2)),
        )
        # those of the tiles that lay on an accelerator, and are there still
        self._elsewhere: tuple[Array, Array] | None = None
        self.num_rows, self.log_weights = 0, 0.0
        self._dtype = np.dtype(dtype)
        self._wide = np.empty((0, num_basis + 2), self._dtype)

    @property
    def num_basis(self) -> int:
        """Number of features ``m``."""
        return len(self._sums[0]) - 2

    @property
    def moments(self) -> np.ndarray:  # type: ignore[override]  # nobody sets it
        """``[Phi y 1]^T [Phi y 1]``."""
        return self._fetched()[0]

    @property
    def rest(self) -> np.ndarray:
        """What rounding took from them."""
        return self._fetched()[1]

    def _fetched(self) -> tuple[np.ndarray, np.ndarray]:
        if self._elsewhere is not None:
            here, self._elsewhere = self._elsewhere, None
            add_to(*self._sums, *(np.asarray(part, np.float64) for part in here))
        return self._sums

    def add(self, features: Any, y: np.ndarray, weight: Any = 1.0) -> None:
        """Add rows.

        Parameters
        ----------
        features : array of shape (s, m)
            Of at least as many rows as ``y`` has, the rest being filling.
        y : ndarray of shape (n,)
        weight : ndarray of shape (n,), optional
            How often each row counts.
        """
        count, m = len(y), self.num_basis
        root = np.broadcast_to(np.sqrt(weight), count)
        own = root * np.stack([np.asarray(y, np.float64), np.ones(count)])
        if isinstance(features, jax.Array) and _elsewhere(features):
            padded = np.pad(np.vstack([own, root]), ((0, 0), (0, len(features) - count)))
            with precision("float64"):
                corner, dtype = own @ own.T, str(self._dtype)
                # no more than a tile ahead of the clock
                before = jax.block_until_ready(self._elsewhere or _nothing(features))
                self._elsewhere = _with_product(before, features, padded, corner, dtype)
        else:
            if len(self._wide) < count:
                self._wide = np.empty((count, m + 2), self._dtype)
            wide = self._wide[:count]
            wide[:, :m], wide[:, m:] = np.asarray(features)[:count], own.T
            if np.ndim(weight):
                wide[:, :m] *= root[:, None]
            product = gram(wide).astype(np.float64, copy=False)
            # what misfits are taken from: in float64 whatever the products are
            product[m:, m:] = own @ own.T
            add_to(*self._fetched(), product, None)
        self.num_rows += count

    def of_all(self) -> Moments:
        """Return the moments of the rows of all processes; of one they are its own."""
        if processes.count() == 1:
            return self
        found = Moments(self.num_basis, self._dtype)
        found._sums = added_everywhere(*self._fetched())
        found.num_rows = int(processes.added(np.int64(self.num_rows)))
        found.log_weights = float(processes.added(np.float64(self.log_weights)))
        return found


def accumulate(
    features: Callable[[np.ndarray], Any],
    tiles: Iterable[Tile],
    num_basis: int,
    *,
    dtype: Any = "float64",
    on_tile: Callable[[int], None] | None = None,
    noise_variance: float = 1.0,
) -> Moments:
    """Return the moments of all rows; at no time is there more than one tile of features.

    Parameters
    ----------
    features : callable
        ``features(X)`` of a whole tile, (size, d) to (size, m), so that one compiled program serves all of them. ``X``
        is an array of JAX with its rows over several devices where these share the work.
    tiles : iterable of Tile
        See `vastgp.data.tiles`.
    num_basis : int
    dtype : {"float64", "float32"}, default "float64"
        Of the products, see `Moments`.
    on_tile : callable, optional
        Called with the number of rows of each tile that is done; what it raises ends the work.
    noise_variance : float, default 1.0
        ``sigma^2``: rows with noise ``v_i`` of their own count ``sigma^2 / v_i``. Of no effect on others.
    """
    found = Moments(num_basis, dtype)
    for tile in tiles:
        y, weight = tile.y[: tile.num_rows], 1.0
        if observations.has_own_noise(y):
            weight = noise_variance / observations.noise_variances(y, noise_variance)
            found.log_weights += float(np.sum(np.log(weight)))
        with precision(str(tile.X.dtype)):
            X = rows_over_devices(tile.X, float(num_basis) ** 2)
        found.add(features(X), observations.targets(y), weight)
        if on_tile is not None:
            on_tile(tile.num_rows)
    return found


def add_to(
    high: np.ndarray, low: np.ndarray, other: np.ndarray, other_low: np.ndarray | None
) -> None:
    """Add numbers of twice the digits to others in place (Knuth, TAOCP 2, 4.2.2, theorems B and C)."""
    step = max(1, _ADDED_ENTRIES // max(high.shape[1], 1))
    for first in range(0, len(high), step):
        here = slice(first, first + step)
        a, b = high[here], other[here]
        total = a + b
        of_b = total - a
        error = (a - (total - of_b)) + (b - of_b)
        error += low[here]
        if other_low is not None:
            error += other_low[here]
        np.add(total, error, out=a)
        np.subtract(error, a - total, out=low[here])


def added_everywhere(high: np.ndarray, low: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return sums over processes of numbers of twice the digits, added in the order of their numbers."""
    (high, *others), (low, *rests) = processes.gathered(high), processes.gathered(low)
    high, low = high.copy(), low.copy()
    for other, rest in zip(others, rests, strict=True):
        add_to(high, low, other, rest)
    return high, low


def _elsewhere(array: Array) -> bool:
    return any(device.platform != "cpu" for device in array.devices())


@jax.jit
def _nothing(features: Array) -> tuple[Array, Array]:
    """Return the sums of no rows where features lie."""
    size = features.shape[1] + 2
    return jnp.zeros((size, size), jnp.float64), jnp.zeros((size, size), jnp.float64)


@jax.jit(static_argnames="dtype", donate_argnums=0)
def _with_product(
    sums: tuple[Array, Array], features: Array, beside: Array, corner: Array, dtype: str
) -> tuple[Array, Array]:
    """Return sums of twice the digits with ``[Phi y 1]^T [Phi y 1]``, whose last block is given, as `add_to` does.

    ``beside`` holds y, ones and what features are to be multiplied with.
    """
    wide = jnp.concatenate([features * beside[2][:, None], beside[:2].T], axis=1).astype(dtype)
    b = jnp.matmul(wide.T, wide, precision="highest").astype(jnp.float64)
    b = b.at[-2:, -2:].set(corner)
    a, low = sums
    total = a + b
    of_b = total - a
    error = (a - (total - of_b)) + (b - of_b) + low
    high = total + error
    return high, error - (high - total)
