"""A few eigenvectors of a Kronecker product on a grid with gaps, and the preconditioners made of them."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from vastgp.linalg.cholesky import factorize
from vastgp.linalg.kronecker import KroneckerEigen, kron_product, outer_product

# Columns of a thin factor, at least: fewer are no work worth another program.
_LEAST_WIDTH = 32
# Numbers in a block of columns (of pairs of columns) while the Gram matrix of eigenvectors is made, and held meanwhile.
_BLOCK_ENTRIES, _MOST_HELD = 1 << 24, 1 << 27


class SelectedEigenvectors(eqx.Module):
    """``p`` eigenvectors of a Kronecker product, cut down to the points of a mask: ``U = W Q S_p^T``.

    An eigenvector of the product is one eigenvector of every factor, and the largest eigenvalues need few of each.
    Products with ``U`` therefore use thin factors, and cost a fraction of a product with ``K``.

    Attributes
    ----------
    factors : tuple of Array of shape (m_l, p_l)
        The eigenvectors of each factor that occur.
    where : Array of int, shape (p,)
        Position of every selected eigenvector in the grid of shape ``(p_1, ..., p_d)``.
    mask : Array of bool, shape (M,)
    """

    factors: tuple[Array, ...]
    where: Array
    mask: Bool[Array, " M"]

    @property
    def rank(self) -> int:
        """Number of eigenvectors ``p``."""
        return self.where.shape[0]

    def project(self, vectors: Float[Array, "C M"]) -> Float[Array, "C p"]:
        """Return ``U^T v`` for every row, which must be zero outside the mask."""
        return kron_product([factor.T for factor in self.factors], vectors)[:, self.where]

    def expand(self, coefficients: Float[Array, "C p"]) -> Float[Array, "C M"]:
        """Return ``U c`` for every row."""
        size = int(np.prod([factor.shape[1] for factor in self.factors]))
        thin = jnp.zeros((coefficients.shape[0], size), coefficients.dtype)
        full = kron_product(self.factors, thin.at[:, self.where].set(coefficients))
        return jnp.where(self.mask, full, 0.0)

    def gram(self, shares: np.ndarray | None = None) -> np.ndarray:
        """Return ``U^T U`` in float64: ``sum_x mask(x) prod_l q_l,a(x_l) q_l,b(x_l)`` for all pairs ``a, b``.

        Sums over the points are Kronecker products too, of the mask with the products of any two columns of a factor.
        Where those would be too many numbers, columns are made one by one.

        Parameters
        ----------
        shares : ndarray of shape (M,), optional
            What every point counts: ``U^T diag(shares) U``. All alike by default.
        """
        factors = [np.asarray(factor, dtype=np.float64) for factor in self.factors]
        widths = [factor.shape[1] for factor in factors]
        index = np.unravel_index(np.asarray(self.where), widths)
        used = [np.unique(part, return_inverse=True) for part in index]
        factors = [factor[:, columns] for factor, (columns, _) in zip(factors, used, strict=True)]
        positions = [position for _, position in used]
        # the factor with the most pairs for its points comes last: what is held is as small as can be
        order = sorted(
            range(len(factors)), key=lambda i: -(factors[i].shape[1] ** 2) / len(factors[i])
        )
        outer, inner = order[0], sorted(order[1:])
        held = len(factors[outer]) * math.prod(_num_pairs(factors[i].shape[1]) for i in inner)
        if held > _MOST_HELD:
            return self._gram_by_columns(shares)
        mask = np.asarray(self.mask, np.float64)
        mask = (mask if shares is None else mask * shares).reshape([len(f) for f in factors])
        return _gram_by_pairs(
            np.moveaxis(mask, outer, 0),
            [factors[i] for i in (outer, *inner)],
            [positions[i] for i in (outer, *inner)],
        )

    def _gram_by_columns(self, shares: np.ndarray | None) -> np.ndarray:
        each = np.asarray(1.0 if shares is None else shares, self.factors[0].dtype)
        block = max(1, min(self.rank, _BLOCK_ENTRIES // self.mask.shape[0]))
        result = np.empty((self.rank, self.rank))
        for start in range(0, self.rank, block):
            columns = np.arange(start, start + block)  # one shape: one compilation
            units = (columns[:, None] == np.arange(self.rank)).astype(self.factors[0].dtype)
            rows = np.asarray(_gram_rows(self, jnp.asarray(units), jnp.asarray(each)))
            result[start : start + block] = rows[: self.rank - start]
        return 0.5 * (result + result.T)


@eqx.filter_jit
def _gram_rows(selected: SelectedEigenvectors, units: Array, shares: Array) -> Array:
    return selected.project(shares * selected.expand(units))


def _num_pairs(count: int) -> int:
    return count * (count + 1) // 2


def _gram_by_pairs(
    mask: np.ndarray, factors: list[np.ndarray], positions: list[np.ndarray]
) -> np.ndarray:
    """Return `SelectedEigenvectors.gram` by products of pairs of columns, the first factor's last, in batches.

    ``mask`` holds what every point counts, zero where it is not one of the mask's.
    """
    pairs = [np.triu_indices(factor.shape[1]) for factor in factors]
    products = [factor[:, i] * factor[:, j] for factor, (i, j) in zip(factors, pairs, strict=True)]
    tensor = mask
    for product in products[1:]:
        # every dimension that is summed over leaves a dimension of pairs at the end
        tensor = np.tensordot(tensor, product, axes=(1, 0))
    tensor = tensor.reshape(len(factors[0]), -1)
    tables = [
        _pair_table(factor.shape[1], pair) for factor, pair in zip(factors, pairs, strict=True)
    ]
    first = [np.flatnonzero(positions[0] == a) for a in range(factors[0].shape[1])]
    rank = len(positions[0])
    result = np.empty((rank, rank))
    batch = max(1, _BLOCK_ENTRIES // tensor.shape[1])
    for start in range(0, products[0].shape[1], batch):
        here = slice(start, start + batch)
        sums = products[0][:, here].T @ tensor
        for row, a, b in zip(sums, pairs[0][0][here], pairs[0][1][here], strict=True):
            rows, columns = first[a], first[b]
            where = np.zeros((len(rows), len(columns)), dtype=np.intp)
            for table, position, pair in zip(tables[1:], positions[1:], pairs[1:], strict=True):
                where *= len(pair[0])
                where += table[position[rows][:, None], position[columns]]
            block = row[where]
            result[np.ix_(rows, columns)] = block
            result[np.ix_(columns, rows)] = block.T
    return result


def _pair_table(count: int, pair: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return where ``(i, j)`` is among the pairs ``i <= j``."""
    table = np.empty((count, count), dtype=np.intp)
    table[pair] = table[pair[::-1]] = np.arange(len(pair[0]))
    return table


def select_eigenvectors(
    eigen: KroneckerEigen, rank: int, mask: np.ndarray, dtype: str, *, largest: bool = True
) -> tuple[SelectedEigenvectors, np.ndarray]:
    """Return the eigenvectors of the ``rank`` largest (or smallest) eigenvalues, and these.

    Parameters
    ----------
    eigen : KroneckerEigen
        In float64, on the host.
    rank : int
    mask : ndarray of bool, shape (M,)
        Points to keep.
    dtype : {"float32", "float64"}
        Of the eigenvectors.
    largest : bool, default True
    """
    spectrum = spectrum_of(eigen)
    rank = min(rank, spectrum.size)
    order = spectrum if not largest else -spectrum
    chosen = np.sort(np.argpartition(order, rank - 1)[:rank])
    thin, positions = [], []
    for Q, index in zip(eigen.vectors, np.unravel_index(chosen, eigen.shape), strict=True):
        used, position = np.unique(index, return_inverse=True)
        # columns of zeros up to a power of two: hyperparameters change, and compiled programs stay
        width = min(max(1 << (len(used) - 1).bit_length(), _LEAST_WIDTH), len(Q))
        columns = np.zeros((len(Q), width), dtype=dtype)
        columns[:, : len(used)] = np.asarray(Q)[:, used]
        thin.append(columns)
        positions.append(position)
    where = np.ravel_multi_index(tuple(positions), tuple(factor.shape[1] for factor in thin))
    return SelectedEigenvectors(*jax.device_put((tuple(thin), where, mask))), spectrum[chosen]


class LowRankPlusDiagonal(eqx.Module):
    """``P = U diag(t) U^T + shift S^-1`` on the points of a mask, and its inverse; ``S`` is the identity by default.

    ``P^-1 = (S - S U t^(1/2) G^-1 t^(1/2) U^T S) / shift`` with ``G = shift I + t^(1/2) U^T S U t^(1/2)``: equations
    (3.7) and (3.8) of the thesis, in the symmetric form whose small matrix is positive definite.

    Attributes
    ----------
    vectors : SelectedEigenvectors
    roots : Array of shape (p,)
        ``t^(1/2)``.
    shift : scalar Array
    inverse : Array of shape (p, p)
        ``G^-1``, made on the host: nothing is factorised in a compiled loop.
    shares : Array of shape (M,), optional
        The diagonal of ``S``, from 0 to 1.
    """

    vectors: SelectedEigenvectors
    roots: Array
    shift: Array
    inverse: Array
    shares: Array | None = None

    def solve(self, vectors: Float[Array, "C M"]) -> Float[Array, "C M"]:
        """Return ``P^-1 v`` for every row."""
        inner = self.roots * self.vectors.project(self._shared(vectors))
        inner = jnp.matmul(inner, self.inverse, precision="highest")
        return self._shared(vectors - self.vectors.expand(self.roots * inner)) / self.shift

    def _shared(self, vectors: Array) -> Array:
        return vectors if self.shares is None else self.shares * vectors


def low_rank_plus_diagonal(
    vectors: SelectedEigenvectors,
    values: np.ndarray,
    shift: float,
    more: np.ndarray | None = None,
) -> LowRankPlusDiagonal:
    """Return the matrix with eigenvalues ``values`` (before the mask) and ``shift + more`` on its diagonal."""
    roots = np.sqrt(values)
    shares = None if more is None else shift / (shift + more)
    small = roots[:, None] * vectors.gram(shares) * roots
    factor = factorize(small, shift, what="the inner matrix of the low-rank preconditioner")
    dtype = vectors.factors[0].dtype
    parts = (roots, shift, factor.into_whole_inverse(), *([] if shares is None else [shares]))
    arrays = tuple(np.asarray(part, dtype) for part in parts)
    return LowRankPlusDiagonal(vectors, *jax.device_put(arrays))


def ignore_preconditioner(
    eigen: KroneckerEigen,
    noise: float,
    observed: np.ndarray,
    rank: int,
    dtype: str,
    excess: np.ndarray | None = None,
) -> LowRankPlusDiagonal:
    """Return the preconditioner of equation (3.7): the ``rank`` largest eigenvalues of ``K``, and the noise.

    That of every point is ``noise + excess``.
    """
    vectors, values = select_eigenvectors(eigen, rank, observed, dtype)
    return low_rank_plus_diagonal(vectors, values, noise, excess)


def fill_preconditioner(
    eigen: KroneckerEigen,
    noise: float,
    unknown: np.ndarray,
    rank: int,
    dtype: str,
    more: np.ndarray | None = None,
) -> LowRankPlusDiagonal:
    """Return the preconditioner of equation (3.8): the ``rank`` smallest eigenvalues of ``K``.

    What is left of the inverse spectrum is replaced by half its largest value, ``shift < 1 / (lambda_p + noise)``.
    ``more`` is what the system has beyond that on its diagonal.
    """
    vectors, values = select_eigenvectors(eigen, rank, unknown, dtype, largest=False)
    inverse = 1.0 / (values + noise)
    shift = 0.5 * float(np.min(inverse))
    return low_rank_plus_diagonal(vectors, inverse - shift, shift, more)


def spectrum_of(eigen: KroneckerEigen) -> np.ndarray:
    """Return all eigenvalues on the host, in float64."""
    values = [np.asarray(t, dtype=np.float64) for t in eigen.values]
    values[0] = values[0] * float(eigen.scale)
    return np.asarray(outer_product(values))
