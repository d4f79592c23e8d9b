"""The exact log evidence of many rows on an accelerator, and its gradient, in tiles."""

from __future__ import annotations

from typing import Any

import numpy as np

from vastgp import _accelerator
from vastgp.data import observations
from vastgp.fitting.exact_evidence import ExactEvidence, log_evidence, slope_by_noise
from vastgp.kernels import Kernel
from vastgp.kernels.covariance_tiles import CovarianceTiles, InputTiles
from vastgp.kernels.matrices import prior_variances
from vastgp.likelihoods import Gaussian
from vastgp.linalg.device_cholesky import (
    factorize_on_device,
    is_faster,
    seconds_on_device,
    tile_rows,
)

# With fewer rows the host is done before the accelerator's programs are compiled.
LEAST_ROWS = 2000
# Factor and inverse are n^3 operations and a half of the matrix each, and some tiles are at work beside them.
_CUBES, _MATRICES, _MEMORY_SHARE = 1.0, 1.2, 0.8


class DeviceEvidence:
    """The log evidence of given rows as a function of kernel and noise variance: `ExactEvidence` on an accelerator.

    Covariance, factor, inverse and slopes are made tile by tile in float64: memory for ``n^2`` numbers, and programs
    that are compiled once for each kind of kernel, whatever the number of rows.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,), or (n, 3) with noise of the rows' own (`vastgp.data.observations`)
    tile : int, optional
        Rows of a tile.
    """

    def __init__(self, X: Any, y: Any, tile: int | None = None) -> None:
        self.X = np.ascontiguousarray(X, dtype=np.float64)
        self.observed = np.asarray(y, dtype=np.float64)
        self.y = np.ascontiguousarray(observations.targets(self.observed))
        self.num_rows, self.num_features = self.X.shape
        self._tiles = InputTiles(self.X, tile or tile_rows(self.num_rows))

    def value_and_gradient(
        self, kernel: Kernel, noise_variance: float
    ) -> tuple[float, tuple[Kernel, float]]:
        """Return the log evidence and its derivatives, as `ExactEvidence.value_and_gradient` does.

        Raises
        ------
        FactorizationError
            When the covariance matrix cannot be factorised with the largest jitter.
        """
        n, observed = self.num_rows, self.observed
        noise = np.broadcast_to(observations.noise_variances(observed, float(noise_variance)), n)
        tiles = CovarianceTiles(kernel, self._tiles, noise)
        largest = float(np.max(prior_variances(kernel, self.X) + noise))
        factor = factorize_on_device(tiles, n, "float64", largest=largest, tile=self._tiles.tile)
        weights = factor.solve(self.y)
        value = log_evidence(float(self.y @ weights), factor.log_determinant, n)
        by_kernel, diagonal = tiles.slope(factor.inverse_tiles(), weights)
        return value, (by_kernel, slope_by_noise(observed, weights, diagonal))

    def objective(self, params: tuple[Kernel, Gaussian]) -> tuple[float, tuple[Kernel, float]]:
        """Return `value_and_gradient` of ``(kernel, likelihood)``."""
        kernel, likelihood = params
        return self.value_and_gradient(kernel, float(likelihood.noise_variance))


def exact_evidence(X: Any, y: Any) -> ExactEvidence | DeviceEvidence:
    """Return the evidence of rows: on the accelerator where there is one that it is worth, and that holds it."""
    return DeviceEvidence(X, y) if is_on_device(len(X)) else ExactEvidence(X, y)


def is_on_device(rows: int) -> bool:
    """Whether the evidence of so many rows is an accelerator's."""
    return rows >= LEAST_ROWS and rows <= (rows_learnable_on_device() or 0)


def rows_learnable_on_device() -> int | None:
    """Return the most rows whose evidence and gradient the accelerator holds; None where there is none worth it."""
    free = _accelerator.free_bytes()
    if free is None or not is_faster():
        return None
    return int((_MEMORY_SHARE * free / (8.0 * _MATRICES)) ** 0.5)


def seconds_of_device_evaluation(n: int) -> float:
    """Return about what the evidence of n rows and its gradient take on the accelerator, once compiled."""
    return seconds_on_device(n, _CUBES)
