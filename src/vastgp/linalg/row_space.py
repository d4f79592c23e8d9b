"""Fewer rows than weights: what rows say of weights lies in the directions that the rows span."""

from __future__ import annotations

import numpy as np

from vastgp.linalg.threads import threads_of_products


def row_space(features: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return rows in an orthonormal basis of the directions that they span, and the basis.

    With ``Phi^T = Q R`` the rows are ``Phi = R^T Q^T``, and of ``w ~ N(0, s I)`` they see ``u = Q^T w ~ N(0, s I)``
    alone: n of p weights, at O(p n^2) where all of them took O(p^3).

    Parameters
    ----------
    features : ndarray of shape (n, p)
        ``Phi``.

    Returns
    -------
    within : ndarray of shape (n, min(n, p))
    basis : ndarray of shape (p, n) or None
        None where there are no fewer rows than weights: the rows are as they were.
    """
    n, p = features.shape
    if n >= p:
        return features, None
    with threads_of_products(features.T):
        basis, triangle = np.linalg.qr(features.T)
    return triangle.T, basis
