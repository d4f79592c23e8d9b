"""Cholesky factors of large matrices in panels of rows: half the memory, made from left to right, and never wasted.

The factor is made panel by panel, each a solution with the panels before: ``L_i = (L^-1 A_:i)^T``. When it is stopped
it is the factor of the leading rows, so that a budget ends it anywhere. A panel is made where the matrix was written,
and all but its diagonal block are products of matrices. On 10,240 rows in float32, two cores that others used as well,
it went at 62 GFLOP/s, LAPACK's ``spotrf`` in place, which needs twice the memory, at 55, a product of matrices at 101.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import get_blas_funcs, get_lapack_funcs

from vastgp.linalg.cholesky import FactorizationError
from vastgp.linalg.threads import one_blas_thread

# Rows of a panel: products of matrices with less in any direction lose some of their rate, and the diagonal blocks,
# which are half empty, are few.
PANEL_ROWS = 1024
# A pivot that rounding made negative is tried again with this much more on the diagonal block, in roundings of its
# largest entry, then with ten times that, and so on.
_FIRST_JITTER, _JITTERS = 100.0, 5

# ``write(rows, out)``: fill ``out`` of shape (rows.stop, rows.stop - rows.start) with these columns of the matrix.
Write = Callable[[slice, np.ndarray], None]
# ``go_on(done, itemsize)``: whether there is time for another part after ``done`` rows, with the bytes of a number.
GoOn = Callable[[int, int], bool]


@dataclass
class GrowingFactor:
    """What a factor ``L`` of ``A = L L^T`` that is made from its first rows on knows of itself, wherever it lies.

    Attributes
    ----------
    dtype : dtype
        Precision of the factor.
    largest : float
        Largest entry of the diagonal of ``A / unit^2``, whose rounding is the unit of jitter.
    unit : float
        What all that is kept is to be multiplied by.
    ends, jitters, log_pivots : list
        Of each part: the number of the row after its last, what was added to the diagonal of ``A / unit^2`` where
        rounding had made a pivot negative, and the sum of the logarithms of its pivots.
    most_jitter : float
        Most that may be added to the diagonal of ``A / unit^2``.
    spoilt : bool
        Whether the next rows need more than that, so that it ends before them.
    """

    dtype: np.dtype
    largest: float = 1.0
    unit: float = 1.0
    ends: list[int] = field(default_factory=list)
    jitters: list[float] = field(default_factory=list)
    log_pivots: list[float] = field(default_factory=list)
    most_jitter: float = np.inf
    spoilt: bool = False
    # whether right-hand sides that lie on an accelerator may stay there
    on_device: ClassVar[bool] = False

    @property
    def size(self) -> int:
        """Number of rows of the factor."""
        return self.ends[-1] if self.ends else 0

    @property
    def panel_rows(self) -> int:
        """Rows of a part, but of the last."""
        return self.ends[0]

    @property
    def jitter(self) -> float:
        """The most that was added to the diagonal of ``A``, in its own units."""
        return self.unit**2 * max(self.jitters, default=0.0)

    @property
    def log_determinant(self) -> float:
        """``log |A|``."""
        return 2.0 * (sum(self.log_pivots) + self.size * float(np.log(self.unit)))

    def scale(self, by: float) -> None:
        """Make this the factor of ``by^2 A``."""
        self.unit *= float(by)

    def half_solve(self, right: Any) -> Any:
        """Return ``L^-1 right``, in the precision of the factor."""
        raise NotImplementedError

    def solve(self, right: Any) -> Any:
        """Return ``A^-1 right``, in the precision of the factor."""
        raise NotImplementedError

    def half_product(self, right: Any) -> Any:
        """Return ``L right``."""
        raise NotImplementedError

    def inverse_diagonal(self) -> np.ndarray:
        """Return the diagonal of ``A^-1``, float64: ``n^3 / 3`` operations more, and memory for one part."""
        raise NotImplementedError

    def _tried_jitters(self) -> list[float]:
        """Return what is added to the diagonal of a part, one after the other, until its pivots are positive."""
        size = max(self.largest, float(np.finfo(self.dtype).tiny))
        first = _FIRST_JITTER * float(np.finfo(self.dtype).eps) * size
        tried = [0.0, *(first * 10.0**k for k in range(_JITTERS))]
        return [jitter for jitter in tried if jitter <= self.most_jitter]

    def _grow(self, size: int, rows: int, add: Callable[[int], None], go_on: GoOn | None) -> None:
        """Add parts of so many rows until it has ``size``, there is no time, or rows need more than `most_jitter`.

        ``add(end)`` makes the part up to a row. The first is made in any case, and its error is the caller's.
        """
        for start in range(self.size, size, rows):
            if start and go_on is not None and not go_on(start, self.dtype.itemsize):
                return
            try:
                add(min(start + rows, size))
            except FactorizationError:
                if not start or not np.isfinite(self.most_jitter):
                    raise
                self.spoilt = True
                return

    def _not_definite(self, first: int, end: int) -> FactorizationError:
        """Return the error for rows that no jitter was enough for."""
        return FactorizationError(
            f"rows {first} to {end} of the matrix are not positive definite in {self.dtype}, with up to "
            f"{self._tried_jitters()[-1]:.1e} added to their diagonal"
        )

    def _note(self, end: int, jitter: float, log_pivots: float) -> None:
        """Keep the numbers of the next part."""
        self.ends.append(end)
        self.jitters.append(jitter)
        self.log_pivots.append(log_pivots)


@dataclass
class PanelCholesky(GrowingFactor):
    """Lower factor ``L`` of ``A = L L^T``, the rows of ``L`` in panels of the host.

    Attributes
    ----------
    panels : sequence of ndarray that can be appended to
        Panel i is ``L[rows_i, :stop_i]^T / unit`` in C order; what stands below the diagonal of its last block is no
        part of the factor. Where they lie on a disk each is read when it is asked for, once in every pass.
    """

    panels: MutableSequence[np.ndarray] = field(default_factory=list)

    def half_solve(self, right: np.ndarray) -> np.ndarray:
        """Return ``L^-1 right``, in the precision of the factor."""
        work = self._half_solved(right)
        work /= self.unit
        return work

    def solve(self, right: np.ndarray) -> np.ndarray:
        """Return ``A^-1 right``, in the precision of the factor."""
        work = self._half_solved(right)
        self._backward(work.reshape(len(work), -1))
        work /= self.unit**2
        return work

    def half_product(self, right: np.ndarray) -> np.ndarray:
        """Return ``L right``, in the wider of the two precisions."""
        parts = []
        for panel in self.panels:
            stop, size = panel.shape
            here = slice(stop - size, stop)
            below = panel[: here.start].T @ right[: here.start]
            parts.append(below + np.tril(_corner(panel)) @ right[here])
        return self.unit * np.concatenate(parts)

    def inverse_diagonal(self) -> np.ndarray:
        """Return the diagonal of ``A^-1``, float64: ``n^3 / 3`` operations more, and memory for one panel.

        Column norms of ``L^-1``: ``[A^-1]_ii = |L^-1 e_i|^2``, whose first ``i - 1`` numbers are zero.
        """
        found = np.empty(self.size)
        for i, (start, stop) in enumerate(pairwise([0, *self.ends])):
            columns = np.zeros((self.size, stop - start), self.dtype)
            columns[start:stop] = np.eye(stop - start, dtype=self.dtype)
            for j in range(i, len(self.ends)):
                _forward(self.panels[j], columns, start)
            below = columns[start:]
            found[start:stop] = np.einsum("ij,ij->j", below, below, dtype=np.float64)
        return found / self.unit**2

    def append(self, panel: np.ndarray) -> None:
        """Add rows: ``panel`` holds their columns of the matrix down to the diagonal block, and is of ``L`` afterwards.

        Raises
        ------
        FactorizationError
            When no jitter that is tried makes the diagonal block positive definite.
        """
        before = self.size
        # L_i^T = L^-1 A_:i, and what is left of the diagonal block is L_ii L_ii^T
        for other in self.panels:
            _forward(other, panel)
        corner = panel[before:].T
        if before:
            (syrk,) = get_blas_funcs(("syrk",), (panel,))
            syrk(-1.0, panel[:before].T, 1.0, corner, lower=1, overwrite_c=1)
        (potrf,) = get_lapack_funcs(("potrf",), (panel,))
        for jitter in self._tried_jitters():
            # on one thread: two wait for each other where other programs use the cores, a second for 20 ms of work
            with one_blas_thread():
                lower, info = potrf(
                    corner + jitter * np.eye(len(corner), dtype=panel.dtype), lower=1
                )
            # potrf lets NaN pass: the last pivot depends on every entry
            if info == 0 and np.isfinite(lower[-1, -1]):
                break
        else:
            raise self._not_definite(before, before + len(corner))
        corner[...] = lower
        self.panels.append(panel)
        pivots = np.diagonal(lower).astype(np.float64)
        self._note(len(panel), jitter, float(np.sum(np.log(pivots))))

    def _half_solved(self, right: np.ndarray) -> np.ndarray:
        """Return ``unit L^-1 right``."""
        work = np.array(right, self.dtype, order="C")
        flat = work.reshape(len(work), -1)
        for panel in self.panels:
            _forward(panel, flat)
        return work

    def _backward(self, work: np.ndarray) -> None:
        """Replace ``work`` by ``unit L^-T work``."""
        for panel in reversed(self.panels):
            stop, size = panel.shape
            start = stop - size
            gemm, trsm = get_blas_funcs(("gemm", "trsm"), (panel,))
            here = work[start:stop].T
            trsm(1.0, _corner(panel), here, side=1, lower=1, overwrite_b=1)
            if start:
                # what the rows above still need of these
                gemm(-1.0, here, panel[:start].T, 1.0, work[:start].T, overwrite_c=1)


def bytes_of_factor(rows: int, itemsize: int, panel_rows: int = PANEL_ROWS) -> int:
    """Return the bytes of the panels of so many rows."""
    # panels of b rows: n (n + b) / 2 numbers, n^2 of less than a panel
    return itemsize * rows * (rows + min(rows, panel_rows)) // 2


def rows_of_bytes(room: float, itemsize: int, panel_rows: int = PANEL_ROWS) -> int:
    """Return the rows of the largest factor whose panels take no more bytes, at least one."""
    numbers = room / itemsize
    if numbers < panel_rows**2:
        return max(1, int(numbers**0.5))
    return int((2.0 * numbers + 0.25 * panel_rows**2) ** 0.5 - 0.5 * panel_rows)


def _corner(panel: np.ndarray) -> np.ndarray:
    """Return the diagonal block of a panel, lower and in Fortran order."""
    return panel[-panel.shape[1] :].T


def _forward(panel: np.ndarray, work: np.ndarray, first: int = 0) -> None:
    """Replace the rows of a panel in ``work``, solved up to there, by those of ``L^-1 work``.

    Rows before ``first`` are zero.
    """
    stop, size = panel.shape
    start = stop - size
    gemm, trsm = get_blas_funcs(("gemm", "trsm"), (panel,))
    here = work[start:stop].T
    if start > first:
        # x_i = L_ii^-1 (b_i - sum_{j < i} L_ij x_j), all transposed: BLAS counts columns first
        gemm(-1.0, work[first:start].T, panel[first:start].T, 1.0, here, trans_b=1, overwrite_c=1)
    trsm(1.0, _corner(panel), here, side=1, lower=1, trans_a=1, overwrite_b=1)


def factorize_panels(
    write: Write,
    size: int,
    dtype: str,
    *,
    largest: float = 1.0,
    panel_rows: int = PANEL_ROWS,
    go_on: GoOn | None = None,
    factor: PanelCholesky | None = None,
    most_jitter: float = np.inf,
) -> PanelCholesky:
    """Factorise a symmetric matrix that is written panel by panel, each once and where its factor stays.

    Parameters
    ----------
    write : callable
        Writes columns of the matrix, see `Write`.
    size : int
        Rows of the matrix.
    dtype : {"float32", "float64"}
    largest : float, default 1.0
        Largest entry of the diagonal, see `GrowingFactor`.
    panel_rows : int
        Rows of a panel; fewer are for tests.
    go_on : callable, optional
        Asked before each panel but the first, with the number of rows done and the bytes of a number; where it says no,
        the factor is that of these rows.
    factor : PanelCholesky, optional
        Of leading rows of the matrix, in panels of this size, where some are done: it goes on.
    most_jitter : float, optional
        See `GrowingFactor`: it ends before rows that need more, unless these are the first.

    Raises
    ------
    FactorizationError
        When the matrix is not positive definite by more than rounding.
    """
    made = PanelCholesky(np.dtype(dtype), largest) if factor is None else factor
    made.most_jitter = most_jitter

    def add(end: int) -> None:
        panel = np.empty((end, end - made.size), dtype)
        write(slice(made.size, end), panel)
        made.append(panel)

    made._grow(size, panel_rows, add, go_on)
    return made
