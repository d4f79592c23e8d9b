"""Eigenvalues and eigenvectors of symmetric matrices on the host."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

from vastgp.linalg.threads import blas_threads


def symmetric_eigen(
    matrix: np.ndarray, *, check_finite: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues in ascending order, and eigenvectors as columns.

    By divide and conquer, which takes a third of the time of SciPy's default at 1000 rows, and by as many threads as
    such matrices are worth: beside another program two took 11 s for one of 1000 rows.

    Parameters
    ----------
    matrix : ndarray of shape (n, n)
        Its lower triangle alone is read.
    check_finite : bool, default True
        Whether NaN and infinity are refused by a ValueError.
    """
    with blas_threads(len(matrix)):
        values, vectors = eigh(matrix, driver="evd", check_finite=check_finite)
    return values, vectors
