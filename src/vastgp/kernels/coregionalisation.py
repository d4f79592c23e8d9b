"""Covariance between outputs: a matrix learned entry by entry."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from vastgp._arguments import is_number
from vastgp.kernels.base import Kernel, positive, rows, rows_of_both


class Coregionalisation(Kernel):
    """Covariance ``B[i, j]`` between outputs ``i`` and ``j``, any positive semi-definite matrix, learned.

    ``B = unit^2 L L^T`` with lower-triangular ``L``. Every leaf of a kernel is positive, so what is stored is ``exp``
    of each entry below the diagonal of ``L``, and the diagonal as it is: the logarithms that the optimiser sees are
    then free numbers.

    Parameters
    ----------
    num_outputs : int, optional
        Found from the data when left out.
    matrix : array of shape (num_outputs, num_outputs), optional
        Where learning starts; the identity without it (outputs that know nothing of each other).

    Attributes
    ----------
    diagonal : array of shape (num_outputs,)
    below : array of shape (num_outputs (num_outputs - 1) / 2,)
        ``exp`` of the entries below the diagonal, row by row.
    unit : float
        Near the root of the mean variance of the matrix, so that these exponentials are numbers whatever it is.
    """

    diagonal: Any
    below: Any
    unit: float = eqx.field(static=True)

    def __init__(
        self,
        num_outputs: Any = None,
        matrix: Any = None,
        *,
        diagonal: Any = None,
        below: Any = None,
        unit: Any = 1.0,
    ) -> None:
        if diagonal is None:
            diagonal, below, unit = _root_of(num_outputs, matrix)
        self.diagonal = positive("diagonal", diagonal)
        self.below = positive("below", below)
        self.unit = float(np.asarray(positive("unit", unit, one=True)))

    @property
    def num_outputs(self) -> int:
        """Number of outputs ``k``."""
        return int(np.shape(self.diagonal)[0])

    def root(self) -> Float[Array, "k k"]:
        """Return ``unit L``."""
        diagonal, below = jnp.asarray(self.diagonal), jnp.asarray(self.below)
        lower = jnp.zeros((self.num_outputs, self.num_outputs), dtype=diagonal.dtype)
        lower = lower.at[np.tril_indices(self.num_outputs, -1)].set(jnp.log(below))
        return self.unit * (lower + jnp.diag(diagonal))

    def matrix(self) -> Float[Array, "k k"]:
        """Return ``B``."""
        lower = self.root()
        return jnp.matmul(lower, lower.T, precision="highest")

    def to_numpy(self) -> np.ndarray:
        """Return ``B`` of known hyperparameters, float64 whatever JAX's precision is."""
        lower = np.diag(np.asarray(self.diagonal, dtype=np.float64))
        lower[np.tril_indices(len(lower), -1)] = np.log(np.asarray(self.below, dtype=np.float64))
        lower *= self.unit
        return lower @ lower.T

    def __call__(self, X: Any, Z: Any) -> Float[Array, "n m"]:
        X, Z = rows_of_both(X, Z)
        i, j = self._outputs("X", X), self._outputs("Z", Z)
        return self.matrix()[i][:, j].astype(X.dtype)

    @property
    def constant_variance(self) -> bool:
        return False

    def diag(self, X: Any) -> Float[Array, " n"]:
        X = rows("X", X)
        return jnp.diagonal(self.matrix())[self._outputs("X", X)].astype(X.dtype)

    def _outputs(self, name: str, X: Array) -> Int[Array, " n"]:
        """Return the output of each row; ``ValueError`` for others than there are, where numbers are known."""
        wanted = f"{name} must be one column of whole numbers from 0 to {self.num_outputs - 1}"
        if X.shape[1] != 1:
            raise ValueError(f"{wanted}, the output of each row; received {X.shape[1]} columns.")
        if not isinstance(X, jax.core.Tracer):
            # what is not among them would be read as the nearest, or from the end
            numbers = np.asarray(X)[:, 0]
            wrong = numbers[~np.isin(numbers, np.arange(self.num_outputs))]
            if wrong.size:
                raise ValueError(f"{wanted}, received {wrong.size} others, the first {wrong[0]}.")
        return X[:, 0].astype(jnp.int32)

    def total_variance(self) -> Any:
        """Return the mean variance of the outputs."""
        xp = np if isinstance(self.diagonal, np.ndarray) else jnp
        squares = xp.sum(self.diagonal**2) + xp.sum(xp.log(self.below) ** 2)
        return self.unit**2 * squares / self.num_outputs

    def spectral_terms(self) -> tuple[tuple[Any, ...], ...]:
        raise ValueError("Coregionalisation is no function of distance. Use it with GridGP.")

    def with_ard(self, num_features: int) -> Coregionalisation:
        return self

    def in_units(self, x_scale: Any, y_scale: float) -> Coregionalisation:
        unit = np.asarray(self.unit, dtype=np.float64) * y_scale
        return Coregionalisation(diagonal=self.diagonal, below=self.below, unit=unit)


def _root_of(num_outputs: Any, matrix: Any) -> tuple[np.ndarray, np.ndarray, float]:
    if matrix is None:
        if not is_number(num_outputs, whole=True) or num_outputs < 1:
            raise ValueError(
                f"num_outputs must be a positive integer, received {num_outputs!r}; or give matrix. For a kernel whose "
                "size the data decide, write 'coregionalisation'."
            )
        matrix = np.eye(int(num_outputs))
    B = np.asarray(matrix, dtype=np.float64)
    if B.ndim != 2 or not B.size or B.shape[0] != B.shape[1] or num_outputs not in (None, len(B)):
        raise ValueError(f"matrix must be square, num_outputs by num_outputs; received {B.shape}.")
    variance, lower = np.trace(B) / len(B), None
    if 0.0 < variance < np.inf:
        # by a power of two, so that matrices of about unit variance, which learning has, are stored as they are
        unit = 2.0 ** np.rint(0.5 * np.log2(variance))
        lower = _positive_definite_root(B / unit**2)
    if lower is None:
        raise ValueError("matrix must be symmetric and positive definite.")
    return np.diagonal(lower).copy(), np.exp(lower[np.tril_indices(len(B), -1)]), unit


def _positive_definite_root(B: np.ndarray) -> np.ndarray | None:
    if not np.isfinite(B).all() or not np.allclose(B, B.T):
        return None
    try:
        return np.linalg.cholesky(B)
    except np.linalg.LinAlgError:
        return None
