"""Variances of a diagonal covariance of the weights (Proposition 1), with a basis function added at every test input.

The added function (Proposition 4) is taken to be known from each row independently, which is too much where rows repeat
each other: in gaps variances are too small. Among the rows those of independent weights are too large.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp._precision import as_dtype
from vastgp.bases import InducingBasis
from vastgp.data import Rows, Standardizer
from vastgp.data.devices import rows_over_devices
from vastgp.data.minibatch import fixed_indices
from vastgp.data.tiles import over_tiles, row_tiles
from vastgp.methods.qsgp.inducing.objective import (
    BlockedInputs,
    function_values,
    squared_norms,
    squares_of_features,
)
from vastgp.methods.qsgp.inducing.setup import AUGMENTING, OF_DIAGONAL, OF_VALUE
from vastgp.methods.qsgp.stochastic.sampled_elbo import optimal_diagonal
from vastgp.solvers.prior_draws import PriorDraws

# Rows evaluated at a time: a panel of kernel values with one block of inputs stays small.
_TILE = 512
_DIAGONAL_TILE = 2048
# Kernel values behind the diagonal: all rows where there are fewer, else so many rows drawn at random.
_DIAGONAL_VALUES, _DIAGONAL_ROWS = 5e8, 4096
# Rows kept for the augmentation where the inducing inputs are not among the training rows.
_AUGMENTING_ROWS = 4096


class DiagonalVariances:
    """Variances of independent weights (Proposition 1), and of a basis function added at each test input.

    Parameters
    ----------
    basis : InducingBasis
    diagonal : Array of shape (m,)
        ``c_rr`` of the covariance's Cholesky factor.
    noise_variance : float
    augment : bool
        Whether a basis function is added at each test input (Proposition 4): far from all rows the variance is then
        the prior's, instead of zero.
    num_rows : int
        Number of training rows.
    rows : Array of shape (s, d), optional
        Rows that stand for the training rows in the augmentation; None: the inducing inputs, which are among them.
    """

    def __init__(
        self,
        basis: InducingBasis,
        diagonal: Float[Array, " m"],
        *,
        noise_variance: float,
        augment: bool,
        num_rows: int,
        rows: Float[Array, "s d"] | None = None,
    ) -> None:
        self.basis, self.diagonal, self.rows = basis, diagonal, rows
        self.noise_variance, self.augment = float(noise_variance), bool(augment)
        self.num_rows = int(num_rows)
        self._blocks = BlockedInputs.cut(basis)
        self._row_blocks = (
            None if rows is None else BlockedInputs.cut(InducingBasis(basis.kernel, rows))
        )

    @classmethod
    def of_rows(
        cls,
        basis: InducingBasis,
        rows: Rows,
        standardizer: Standardizer,
        noise_variance: float,
        seed: int,
        *,
        augment: bool,
        among_rows: bool,
    ) -> DiagonalVariances:
        """Return those of Proposition 1 from the rows; ``among_rows``: the inducing inputs are among these."""
        diagonal = inducing_diagonal(basis, rows, standardizer, noise_variance, seed)
        few: Any = None
        if not among_rows:
            chosen = np.sort(fixed_indices(seed, AUGMENTING, rows.n, _AUGMENTING_ROWS))
            few = as_dtype(standardizer.transform_X(rows.take(chosen)[0]), diagonal.dtype)
        return cls(
            basis, diagonal,
            noise_variance=noise_variance, augment=augment, num_rows=rows.n, rows=few,
        )  # fmt: skip

    def of(self, X: np.ndarray) -> np.ndarray:
        """Return the variance of the function at the rows of ``X``."""
        variance, added = self._parts(X)
        return variance + added

    def draws(self, X: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
        """Return joint draws of what the function is off by, shape (n, num_samples).

        ``Phi (c * eps)``, ``eps ~ N(0, I)``, and for the augmentation a draw of the prior scaled at every row to the
        variance that is added there: the functions at close inputs are not independent of each other.
        """
        generator = np.random.default_rng(seed)
        draws = []
        for _ in range(num_samples):
            normals = generator.standard_normal(self.diagonal.shape)
            weights = self.diagonal * jnp.asarray(normals, self.diagonal.dtype)
            values = partial(function_values, self._blocks, v=weights)
            tiles = over_tiles(values, X.astype(self.diagonal.dtype), most=_TILE)
            draws.append(np.concatenate([np.zeros(0), *tiles]))
        drawn = np.stack(draws, axis=1)
        if not self.augment:
            return drawn
        kernel = self.basis.kernel
        share = np.sqrt(self._parts(X)[1] / float(kernel.total_variance()))
        prior = PriorDraws(kernel, num_samples, X.shape[1], generator)
        return drawn + share[:, None] * prior(X)

    def _parts(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the variance of the weights, and what augmentation adds."""
        variance, squares = self._sums(X, self._blocks, np.square(self.diagonal))
        if not self.augment:
            return variance, np.zeros(len(X))
        seen = self.basis.num_basis
        if self._row_blocks is not None:
            ones = np.ones(self._row_blocks.size, self.diagonal.dtype)
            squares = self._sums(X, self._row_blocks, ones)[1]
            seen = self._row_blocks.size
        prior, noise = float(self.basis.kernel.total_variance()), self.noise_variance
        # Proposition 4: sigma^2 k(x, x)^2 / (k(x)^T k(x) + sigma^2 k(x, x)), k(x) at the training rows
        squares = squares * (self.num_rows / seen)
        return variance, noise * prior**2 / (squares + noise * prior)

    def _sums(self, X: np.ndarray, blocks: BlockedInputs, scales: Any) -> Any:
        """Return the two sums of `squares_of_features` at the rows of ``X``, float64."""
        found = partial(squares_of_features, blocks, variances=scales)
        tiles = over_tiles(found, X.astype(self.diagonal.dtype), most=_TILE)
        return np.concatenate([np.zeros((2, 0)), *map(np.stack, tiles)], axis=1)

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return JSON-able data and arrays."""
        arrays = {"diagonal": np.asarray(self.diagonal)}
        if self.rows is not None:
            arrays["rows"] = np.asarray(self.rows)
        state = {
            "variance": "augmented" if self.augment else "diagonal",
            "noise_variance": self.noise_variance,
            "num_rows": self.num_rows,
        }
        return state, arrays

    @classmethod
    def from_state(
        cls, basis: InducingBasis, state: dict[str, Any], arrays: dict[str, np.ndarray]
    ) -> DiagonalVariances:
        """Return the variances that `to_state` described."""
        return cls(
            basis,
            jnp.asarray(arrays["diagonal"]),
            noise_variance=state["noise_variance"],
            augment=state["variance"] == "augmented",
            num_rows=state["num_rows"],
            rows=jnp.asarray(arrays["rows"]) if "rows" in arrays else None,
        )


def inducing_diagonal(
    basis: InducingBasis, rows: Rows, standardizer: Standardizer, noise_variance: float, seed: int
) -> Float[Array, " m"]:
    """Return ``c_rr`` of Proposition 1, ``phi_r^T phi_r`` summed over all rows.

    Beyond half a billion kernel values, over random rows instead, at least `_DIAGONAL_ROWS` of them, times the
    inverse of their share.
    """
    blocks, dtype = BlockedInputs.cut(basis), basis.inputs.dtype
    size = max(int(_DIAGONAL_VALUES / basis.num_basis), _DIAGONAL_ROWS)
    few = np.sort(fixed_indices(seed, OF_DIAGONAL, rows.n, size)) if size < rows.n else None
    total = np.zeros(basis.num_basis)
    for tile in row_tiles(rows, standardizer, _DIAGONAL_TILE, dtype, few):
        part = rows_over_devices((tile.X, tile.weight), float(OF_VALUE * basis.num_basis))
        total += np.asarray(squared_norms(blocks, *part))[: basis.num_basis]
    gram = total * (rows.n / min(size, rows.n))
    return as_dtype(_diagonal(gram, float(basis.kernel.total_variance()), noise_variance), dtype)


_diagonal = jax.jit(optimal_diagonal)
