"""The means that the sites of rows ask for: one sparse system, by preconditioned conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_matrix

from vastgp.data import processes
from vastgp.fitting.clock import now
from vastgp.linalg.threads import one_blas_thread
from vastgp.methods.swsgp.patches import patch_inverse, patches_of
from vastgp.methods.swsgp.sparse_system import SparseSystem

# Iterations of conjugate gradients at most.
MOST_ITERATIONS = 1000
# Iterations with the diagonal as preconditioner: what they do not solve is worth making patches for.
_PLAIN = 80

Product = Callable[[np.ndarray], np.ndarray]


def solution(
    system: SparseSystem,
    beta: np.ndarray,
    right: np.ndarray,
    diagonal: np.ndarray,
    start: np.ndarray,
    tol: float,
    deadline: float,
) -> tuple[np.ndarray, float]:
    """Return the mean ``m`` of ``(A^T L A + Q) m = A^T r`` and its relative residual.

    Preconditioned with the diagonal, and with patches of neighbours from where that takes too long. Of several
    processes each multiplies by its own rows.

    Parameters
    ----------
    system : SparseSystem
    beta, right : ndarray of shape (n,)
        ``L`` and ``r`` of the rows.
    diagonal : ndarray of shape (M,)
        Of the matrix.
    start : ndarray of shape (M,)
        Where iterations begin.
    tol : float
        Relative residual at which they end.
    deadline : float
        Time of `now` at which they end.
    """
    A, transposed = system.A, system.A.T.tocsr()

    def product(m: np.ndarray) -> np.ndarray:
        return processes.added(transposed @ (beta * (A @ m))) + system.prior_product(m)

    b = processes.added(transposed @ right)
    norm = float(np.linalg.norm(b))
    if norm == 0.0:
        return np.zeros_like(b), 0.0
    least = tol * norm
    # its products have one thread, and sums of some thousand numbers are none for two: they would wait for each
    # other (14,000 inducing inputs, both cores of the machine at work: 60 s, of which 37 in such sums)
    with one_blas_thread():
        best, more = _iterated(product, b, start, lambda r: r / diagonal, least, _PLAIN, deadline)
        if more:
            inverse = _of_patches(system, A, beta)
            best, _ = _iterated(product, b, best, inverse, least, MOST_ITERATIONS, deadline)
    return best, float(np.linalg.norm(b - product(best))) / norm


def _of_patches(system: SparseSystem, A: csr_matrix, beta: np.ndarray) -> Product:
    root = system.prior_root()
    return patch_inverse(patches_of(system.points, root), A.tocsc(), beta, root)


def _iterated(
    product: Product,
    b: np.ndarray,
    start: np.ndarray,
    inverse: Product,
    least: float,
    most: int,
    deadline: float,
) -> tuple[np.ndarray, bool]:
    """Return what conjugate gradients find (Hestenes and Stiefel 1952), and whether more iterations may find better.

    SciPy's end where this process has its residual small enough; here several end where process 0 has.
    """
    x = start.copy()
    r = b - product(x) if x.any() else b.copy()
    p, before = np.zeros_like(b), 1.0
    for _ in range(most):
        if processes.agreed(np.linalg.norm(r) < least):
            return x, False
        z = inverse(r)
        now_ = float(r @ z)
        p = z + (now_ / before) * p
        before, Sp = now_, product(p)
        step = now_ / float(p @ Sp)
        x += step * p
        r -= step * Sp
        if np.isfinite(deadline) and now() > deadline:
            return x, False
    return x, True
