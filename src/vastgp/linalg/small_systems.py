"""Many small positive definite systems on the host: each by one thread of LAPACK, all cores beside each other.

XLA gives each matrix of a batch to LAPACK too, between two transpositions and a copy of it: factor and half a solution
took 0.62 ms of two cores for 256 rows and 3.3 for 512, here 0.2 and 1.0. SciPy's own functions hold Python's lock
while they work; its pointers to LAPACK do not.
"""

from __future__ import annotations

import ctypes

import numpy as np
from jaxtyping import Float

from vastgp.linalg.lapack_pointers import LOWER, PLAIN, integer, routine
from vastgp.linalg.threads import cores, dealing_threads

# Operations that are worth a thread.
_WORTH_A_THREAD = 2_000_000


def solve_each_on_host(
    K: Float[np.ndarray, "n h h"], right: Float[np.ndarray, "n h r"], *, half: bool = False
) -> Float[np.ndarray, "n h r"]:
    """Return ``K_i^-1 right_i`` of each matrix, NaN where one is not positive definite.

    Parameters
    ----------
    K : ndarray of shape (n, h, h)
        Symmetric.
    right : ndarray of shape (n, h, r)
        Some right sides of each.
    half : bool, default False
        Return ``L_i^-1 right_i`` with the lower factor of each ``K_i = L_i L_i^T``.
    """
    n, h, _ = right.shape
    # LAPACK has columns one after the other
    found = np.array(np.swapaxes(right, 1, 2), np.float64, order="C")
    threads = min(cores(), 1 + n * h**3 // (3 * _WORTH_A_THREAD))
    ends = np.linspace(0, n, threads + 1).astype(int)

    def work(part: int) -> None:
        _solve_some(K, found, range(ends[part], ends[part + 1]), half)

    with dealing_threads(threads) as deal:
        deal(work, range(threads))
    return np.swapaxes(found, 1, 2)


def _solve_some(K: np.ndarray, found: np.ndarray, which: range, half: bool) -> None:
    """Solve some of the systems in place, one after the other in one piece of memory that a core has near by."""
    _, sides, h = found.shape
    potrf, solve = routine("dpotrf", 5), routine("dtrtrs", 10) if half else routine("dpotrs", 8)
    factor, info = np.empty((h, h)), ctypes.c_int(0)
    size, columns = integer(h), integer(sides)
    to_factor, to_info = factor.ctypes.data, ctypes.byref(info)
    before = (LOWER, PLAIN, PLAIN) if half else (LOWER,)
    for i in which:
        factor[...] = K[i]
        potrf(LOWER, size, to_factor, size, to_info)
        # potrf lets NaN pass: the last pivot depends on every entry
        if info.value == 0 and np.isfinite(factor[-1, -1]):
            to_right = found[i].ctypes.data
            solve(*before, size, columns, to_factor, size, to_right, size, to_info)
        else:
            found[i] = np.nan
