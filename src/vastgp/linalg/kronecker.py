"""Kronecker products: times vectors, by their eigenvectors, and never formed.

A grid's kernel matrix is ``K = K_1 (x) ... (x) K_d``, one factor for each group of dimensions. Vectors on the grid are
rows of length ``M = m_1 ... m_d``, the last dimension running fastest, and several of them are the rows of one array.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from vastgp.linalg.cholesky import FactorizationError
from vastgp.linalg.eigen import symmetric_eigen


def kron_product(factors: Sequence[Array], vectors: Float[Array, "C c"]) -> Float[Array, "C r"]:
    """Return ``(A_1 (x) ... (x) A_d) v`` for every row ``v``.

    One matrix product for each factor, the last one first (thesis, appendix A). Each leaves its dimension at the
    front, so that after the last the dimensions stand in order again and nothing was transposed on the way.

    Parameters
    ----------
    factors : sequence of Array of shape (r_l, c_l)
    vectors : Array of shape (C, c_1 ... c_d)

    Returns
    -------
    Array of shape (C, r_1 ... r_d)
    """
    count = vectors.shape[0]
    tensor = vectors
    for factor in reversed(factors):
        flat = tensor.reshape(-1, factor.shape[1])
        # A_l T^T with T of shape (everything else, c_l)
        tensor = lax.dot_general(factor, flat, (((1,), (1,)), ((), ())), precision="highest")
    # the count of vectors went from the front to the back
    return tensor.reshape(-1, count).T if count > 1 else tensor.reshape(1, -1)


def kron_flops(shape: Sequence[int]) -> int:
    """Return the floating point operations of one product with square factors of these sizes."""
    return 2 * math.prod(shape) * sum(shape)


def outer_product(vectors: Sequence[Any]) -> Any:
    """Return the Kronecker product of vectors: the eigenvalues of a product from those of its factors."""
    result = vectors[0]
    for vector in vectors[1:]:
        result = (result[:, None] * vector[None, :]).reshape(-1)
    return result


def kron_rows(
    rows: Sequence[Float[Array, "b _"]], vector: Float[Array, " M"]
) -> Float[Array, " b"]:
    """Return ``(a_1i (x) ... (x) a_di)^T v``, with one row of every factor for each of ``b`` points."""
    points = rows[0].shape[0]
    first = jnp.matmul(rows[0], vector.reshape(rows[0].shape[1], -1), precision="highest")
    tensor = first
    for row in rows[1:]:
        tensor = jnp.einsum(
            "bm,bmr->br", row, tensor.reshape(points, row.shape[1], -1), precision="highest"
        )
    return tensor[:, 0] if len(rows) > 1 else first[:, 0]


class KroneckerEigen(NamedTuple):
    """``K = s (Q_1 (x) ... (x) Q_d) diag(t_1 (x) ... (x) t_d) (Q_1 (x) ... (x) Q_d)^T``.

    Attributes
    ----------
    vectors : tuple of Array of shape (m_l, m_l)
        Orthonormal eigenvectors of every factor, in columns.
    values : tuple of Array of shape (m_l,)
        Their eigenvalues, none negative, in ascending order.
    scale : scalar Array
        What multiplies the product.
    """

    vectors: tuple[Array, ...]
    values: tuple[Array, ...]
    scale: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the factors."""
        return tuple(value.shape[0] for value in self.values)

    def spectrum(self) -> Float[Array, " M"]:
        """Return all eigenvalues of ``K``."""
        return outer_product((self.scale * self.values[0], *self.values[1:]))

    def rotate(self, vectors: Float[Array, "C M"]) -> Float[Array, "C M"]:
        """Return ``Q^T v`` for every row."""
        return kron_product([factor.T for factor in self.vectors], vectors)

    def rotate_back(self, vectors: Float[Array, "C M"]) -> Float[Array, "C M"]:
        """Return ``Q v`` for every row."""
        return kron_product(self.vectors, vectors)

    def apply(self, function_of_spectrum: Array, vectors: Float[Array, "C M"]) -> Array:
        """Return ``Q diag(function_of_spectrum) Q^T v`` for every row."""
        return self.rotate_back(function_of_spectrum * self.rotate(vectors))

    def solved_coefficients(self, vectors: Float[Array, "C M"], shift: Any) -> Array:
        """Return ``Q^T (K + shift I)^-1 v`` for every row, each entry to its own precision."""
        return self.rotate(vectors) / (self.spectrum() + shift)

    def factors(self) -> tuple[np.ndarray, ...]:
        """Return the matrices ``K_l`` on the host, the scale in the first."""
        pairs = [(np.asarray(Q), np.asarray(t)) for Q, t in zip(*self[:2], strict=True)]
        first, *rest = ((Q * t) @ Q.T for Q, t in pairs)
        return (float(self.scale) * first, *rest)

    def astype(self, dtype: Any) -> KroneckerEigen:
        """Return it on the device in another precision."""
        return jax.device_put(jax.tree.map(lambda leaf: np.asarray(leaf, dtype), self))


class Known:
    """Eigendecompositions of factors that are asked for again: as those with which several fits begin.

    Attributes
    ----------
    found : dict
        Eigenvalues and eigenvectors, by the bytes of their matrix.
    made : int
        How many matrices were decomposed.
    """

    def __init__(self) -> None:
        self.found: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}
        self.made = 0

    def eigen(self, factor: np.ndarray, keep: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return them, and keep them for later where that is wanted."""
        key = hashlib.sha256(np.ascontiguousarray(factor).tobytes()).digest()
        if key in self.found:
            return self.found[key]
        self.made += 1
        pair = _eigh(factor)
        if keep:
            self.found[key] = pair
        return pair


def kron_eigen(
    factors: Sequence[np.ndarray],
    scale: float = 1.0,
    known: Known | None = None,
    *,
    keep: bool = False,
) -> KroneckerEigen:
    """Return the eigendecomposition of a Kronecker product of symmetric positive semi-definite matrices.

    LAPACK does it on the host, in float64: time ``O(m_l^3)`` for every factor, however many points the grid has.
    Eigenvalues that rounding made negative are zero.

    Parameters
    ----------
    factors : sequence of ndarray of shape (m_l, m_l)
    scale : float, default 1.0
    known : Known, optional
        What need not be done again.
    keep : bool, default False
        Whether that is to know these too.

    Raises
    ------
    FactorizationError
        When a factor holds NaN or infinity.
    """
    vectors: list[Any] = []
    values: list[Any] = []
    for position, factor in enumerate(factors):
        if not np.all(np.isfinite(factor)):
            raise FactorizationError(
                f"factor {position} ({len(factor)} x {len(factor)}) of the grid's kernel matrix holds NaN or infinity. "
                "Check the coordinates and the hyperparameters of its kernel."
            )
        t, Q = _eigh(factor) if known is None else known.eigen(factor, keep)
        vectors.append(Q)
        values.append(t)
    return KroneckerEigen(tuple(vectors), tuple(values), np.float64(scale))


def _eigh(factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    t, Q = symmetric_eigen(factor, check_finite=False)
    return np.maximum(t, 0.0), Q
