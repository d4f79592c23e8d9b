"""Draws of the prior as functions that any row can be asked of."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from vastgp._precision import as_dtype, precision
from vastgp.bases import RandomFourierBasis, seed_key
from vastgp.data.padding import pad_rows
from vastgp.kernels import Constant, Kernel, Linear, Sum
from vastgp.solvers.least_squares import BlockedBasis, evaluate

# Waves of a draw, and rows of it at a time.
_WAVES, _TILE = 4096, 8192


class PriorDraws:
    """Functions drawn from ``GP(0, kernel)``, in float64.

    What falls with distance is a sum of 4096 waves with normal weights (Rahimi & Recht 2007), whose covariance misses
    the kernel by some two per cent between any two rows; a linear part is a linear function with drawn slopes, a
    constant part a drawn level, exact.

    Parameters
    ----------
    kernel : Kernel
        With a spectrum, but for linear and constant terms of a sum.
    count : int
        How many functions.
    num_features : int
        Number d of inputs.
    generator : numpy.random.Generator

    Raises
    ------
    ValueError
        When a part of the kernel has no spectrum.
    """

    def __init__(
        self, kernel: Kernel, count: int, num_features: int, generator: np.random.Generator
    ) -> None:
        parts = kernel.parts if isinstance(kernel, Sum) else (kernel,)
        linear = [part for part in parts if isinstance(part, Linear)]
        constant = [part for part in parts if isinstance(part, Constant)]
        waves = tuple(part for part in parts if not isinstance(part, (Constant, Linear)))
        self._slopes = np.zeros((num_features, count))
        for part in linear:
            normals = generator.standard_normal((num_features, count))
            spread = np.broadcast_to(np.asarray(part.slope_variances) ** 0.5, num_features)
            self._slopes += spread[:, None] * normals
        self._level = np.zeros(count)
        for level in constant:
            self._level += float(level.variance) ** 0.5 * generator.standard_normal(count)
        self._blocks, self._weights = None, None
        if waves:
            with precision("float64"):
                key = seed_key(int(generator.integers(2**31)))
                basis = RandomFourierBasis(
                    as_dtype(Sum(waves), np.float64), key, 2 * _WAVES, "plain"
                )
                self._blocks = BlockedBasis.cut(basis)
                normals = generator.standard_normal((count, 2, _WAVES))
                self._weights = self._blocks.pad(jnp.asarray(normals))

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Return the functions at the rows of ``X``, shape (n, count)."""
        found = X @ self._slopes + self._level
        if self._blocks is None:
            return found
        with precision("float64"):
            for start in range(0, len(X), _TILE):
                tile = X[start : start + _TILE]
                rows = jnp.asarray(pad_rows(tile), jnp.float64)
                values: Any = evaluate(self._blocks, rows, self._weights)
                found[start : start + _TILE] += np.asarray(values).T[: len(tile)]
        return found
