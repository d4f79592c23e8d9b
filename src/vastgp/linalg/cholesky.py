"""Cholesky factorisation of matrices of some thousand rows on the host, with a jitter that grows only when it must.

SciPy's LAPACK is used, not JAX's: on two cores potrf takes 0.6-0.85 of the time of ``jax.numpy.linalg.cholesky``
(n = 1000 to 4000, float64), and potri makes the inverse that gradients need in half the time of the two triangular
solves JAX offers instead (n = 1000: 21 ms for factor and inverse against 43 ms; n = 4000: 0.68 s against 1.8 s).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import lapack
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh
from threadpoolctl import ThreadpoolController

# Relative to the mean of the diagonal. In float64 the first is far below every noise level in use.
JITTERS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6)
# Up to this many rows one thread. Two are at most a third faster there (factor and inverse: n = 300: 1.8 ms against 1.4
# ms of one, n = 1000: 21 ms against 29 ms), and where other programs use the cores, as in a cross-validation, threads
# of OpenBLAS wait for each other by spinning (n = 300: 13 ms against 1.5 ms, n = 1000: 810 ms against 34 ms).
_MOST_ROWS_ON_ONE_THREAD = 1000


# A symmetric matrix, or what writes what stands on and above its diagonal.
ToFactorize = np.ndarray | Callable[[np.ndarray], None]


class FactorizationError(np.linalg.LinAlgError):
    """A covariance matrix could not be factorised; the message says what was tried and what to change."""


@contextmanager
def blas_threads(num_rows: int) -> Iterator[None]:
    """Use one BLAS thread inside the block when matrices are small, and as many as before otherwise."""
    if num_rows > _MOST_ROWS_ON_ONE_THREAD:
        yield
    else:
        with _LIMIT:
            yield


def threads_of_products(rows: np.ndarray) -> AbstractContextManager[None]:
    """Use one BLAS thread inside the block when products ``rows^T rows`` take no longer than those of small matrices.

    Parameters
    ----------
    rows : ndarray of shape (n, p)
    """
    n, p = rows.shape
    return blas_threads(round((float(n) * p * p) ** (1.0 / 3.0)))


@contextmanager
def one_blas_thread() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Use one BLAS thread inside the block, but as many as before in what the context manager given surrounds.

    For an optimiser of few numbers, whose own work is nothing: a step of L-BFGS over 7 of them took 2.4 ms of two busy
    cores.
    """
    with _LIMIT:
        yield _lifted


@contextmanager
def _lifted() -> Iterator[None]:
    _LIMIT.give()
    try:
        yield
    finally:
        _LIMIT.take()


def cores() -> int:
    """Return how many cores the process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


class _Limit:
    """One thread for all that ask for it, from the first of them to the last: the number is that of the process.

    Each on its own would find the other's one thread there and leave it behind: two fits in threads, of which the first
    ends before the second, left all later ones on one.
    """

    def __init__(self) -> None:
        self._lock, self._holders = threading.Lock(), 0
        self._limiter: Any = None

    def take(self) -> None:
        """Set one thread, if nobody has."""
        with self._lock:
            # asking is a tenth of the time of setting a limit and lifting it
            if self._holders == 0 and any(
                each.get_num_threads() != 1 for each in _blas().lib_controllers
            ):
                self._limiter = _blas().limit(limits=1, user_api="blas")
            self._holders += 1

    def give(self) -> None:
        """Set as many as before, if nobody else needs one."""
        with self._lock:
            self._holders -= 1
            if self._holders == 0 and self._limiter is not None:
                self._limiter.restore_original_limits()
                self._limiter = None

    def __enter__(self) -> None:
        self.take()

    def __exit__(self, *_: object) -> None:
        self.give()


_LIMIT = _Limit()


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


@dataclass(frozen=True)
class Cholesky:
    """Lower factor ``L`` of ``A = L L^T``.

    Attributes
    ----------
    lower : ndarray of shape (n, n)
        In Fortran order; what stands above the diagonal is not part of the factor and not zero.
    jitter : float
        What was added to the diagonal of the matrix, in its own units.
    """

    lower: np.ndarray
    jitter: float = 0.0
    # right-hand sides are the host's, see `vastgp.linalg.panels.GrowingFactor`
    on_device: ClassVar[bool] = False

    @property
    def log_determinant(self) -> float:
        """``log |A|``."""
        return 2.0 * float(np.sum(np.log(np.diagonal(self.lower))))

    def solve(self, right: np.ndarray) -> np.ndarray:
        """Return ``A^-1 right``."""
        with blas_threads(len(self.lower)):
            solution, info = lapack.dpotrs(self.lower, right, lower=1)
        _check(info, "potrs")
        return solution

    def half_solve(self, right: np.ndarray) -> np.ndarray:
        """Return ``L^-1 right``, whose squared column norms are ``diag(right^T A^-1 right)``."""
        with blas_threads(len(self.lower)):
            solution, info = lapack.dtrtrs(self.lower, right, lower=1)
        _check(info, "trtrs")
        return solution

    def inverse_diagonal(self) -> np.ndarray:
        """Return the diagonal of ``A^-1``: column norms of ``L^-1``, which is made for it."""
        with blas_threads(len(self.lower)):
            inverse, info = lapack.dtrtri(self.lower, lower=1)
        _check(info, "trtri")
        return np.array([column[i:] @ column[i:] for i, column in enumerate(inverse.T)])

    def into_inverse(self) -> np.ndarray:
        """Return ``A^-1`` in the lower triangle of the factor's own memory: the factor is used up."""
        with blas_threads(len(self.lower)):
            inverse, info = lapack.dpotri(self.lower, lower=1, overwrite_c=1)
        _check(info, "potri")
        return inverse

    def into_whole_inverse(self) -> np.ndarray:
        """Return ``A^-1`` with both its triangles; the factor is used up."""
        inverse = self.into_inverse()
        return np.tril(inverse) + np.tril(inverse, -1).T


def factorize(
    matrix: ToFactorize,
    added_diagonal: float | np.ndarray = 0.0,
    *,
    what: str = "the covariance matrix",
    advice: str = "Raise the noise, or remove rows that are almost the same.",
    jitters: Sequence[float] = JITTERS,
    work: np.ndarray | None = None,
) -> Cholesky:
    """Factorise ``matrix + diag(added_diagonal)``, adding jitter step by step if rounding makes it indefinite.

    Parameters
    ----------
    matrix : ndarray of shape (n, n), or callable
        Symmetric; left as it is. What is called with an array writes what stands on and above the diagonal into it: in
        the factor's own memory, which is then ``work``.
    added_diagonal : float or ndarray of shape (n,), default 0.0
        The noise variance, say.
    what, advice : str
        What the matrix is, and what to change when it fails: parts of the message.
    jitters : sequence of float
        What to try, relative to the mean of the diagonal.
    work : ndarray of shape (n, n) in Fortran order, optional
        Memory for the factor. At n = 1000 a fresh allocation costs more than the copy.

    Raises
    ------
    FactorizationError
        When the largest jitter is not enough, or the matrix holds NaN or infinity.
    """
    if callable(matrix):
        assert work is not None
        write = matrix
    else:
        work = np.empty(matrix.shape, order="F") if work is None else work
        whole = matrix

        def write(upper: np.ndarray) -> None:
            upper[...] = whole  # for a C-ordered matrix this is one run through memory

    lower, size, mean_diagonal = work, len(work), 0.0
    for relative in jitters:
        write(lower.T)
        if relative == jitters[0]:
            mean_diagonal = float(np.mean(np.diagonal(lower)) + np.min(added_diagonal))
            if not np.isfinite(mean_diagonal):
                raise FactorizationError(f"{what} holds NaN or infinity on its diagonal. {advice}")
        jitter = relative * mean_diagonal
        lower.reshape(-1, order="A")[:: size + 1] += added_diagonal + jitter
        with blas_threads(size):
            _, info = lapack.dpotrf(lower, lower=1, clean=0, overwrite_a=1)
        # potrf lets NaN pass: the last pivot depends on every entry
        if info == 0 and np.isfinite(lower[-1, -1]):
            return Cholesky(lower, jitter)
    write(lower.T)
    matrix = np.triu(lower.T) + np.triu(lower.T, 1).T
    if not np.all(np.isfinite(matrix)):
        raise FactorizationError(f"{what} ({size} x {size}) holds NaN or infinity. {advice}")
    raise FactorizationError(
        f"{what} ({size} x {size}) could not be factorised, with jitter up to {jitters[-1]:.0e} of its mean diagonal "
        f"({mean_diagonal:.3g}); estimated condition number {_condition(matrix, added_diagonal)}. {advice}"
    )


def _condition(matrix: np.ndarray, added_diagonal: float | np.ndarray) -> str:
    """Estimate the condition number from the two extreme eigenvalues by Lanczos iteration."""
    size = matrix.shape[0]
    if isinstance(added_diagonal, np.ndarray):
        matrix, added_diagonal = matrix + np.diag(added_diagonal), 0.0
    if size < 3:  # Lanczos needs three
        values = np.linalg.eigvalsh(matrix) + added_diagonal
        largest, smallest = float(values[-1]), float(values[0])
    else:
        try:
            largest = _top_eigenvalue(matrix) + added_diagonal
            # The smallest one is the top one of the matrix turned over.
            flipped = LinearOperator(
                matrix.shape, matvec=lambda v: largest * v - matrix @ v - added_diagonal * v
            )
            smallest = largest - _top_eigenvalue(flipped)
        except ArpackNoConvergence:
            return "unknown"
    resolution = np.finfo(np.float64).eps * size * largest
    if smallest <= resolution:
        return f"above {largest / resolution:.0e} (smallest eigenvalue {smallest:.1e}: zero or negative in float64)"
    return f"{largest / smallest:.1e}"


def _top_eigenvalue(operator: np.ndarray | LinearOperator) -> float:
    start = np.ones(operator.shape[0])  # else ARPACK draws an unseeded one
    value = eigsh(operator, k=1, which="LA", v0=start, tol=1e-3, return_eigenvectors=False)
    return float(value[0])


def _check(info: int, routine: str) -> None:
    if info != 0:
        raise FactorizationError(f"LAPACK {routine} failed with code {info}.")
