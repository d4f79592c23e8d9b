"""A Cholesky factor and its inverse in place, by tiles that threads of our own work at, each by one thread of BLAS.

Threads of OpenBLAS wait for each other by spinning. Where another program has one of the cores, as in a
cross-validation, they wait for threads that are not at work: two fits at once on two cores took 0.7 s each for factor
and inverse of 2000 rows, here 0.2. On idle cores both take 0.10 s, and one thread 0.18, by OpenBLAS 0.19 (1000 rows: 17
ms, 16 ms by two threads of OpenBLAS and 27 by one). Tiles are the same whatever the number of threads, so that results
are, to the bit.

The formulas are LAPACK's (potrf, trtri, lauum), with panels times inverted blocks of the diagonal in place of
triangular solves, which reach half the rate of products there.
"""

from __future__ import annotations

import ctypes
from contextlib import AbstractContextManager

import numpy as np

from vastgp.linalg.lapack_pointers import (
    LEFT,
    LOWER,
    PLAIN,
    RIGHT,
    TRANSPOSED,
    integer,
    number,
    routine,
)
from vastgp.linalg.threads import Deal, dealing_threads, own_threads

# Rows of a block of the diagonal, and columns of a part of the work beside it.
_BLOCK, _PART = 128, 192
# Right sides of a part.
_COLUMNS = 128
# With more rows blocks of as many more are a tenth faster.
_MANY_ROWS, _MANY_BLOCK = 3000, 256
# Fewer rows are not worth a thread (500: 4.2 ms by one, 4.0 by two; 600: 6.6 and 5.5).
_LEAST_ROWS_OF_TWO = 512

_Part = tuple[int, int]


def factorize_in_place(lower: np.ndarray) -> bool:
    """Write ``L`` of ``A = L L^T`` over the lower triangle of ``A``; False where a pivot is not positive.

    NaN passes on to the last pivot.

    Parameters
    ----------
    lower : ndarray of shape (n, n)
        In Fortran order, float64. What stands above the diagonal is neither read nor written.
    """
    tiles = _Tiles(lower)
    with _threads(tiles.n) as deal:
        return all(tiles.factorize(block, deal) for block in tiles.blocks)


def invert_in_place(lower: np.ndarray) -> None:
    """Write the lower triangle of ``A^-1`` over its factor ``L``, see `factorize_in_place`."""
    tiles = _Tiles(lower)
    with _threads(tiles.n) as deal:
        for block in reversed(tiles.blocks):
            tiles.invert_factor(block, deal)
        for block in tiles.blocks:
            tiles.multiply_by_itself(block, deal)


def diagonal_of_inverse(lower: np.ndarray) -> np.ndarray:
    """Return the diagonal of ``A^-1`` given the factor: squared norms of the columns of ``L^-1``, in a copy."""
    tiles = _Tiles(np.array(lower, order="F"))
    found, factor = np.empty(tiles.n), tiles.lower

    def norms(part: _Part) -> None:
        first, last = part
        corner, below = np.tril(factor[first:last, first:last]), factor[last:, first:last]
        found[first:last] = np.einsum("ij,ij->j", corner, corner)
        found[first:last] += np.einsum("ij,ij->j", below, below)

    with _threads(tiles.n) as deal:
        for block in reversed(tiles.blocks):
            tiles.invert_factor(block, deal)
        deal(norms, _parts(0, tiles.n, _BLOCK // 2))
    return found


def solve_in_place(lower: np.ndarray, right: np.ndarray, *, half: bool) -> None:
    """Write ``A^-1 B`` over ``B``, or ``L^-1 B``, given the factor.

    Parameters
    ----------
    lower : ndarray of shape (n, n)
        See `factorize_in_place`.
    right : ndarray of shape (n,) or (n, k)
        In Fortran order, float64.
    half : bool
        Whether to write ``L^-1 B``.
    """
    n = len(lower)
    size, address = integer(n), lower.ctypes.data
    solve = routine("dtrtrs", 10) if half else routine("dpotrs", 8)
    letters = (LOWER, PLAIN, PLAIN) if half else (LOWER,)

    def columns(part: _Part) -> None:
        first, last = part
        to_right = right.ctypes.data + 8 * n * first
        solve(*letters, size, integer(last - first), address, size, to_right, size, integer(0))

    with _threads(n) as deal:
        deal(columns, _parts(0, right.size // n, _COLUMNS))


class _Tiles:
    """The lower triangle of a matrix, from one block of its diagonal to the next."""

    def __init__(self, lower: np.ndarray) -> None:
        assert lower.flags.f_contiguous
        assert lower.dtype == np.float64
        self.lower, self.n = lower, len(lower)
        self._address, self._of_row = lower.ctypes.data, integer(len(lower))
        rows = _MANY_BLOCK if self.n >= _MANY_ROWS else _BLOCK
        self.blocks = _parts(0, self.n, rows)

    def factorize(self, block: _Part, deal: Deal) -> bool:
        """Factorise a block, ``A_kk = L_kk L_kk^T``, and take its columns from all that follow.

        ``L_ik = A_ik L_kk^-T`` and ``A_ij -= L_ik L_jk^T`` for ``i >= j > k``.
        """
        at, ld, (k, end) = self._at, self._of_row, block
        info, size = ctypes.c_int(0), integer(end - k)
        routine("dpotrf", 5)(LOWER, size, at(k, k), ld, ctypes.byref(info))
        if info.value != 0:
            return False
        if end == self.n:
            return True
        inverse = np.array(self.lower[k:end, k:end], order="F")
        of_inverse = inverse.ctypes.data
        routine("dtrtri", 6)(LOWER, PLAIN, size, of_inverse, size, ctypes.byref(info))

        def panel(part: _Part) -> None:
            first, last = part
            routine("dtrmm", 11)(
                RIGHT, LOWER, TRANSPOSED, PLAIN, integer(last - first), size, number(1.0),
                of_inverse, size, at(first, k), ld,
            )  # fmt: skip

        def trailing(part: _Part) -> None:
            first, last = part
            columns = integer(last - first)
            routine("dsyrk", 10)(
                LOWER, PLAIN, columns, size, number(-1.0), at(first, k), ld, number(1.0), at(first, first), ld
            )  # fmt: skip
            if last < self.n:
                routine("dgemm", 13)(
                    PLAIN, TRANSPOSED, integer(self.n - last), columns, size, number(-1.0),
                    at(last, k), ld, at(first, k), ld, number(1.0), at(last, first), ld,
                )  # fmt: skip

        deal(panel, _parts(end, self.n, 2 * _PART))
        deal(trailing, _parts(end, self.n, _PART))
        return True

    def invert_factor(self, block: _Part, deal: Deal) -> None:
        """Invert a block of the factor, ``X_kk = L_kk^-1``, and ``X_ik = -sum_j X_ij L_jk X_kk`` below it.

        What follows the block is ``X`` already.
        """
        at, ld, (k, end) = self._at, self._of_row, block
        size, below = integer(end - k), integer(self.n - end)
        routine("dtrtri", 6)(LOWER, PLAIN, size, at(k, k), ld, integer(0))
        if end == self.n:
            return

        def by_left(part: _Part) -> None:
            first, last = part
            routine("dtrmm", 11)(
                LEFT, LOWER, PLAIN, PLAIN, below, integer(last - first), number(-1.0),
                at(end, end), ld, at(end, first), ld,
            )  # fmt: skip

        def by_right(part: _Part) -> None:
            first, last = part
            routine("dtrmm", 11)(
                RIGHT, LOWER, PLAIN, PLAIN, integer(last - first), size, number(1.0),
                at(k, k), ld, at(first, k), ld,
            )  # fmt: skip

        deal(by_left, _parts(k, end, _BLOCK // 2))
        deal(by_right, _parts(end, self.n, 2 * _PART))

    def multiply_by_itself(self, block: _Part, deal: Deal) -> None:
        """Make rows of the inverse, ``(A^-1)_kj = sum_(i >= k) X_ik^T X_ij`` for ``j <= k``.

        What precedes the block is the inverse already.
        """
        at, ld, (k, end) = self._at, self._of_row, block
        size, below = integer(end - k), integer(self.n - end)
        inverse = np.array(self.lower[k:end, k:end], order="F")
        of_inverse = inverse.ctypes.data
        routine("dlauum", 5)(LOWER, size, at(k, k), ld, integer(0))

        def product(rows: _Part, columns: _Part) -> None:
            (i, last_row), (j, last) = rows, columns
            if end < self.n and i < last_row:
                routine("dgemm", 13)(
                    TRANSPOSED, PLAIN, integer(last_row - i), integer(last - j), below, number(1.0),
                    at(end, i), ld, at(end, j), ld, number(1.0), at(i, j), ld,
                )  # fmt: skip

        def before(part: _Part) -> None:
            first, last = part
            routine("dtrmm", 11)(
                LEFT, LOWER, TRANSPOSED, PLAIN, size, integer(last - first), number(1.0),
                of_inverse, size, at(k, first), ld,
            )  # fmt: skip
            product(block, part)

        def within(part: _Part) -> None:
            first, last = part
            if end < self.n:
                routine("dsyrk", 10)(
                    LOWER, TRANSPOSED, integer(last - first), below, number(1.0),
                    at(end, first), ld, number(1.0), at(first, first), ld,
                )  # fmt: skip
            product((last, end), part)

        deal(
            lambda part: before(part) if part[0] < k else within(part),
            _parts(0, k, _PART) + _parts(k, end, _PART),
        )

    def _at(self, row: int, column: int) -> int:
        return self._address + 8 * (row + column * self.n)


def _parts(first: int, last: int, size: int) -> list[_Part]:
    return [(start, min(start + size, last)) for start in range(first, last, size)]


def _threads(n: int) -> AbstractContextManager[Deal]:
    return dealing_threads(own_threads() if n >= _LEAST_ROWS_OF_TWO else 1)
