"""Approximate inverses of ``K + sigma^2 I`` for conjugate gradients.

They are built by LAPACK on the host, in place: on a CPU its triangular routines use half the
operations of a general product and no second copy of the large factor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float

from vastgp._precision import precision
from vastgp.solvers.remainders import NeighbourBlocks, Neighbours

# Most bytes of a preconditioner: the largest thing that a fit holds.
PRECONDITIONER_BYTES = 2_000_000_000
# Kernel rows are made this many at a time, so that building the factor needs little beside it.
_TILE = 4096
# Most rounding error of the inner matrix, whose least eigenvalue is 1.
_MOST_ROUNDING = 0.03
_SUBSPACE_STEPS = 3


class NoPreconditioner(eqx.Module):
    """The identity.

    Attributes
    ----------
    num_rows : int or None
        Without filling at the end; None: there is none.
    """

    num_rows: int | None = eqx.field(static=True, default=None)

    def __call__(self, V: Float[Array, "C n"]) -> Float[Array, "C n"]:
        return V

    def draw(self, key: Array, count: int, like: Float[Array, " n"]) -> Float[Array, "C n"]:
        """Return draws from ``N(0, P)``, of the shape and precision of ``like``, zero at the filling."""
        return normals_of_rows(key, count, self.num_rows or like.shape[0], like)

    def log_determinant(self) -> float:
        """``log |P|``."""
        return 0.0


def normals_of_rows(
    key: Array, count: int, num_rows: int, like: Float[Array, " n"]
) -> Float[Array, "C n"]:
    """Return normal numbers of so many rows, the same whatever filling follows them, and zeros there."""
    normals = jax.random.normal(key, (count, num_rows), like.dtype)
    filling = len(like) - num_rows
    return jnp.pad(normals, ((0, 0), (0, filling))) if filling else normals


class DensePreconditioner(eqx.Module):
    """The inverse of an explicitly formed matrix ``P``, through its Cholesky factor and in its precision."""

    factor: Float[Array, "p p"]

    def draw(self, key: Array, count: int, like: Float[Array, " n"]) -> Float[Array, "C n"]:
        """Return draws from ``N(0, P)``, in the precision of ``like``."""
        normals = jax.random.normal(key, (count, like.shape[0]), like.dtype)
        return normals @ self.factor.T.astype(like.dtype)

    def log_determinant(self) -> float:
        """``log |P|``."""
        return 2.0 * float(np.sum(np.log(np.diagonal(self.factor).astype(np.float64))))

    def __call__(self, V: Float[Array, "C p"]) -> Float[Array, "C p"]:
        right = V.T.astype(self.factor.dtype)
        half = jax.scipy.linalg.solve_triangular(self.factor, right, lower=True)
        solved = jax.scipy.linalg.solve_triangular(self.factor, half, lower=True, trans=1)
        return solved.T.astype(V.dtype)


class LowRankPreconditioner(eqx.Module):
    """Inverse of ``D + U^T U`` with diagonal or block-diagonal ``D`` by the matrix inversion lemma.

    ``H^T (I - Us^T (I + Us Us^T)^-1 Us) H`` with ``D = H^-1 H^-T`` and ``Us = U H^T``, held as its transpose. Where
    ``U^T U`` is far above ``D`` the difference loses what single precision has: to vectors in float64 it is applied in
    float64, tile by tile, and ``inner`` is float64 then. On kin40k (9000 rows, variance 10^4 noise variances, rank 800)
    that is 57 iterations instead of more than 80.

    Attributes
    ----------
    scaled : Array of shape (n, k)
    root : Array of shape (n,), or NeighbourBlocks
        ``D^1/2`` where that is diagonal, or ``H``.
    inner : Array of shape (k, k)
    """

    scaled: Float[Array, "n k"]
    root: Float[Array, " n"] | NeighbourBlocks
    inner: Float[Array, "k k"]

    @property
    def diagonal(self) -> Float[Array, " n"]:
        """Root of a ``D`` that is diagonal: of such a one alone there are draws and a determinant."""
        assert not isinstance(self.root, NeighbourBlocks)
        return self.root

    def draw(self, key: Array, count: int, like: Float[Array, " n"]) -> Float[Array, "C n"]:
        """Return draws from ``N(0, D + U^T U)``, in the precision of ``like``."""
        of_rows, of_rank = jax.random.split(key)
        normals = jax.random.normal(of_rows, (count, len(self.scaled)), like.dtype)
        loads = jax.random.normal(of_rank, (count, self.scaled.shape[1]), like.dtype)
        return (normals + loads @ self.scaled.T.astype(like.dtype)) * self.diagonal.astype(
            like.dtype
        )

    def log_determinant(self) -> float:
        """``log |D + U^T U| = log |D| + log |I + Us Us^T|``."""
        root, inner = (np.asarray(part, np.float64) for part in (self.diagonal, self.inner))
        return 2.0 * float(np.sum(np.log(root)) + np.sum(np.log(np.diagonal(inner))))

    def __call__(self, V: Float[Array, "C n"]) -> Float[Array, "C n"]:
        return self.solve(V)

    def solve(
        self, V: Float[Array, "C n"], summed: Callable[[Array], Array] | None = None
    ) -> Float[Array, "C n"]:
        """Return the inverse's product with each row of ``V``.

        Where several devices have some of the rows each, ``summed`` adds up what all make of theirs.
        """
        blocks = self.root if isinstance(self.root, NeighbourBlocks) else None
        V = V / self.diagonal.astype(V.dtype) if blocks is None else blocks.half(V)
        inner = self.inner.astype(V.dtype)
        wide = self.scaled.dtype != V.dtype
        down = _wide_down(V, self.scaled) if wide else V @ self.scaled
        down = down if summed is None else summed(down)
        T = jax.scipy.linalg.solve_triangular(inner, down.T, lower=True)
        T = jax.scipy.linalg.solve_triangular(inner, T, lower=True, trans=1)
        up = _wide_up(T.T, self.scaled) if wide else T.T @ self.scaled.T
        left = V - up
        return (
            left / self.diagonal.astype(V.dtype) if blocks is None else blocks.half_transposed(left)
        )


def _wide_down(V: Float[Array, "C n"], scaled: Float[Array, "n k"]) -> Float[Array, "C k"]:
    """Return ``V scaled`` in the precision of ``V``, of which no second copy of ``scaled`` is made."""
    tile, count = _tiles(len(scaled))

    def add(which: Array, total: Array) -> Array:
        rows = jax.lax.dynamic_slice_in_dim(scaled, which * tile, tile).astype(V.dtype)
        return total + jax.lax.dynamic_slice_in_dim(V, which * tile, tile, axis=1) @ rows

    rest = V[:, tile * count :] @ scaled[tile * count :].astype(V.dtype)
    return jax.lax.fori_loop(0, count, add, rest)


def _wide_up(T: Float[Array, "C k"], scaled: Float[Array, "n k"]) -> Float[Array, "C n"]:
    """Return ``T scaled^T``, likewise."""
    tile, count = _tiles(len(scaled))

    def some(which: Array) -> Array:
        rows = jax.lax.dynamic_slice_in_dim(scaled, which * tile, tile).astype(T.dtype)
        return T @ rows.T

    parts = jnp.moveaxis(jax.lax.map(some, jnp.arange(count)), 0, 1).reshape(len(T), -1)
    rest = T @ scaled[tile * count :].astype(T.dtype).T
    return jnp.concatenate([parts, rest], axis=1)


def _tiles(n: int) -> tuple[int, int]:
    """Return the rows of a tile and their number; fewer rows than tiles are left over."""
    count = max(1, n // _TILE)
    return n // count, count


class BalancedPreconditioner(eqx.Module):
    """Another one, corrected to be exact on some directions ``Q`` (balancing; Mandel 1993).

    ``(I - Z A) P^-1 (I - A Z) + Z`` with ``Z = Q (Q^T A Q)^-1 Q^T``, symmetric and positive definite.
    """

    inner: LowRankPreconditioner
    directions: Float[Array, "q n"]
    image: Float[Array, "q n"]
    factor: Float[Array, "q q"]

    def __call__(self, V: Float[Array, "C n"]) -> Float[Array, "C n"]:
        coarse = self._solve(V @ self.directions.T)
        rest = self.inner(V - coarse @ self.image)
        return rest - self._solve(rest @ self.image.T) @ self.directions + coarse @ self.directions

    def _solve(self, V: Float[Array, "C q"]) -> Float[Array, "C q"]:
        return jax.scipy.linalg.cho_solve((self.factor, True), V.T).T


class NarrowPreconditioner(eqx.Module):
    """Another one, applied in float32 to vectors in float64: it is an approximation anyway."""

    inner: Callable[[Array], Array]

    def __call__(self, V: Float[Array, "C n"]) -> Float[Array, "C n"]:
        return self.inner(V.astype(jnp.float32)).astype(V.dtype)


class JointPreconditioner(eqx.Module):
    """Others for the columns of several systems, as many for each."""

    parts: tuple[Callable[[Array], Array], ...]

    def __call__(self, V: Float[Array, "C n"]) -> Float[Array, "C n"]:
        pieces = jnp.split(V, len(self.parts))
        return jnp.concatenate(
            [part(piece) for part, piece in zip(self.parts, pieces, strict=True)]
        )


# `vastgp.solvers.shared_preconditioners` has those of several devices.
Preconditioner = (
    NoPreconditioner
    | DensePreconditioner
    | LowRankPreconditioner
    | BalancedPreconditioner
    | NarrowPreconditioner
    | JointPreconditioner
)


def precision_of_matrix(size: int, vectors: str) -> str:
    """Return the precision of a preconditioner that is a whole matrix: that of the vectors, where it fits."""
    wide = vectors == "float64" and 8 * size**2 <= PRECONDITIONER_BYTES
    return "float64" if wide else "float32"


def dense_preconditioner(matrix: np.ndarray, noise_variance: float) -> DensePreconditioner:
    """Factorise ``matrix + noise_variance I`` (``matrix`` is overwritten), see `lower_factor`."""
    return DensePreconditioner(jax.device_put(lower_factor(matrix, noise_variance)))


def lower_factor(matrix: np.ndarray, noise_variance: float) -> np.ndarray:
    """Return the Cholesky factor of ``matrix + noise_variance I`` (``matrix`` is overwritten).

    Rounding of ``matrix`` may leave eigenvalues below zero. As this is a preconditioner alone,
    the diagonal is raised until the factorisation works; the solution does not depend on it.
    """
    added, size = 0.0, float(np.max(np.diagonal(matrix)))
    matrix = np.asfortranarray(matrix)
    diagonal = np.diagonal(matrix).copy()
    (potrf,) = scipy.linalg.get_lapack_funcs(("potrf",), (matrix,))
    for _ in range(12):
        np.fill_diagonal(matrix, diagonal + noise_variance + added)
        # The strict upper triangle stays as it was, so that a failed attempt can be repeated.
        lower = potrf(matrix, lower=1, clean=0, overwrite_a=0)
        if lower[1] == 0:
            return np.tril(lower[0])
        added = max(10.0 * added, size * float(np.finfo(matrix.dtype).eps))
    raise np.linalg.LinAlgError(
        f"the preconditioner could not be factorised: its diagonal was raised by {added:.1e} and its largest "
        f"entry is {size:.1e}. Standardise the inputs, or raise noise_floor."
    )


def landmark_factor(
    covariance: Callable[[Array, Array], Array],
    variance: float,
    X: Any,
    Z: Any,
) -> np.ndarray:
    """Return ``U`` of shape (k, n) with ``U^T U = K(X, Z) K(Z, Z)^-1 K(Z, X)`` for landmarks ``Z``.

    Parameters
    ----------
    covariance : callable
        ``covariance(X, Z)``, in the precision of its arguments (float64 ones are given for the landmarks).
    variance : float
        Prior variance ``k(x, x)``.
    X : array of shape (n, d)
    Z : array of shape (k, d)
    """
    X, Z = np.asarray(X), np.asarray(Z)
    dtype = X.dtype
    # In float64: the rounding of float32 alone would make this matrix indefinite. Landmarks may
    # coincide; a relative 1e-6 keeps the factor's inverse within what float32 rows can bear.
    with precision("float64"):
        wide = jax.device_put(Z.astype(np.float64))
        corner = np.array(covariance(wide, wide))
    corner[np.diag_indices_from(corner)] += 1e-6 * variance
    lower = scipy.linalg.cholesky(corner, lower=True, overwrite_a=True).astype(dtype)
    rows = np.empty((len(X), len(Z)), dtype=dtype)
    for start in range(0, len(X), _TILE):
        rows[start : start + _TILE] = covariance(*jax.device_put((X[start : start + _TILE], Z)))
    (trsm,) = scipy.linalg.get_blas_funcs(("trsm",), (rows,))
    # U^T = K(X, Z) L^-T: in Fortran order the transpose is solved from the left.
    return trsm(1.0, lower, rows.T, lower=1, overwrite_b=1)


def low_rank_preconditioner(
    factor: np.ndarray,
    variance: float | np.ndarray | Neighbours,
    noise_variance: float,
    *,
    wide_vectors: bool = False,
) -> LowRankPreconditioner:
    """Return the inverse of ``U^T U + D`` for a ``factor`` ``U`` of shape (k, n), which is overwritten.

    ``variance`` is what ``U^T U`` approximates: its diagonal, or its blocks within groups of neighbours;
    ``wide_vectors`` says that the inverse will be applied to vectors in float64, whatever the precision of the factor.

    ``D`` is the noise plus what the low rank leaves of the diagonal or of the blocks (FITC and PITC, Snelson and
    Ghahramani 2006, Quinonero-Candela and Rasmussen 2005), which serves rows far from all others; its trace equals
    that of the part left out, so its scale is right for directions outside the span of ``U``.
    """
    scaled, root, inner = low_rank_parts(factor, variance, noise_variance, wide_vectors)
    with precision(str(inner.dtype)):
        return LowRankPreconditioner(*jax.device_put((scaled, root, inner)))


def low_rank_parts(
    factor: np.ndarray,
    variance: float | np.ndarray | Neighbours,
    noise_variance: float,
    wide_vectors: bool,
) -> tuple[np.ndarray, Any, np.ndarray]:
    """Return what `low_rank_preconditioner` holds, in the memory of the host."""
    dtype = factor.dtype
    if isinstance(variance, Neighbours):
        root: Any = variance.scale(factor, noise_variance)
    else:
        left_out = np.maximum(variance - np.sum(factor**2, axis=0), 0.0)
        root = np.sqrt(noise_variance + left_out).astype(dtype)
        factor /= root
    # Rounding of the product must stay below the identity that is added to it. Where the low rank is
    # far above the noise (smooth kernels, large amplitudes) only float64 keeps it there.
    largest = float(np.max(np.einsum("kn,kn->k", factor, factor)))
    rounding = np.finfo(dtype).eps * largest * len(factor) ** 0.5
    wide = (wide_vectors or rounding > _MOST_ROUNDING) and dtype == np.float32
    (syrk,) = scipy.linalg.get_blas_funcs(("syrk",), (factor,))
    inner = _wide_gram(factor) if wide else syrk(1.0, factor, lower=1)
    inner[np.diag_indices_from(inner)] += 1.0
    inner = scipy.linalg.cholesky(inner, lower=True, overwrite_a=True, check_finite=False)
    return factor.T, root, inner.astype("float64" if wide_vectors else dtype)


def leading_eigenvectors(factor: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return orthonormal rows, shape (count, n), near the leading eigenvectors of ``U^T U``: subspace iteration."""
    directions = np.random.default_rng(seed).standard_normal((factor.shape[1], count))
    directions = directions.astype(factor.dtype)
    for _ in range(_SUBSPACE_STEPS):
        directions = np.linalg.qr(factor.T @ (factor @ directions))[0]
    return np.ascontiguousarray(directions.T)


def sketch_factor(directions: np.ndarray, image: np.ndarray) -> np.ndarray:
    """Return ``U`` with ``U^T U = A Q^T (Q A Q^T)^-1 Q A`` from ``Q`` and ``image = Q A``, shapes (q, n).

    The randomised Nystrom approximation of ``A`` itself (Frangella, Tropp and Udell 2023), with their shift against
    rounding; rows are sorted, those of the largest eigenvalues first.
    """
    Q, Y = directions.astype(np.float64), image.astype(np.float64)
    corner = Q @ Y.T
    shift = float(np.finfo(image.dtype).eps) * float(np.trace(corner))
    Y = Y + shift * Q
    corner = 0.5 * (corner + corner.T) + shift * np.eye(len(Q))
    lower = scipy.linalg.cholesky(corner, lower=True)
    half = scipy.linalg.solve_triangular(lower, Y, lower=True)
    _, values, rows = np.linalg.svd(half, full_matrices=False)
    scales = np.sqrt(np.maximum(values**2 - shift, 0.0))
    return np.asfortranarray(scales[:, None] * rows, dtype=image.dtype)


def balanced_preconditioner(
    inner: LowRankPreconditioner, directions: np.ndarray, image: np.ndarray, noise_variance: float
) -> BalancedPreconditioner:
    """Correct ``inner`` on ``directions`` ``Q``, whose ``image`` is ``Q A`` without the noise."""
    Q, Y = directions.astype(np.float64), image.astype(np.float64)
    Y = Y + noise_variance * Q
    corner = Q @ Y.T
    lower = scipy.linalg.cholesky(0.5 * (corner + corner.T), lower=True)
    arrays = (jnp.asarray(part.astype(image.dtype)) for part in (directions, Y, lower))
    return BalancedPreconditioner(inner, *arrays)


def _wide_gram(factor: np.ndarray) -> np.ndarray:
    """Return the lower triangle of ``factor @ factor.T``, summed in float64."""
    (syrk,) = scipy.linalg.get_blas_funcs(("syrk",), dtype=np.float64)
    total = np.zeros((len(factor), len(factor)), order="F")
    for start in range(0, factor.shape[1], _TILE):
        columns = np.asfortranarray(factor[:, start : start + _TILE], dtype=np.float64)
        total = syrk(1.0, columns, beta=1.0, c=total, lower=1, overwrite_c=1)
    return total
