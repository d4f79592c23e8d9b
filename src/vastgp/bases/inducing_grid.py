"""Where the points of an inducing grid lie."""

from __future__ import annotations

import numpy as np


def grid_axes(
    X: np.ndarray, grid_size: int, placement: str = "even", limits: np.ndarray | None = None
) -> list[np.ndarray]:
    """Return the inducing points of every input.

    Inputs with at most ``grid_size`` different values have these as points; a constant one has one point.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Some rows.
    grid_size : int
        Points of an axis, at least 2.
    placement : {"even", "k-means"}, default "even"
        Evenly spaced from the least to the largest value; or centres of clusters of the values, and both extremes.
    limits : ndarray of shape (2, d), optional
        Least and largest values, where they are known of more rows than these.
    """
    if placement not in ("even", "k-means"):
        raise ValueError(f"placement must be 'even' or 'k-means', received {placement!r}.")
    if grid_size < 2:
        raise ValueError(f"grid_size must be at least 2, received {grid_size}.")
    low, high = (X.min(axis=0), X.max(axis=0)) if limits is None else limits
    axes = []
    for column, least, most in zip(X.T, low, high, strict=True):
        distinct = np.unique(np.concatenate([column, [least, most]]))
        if len(distinct) <= grid_size:
            axes.append(distinct)
        elif placement == "even":
            axes.append(np.linspace(least, most, grid_size))
        else:
            axes.append(_cluster_centres(column, distinct, grid_size))
    return axes


def _cluster_centres(column: np.ndarray, distinct: np.ndarray, size: int) -> np.ndarray:
    """Return both extremes, and centres of clusters of the values between them."""
    extremes = distinct[[0, -1]]
    if size == 2:
        return extremes
    from sklearn.cluster import KMeans

    # quantiles as first centres: nothing is random
    start = np.quantile(distinct, (np.arange(size - 2) + 0.5) / (size - 2))
    found = KMeans(size - 2, init=start[:, None], n_init=1).fit(column[:, None])
    return np.unique(np.concatenate([extremes, found.cluster_centers_[:, 0]]))
