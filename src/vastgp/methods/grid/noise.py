"""Noise of several outputs on a grid, each with a variance of its own.

Noise that differs between outputs is no multiple of the identity, and would take the Kronecker product's eigenvectors
away. Values in units of their output's noise have it again: with ``y_a = r_a y'_a`` and noise variances
``noise_a = r_a^2 noise``,

``log p(y) = log p(y') - sum_a N_a log r_a``, ``B'_ab = B_ab / (r_a r_b)``, noise ``noise`` everywhere,

which is exact: the covariance ``B`` between outputs is any matrix, and ``B'`` is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class OutputNoise:
    """Where outputs are on a grid, and how many of their values were observed.

    Attributes
    ----------
    position : int
        Which factor is that of the outputs.
    shape : tuple of int
        Of the grid.
    counts : ndarray of shape (k,)
        Observed values of every output.
    """

    position: int
    shape: tuple[int, ...]
    counts: np.ndarray

    @classmethod
    def of(cls, position: int, shape: tuple[int, ...], observed: np.ndarray) -> OutputNoise:
        """Return it for a mask of the observed points, flat."""
        others = tuple(i for i in range(len(shape)) if i != position)
        return cls(position, tuple(shape), observed.reshape(shape).sum(axis=others))

    def on_grid(self, each: np.ndarray) -> np.ndarray:
        """Return one number for each output, so that it multiplies values of the grid's shape."""
        along = [1] * len(self.shape)
        along[self.position] = len(each)
        return each.reshape(along)

    def scaled(self, values: Any, ratios: np.ndarray) -> Any:
        """Return ``y' = y / r`` for flat values."""
        return (values.reshape(self.shape) / self.on_grid(ratios)).reshape(values.shape)

    def factor(self, factor: np.ndarray, ratios: np.ndarray) -> np.ndarray:
        """Return ``B'`` from ``B``, or the derivative by ``B`` from that by ``B'``."""
        return factor / np.outer(ratios, ratios)

    def log_units(self, ratios: np.ndarray) -> float:
        """Return ``sum_a N_a log r_a``."""
        return float(self.counts @ np.log(ratios))

    def by_each(
        self,
        noises: np.ndarray,
        ratios: np.ndarray,
        by_common: float,
        by_factor: np.ndarray,
        factor: np.ndarray,
        products: np.ndarray,
    ) -> np.ndarray:
        """Return derivatives of the log evidence by every output's noise variance.

        Parameters
        ----------
        noises, ratios : ndarray of shape (k,)
        by_common : float
            Derivative by ``noise``.
        by_factor, factor : ndarray of shape (k, k)
            Derivative by ``B'``, and ``B'``.
        products : ndarray
            ``y' alpha``, flat.
        """
        others = tuple(i for i in range(len(self.shape)) if i != self.position)
        # d/d log r_a: -1/2 y'^T A^-1 y' gives y'_a^T alpha_a, B' gives -2 sum_b B'_ab G_ab, the units -N_a
        by_log_ratio = products.reshape(self.shape).sum(axis=others) - self.counts
        by_log_ratio = by_log_ratio - 2.0 * np.sum(factor * by_factor, axis=1)
        # log r_a = 1/2 (log noise_a - mean log noise), and log noise is that mean
        each = 0.5 * (by_log_ratio - by_log_ratio.mean())
        return (each + by_common * common_noise(noises)[0] / len(noises)) / noises


def common_noise(noises: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the geometric mean of noise variances, and the units ``r_a`` in which all have that one."""
    mean = float(np.exp(np.mean(np.log(noises))))
    return mean, np.sqrt(noises / mean)
