"""The log evidence of a model with random Fourier features in passes over rows, and its telescoping differences.

With ``m`` features ``Phi``, ``A = Phi^T Phi + sigma^2 I`` (m x m) and ``w = A^-1 Phi^T y`` (Woodbury's lemma)

    L(m) = -1/2 [(y^T y - y^T Phi w) / sigma^2 + log|A| + (n - m) log sigma^2 + n log(2 pi)].

With few features it is biased towards overfitting, on average over frequencies: ``y^T (Phi Phi^T + sigma^2 I)^-1 y`` is
too large and the log-determinant too small. Features of the first ``J`` frequencies are those of every larger number
but for their scale, so ``L(J)`` for several ``J`` comes from one Gram matrix, and

    L(J_0) + sum_k [L(J_k) - L(J_{k-1})]

telescopes whatever the steps ``J_k - J_{k-1}`` are. Of the sum, one random term is made, divided by its probability.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vastgp.bases import RandomFourierBasis
from vastgp.data import observations
from vastgp.data.devices import rows_over_devices
from vastgp.data.tiles import Tile
from vastgp.fitting.accumulate import Moments, accumulate
from vastgp.fitting.sufficient_statistics import feature_matrix
from vastgp.linalg.cholesky import factorize
from vastgp.solvers.least_squares import BlockedBasis, slope_through_features

_ADVICE = "Raise noise_floor, or use dtype='float64'."
# Share of the noise variance that rounding may add to the eigenvalues of a Gram matrix.
_ROUNDED = 0.1

Tiles = Callable[[], Iterator[Tile]]


class Part(NamedTuple):
    """The evidence with the first features alone.

    Attributes
    ----------
    value : float
        In nats.
    ratios : ndarray of shape (k,)
        Scales of its features over those of the whole basis.
    solution : ndarray of shape (k,)
        ``w``.
    inverse : ndarray of shape (k, k)
        ``A^-1``.
    factor : ndarray of shape (k, k)
        Lower Cholesky factor of ``A``.
    """

    value: float
    ratios: Float[np.ndarray, " k"]
    solution: Float[np.ndarray, " k"]
    inverse: Float[np.ndarray, "k k"]
    factor: Float[np.ndarray, "k k"]


def feature_sums(
    basis: RandomFourierBasis, tiles: Tiles, num_rows: int, noise_variance: float
) -> Moments:
    """Return the sums over the rows, features ordered by pairs: cosine and sine of one after another.

    Features are made in the precision of the tiles; each tile's Gram matrix is, too, where the noise is larger than
    what that rounds, and tiles are added in float64. The noise variance counts where rows have noise of their own.
    """
    given = tiles()
    first = next(given)
    dtype: Any = first.X.dtype
    if not _may_be_narrow(basis, num_rows, noise_variance, dtype):
        dtype = np.float64
    return accumulate(
        partial(feature_matrix, basis), chain([first], given), basis.num_basis,
        dtype=dtype, noise_variance=noise_variance,
    )  # fmt: skip


def _may_be_narrow(
    basis: RandomFourierBasis, num_rows: int, noise_variance: float, dtype: Any
) -> bool:
    """Return whether products in a precision leave a Gram matrix its least eigenvalues.

    Entries are ``n A / m`` on the diagonal, ``A`` the kernel's variance. Errors of m^2 of them, independent and of one
    rounding, have eigenvalues of ``m^1/2`` of that (28,000 rows of a nearly linear function, ``A`` of 10^6 noise
    variances and more: the matrix was not even positive definite).
    """
    entry = num_rows * float(basis.kernel.total_variance()) / basis.num_basis
    rounding = float(np.finfo(dtype).eps) * basis.num_basis**0.5 * entry
    return rounding <= _ROUNDED * noise_variance


def evidence_of_first(
    sums: Moments, basis: RandomFourierBasis, num_basis: int, noise_variance: float
) -> Part:
    """Return the evidence of the model with the first ``num_basis`` features, rescaled to be a basis of their own.

    Raises
    ------
    FactorizationError
        Where ``A`` is not positive definite in floating point.
    """
    ratios = scale_ratios(basis, num_basis)
    A = sums.gram[:num_basis, :num_basis] * ratios * ratios[:, None]
    b = sums.target[:num_basis] * ratios
    what = f"the Gram matrix of {num_basis} random features plus a noise variance of {noise_variance:.3g}"
    found = factorize(A, noise_variance, what=what, advice=_ADVICE, jitters=(0.0,))
    factor, solution, logs = np.tril(found.lower), found.solve(b), found.log_determinant
    inverse = found.into_whole_inverse()
    n = sums.num_rows
    misfit = (sums.square - float(b @ solution)) / noise_variance
    logs += (n - num_basis) * math.log(noise_variance) + n * math.log(2.0 * math.pi)
    # a density of rows, not of rows times the roots of what they count
    return Part(-0.5 * (misfit + logs - sums.log_weights), ratios, solution, inverse, factor)


def slopes_of_parts(
    basis: RandomFourierBasis,
    tiles: Tiles,
    parts: Sequence[Part],
    signs: Sequence[float],
    noise_variance: float,
) -> tuple[Any, float]:
    """Return the gradient of ``sum_k signs_k L_k`` by the kernel of the basis and by the noise variance.

    ``dL = <a w^T - Phi A^-1, dPhi>`` with ``a = (y - Phi w) / sigma^2``, and ``dL/dsigma^2 = 1/2 (a^T a - tr C^-1)``,
    ``tr C^-1 = (n - m + sigma^2 tr A^-1) / sigma^2`` of the covariance ``C``. The cotangents of all parts add up in one
    pass, as their features are multiples of one another that do not depend on the kernel. Rows with noise ``v_i`` of
    their own have ``dL/dsigma^2 = 1/2 sum_i (a_i^2 - (C^-1)_ii) / w_i`` with ``a = (y - Phi w) / v`` and
    ``(C^-1)_ii = 1 / v_i - sigma^2 / v_i^2 phi_i^T A^-1 phi_i``.
    """
    m = basis.num_basis
    order = _by_pairs(m)
    inverse, weights = np.zeros((m, m)), np.zeros((len(parts), m))
    for row, (part, sign) in enumerate(zip(parts, signs, strict=True)):
        k = len(part.ratios)
        inverse[:k, :k] += sign * part.ratios[:, None] * part.inverse * part.ratios
        weights[row, :k] = part.ratios * part.solution
    # back to cosines first, then sines
    back = np.argsort(order)
    inverse, weights = inverse[np.ix_(back, back)], weights[:, back]
    by_kernel: Any = None
    squares, traces, n = np.zeros(len(parts)), None, 0
    blocks = whole(basis)
    for X, y, mask, count in tiles():
        own = None
        if observations.has_own_noise(y):
            weight = noise_variance / observations.noise_variances(y, noise_variance)
            mask = mask * weight.astype(X.dtype)
            own = observations.inverse_weights(y).astype(X.dtype)
        narrow = [np.asarray(array).astype(X.dtype) for array in (inverse, weights, signs)]
        given = rows_over_devices((X, observations.targets(y), mask, own), float(m) ** 2)
        slope, of_tile, trace = _slope(
            blocks, *given[:3], *narrow, np.asarray(noise_variance, X.dtype), given[3]
        )
        by_kernel = slope if by_kernel is None else jax.tree.map(jnp.add, by_kernel, slope)
        squares += np.asarray(of_tile, np.float64)
        n += count
        if trace is not None:
            traces = float(trace) + (traces or 0.0)
    if traces is not None:
        by_noise = 0.5 * (float(np.asarray(signs) @ squares) - traces)
        return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), by_kernel), by_noise
    by_noise = 0.0
    for part, sign, square in zip(parts, signs, squares, strict=True):
        free = n - len(part.ratios) + noise_variance * float(np.trace(part.inverse))
        by_noise += 0.5 * sign * (float(square) - free / noise_variance)
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), by_kernel), by_noise


def scale_ratios(basis: RandomFourierBasis, num_basis: int) -> Float[np.ndarray, " k"]:
    """Return the scales of the first features as a basis of their own over those that they have in the whole one.

    A feature's scale is ``sqrt(variance / pairs of its term)``: the fewer, the larger.
    """
    terms = len(basis.kernel.spectral_terms())

    def pairs_of(count: int) -> np.ndarray:
        return np.array([len(range(which, count, terms)) for which in range(terms)])

    per_term = np.sqrt(pairs_of(basis.num_pairs) / pairs_of(num_basis // 2))
    return np.repeat(per_term[np.arange(num_basis // 2) % terms], 2)


def whole(basis: RandomFourierBasis) -> BlockedBasis:
    """Return the basis as one block."""
    return BlockedBasis(basis, basis.num_pairs)


def _by_pairs(m: int) -> np.ndarray:
    """Return the positions, among cosines first and sines second, of features ordered by pairs."""
    return np.arange(m).reshape(2, m // 2).T.ravel()


@jax.jit
def _slope(
    blocks: BlockedBasis,
    X: Array,
    y: Array,
    mask: Array,
    inverse: Array,
    weights: Array,
    signs: Array,
    noise_variance: Array,
    own: Array | None,
) -> tuple[Any, Array, Array | None]:
    """Return the gradient by the kernel of a tile's features, ``a^T a`` of each part, and all their ``tr C^-1``.

    The trace is None where rows have no noise of their own. Where they have, ``own`` are their ``1 / w_i``, which
    square and trace are weighted by, and ``mask`` is ``sigma^2 / v_i``.
    """
    phi = blocks.features(X, 0)
    a = (y - weights @ phi) * mask / noise_variance
    solved = inverse @ phi
    held = (signs[:, None] * weights).T @ a - solved * mask
    slope = slope_through_features(blocks, X, lambda *_: held)
    if own is None:
        return slope, jnp.sum(a**2, axis=1), None
    left = jnp.sum(signs) - mask * jnp.sum(phi * solved, axis=0)
    trace = jnp.sum(own * mask * left) / noise_variance
    return slope, jnp.sum(own * a**2, axis=1), trace
