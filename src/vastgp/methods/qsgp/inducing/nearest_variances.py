r"""Variances of the function given the nearest inducing inputs, which stand for the rows.

Each inducing input ``z_j`` stands for the rows to which it is the nearest. What the inducing inputs leave of row ``i``,
``lambda_i = k(x_i, x_i) - k_i^T K_i^-1 k_i`` with those next to it, is noise of that row alone (as Snelson & Ghahramani
2006 have it), so that the rows say of the function at ``z_j`` what one observation would with the noise variance

    d_j = 1 / sum_i 1 / (sigma^2 + lambda_i).

With ``N`` the inputs nearest to ``x``,

    Var f(x) = k(x, x) - k_N^T (K_NN + D_N)^-1 k_N.

Where the inducing inputs are the rows, ``d_j = sigma^2``, and this is the exact process's variance given some of the
targets, which is never below that given all.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from vastgp._precision import as_dtype
from vastgp.bases import InducingBasis
from vastgp.data import Rows, Standardizer
from vastgp.data.minibatch import fixed_indices
from vastgp.data.ranked_neighbours import RankedIndex
from vastgp.kernels.metric import metric_or_units
from vastgp.methods.qsgp.inducing.setup import OF_NEAREST
from vastgp.solvers.neighbour_posterior import NeighbourPosterior

# Rows that say what other inducing inputs stand for, the inputs by which it is said what is left of a row, and how
# many of the rows an input should see where some are drawn.
_COUNTED_ROWS, _LEFT_BY, _ROWS_AN_INPUT = 65_536, 16, 4
# On the diagonal of neighbourhoods' matrices, relative to the prior variance: float64.
_JITTER = 1e-8


class _NearestInputs(NeighbourPosterior):
    """Neighbours of any kernel, in one order."""

    @cached_property
    def index(self) -> RankedIndex:  # type: ignore[override]
        return RankedIndex(self.Z, metric_or_units(self.kernel, self.Z.shape[1]), self.search)


class NearestVariances:
    """Variances given the nearest inducing inputs.

    Parameters
    ----------
    basis : InducingBasis
    noise : ndarray of shape (m,)
        The noise variance ``d_j`` with which the rows say the function at each input; infinite where none is for them.
    neighbors : int
        How many inputs say it of a row; all where there are fewer.
    """

    def __init__(self, basis: InducingBasis, noise: np.ndarray, neighbors: int) -> None:
        self.noise, self.neighbors = noise, int(neighbors)
        said = np.isfinite(noise)
        self._posterior = _observed(basis, noise[said], self.neighbors, said)

    @classmethod
    def of_rows(
        cls,
        basis: InducingBasis,
        rows: Rows,
        standardizer: Standardizer,
        noise_variance: float,
        neighbors: int,
        seed: int,
        *,
        are_rows: bool,
    ) -> NearestVariances:
        """Find what each inducing input stands for; ``are_rows``: they are all training rows."""
        given = basis, rows, standardizer, noise_variance
        noise = _of_repeated(basis, noise_variance) if are_rows else _of_nearest(*given, seed)
        return cls(basis, noise, neighbors)

    def of(self, X: np.ndarray) -> np.ndarray:
        """Return the variance of the function at the rows of ``X``."""
        return self._posterior.mean_and_latent_variance(X)[1]

    def draws(self, X: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
        """Return joint draws of what the function is off by, shape (n, num_samples)."""
        return self._posterior.samples(X, num_samples, seed)

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return JSON-able data and arrays."""
        return {"variance": "nearest", "neighbors": self.neighbors}, {"noise": self.noise}

    @classmethod
    def from_state(
        cls, basis: InducingBasis, state: dict[str, Any], arrays: dict[str, np.ndarray]
    ) -> NearestVariances:
        """Return the variances that `to_state` described."""
        return cls(basis, arrays["noise"], state["neighbors"])


def _observed(
    basis: InducingBasis, noise: np.ndarray | None, neighbors: int, which: Any = slice(None)
) -> _NearestInputs:
    """Return the posterior of the function at some inducing inputs, or of observations with noise, all of them zero."""
    Z = np.asarray(basis.inputs, np.float64)[which]
    kernel: Any = as_dtype(basis.kernel, np.float64)
    zero = np.broadcast_to(0.0, (len(Z), 1))
    return _NearestInputs(kernel, Z, zero, zero, min(neighbors, len(Z)), _JITTER, noise=noise)


def _of_repeated(basis: InducingBasis, noise_variance: float) -> np.ndarray:
    """Return ``sigma^2 / c`` at the first of ``c`` equal rows, and infinity at the others."""
    Z = np.asarray(basis.inputs)
    _, first, counts = np.unique(Z, axis=0, return_index=True, return_counts=True)
    noise = np.full(len(Z), np.inf)
    noise[first] = noise_variance / counts
    return noise


def _of_nearest(
    basis: InducingBasis,
    rows: Rows,
    standardizer: Standardizer,
    noise_variance: float,
    seed: int,
) -> np.ndarray:
    """Return what the rows nearest to each input say of it, by some of the rows where there are many.

    Where some stand for all, what a row says goes in equal parts to as many inputs next to it as each sees four rows.
    """
    chosen = np.sort(fixed_indices(seed, OF_NEAREST, rows.n, min(rows.n, _COUNTED_ROWS)))
    X = standardizer.transform_X(rows.take(chosen)[0])
    exact = _observed(basis, None, _LEFT_BY)
    shares = 1
    if len(chosen) < rows.n:
        shares = math.ceil(_ROWS_AN_INPUT * basis.num_basis / len(chosen))
    near = exact.index.query(X, min(max(shares, exact.num_neighbors), basis.num_basis))
    left = exact.given_neighbours(X, near[:, : exact.num_neighbors])[1]
    # sums over the rows drawn, in the place of all
    says = rows.n / len(chosen) / (noise_variance + left)
    near = near[:, :shares]
    precision_of = np.zeros(basis.num_basis)
    np.add.at(precision_of, near, says[:, None] / near.shape[1])
    with np.errstate(divide="ignore"):
        return np.asarray(1.0 / precision_of)
